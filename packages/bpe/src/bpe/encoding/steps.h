/* The merges of lanes that hold few symbols, eight lanes at a time: the vector twin of Ranks.step().
 *
 * A register holds what stands at one place of each of eight lanes: a symbol, or the key of joining it to the next one. Nothing is
 * linked: what comes after a merge moves up by one place. So a merge of all eight is a few instructions for each place, without a
 * branch that nobody could foretell, and its two questions, what the new symbol makes with its neighbours, are asked for eight
 * lanes at once. */
#ifndef BPE_STEPS_H
#define BPE_STEPS_H
#include "encoding/lanes.h"

/* Merge lanes to their end, those that hold few symbols; the others are named in `busy`. Returns how many those are. */
typedef size_t (*steps_function)(const MergeTables *tables, Lane *lanes, size_t count, Lane **busy);

#ifdef BPE_X86
enum {
    FEW = 8,      /* symbols that a group has places for, */
    SEVERAL = 16, /* or a wider one */
    GROUP = 8,    /* lanes */
    ENOUGH = 3    /* of them, for which this takes less time than one step after another */
};
/* Keys from here on say that there is no merge: NONE, less one for each place that it moved up, as the places in keys count down. */
#define NEVER 0xffffff00u
#define STEPS_INLINE static inline __attribute__((always_inline)) TARGET_AVX512

/* Rows to columns. */
STEPS_INLINE void transpose_avx512(__m256i *rows) {
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

/* The keys of pairs of symbols, the left ones at `place`, of the lanes that `asked` names; NONE where they do not merge. */
STEPS_INLINE __m256i keys_avx512(const MergeTables *tables, __mmask8 asked, __m256i left, __m256i right, __m256i place) {
    const __m128i merge_bits = _mm_cvtsi32_si128(tables->merge_bits);
    const __m512i mask = _mm512_set1_epi64((long long)tables->mask), one = _mm512_set1_epi64(1);
    const __m512i pair = _mm512_or_si512(_mm512_sll_epi64(_mm512_cvtepu32_epi64(left), _mm_cvtsi32_si128(tables->symbol_bits)),
                                         _mm512_cvtepu32_epi64(right));
    const __m512i hash = _mm512_mullo_epi64(pair, _mm512_set1_epi64((long long)HASH));
    const __m512i bit = _mm512_srl_epi64(hash, _mm_cvtsi32_si128(tables->filter_shift));
    const __m512i word = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), asked, _mm512_srli_epi64(bit, 6), tables->filter, 8);
    const __mmask8 likely = _mm512_test_epi64_mask(_mm512_srlv_epi64(word, _mm512_and_si512(bit, _mm512_set1_epi64(63))), one);
    __m512i slot = _mm512_srl_epi64(hash, _mm_cvtsi32_si128(tables->shift));
    __m512i entry = _mm512_mask_i64gather_epi64(_mm512_set1_epi64(-1), likely, slot, tables->pairs, 8);
    __mmask8 same = _mm512_mask_cmpeq_epi64_mask(likely, _mm512_srl_epi64(entry, merge_bits), pair);
    __mmask8 other = _mm512_mask_cmpneq_epi64_mask(likely & ~same, entry, _mm512_set1_epi64(-1));
    while (other) { /* as find() */
        slot = _mm512_and_si512(_mm512_add_epi64(slot, one), mask);
        entry = _mm512_mask_i64gather_epi64(entry, other, slot, tables->pairs, 8);
        same |= _mm512_mask_cmpeq_epi64_mask(other, _mm512_srl_epi64(entry, merge_bits), pair);
        other = _mm512_mask_cmpneq_epi64_mask(other & ~same, entry, _mm512_set1_epi64(-1));
    }
    const __m512i merge = _mm512_andnot_si512(_mm512_sll_epi64(_mm512_set1_epi64(-1), merge_bits), entry);
    const __m256i key = _mm256_or_si256(_mm512_cvtepi64_epi32(_mm512_slli_epi64(merge, 6)), place); /* 64 is SEARCHED */
    return _mm256_mask_mov_epi32(_mm256_set1_epi32(-1), same, key);
}

/* Merge a group of lanes that hold at most `places` symbols, FEW or SEVERAL. */
STEPS_INLINE void merge_group_avx512(const MergeTables *tables, Lane *const *group, size_t count, const int places) {
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
        if (i < count) sizes[i] = (uint32_t)__builtin_popcountll(group[i]->here);
    }
    for (int p = 0; p < places; p += GROUP) {
        transpose_avx512(symbols + p);
        transpose_avx512(keys + p);
    }
    __m256i size = _mm256_loadu_si256((const __m256i *)sizes);
    while (1) {
        __m256i best = keys[0];
#pragma GCC unroll 16
        for (int p = 1; p < places - 1; p++) best = _mm256_min_epu32(best, keys[p]);
        const __mmask8 alive = _mm256_cmplt_epu32_mask(best, _mm256_set1_epi32((int)NEVER));
        if (!alive) break;
        const __m256i merge = _mm256_srli_epi32(best, 6), at = _mm256_and_si256(best, _mm256_set1_epi32(SEARCHED - 1));
        __m256i made;
        if (tables->made == NULL) made = _mm256_add_epi32(merge, _mm256_set1_epi32((int)tables->first_made));
        else made = _mm256_mmask_i32gather_epi32(zero, alive, merge, (const int *)tables->made, 4);
        __mmask8 here[SEVERAL], after[SEVERAL]; /* the lanes that merge at a place, or before it */
        __m256i left = zero, right = zero;
        after[0] = 0;
        here[0] = _mm256_mask_cmpeq_epi32_mask(alive, at, zero);
#pragma GCC unroll 16
        for (int p = 1; p < places; p++) {
            here[p] = _mm256_mask_cmpeq_epi32_mask(alive, at, _mm256_set1_epi32(p));
            after[p] = after[p - 1] | here[p - 1];
            left = _mm256_mask_mov_epi32(left, here[p], symbols[p - 1]);
            if (p > 1) right = _mm256_mask_mov_epi32(right, here[p - 2], symbols[p]);
        }
        size = _mm256_mask_sub_epi32(size, alive, size, one);
        const __mmask8 has_left = alive & ~here[0];
        const __mmask8 has_right = _mm256_mask_cmplt_epu32_mask(alive, _mm256_add_epi32(at, one), size);
        const __m256i before = _mm256_sub_epi32(at, one);
        const __m256i left_key = keys_avx512(tables, has_left, left, made, before);
        const __m256i right_key = keys_avx512(tables, has_right, made, right, at);
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

TARGET_AVX512 static size_t steps_avx512(const MergeTables *tables, Lane *lanes, size_t count, Lane **busy) {
    Lane *few[LANES], *several[LANES];
    size_t few_count = 0, several_count = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        const int symbols = __builtin_popcountll(lanes[i].here);
        if (symbols <= FEW) few[few_count++] = &lanes[i];
        else if (symbols <= SEVERAL) several[several_count++] = &lanes[i];
        else busy[left++] = &lanes[i];
    }
    if (few_count < ENOUGH)
        while (few_count) busy[left++] = few[--few_count];
    if (several_count < ENOUGH)
        while (several_count) busy[left++] = several[--several_count];
    for (size_t i = 0; i < few_count; i += GROUP) merge_few_avx512(tables, few + i, few_count - i < GROUP ? few_count - i : GROUP);
    for (size_t i = 0; i < several_count; i += GROUP)
        merge_several_avx512(tables, several + i, several_count - i < GROUP ? several_count - i : GROUP);
    return left;
}

#endif

/* NULL where there is no vector version. */
static inline steps_function choose_steps(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return steps_avx512;
#endif
    return NULL;
}
#endif
