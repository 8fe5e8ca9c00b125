/* Where a pair of symbols stands in a word: eight places at a time with SSE2 or NEON, which every
 * processor of x86-64 or of 64-bit ARM has. */
#ifndef BPE_FIND_H
#define BPE_FIND_H
#include <stddef.h>
#include <stdint.h>

#include "native/cpu.h"

#define FIND_SLACK 9 /* symbols beyond the end of a word that find_narrow() may read */

static inline size_t find_wide(const uint32_t *symbols, size_t size, uint32_t a, uint32_t b) {
    for (size_t i = 0; i + 1 < size; i++)
        if (symbols[i] == a && symbols[i + 1] == b) return i;
    return size;
}

#ifdef BPE_X86
static inline size_t find_narrow(const uint16_t *symbols, size_t size, uint32_t a, uint32_t b) {
    const __m128i left = _mm_set1_epi16((short)a), right = _mm_set1_epi16((short)b);
    for (size_t i = 0; i + 1 < size; i += 8) {
        __m128i here = _mm_loadu_si128((const __m128i *)(symbols + i));
        __m128i next = _mm_loadu_si128((const __m128i *)(symbols + i + 1));
        unsigned found = _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi16(here, left), _mm_cmpeq_epi16(next, right)));
        if (size - 1 - i < 8) found &= (1u << (2 * (size - 1 - i))) - 1;
        if (found) return i + __builtin_ctz(found) / 2;
    }
    return size;
}
#elif defined(BPE_NEON)
static inline size_t find_narrow(const uint16_t *symbols, size_t size, uint32_t a, uint32_t b) {
    const uint16x8_t left = vdupq_n_u16((uint16_t)a), right = vdupq_n_u16((uint16_t)b);
    for (size_t i = 0; i + 1 < size; i += 8) {
        const uint16x8_t here = vceqq_u16(vld1q_u16(symbols + i), left);
        const uint16x8_t both = vandq_u16(here, vceqq_u16(vld1q_u16(symbols + i + 1), right));
        uint64_t found = vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(both)), 0); /* a byte for each place */
        if (size - 1 - i < 8) found &= (1ULL << (8 * (size - 1 - i))) - 1;
        if (found) return i + __builtin_ctzll(found) / 8;
    }
    return size;
}
#else
static inline size_t find_narrow(const uint16_t *symbols, size_t size, uint32_t a, uint32_t b) {
    for (size_t i = 0; i + 1 < size; i++)
        if (symbols[i] == a && symbols[i + 1] == b) return i;
    return size;
}
#endif
#endif
