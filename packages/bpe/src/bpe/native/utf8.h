/* The code points of a str, which Python keeps as units of one, two or four bytes each, to UTF-8.
 *
 * AVX2 converts eight at a time, whatever they are: each makes up to four bytes in a lane of its own, and the bytes
 * that there are move together. With the portable version encoding a known str takes longer (Llama 3, on a Zen 5:
 * `python benchmarks/parts.py utf8 FILE`): 36% for Russian, 14% for Thai, 13% for Chinese.
 * A version for AVX-512, which converted sixteen at a time, gained another 1 to 4%: too little for its lines. */
#ifndef BPE_UTF8_H
#define BPE_UTF8_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "native/character.h"
#include "native/cpu.h"

#define UTF8_SLACK 64          /* bytes that may be written beyond the last */
#define UTF8_LONE ((size_t)-1) /* instead of a size: there is a surrogate, which has no UTF-8 */

/* The UTF-8 of units[0 .. count) at `to`, where there is room for four bytes a unit and UTF8_SLACK more; returns its
 * size. */
typedef size_t (*utf8_function)(const void *units, size_t count, uint8_t *to);

typedef uint8_t utf8_bytes __attribute__((vector_size(16)));
typedef uint16_t utf8_halves __attribute__((vector_size(32)));

/* A function for units of one type: ASCII by sixteens, other code points `step` at a time by convert(codes, to), which
 * returns the end of their UTF-8, or NULL where one is a surrogate. */
#define UTF8_CONVERT(name, target, unit, step, convert)                                                   \
    target static size_t name(const void *units, size_t count, uint8_t *to) {                             \
        const unit *from = units;                                                                         \
        uint8_t *const begin = to;                                                                        \
        uint32_t codes[step];                                                                             \
        for (; count >= 16; from += 16, count -= 16) {                                                    \
            uint64_t words[2 * sizeof(unit)], all = 0;                                                    \
            memcpy(words, from, sizeof words);                                                            \
            for (size_t i = 0; i < 2 * sizeof(unit); i++) all |= words[i];                                \
            if (!(all & ~(uint64_t)0 / (unit)~0 * (unit)~0x7f)) {                                         \
                unit all_units __attribute__((vector_size(sizeof words)));                                \
                memcpy(&all_units, from, sizeof words);                                                   \
                const utf8_bytes ascii =                                                                  \
                    __builtin_convertvector(__builtin_convertvector(all_units, utf8_halves), utf8_bytes); \
                memcpy(to, &ascii, 16);                                                                   \
                to += 16;                                                                                 \
                continue;                                                                                 \
            }                                                                                             \
            for (int i = 0; i < 16; i += step) {                                                          \
                for (int k = 0; k < step; k++) codes[k] = from[i + k];                                    \
                if (!(to = convert(codes, to))) return UTF8_LONE;                                         \
            }                                                                                             \
        }                                                                                                 \
        for (size_t i = 0; i < count; i += step) {                                                        \
            for (size_t k = 0; k < step; k++) codes[k] = i + k < count ? from[i + k] : 0;                 \
            if (!(to = convert(codes, to))) return UTF8_LONE;                                             \
        }                                                                                                 \
        return (size_t)(to - begin) - (step - count % step) % step; /* a zero makes one byte */           \
    }
#define UTF8_WIDTHS(name, target, step, convert)            \
    UTF8_CONVERT(name##_1, target, uint8_t, step, convert)  \
    UTF8_CONVERT(name##_2, target, uint16_t, step, convert) \
    UTF8_CONVERT(name##_4, target, uint32_t, step, convert)

static inline uint8_t *utf8_one(const uint32_t *code, uint8_t *to) {
    return (*code & ~0x7ffu) == 0xd800 ? NULL : encode_character(*code, to);
}

UTF8_WIDTHS(utf8_portable, , 1, utf8_one)

#if defined(BPE_X86) || defined(BPE_NEON)
/* Code points by vectors: each makes up to four bytes in a lane of its own, and a shuffle for each four lanes moves the
 * bytes together. Which shuffle, the sizes of the four code points say, two bits each. */
static uint8_t utf8_shuffles[256][16];
static uint8_t utf8_sizes[256];

static void fill_utf8_shuffles(void) {
    for (int sizes = 0; sizes < 256; sizes++) {
        int size = 0;
        for (int code = 0; code < 4; code++)
            for (int byte = 0; byte <= (sizes >> 2 * code & 3); byte++)
                utf8_shuffles[sizes][size++] = (uint8_t)(4 * code + byte);
        utf8_sizes[sizes] = (uint8_t)size;
        while (size < 16) utf8_shuffles[sizes][size++] = 0x80; /* a zero */
    }
}
#endif

#ifdef BPE_X86
/* AVX2: eight code points at a time, a shuffle for each half of the vector. */
TARGET_AVX2 static inline uint8_t *utf8_half(__m128i bytes, int sizes, uint8_t *to) {
    const __m128i shuffle = _mm_loadu_si128((const __m128i *)utf8_shuffles[sizes]);
    _mm_storeu_si128((__m128i *)to, _mm_shuffle_epi8(bytes, shuffle));
    return to + utf8_sizes[sizes];
}

TARGET_AVX2 static inline uint8_t *utf8_eight(const uint32_t *codes, uint8_t *to) {
    const __m256i code = _mm256_loadu_si256((const __m256i *)codes);
    const __m256i low = _mm256_set1_epi32(0x3f), more = _mm256_set1_epi32(0x80);
    const __m256i two = _mm256_cmpgt_epi32(code, _mm256_set1_epi32(0x7f));
    const __m256i three = _mm256_cmpgt_epi32(code, _mm256_set1_epi32(0x7ff));
    const __m256i four = _mm256_cmpgt_epi32(code, _mm256_set1_epi32(0xffff));
    const __m256i lone =
        _mm256_cmpeq_epi32(_mm256_and_si256(code, _mm256_set1_epi32(~0x7ff)), _mm256_set1_epi32(0xd800));
    if (_mm256_movemask_epi8(lone)) return NULL;
    /* the last bytes of a code point, 10xxxxxx each, beginning with its last */
    const __m256i last = _mm256_or_si256(_mm256_and_si256(code, low), more);
    const __m256i third = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(code, 6), low), more);
    const __m256i two_last = _mm256_or_si256(_mm256_slli_epi32(third, 8), _mm256_slli_epi32(last, 16));
    const __m256i of_two = _mm256_or_si256(_mm256_or_si256(_mm256_srli_epi32(code, 6), _mm256_set1_epi32(0xc0)),
                                           _mm256_slli_epi32(last, 8));
    const __m256i of_three =
        _mm256_or_si256(_mm256_or_si256(_mm256_srli_epi32(code, 12), _mm256_set1_epi32(0xe0)), two_last);
    __m256i bytes = _mm256_blendv_epi8(_mm256_blendv_epi8(code, of_two, two), of_three, three);
    if (_mm256_movemask_epi8(four)) {
        const __m256i second = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(code, 12), low), more);
        const __m256i of_four =
            _mm256_or_si256(_mm256_or_si256(_mm256_srli_epi32(code, 18), _mm256_set1_epi32(0xf0)),
                            _mm256_or_si256(_mm256_slli_epi32(second, 8), _mm256_slli_epi32(two_last, 8)));
        bytes = _mm256_blendv_epi8(bytes, of_four, four);
    }
    /* size - 1 as two bits: the low one in the top bit of a byte, the high one in the next byte's */
    const __m256i low_bit = _mm256_and_si256(_mm256_or_si256(_mm256_xor_si256(two, three), four), more);
    const __m256i bits = _mm256_or_si256(low_bit, _mm256_and_si256(three, _mm256_set1_epi32(-0x8000)));
    const unsigned sizes = (unsigned)_mm256_movemask_epi8(_mm256_packs_epi32(bits, bits));
    to = utf8_half(_mm256_castsi256_si128(bytes), sizes & 255, to);
    return utf8_half(_mm256_extracti128_si256(bytes, 1), sizes >> 16 & 255, to);
}

UTF8_WIDTHS(utf8_avx2, TARGET_AVX2, 8, utf8_eight)
#endif

#ifdef BPE_NEON
/* NEON: four code points at a time. */
static inline uint8_t *utf8_four(const uint32_t *codes, uint8_t *to) {
    static const int32_t shifts[4] = {0, 2, 4, 6};
    const uint32x4_t code = vld1q_u32(codes);
    const uint32x4_t low = vdupq_n_u32(0x3f), more = vdupq_n_u32(0x80);
    const uint32x4_t two = vcgtq_u32(code, vdupq_n_u32(0x7f)), three = vcgtq_u32(code, vdupq_n_u32(0x7ff));
    const uint32x4_t four = vcgtq_u32(code, vdupq_n_u32(0xffff));
    if (vmaxvq_u32(vceqq_u32(vandq_u32(code, vdupq_n_u32(~0x7ffu)), vdupq_n_u32(0xd800)))) return NULL;
    /* the last bytes of a code point, 10xxxxxx each, beginning with its last */
    const uint32x4_t last = vorrq_u32(vandq_u32(code, low), more);
    const uint32x4_t third = vorrq_u32(vandq_u32(vshrq_n_u32(code, 6), low), more);
    const uint32x4_t second = vorrq_u32(vandq_u32(vshrq_n_u32(code, 12), low), more);
    const uint32x4_t two_last = vsliq_n_u32(third, last, 8); /* the first of them in the low byte */
    const uint32x4_t three_last = vsliq_n_u32(second, two_last, 8);
    const uint32x4_t of_two = vsliq_n_u32(vorrq_u32(vshrq_n_u32(code, 6), vdupq_n_u32(0xc0)), last, 8);
    const uint32x4_t of_three = vsliq_n_u32(vorrq_u32(vshrq_n_u32(code, 12), vdupq_n_u32(0xe0)), two_last, 8);
    const uint32x4_t of_four = vsliq_n_u32(vorrq_u32(vshrq_n_u32(code, 18), vdupq_n_u32(0xf0)), three_last, 8);
    const uint32x4_t bytes = vbslq_u32(four, of_four, vbslq_u32(three, of_three, vbslq_u32(two, of_two, code)));
    const uint32x4_t fewer = vaddq_u32(vaddq_u32(two, three), four); /* 1 - size */
    const uint32_t sizes =
        vaddvq_u32(vshlq_u32(vreinterpretq_u32_s32(vnegq_s32(vreinterpretq_s32_u32(fewer))), vld1q_s32(shifts)));
    vst1q_u8(to, vqtbl1q_u8(vreinterpretq_u8_u32(bytes), vld1q_u8(utf8_shuffles[sizes])));
    return to + utf8_sizes[sizes];
}

UTF8_WIDTHS(utf8_neon, , 4, utf8_four)
#endif

static inline utf8_function choose_utf8(int width, int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) {
        if (utf8_sizes[0] == 0) fill_utf8_shuffles();
        return width == 1 ? utf8_avx2_1 : width == 2 ? utf8_avx2_2 : utf8_avx2_4;
    }
#endif
#ifdef BPE_NEON
    if (level >= LEVEL_NEON) {
        if (utf8_sizes[0] == 0) fill_utf8_shuffles();
        return width == 1 ? utf8_neon_1 : width == 2 ? utf8_neon_2 : utf8_neon_4;
    }
#endif
    return width == 1 ? utf8_portable_1 : width == 2 ? utf8_portable_2 : utf8_portable_4;
}
#endif
