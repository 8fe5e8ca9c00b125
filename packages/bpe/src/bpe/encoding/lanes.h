/* Lanes: up to LANES pretokens are merged side by side, one in each.
 *
 * A lane holds the symbols of one pretoken. Beside each symbol stands a key, which says what it merges to with the next
 * one. Here "the" is merge 7 and "re" merge 3, and the other pairs do not merge:
 *
 *     position     0        1        2        3                31                    6 5       0
 *     symbols      th       e        r        e         key    +----------------------+---------+
 *     keys         7, 0     NONE     3, 2     NONE             |        merge         |position |   NONE: all ones
 *                                                              +----------------------+---------+
 *
 * The number of a merge is its rank. So the least key of a lane names the merge to make next, the lowest rank and
 * of equals the leftmost: here 3, 2.
 *
 * Filling a lane takes three steps, each over all lanes before the next begins, so that loads wait side by side:
 *
 *     join       bytes to symbols, those joined that are joined at once    -> candidates: pairs of neighbouring symbols
 *     filter     a bit of the Bloom filter for each candidate              -> probes: those that may merge, a tenth
 *     probe      an entry of the table for each probe                      -> keys; retries: another pair stood there
 *
 * Which bytes join, which pairs pass the filter and which entry is the one wanted are all unpredictable. So none of
 * them is a branch: each result is written to the next free position, and the position moves on by one or by none.
 *
 * One merge in a lane is one step, and lanes take steps in turn, until none of their pairs merges. A step makes a
 * symbol, which has two new neighbours; the entries of these two pairs are prefetched, and read when the lane's turn
 * comes again:
 *
 *     lane 0   least key -> merge -> prefetch left, right  .  .  .  .  .  .  read them -> least key -> merge -> ...
 *     lane 1      .         least key -> merge -> prefetch left, right  .  .  .  .  .     read them -> ...
 */
#ifndef BPE_LANES_H
#define BPE_LANES_H
#include <string.h>

#include "encoding/merge_tables.h"
#include "native/bytes.h"
#include "native/cpu.h"

enum {
    LANE_BYTES = 64, /* that a lane has room for: one bit each in a word, and six bits of a key */
    LANES = 32,
    CANDIDATES = LANES * (LANE_BYTES + 1) + 8 /* at most, and stores beyond them */
};

typedef struct { /* bytes to be merged: at most LANE_BYTES of them in a lane */
    const uint8_t *text;
    size_t size;
} Piece;

typedef struct { /* of a pair whose entry is being prefetched */
    uint64_t pair;
    size_t slot; /* mask + 1, the entry that is always free, where there is no pair */
    uint32_t at; /* of the left symbol in the lane; LANE_BYTES, which nobody reads, where there is no pair */
} Lookup;

typedef struct {
    uint32_t keys[LANE_BYTES + 1];
    uint32_t symbols[LANE_BYTES + 1]; /* when the lane is merged, the first `count` are the result */
    uint8_t begins[LANE_BYTES];       /* the position in the text of each symbol that the lane began with */
    uint64_t alive;                   /* a bit for each of those symbols that was not merged into the one before it */
    Lookup left, right;               /* what the symbol made last merges to with its neighbours */
    size_t keys_count, count;         /* keys_count: a multiple of eight */
} Lane;

/* Pairs of neighbouring symbols of all lanes on their way through the three steps. */
typedef struct {
    uint64_t pairs[CANDIDATES];
    size_t slots[CANDIDATES];
    uint32_t positions[CANDIDATES]; /* lane * LANE_BYTES + position of the left symbol */
    uint32_t retries[CANDIDATES];   /* numbers of probes */
} Candidates;

static inline uint32_t key_of(uint32_t merge, uint32_t position) { return merge * LANE_BYTES | position; }
static inline uint32_t merge_of_key(uint32_t key) { return key / LANE_BYTES; }
static inline uint32_t position_of_key(uint32_t key) { return key % LANE_BYTES; }

static inline void start_lane(const MergeTables *tables, Lane *lane, size_t symbols) {
    lane->alive = ~0ULL >> (LANE_BYTES - symbols);
    lane->keys_count = (symbols + 7) & ~(size_t)7;
    lane->left.slot = lane->right.slot = tables->mask + 1;
    lane->left.at = lane->right.at = LANE_BYTES;
}

/* Join the bytes of a piece, and append its pairs to the candidates; returns how many there are then. */
static inline size_t join_bytes(const MergeTables *tables, Lane *lane, const Piece *piece, uint32_t lane_position,
                                Candidates *all, size_t n_candidates) {
    const uint8_t *text = piece->text;
    const size_t size = piece->size;
    const int in_order = tables->made == NULL;
    uint64_t words[LANE_BYTES + 4], joins_of[LANE_BYTES + 1]; /* words[i]: of the bytes at i - 1 and i */
    uint32_t second = 0, previous = 0;
    size_t symbols = 0;
    words[0] = NO_BYTE_PAIR;
    for (size_t at = 1; at < size; at++)
        words[at] = tables->byte_pairs[byte_pair_at(text[at - 1], text[at])] ^ NO_BYTE_PAIR;
    for (size_t at = size; at < size + 4; at++) words[at] = NO_BYTE_PAIR;
    for (size_t at = 0; at < size; at += 2) { /* two at a time: SSE2 has room for two */
        joins_of[at] = joins_at_once(words[at], words[at + 1], words[at + 2]);
        joins_of[at + 1] = joins_at_once(words[at + 1], words[at + 2], words[at + 3]);
    }
    for (size_t at = 0; at < size; at++) {
        const uint32_t joins = 0 - (uint32_t)joins_of[at]; /* all ones, or zero */
        const uint32_t merge = joining_merge(words[at + 1]) & joins;
        uint32_t symbol = tables->symbol_of_byte[text[at]];
        symbol ^= (symbol ^ (in_order ? tables->first_made + merge : tables->made[merge])) & joins;
        lane->symbols[symbols] = symbol;
        lane->begins[symbols] = (uint8_t)at;
        all->pairs[n_candidates] = pair_of(tables, previous, symbol);
        all->positions[n_candidates] = lane_position + (uint32_t)symbols - 1;
        n_candidates += (at > 0) & ~second;
        symbols += 1 & ~second; /* the second byte of two that join leaves no symbol */
        previous ^= (previous ^ symbol) & ~second;
        second = joins; /* pairs that join never overlap: each has the lower rank of the two */
    }
    start_lane(tables, lane, symbols);
    for (size_t at = 0; at < lane->keys_count; at += 8) memset(lane->keys + at, 0xff, 8 * sizeof(uint32_t));
    return n_candidates;
}

static inline size_t filter_candidates(const MergeTables *tables, Candidates *all, size_t n_candidates) {
    size_t n_probes = 0;
    for (size_t i = 0; i < n_candidates; i++) {
        const uint64_t pair = all->pairs[i];
        all->pairs[n_probes] = pair;
        all->positions[n_probes] = all->positions[i];
        n_probes += (size_t)may_merge(tables, pair, &all->slots[n_probes]);
    }
    return n_probes;
}

static inline size_t probe_pairs(const MergeTables *tables, Lane *lanes, Candidates *all, size_t n_probes) {
    size_t n_retries = 0;
    for (size_t i = 0; i < n_probes; i++) {
        const uint64_t entry = tables->pairs[all->slots[i]];
        const uint32_t other = pair_of_entry(tables, entry) != all->pairs[i], position = all->positions[i] % LANE_BYTES;
        lanes[all->positions[i] / LANE_BYTES].keys[position] =
            key_of(merge_of_entry(tables, entry), position) | (0 - other);
        all->retries[n_retries] = (uint32_t)i;
        n_retries += other & (entry != FREE);
    }
    return n_retries;
}

/* The few probes whose first slot held another pair. */
static inline void probe_further(const MergeTables *tables, Lane *lanes, const Candidates *all, size_t n_retries) {
    for (size_t n = 0; n < n_retries; n++) {
        const size_t i = all->retries[n];
        const uint32_t merge = find_merge(tables, all->pairs[i], (all->slots[i] + 1) & tables->mask);
        const uint32_t position = all->positions[i] % LANE_BYTES;
        if (merge != NONE) lanes[all->positions[i] / LANE_BYTES].keys[position] = key_of(merge, position);
    }
}

static void fill_lanes(const MergeTables *tables, Lane *lanes, const Piece *pieces, size_t count) {
    Candidates all;
    size_t n_candidates = 0, n_probes, n_retries;
    for (size_t i = 0; i < count; i++)
        n_candidates = join_bytes(tables, &lanes[i], &pieces[i], (uint32_t)(i * LANE_BYTES), &all, n_candidates);
    n_probes = filter_candidates(tables, &all, n_candidates);
    n_retries = probe_pairs(tables, lanes, &all, n_probes);
    probe_further(tables, lanes, &all, n_retries);
}

/* The least of `count` keys, a positive multiple of eight. */
typedef uint32_t (*lowest_function)(const uint32_t *keys, size_t count);

#define LOWEST(name, target)                                                                                 \
    target static uint32_t name(const uint32_t *keys, size_t count) {                                        \
        uint32_t best[8];                                                                                    \
        memcpy(best, keys, sizeof best);                                                                     \
        for (size_t i = 8; i < count; i += 8)                                                                \
            for (size_t k = 0; k < 8; k++) best[k] = keys[i + k] < best[k] ? keys[i + k] : best[k];          \
        for (size_t half = 4; half; half /= 2)                                                               \
            for (size_t k = 0; k < half; k++) best[k] = best[k + half] < best[k] ? best[k + half] : best[k]; \
        return best[0];                                                                                      \
    }

LOWEST(lowest_portable, ) /* NEON too: the compiler makes vectors of these loops */
#ifdef BPE_X86
LOWEST(lowest_avx2, TARGET_AVX2)
#endif

static inline lowest_function choose_lowest(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) return lowest_avx2;
#endif
    return lowest_portable;
}

/* Begin to look up what two symbols merge to, the left one at `at`. What the filter says is unpredictable, and so no
 * branch. */
static inline void start_lookup(const MergeTables *tables, Lookup *lookup, uint32_t at, uint64_t left, uint64_t right) {
    size_t slot;
    lookup->pair = pair_of(tables, left, right);
    lookup->at = at;
    lookup->slot = may_merge(tables, lookup->pair, &slot) ? slot : tables->mask + 1;
    prefetch(&tables->pairs[lookup->slot]);
}

/* The key of the pair that was looked up, or NONE. */
static inline uint32_t finish_lookup(const MergeTables *tables, const Lookup *lookup) {
    const uint64_t entry = tables->pairs[lookup->slot];
    if (pair_of_entry(tables, entry) != lookup->pair && entry != FREE) {
        const uint32_t merge = find_merge(tables, lookup->pair, lookup->slot);
        return merge == NONE ? NONE : key_of(merge, lookup->at);
    }
    return key_of(merge_of_entry(tables, entry), lookup->at) | (0 - (uint32_t)(entry == FREE));
}

/* One merge; returns 0 where there was none to do, and the lane's symbols are then moved together. */
static inline int merge_step(const MergeTables *tables, Lane *lane, lowest_function lowest) {
    const uint64_t alive = lane->alive;
    const uint32_t right_key = finish_lookup(tables, &lane->right), left_key = finish_lookup(tables, &lane->left);
    const uint32_t new_key = left_key < right_key ? left_key : right_key;
    uint32_t best = lowest(lane->keys, lane->keys_count); /* before the two are stored, which loads would wait for */
    best = new_key < best ? new_key : best;
    if (best == NONE) {
        lane->count = 0;
        for (uint64_t rest = alive; rest; rest &= rest - 1)
            lane->symbols[lane->count++] = lane->symbols[count_trailing_zeros(rest)];
        return 0;
    }
    lane->keys[lane->right.at] = right_key;
    lane->keys[lane->left.at] = left_key;
    const uint32_t at = position_of_key(best), product = made_by(tables, merge_of_key(best));
    uint64_t after = alive & (~(uint64_t)1 << at);
    const uint64_t before = alive & ~(~(uint64_t)0 << at);
    const uint32_t right_position =
        (uint32_t)count_trailing_zeros(after); /* its position in the lane; `at` is the left one */
    after &= after - 1;
    lane->symbols[at] = product;
    lane->keys[at] = lane->keys[right_position] = NONE;
    lane->alive = alive & ~((uint64_t)1 << right_position);
    lane->right.slot = lane->left.slot = tables->mask + 1;
    lane->right.at = lane->left.at = LANE_BYTES;
    if (after) start_lookup(tables, &lane->right, at, product, lane->symbols[count_trailing_zeros(after)]);
    if (before) {
        const uint32_t left = 63 - (uint32_t)count_leading_zeros(before);
        lane->keys[left] = NONE;
        start_lookup(tables, &lane->left, left, lane->symbols[left], product);
    }
    return 1;
}

/* Merge pieces of at most LANE_BYTES bytes, each in the lane of its number; each byte has to be a symbol. */
static void merge_lanes(const MergeTables *tables, lowest_function lowest, Lane *lanes, const Piece *pieces,
                        size_t count) {
    Lane *busy[LANES];
    fill_lanes(tables, lanes, pieces, count);
    for (size_t i = 0; i < count; i++) busy[i] = &lanes[i];
    while (count)
        for (size_t i = 0; i < count;) {
            if (merge_step(tables, busy[i], lowest)) i++;
            else busy[i] = busy[--count];
        }
}
#endif
