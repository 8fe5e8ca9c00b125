/* A pair of symbols replaced in many short words at a time, with AVX-512: the commonest step of training. Without
 * vectors it is a loop over a few symbols for each word, whose end is an unpredictable branch; that version is in
 * words.pxi. */
#ifndef BPE_REWRITE_H
#define BPE_REWRITE_H
#include <stddef.h>
#include <stdint.h>

#include "native/cpu.h"

enum {
    REWRITE_MOST = 32,  /* symbols of a short word */
    REWRITE_BATCH = 16, /* words */
    REWRITE_HEADER = 5  /* numbers that stand before the symbols of a word */
};

/* What became of a word: a bit for each place where the pair stood, and its symbols before, with their number. */
typedef struct {
    uint32_t found, size;
    uint16_t before[REWRITE_MOST];
} rewritten;

typedef struct {
    rewritten of[REWRITE_BATCH];
} rewritten_batch;

/* Replace `a`, `b` by `made`, left to right, in the words at places[:count]; what is left over at a word's end becomes
 * 0xffff. Longer words are left as they are. A place that stands twice stands side by side. At most REWRITE_BATCH
 * places. */
typedef void (*rewrite_function)(uint16_t *words, const uint32_t *places, size_t count, uint32_t a, uint32_t b,
                                 uint32_t made, rewritten_batch *all);

#ifdef BPE_X86
/* All words are read before any is written: the vector that takes in the end of a word takes in the begin of the next,
 * and to read what was just written by a part of a vector is to wait. */
TARGET_AVX512 static void rewrite_avx512(uint16_t *words, const uint32_t *places, size_t count, uint32_t a, uint32_t b,
                                         uint32_t made, rewritten_batch *batch) {
    rewritten *all = batch->of;
    const __m512i lefts = _mm512_set1_epi16((short)a), rights = _mm512_set1_epi16((short)b);
    const __m512i mades = _mm512_set1_epi16((short)made);
    for (size_t i = 0; i < count; i++) {
        const uint32_t size = words[places[i]];
        all[i].size = size;
        all[i].found = 0;
        if (size > REWRITE_MOST || (i && places[i] == places[i - 1])) continue;
        const __mmask32 whole = (__mmask32)(0xffffffffu >> (REWRITE_MOST - size));
        const __m512i word = _mm512_maskz_loadu_epi16(whole, words + places[i] + REWRITE_HEADER);
        const uint32_t left = _mm512_mask_cmpeq_epi16_mask(whole, word, lefts);
        const uint32_t right = _mm512_mask_cmpeq_epi16_mask(whole, word, rights);
        _mm512_storeu_si512(all[i].before, word);
        all[i].found = left & right >> 1;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t found = all[i].found;
        if (found == 0) continue;
        if (a == b) { /* in a run of them every other place */
            uint32_t rest = found;
            for (found = 0; rest; rest &= ~(3 * (rest & -rest))) found |= rest & -rest;
            all[i].found = found;
        }
        const __mmask32 whole = (__mmask32)(0xffffffffu >> (REWRITE_MOST - all[i].size)), kept = whole & ~(found << 1);
        const __m512i replaced = _mm512_mask_mov_epi16(_mm512_loadu_si512(all[i].before), found, mades);
        const __m512i joined = _mm512_mask_compress_epi16(_mm512_set1_epi16(-1), kept, replaced);
        _mm512_mask_storeu_epi16(words + places[i] + REWRITE_HEADER, whole, joined);
        words[places[i]] = (uint16_t)__builtin_popcount(kept);
    }
}

#endif

/* NULL where there is no vector version. */
static inline rewrite_function choose_rewrite(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return rewrite_avx512;
#endif
    return NULL;
}
#endif
