/* The least of a few numbers: what merging one pretoken asks for at each step. */
#ifndef BPE_LOWEST_H
#define BPE_LOWEST_H
#include <stddef.h>
#include <stdint.h>

#include "native/cpu.h"

/* `count` is a positive multiple of eight. */
typedef uint32_t (*lowest_function)(const uint32_t *keys, size_t count);

static uint32_t lowest_portable(const uint32_t *keys, size_t count) {
    uint32_t best = keys[0];
    for (size_t i = 1; i < count; i++) best = keys[i] < best ? keys[i] : best;
    return best;
}

#ifdef BPE_X86
TARGET_AVX2 static uint32_t lowest_avx2(const uint32_t *keys, size_t count) {
    __m256i best = _mm256_loadu_si256((const __m256i *)keys);
    for (size_t i = 8; i < count; i += 8)
        best = _mm256_min_epu32(best, _mm256_loadu_si256((const __m256i *)(keys + i)));
    __m128i half = _mm_min_epu32(_mm256_castsi256_si128(best), _mm256_extracti128_si256(best, 1));
    half = _mm_min_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_min_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}
#endif

#ifdef BPE_NEON
static uint32_t lowest_neon(const uint32_t *keys, size_t count) {
    uint32x4_t best = vminq_u32(vld1q_u32(keys), vld1q_u32(keys + 4));
    for (size_t i = 8; i < count; i += 8)
        best = vminq_u32(best, vminq_u32(vld1q_u32(keys + i), vld1q_u32(keys + i + 4)));
    return vminvq_u32(best);
}
#endif

static inline lowest_function choose_lowest(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) return lowest_avx2;
#endif
#ifdef BPE_NEON
    if (level >= LEVEL_NEON) return lowest_neon;
#endif
    return lowest_portable;
}
#endif
