/* Merging what lanes hold, to the end: always the pair of the lowest rank, and of equals the leftmost.
 *
 * Portable: one merge in a lane is one step, and lanes take steps in turn. A step makes a symbol, which has two new
 * neighbours; the entries of these two pairs are prefetched, and read when the lane's turn comes again:
 *
 *     lane 0   least key -> merge -> prefetch left, right  .  .  .  .  .  .  read them -> least key -> merge -> ...
 *     lane 1      .         least key -> merge -> prefetch left, right  .  .  .  .  .     read them -> ...
 *
 * AVX-512: eight lanes that hold few symbols take each step together, see merge_group_avx512(). */
#ifndef BPE_STEPS_H
#define BPE_STEPS_H
#include "encoding/lanes.h"
#include "encoding/lowest.h"
#include "native/bytes.h"

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
    const uint32_t at = place_of_key(best), made = made_by(tables, merge_of_key(best));
    uint64_t after = alive & (~(uint64_t)1 << at);
    const uint64_t before = alive & ~(~(uint64_t)0 << at);
    const uint32_t joined = (uint32_t)count_trailing_zeros(after); /* the symbol that is merged into the one at `at` */
    after &= after - 1;
    lane->symbols[at] = made;
    lane->keys[at] = lane->keys[joined] = NONE;
    lane->alive = alive & ~((uint64_t)1 << joined);
    lane->right.slot = lane->left.slot = tables->mask + 1;
    lane->right.at = lane->left.at = LANE_BYTES;
    if (after) start_lookup(tables, &lane->right, at, made, lane->symbols[count_trailing_zeros(after)]);
    if (before) {
        const uint32_t left = 63 - (uint32_t)count_leading_zeros(before);
        lane->keys[left] = NONE;
        start_lookup(tables, &lane->left, left, lane->symbols[left], made);
    }
    return 1;
}

/* Merges those lanes that vectors serve to their end; the others are named in `busy`. Returns how many these are. */
typedef size_t (*group_function)(const MergeTables *tables, Lane *lanes, size_t count, Lane **busy);

/* The functions of one SIMD level. */
typedef struct {
    fill_function fill;
    group_function groups; /* or NULL */
    lowest_function lowest;
} LaneFunctions;

/* Merge pieces of at most LANE_BYTES bytes, each in the lane of its number; each byte has to be a symbol.
 *
 * with_places: lane.alive and lane.begins are to say where in the text each symbol of the result begins. */
static void merge_lanes(const MergeTables *tables, const LaneFunctions *level, Lane *lanes, const Piece *pieces,
                        size_t count, int with_places) {
    Lane *busy[LANES];
    level->fill(tables, lanes, pieces, count);
    if (level->groups != NULL && !with_places) count = level->groups(tables, lanes, count, busy);
    else
        for (size_t i = 0; i < count; i++) busy[i] = &lanes[i];
    while (count)
        for (size_t i = 0; i < count;) {
            if (merge_step(tables, busy[i], level->lowest)) i++;
            else busy[i] = busy[--count];
        }
}

#ifdef BPE_X86
/* AVX-512: register p holds what stands at place p of each of eight lanes, a symbol or its key:
 *
 *                  lane 0   lane 1   lane 2   ...  lane 7
 *     symbols[0]     th       w        a             s
 *     symbols[1]     e        or       nd            un
 *     symbols[2]     re       ld       -             -
 *
 * Nothing is linked: what comes after a merge moves up by one place. So a merge in all eight lanes is a few
 * instructions for each place, without an unpredictable branch, and the two lookups that follow it are gathers for
 * eight lanes at once. */
enum {
    FEW = 8,      /* symbols that a group has places for, */
    SEVERAL = 16, /* or a wider one */
    GROUP = 8,    /* lanes */
    WORTH = 3     /* lanes for which this takes less time than one step after another */
};
/* A key that moves up by a place loses one, as its place does, and NONE with it: keys from here on say "no merge". */
#define NEVER 0xffffff00u
#define INLINE_AVX512 static inline __attribute__((always_inline)) TARGET_AVX512

/* Rows to columns. */
INLINE_AVX512 void transpose_avx512(__m256i *rows) {
    __m256i pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
}

/* The keys of pairs of symbols, the left ones at `place`, of the lanes that `asked` names; NONE where they do not
 * merge. */
INLINE_AVX512 __m256i look_up_avx512(const MergeTables *tables, __mmask8 asked, __m256i left, __m256i right,
                                     __m256i place) {
    const __m128i merge_bits = _mm_cvtsi32_si128(tables->merge_bits), shift = _mm_cvtsi32_si128(tables->shift);
    const __m128i symbol_bits = _mm_cvtsi32_si128(tables->symbol_bits);
    const __m128i filter_shift = _mm_cvtsi32_si128(tables->filter_shift);
    const __m512i mask = _mm512_set1_epi64((long long)tables->mask), one = _mm512_set1_epi64(1);
    const __m512i free = _mm512_set1_epi64(-1);
    const __m512i pair =
        _mm512_or_si512(_mm512_sll_epi64(_mm512_cvtepu32_epi64(left), symbol_bits), _mm512_cvtepu32_epi64(right));
    const __m512i hash = _mm512_mullo_epi64(pair, _mm512_set1_epi64((long long)PAIR_HASH));
    const __m512i bit = _mm512_srl_epi64(hash, filter_shift);
    const __m512i word =
        _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), asked, _mm512_srli_epi64(bit, 6), tables->filter, 8);
    const __mmask8 likely = _mm512_test_epi64_mask(_mm512_rorv_epi64(word, bit), one);
    __m512i slot = _mm512_srl_epi64(hash, shift);
    __m512i entry = _mm512_mask_i64gather_epi64(free, likely, slot, tables->pairs, 8);
    __mmask8 same = _mm512_mask_cmpeq_epi64_mask(likely, _mm512_srl_epi64(entry, merge_bits), pair);
    __mmask8 other = _mm512_mask_cmpneq_epi64_mask(likely & ~same, entry, free);
    while (other) { /* as find_merge() */
        slot = _mm512_and_si512(_mm512_add_epi64(slot, one), mask);
        entry = _mm512_mask_i64gather_epi64(entry, other, slot, tables->pairs, 8);
        same |= _mm512_mask_cmpeq_epi64_mask(other, _mm512_srl_epi64(entry, merge_bits), pair);
        other = _mm512_mask_cmpneq_epi64_mask(other & ~same, entry, free);
    }
    const __m512i merge = _mm512_andnot_si512(_mm512_sll_epi64(free, merge_bits), entry);
    const __m256i key = _mm256_or_si256(_mm512_cvtepi64_epi32(_mm512_slli_epi64(merge, 6)), place);
    return _mm256_mask_mov_epi32(_mm256_set1_epi32(-1), same, key);
}

/* Merge a group of lanes that hold at most `places` symbols, FEW or SEVERAL; a constant to the compiler. */
INLINE_AVX512 void merge_group_avx512(const MergeTables *tables, Lane *const *group, size_t count, const int places) {
    static const uint32_t never[SEVERAL] = {NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
                                            NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE};
    const __m256i one = _mm256_set1_epi32(1), zero = _mm256_setzero_si256();
    __m256i symbols[SEVERAL], keys[SEVERAL];
    uint32_t sizes[GROUP] = {0};
    for (size_t i = 0; i < GROUP; i++) {
        for (int p = 0; p < places; p += GROUP) {
            symbols[p + i] = _mm256_loadu_si256((const __m256i *)((i < count ? group[i]->symbols : never) + p));
            keys[p + i] = _mm256_loadu_si256((const __m256i *)((i < count ? group[i]->keys : never) + p));
        }
        if (i < count) sizes[i] = (uint32_t)_mm_popcnt_u64(group[i]->alive);
    }
    for (int p = 0; p < places; p += GROUP) {
        transpose_avx512(symbols + p);
        transpose_avx512(keys + p);
    }
    __m256i size = _mm256_loadu_si256((const __m256i *)sizes);
    while (1) {
        /* the next merge of each lane, and the symbol that it makes */
        __m256i best = keys[0], made;
#pragma GCC unroll 16
        for (int p = 1; p < places - 1; p++) best = _mm256_min_epu32(best, keys[p]);
        const __mmask8 busy = _mm256_cmplt_epu32_mask(best, _mm256_set1_epi32((int)NEVER));
        if (!busy) break;
        const __m256i merge = _mm256_srli_epi32(best, 6);
        const __m256i at = _mm256_and_si256(best, _mm256_set1_epi32(LANE_BYTES - 1));
        if (tables->made == NULL) made = _mm256_add_epi32(merge, _mm256_set1_epi32((int)tables->first_made));
        else made = _mm256_mmask_i32gather_epi32(zero, busy, merge, (const int *)tables->made, 4);

        /* its neighbours, and what they merge to */
        __mmask8 here[SEVERAL], after[SEVERAL]; /* the lanes that merge at a place, or before it */
        __m256i left = zero, right = zero;
        after[0] = 0;
        here[0] = _mm256_mask_cmpeq_epi32_mask(busy, at, zero);
#pragma GCC unroll 16
        for (int p = 1; p < places; p++) {
            here[p] = _mm256_mask_cmpeq_epi32_mask(busy, at, _mm256_set1_epi32(p));
            after[p] = after[p - 1] | here[p - 1];
            left = _mm256_mask_mov_epi32(left, here[p], symbols[p - 1]);
            if (p > 1) right = _mm256_mask_mov_epi32(right, here[p - 2], symbols[p]);
        }
        size = _mm256_mask_sub_epi32(size, busy, size, one);
        const __mmask8 has_left = busy & ~here[0];
        const __mmask8 has_right = _mm256_mask_cmplt_epu32_mask(busy, _mm256_add_epi32(at, one), size);
        const __m256i left_key = look_up_avx512(tables, has_left, left, made, _mm256_sub_epi32(at, one));
        const __m256i right_key = look_up_avx512(tables, has_right, made, right, at);

        /* what comes after it moves up by a place */
#pragma GCC unroll 16
        for (int p = 0; p < places; p++) {
            if (p + 1 < places) {
                symbols[p] = _mm256_mask_mov_epi32(symbols[p], after[p], symbols[p + 1]);
                keys[p] = _mm256_mask_sub_epi32(keys[p], after[p], keys[p + 1], one);
                keys[p] = _mm256_mask_mov_epi32(keys[p], here[p + 1], left_key);
            }
            symbols[p] = _mm256_mask_mov_epi32(symbols[p], here[p], made);
            keys[p] = _mm256_mask_mov_epi32(keys[p], here[p], right_key);
        }
    }
    for (int p = 0; p < places; p += GROUP) transpose_avx512(symbols + p);
    _mm256_storeu_si256((__m256i *)sizes, size);
    for (size_t i = 0; i < count; i++) {
        for (int p = 0; p < places; p += GROUP) _mm256_storeu_si256((__m256i *)(group[i]->symbols + p), symbols[p + i]);
        group[i]->count = sizes[i];
    }
}

TARGET_AVX512 static void merge_few_avx512(const MergeTables *tables, Lane *const *group, size_t count) {
    merge_group_avx512(tables, group, count, FEW);
}

TARGET_AVX512 static void merge_several_avx512(const MergeTables *tables, Lane *const *group, size_t count) {
    merge_group_avx512(tables, group, count, SEVERAL);
}

TARGET_AVX512 static size_t merge_groups_avx512(const MergeTables *tables, Lane *lanes, size_t count, Lane **busy) {
    Lane *few[LANES], *several[LANES];
    size_t few_count = 0, several_count = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t symbols = _mm_popcnt_u64(lanes[i].alive);
        if (symbols <= FEW) few[few_count++] = &lanes[i];
        else if (symbols <= SEVERAL) several[several_count++] = &lanes[i];
        else busy[left++] = &lanes[i];
    }
    if (few_count < WORTH)
        while (few_count) busy[left++] = few[--few_count];
    if (several_count < WORTH)
        while (several_count) busy[left++] = several[--several_count];
    for (size_t i = 0; i < few_count; i += GROUP)
        merge_few_avx512(tables, few + i, few_count - i < GROUP ? few_count - i : GROUP);
    for (size_t i = 0; i < several_count; i += GROUP)
        merge_several_avx512(tables, several + i, several_count - i < GROUP ? several_count - i : GROUP);
    return left;
}
#endif

static inline LaneFunctions choose_lane_functions(int level) {
    LaneFunctions found = {choose_fill(level), NULL, choose_lowest(level)};
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) found.groups = merge_groups_avx512;
#endif
    return found;
}
#endif
