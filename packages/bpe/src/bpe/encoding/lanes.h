/* Lanes, in which up to LANES pretokens are merged side by side, and how they are filled.
 *
 * A lane holds the symbols of one pretoken. Beside each symbol stands a key, which says what it merges to with the next
 * one. Here "the" is merge 7 and "re" merge 3, and the other pairs do not merge:
 *
 *     place        0        1        2        3                31                    6 5       0
 *     symbols      th       e        r        e         key    +----------------------+---------+
 *     keys         7, 0     NONE     3, 2     NONE             |        merge         |  place  |   NONE: all ones
 *                                                              +----------------------+---------+
 *
 * The number of a merge is its rank. So the least key of a lane is that of the merge to make next, the lowest rank and
 * of equals the leftmost: here 3, 2.
 *
 * Filling a lane takes three steps, each over all lanes before the next begins, so that loads wait side by side:
 *
 *     join       bytes to symbols, those joined that are joined at once    -> candidates: pairs of neighbouring symbols
 *     filter     a bit of the Bloom filter for each candidate              -> probes: those that may merge, a tenth
 *     probe      an entry of the table for each probe                      -> keys; retries: another pair stood there
 *
 * Which bytes join, which pairs pass the filter and which entry is the one wanted are all unpredictable. So none of
 * them is a branch: each result is written to the next free place, and the place moves on by one or by none. */
#ifndef BPE_LANES_H
#define BPE_LANES_H
#include <string.h>

#include "encoding/merge_tables.h"
#include "native/cpu.h"

enum {
    LANE_BYTES = 64, /* that a lane has room for: one bit each in a word, and six bits of a key */
    LANES = 32,
    CANDIDATES = LANES * (LANE_BYTES + 1) + 8 /* the most, and what a vector may write beyond them */
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
    uint32_t keys[LANE_BYTES + 1];    /* first of all: fill_lanes_avx512() scatters into the keys of all lanes */
    uint32_t symbols[LANE_BYTES + 1]; /* when the lane is merged, the first `count` are the result */
    uint8_t begins[LANE_BYTES];       /* the place in the text of each symbol that the lane began with */
    uint64_t alive;                   /* a bit for each of those symbols that was not merged into the one before it */
    Lookup left, right;               /* what the symbol made last merges to with its neighbours */
    size_t keys_count, count;         /* keys_count: a multiple of eight */
} Lane;

/* Pairs of neighbouring symbols of all lanes on their way through the three steps. */
typedef struct {
    uint64_t pairs[CANDIDATES];
    size_t slots[CANDIDATES];
    uint32_t places[CANDIDATES];  /* lane * LANE_BYTES + place of the left symbol */
    uint32_t symbols[CANDIDATES]; /* of all lanes, one after another (used by the vector version) */
    uint32_t retries[CANDIDATES]; /* numbers of probes */
} Candidates;

typedef void (*fill_function)(const MergeTables *tables, Lane *lanes, const Piece *pieces, size_t count);

static inline uint32_t key_of(uint32_t merge, uint32_t place) { return merge * LANE_BYTES | place; }
static inline uint32_t merge_of_key(uint32_t key) { return key / LANE_BYTES; }
static inline uint32_t place_of_key(uint32_t key) { return key % LANE_BYTES; }

static inline void start_lane(const MergeTables *tables, Lane *lane, size_t symbols) {
    lane->alive = ~0ULL >> (LANE_BYTES - symbols);
    lane->keys_count = (symbols + 7) & ~(size_t)7;
    lane->left.slot = lane->right.slot = tables->mask + 1;
    lane->left.at = lane->right.at = LANE_BYTES;
}

/* Portable: join the bytes of a piece, and append its pairs to the candidates; returns how many there are then. */
static inline size_t join_bytes(const MergeTables *tables, Lane *lane, const Piece *piece, uint32_t lane_place,
                                Candidates *all, size_t n_candidates) {
    const uint8_t *text = piece->text;
    const size_t size = piece->size;
    const int in_order = tables->made == NULL;
    uint64_t words[LANE_BYTES + 4], joined[LANE_BYTES + 1]; /* words[i]: of the bytes at i - 1 and i */
    uint32_t second = 0, previous = 0;
    size_t symbols = 0;
    words[0] = NO_BYTE_PAIR;
    for (size_t at = 1; at < size; at++) words[at] = tables->byte_pairs[byte_pair_at(text[at - 1], text[at])];
    for (size_t at = size; at < size + 4; at++) words[at] = NO_BYTE_PAIR;
    for (size_t at = 0; at < size; at += 2) { /* two at a time: SSE2 has room for two */
        joined[at] = joins_at_once(words[at], words[at + 1], words[at + 2]);
        joined[at + 1] = joins_at_once(words[at + 1], words[at + 2], words[at + 3]);
    }
    for (size_t at = 0; at < size; at++) {
        const uint32_t joins = 0 - (uint32_t)joined[at]; /* all ones, or zero */
        const uint32_t merge = joining_merge(words[at + 1]) & joins;
        uint32_t symbol = tables->symbol_of_byte[text[at]];
        symbol ^= (symbol ^ (in_order ? tables->first_made + merge : tables->made[merge])) & joins;
        lane->symbols[symbols] = symbol;
        lane->begins[symbols] = (uint8_t)at;
        all->pairs[n_candidates] = pair_of(tables, previous, symbol);
        all->places[n_candidates] = lane_place + (uint32_t)symbols - 1;
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
        all->places[n_probes] = all->places[i];
        n_probes += (size_t)may_merge(tables, pair, &all->slots[n_probes]);
    }
    return n_probes;
}

static inline size_t probe_pairs(const MergeTables *tables, Lane *lanes, Candidates *all, size_t n_probes) {
    size_t n_retries = 0;
    for (size_t i = 0; i < n_probes; i++) {
        const uint64_t entry = tables->pairs[all->slots[i]];
        const uint32_t other = pair_of_entry(tables, entry) != all->pairs[i], place = all->places[i] % LANE_BYTES;
        lanes[all->places[i] / LANE_BYTES].keys[place] = key_of(merge_of_entry(tables, entry), place) | (0 - other);
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
        const uint32_t place = all->places[i] % LANE_BYTES;
        if (merge != NONE) lanes[all->places[i] / LANE_BYTES].keys[place] = key_of(merge, place);
    }
}

static void fill_lanes_portable(const MergeTables *tables, Lane *lanes, const Piece *pieces, size_t count) {
    Candidates all;
    size_t n_candidates = 0, n_probes, n_retries;
    for (size_t i = 0; i < count; i++)
        n_candidates = join_bytes(tables, &lanes[i], &pieces[i], (uint32_t)(i * LANE_BYTES), &all, n_candidates);
    n_probes = filter_candidates(tables, &all, n_candidates);
    n_retries = probe_pairs(tables, lanes, &all, n_probes);
    probe_further(tables, lanes, &all, n_retries);
}

#ifdef BPE_X86
/* AVX-512: the same three steps, eight bytes or pairs at a time. Together with steps.h and the wider scanner it
 * encodes a text of many languages for the first time in 13 to 40% less CPU time than the level avx2, English in 6 to
 * 10% less, and English that is known in 14% less (`python benchmarks/parts.py levels FILE`, on a Zen 5 and a Xeon). */

/* The words of eight bytes of a text, from number `at` on, each with the byte after it; the bytes themselves. */
TARGET_AVX512 static inline __m512i byte_pairs_avx512(const MergeTables *tables, const uint8_t *text, size_t size,
                                                      size_t at, __m128i *bytes) {
    if (at >= size) return _mm512_set1_epi64(NO_BYTE_PAIR);
    const uint64_t valid = ~0ULL >> (64 - (size - at < 9 ? size - at : 9));
    const __m128i here = _mm_maskz_loadu_epi8((__mmask16)valid, text + at); /* reads no byte beyond */
    const __m512i pair = _mm512_cvtepu16_epi64(_mm_unpacklo_epi8(here, _mm_bsrli_si128(here, 1)));
    *bytes = here;
    return _mm512_mask_i64gather_epi64(_mm512_set1_epi64(NO_BYTE_PAIR), (__mmask8)(valid >> 1), pair,
                                       tables->byte_pairs, 8);
}

/* Join the bytes of a piece; its symbols go to `flat` too, and their places to `places`. Returns how many there are;
 * up to seven more are written. */
TARGET_AVX512 static inline size_t join_bytes_avx512(const MergeTables *tables, Lane *lane, const Piece *piece,
                                                     uint32_t lane_place, uint32_t *flat, uint32_t *places) {
    const uint8_t *text = piece->text;
    const size_t size = piece->size;
    const __m512i mask = _mm512_set1_epi64(TAKES_NEVER);
    const __m256i eight = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    __m128i bytes, bytes_after = _mm_setzero_si128();
    __m512i before = _mm512_set1_epi64(NO_BYTE_PAIR), here = byte_pairs_avx512(tables, text, size, 0, &bytes), after;
    size_t symbols = 0;
    uint32_t second = 0; /* a bit for the first byte to come: it is joined to the one before */
    for (size_t at = 0; at < size; at += 8, before = here, here = after, bytes = bytes_after) {
        after = byte_pairs_avx512(tables, text, size, at + 8, &bytes_after);
        const __m512i rank = _mm512_srli_epi64(here, MERGE_AT + 2); /* from here on as joins_at_once() */
        const __m512i one_before = _mm512_alignr_epi64(here, before, 7),
                      one_after = _mm512_alignr_epi64(after, here, 1);
        const __m512i takes_second = _mm512_and_si512(_mm512_srli_epi64(one_before, TAKES_BITS), mask);
        const __m512i takes_first = _mm512_and_si512(one_after, mask);
        const __m512i lower =
            _mm512_and_si512(_mm512_sub_epi64(rank, takes_second), _mm512_sub_epi64(rank, takes_first));
        const __mmask8 joined = _mm512_movepi64_mask(_mm512_and_si512(lower, _mm512_slli_epi64(here, 63 - JOINS_AT)));
        const uint32_t valid = size - at < 8 ? (1u << (size - at)) - 1 : 0xff;
        const __mmask8 first = (__mmask8)(valid & ~((uint32_t)joined << 1 | second));
        const __m256i merge = _mm512_cvtepi64_epi32(_mm512_srli_epi64(here, MERGE_AT));
        const int *of_byte = (const int *)tables->symbol_of_byte;
        __m256i symbol = _mm256_i32gather_epi32(of_byte, _mm256_cvtepu8_epi32(bytes), 4);
        if (tables->made == NULL)
            symbol = _mm256_mask_add_epi32(symbol, joined, merge, _mm256_set1_epi32((int)tables->first_made));
        else symbol = _mm256_mmask_i32gather_epi32(symbol, joined, merge, (const int *)tables->made, 4);
        const __m256i number = _mm256_add_epi32(eight, _mm256_set1_epi32((int)at));
        const __m256i place = _mm256_add_epi32(eight, _mm256_set1_epi32((int)(lane_place + symbols)));
        const __m256i begins = _mm256_maskz_compress_epi32(first, number);
        symbol = _mm256_maskz_compress_epi32(first, symbol);
        _mm256_storeu_si256((__m256i *)(lane->symbols + symbols), symbol);
        _mm256_storeu_si256((__m256i *)(flat + symbols), symbol);
        _mm256_storeu_si256((__m256i *)(places + symbols), place);
        _mm_storel_epi64((__m128i *)(lane->begins + symbols), _mm256_cvtepi32_epi8(begins));
        _mm256_storeu_si256((__m256i *)(lane->keys + at), _mm256_set1_epi32(-1));
        symbols += (size_t)_mm_popcnt_u32(first);
        second = joined >> 7;
    }
    start_lane(tables, lane, symbols);
    return symbols;
}

/* Make pairs of the symbols of all lanes, and keep those that pass the filter; returns how many do. */
TARGET_AVX512 static inline size_t filter_candidates_avx512(const MergeTables *tables, Candidates *all,
                                                            size_t symbols) {
    const __m128i symbol_bits = _mm_cvtsi32_si128(tables->symbol_bits), shift = _mm_cvtsi32_si128(tables->shift);
    const __m128i filter_shift = _mm_cvtsi32_si128(tables->filter_shift);
    size_t n_probes = 0;
    for (size_t at = 0; at + 1 < symbols; at += 8) {
        const __mmask8 asked = (__mmask8)(symbols - 1 - at < 8 ? (1u << (symbols - 1 - at)) - 1 : 0xff);
        const __m256i left = _mm256_loadu_si256((const __m256i *)(all->symbols + at));
        const __m256i right = _mm256_loadu_si256((const __m256i *)(all->symbols + at + 1));
        const __m512i pair =
            _mm512_or_si512(_mm512_sll_epi64(_mm512_cvtepu32_epi64(left), symbol_bits), _mm512_cvtepu32_epi64(right));
        const __m512i hash = _mm512_mullo_epi64(pair, _mm512_set1_epi64((long long)PAIR_HASH));
        const __m512i bit = _mm512_srl_epi64(hash, filter_shift), slot = _mm512_srl_epi64(hash, shift);
        const __m512i word =
            _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), asked, _mm512_srli_epi64(bit, 6), tables->filter, 8);
        const __m512i turned = _mm512_rorv_epi64(word, bit); /* by the low six bits of it */
        const __mmask8 likely = _mm512_test_epi64_mask(turned, _mm512_set1_epi64(1));
        const __m256i place = _mm256_loadu_si256((const __m256i *)(all->places + at));
        _mm512_storeu_si512(all->pairs + n_probes, _mm512_maskz_compress_epi64(likely, pair));
        _mm512_storeu_si512(all->slots + n_probes, _mm512_maskz_compress_epi64(likely, slot));
        _mm256_storeu_si256((__m256i *)(all->places + n_probes), _mm256_maskz_compress_epi32(likely, place));
        n_probes += (size_t)_mm_popcnt_u32(likely);
    }
    return n_probes;
}

TARGET_AVX512 static inline size_t probe_pairs_avx512(const MergeTables *tables, Lane *lanes, Candidates *all,
                                                      size_t n_probes) {
    const __m128i merge_bits = _mm_cvtsi32_si128(tables->merge_bits);
    const __m512i merge_mask = _mm512_set1_epi64(((long long)1 << tables->merge_bits) - 1);
    const __m512i free = _mm512_set1_epi64(-1);
    const __m256i eight = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    size_t n_retries = 0;
    for (size_t at = 0; at < n_probes; at += 8) {
        const __mmask8 asked = (__mmask8)(n_probes - at < 8 ? (1u << (n_probes - at)) - 1 : 0xff);
        const __m512i slot = _mm512_loadu_si512(all->slots + at), pair = _mm512_loadu_si512(all->pairs + at);
        const __m512i entry = _mm512_mask_i64gather_epi64(free, asked, slot, tables->pairs, 8);
        const __mmask8 same = _mm512_mask_cmpeq_epi64_mask(asked, _mm512_srl_epi64(entry, merge_bits), pair);
        const __mmask8 other = _mm512_mask_cmpneq_epi64_mask((__mmask8)~same, entry, free);
        const __m256i merge = _mm512_cvtepi64_epi32(_mm512_and_si512(entry, merge_mask));
        const __m256i lane_place = _mm256_loadu_si256((const __m256i *)(all->places + at));
        const __m256i place = _mm256_and_si256(lane_place, _mm256_set1_epi32(LANE_BYTES - 1));
        const __m256i key = _mm256_or_si256(_mm256_slli_epi32(merge, 6), place);
        const __m256i words = _mm256_set1_epi32(sizeof(Lane) / sizeof(uint32_t)); /* from one lane to the next */
        const __m256i lane = _mm256_mullo_epi32(_mm256_srli_epi32(lane_place, 6), words);
        const __m256i number = _mm256_add_epi32(eight, _mm256_set1_epi32((int)at));
        _mm256_mask_i32scatter_epi32(lanes->keys, same, _mm256_add_epi32(lane, place), key, 4);
        _mm256_storeu_si256((__m256i *)(all->retries + n_retries), _mm256_maskz_compress_epi32(other, number));
        n_retries += (size_t)_mm_popcnt_u32(other);
    }
    return n_retries;
}

TARGET_AVX512 static void fill_lanes_avx512(const MergeTables *tables, Lane *lanes, const Piece *pieces, size_t count) {
    Candidates all;
    const uint32_t no_symbol = (1u << tables->symbol_bits) - 1; /* stands between two lanes, and merges with nothing */
    size_t symbols = 0, n_probes, n_retries;
    for (size_t i = 0; i < count; i++) {
        symbols += join_bytes_avx512(tables, &lanes[i], &pieces[i], (uint32_t)(i * LANE_BYTES), all.symbols + symbols,
                                     all.places + symbols);
        all.symbols[symbols] = no_symbol;
        all.places[symbols] = all.places[symbols - 1]; /* any place there is */
        symbols++;
    }
    n_probes = filter_candidates_avx512(tables, &all, symbols);
    n_retries = probe_pairs_avx512(tables, lanes, &all, n_probes);
    probe_further(tables, lanes, &all, n_retries);
}
#endif

static inline fill_function choose_fill(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return fill_lanes_avx512;
#endif
    return fill_lanes_portable;
}
#endif
