/* Sixty-four bytes of text to six words of sixty-four bits: which bytes are letters, digits, white space and so on.
 *
 * This is the only part of scanning that looks at bytes one by one, so it is the part with vector code: AVX2 where the
 * processor has it, asked once at run time, and a portable twin that answers the same for everyone else (and for the tests,
 * which hold the two equal). Bytes of 0x80 and above are only marked `high` here; decode_character() classifies those. */
#ifndef BPE_CLASSIFY_H
#define BPE_CLASSIFY_H
#include "_bytes.h"
#include "_unicode.h"

typedef struct {
    uint64_t letter, digit, space; /* \p{L}, \p{N}, \s among the ASCII bytes */
    uint64_t blank, apostrophe;    /* ' ' and '\'' themselves */
    uint64_t high;                 /* bytes from 0x80 */
} classes;

typedef void (*classify_function)(const uint8_t *text, classes *found);

static void classify_portable(const uint8_t *text, classes *found) {
    classes c = {0, 0, 0, 0, 0, 0};
    for (int i = 0; i < 64; i++) {
        uint8_t byte = text[i];
        uint64_t bit = 1ULL << i;
        c.letter |= (uint8_t)((byte | 0x20) - 'a') < 26 ? bit : 0;
        c.digit |= (uint8_t)(byte - '0') < 10 ? bit : 0;
        c.space |= (byte == ' ' || (uint8_t)(byte - 9) < 5) ? bit : 0;
        c.blank |= byte == ' ' ? bit : 0;
        c.apostrophe |= byte == '\'' ? bit : 0;
        c.high |= byte >= 0x80 ? bit : 0;
    }
    *found = c;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define BPE_HAS_AVX2 1

#define BELOW(value, bound) _mm256_cmpeq_epi8(_mm256_min_epu8(value, _mm256_set1_epi8((bound) - 1)), value)
#define BITS(mask) ((uint64_t)(uint32_t)_mm256_movemask_epi8(mask))

__attribute__((target("avx2"))) static void classify_avx2(const uint8_t *text, classes *found) {
    classes c = {0, 0, 0, 0, 0, 0};
    for (int half = 0; half < 2; half++) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(text + 32 * half));
        __m256i lower = _mm256_sub_epi8(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), _mm256_set1_epi8('a'));
        __m256i digit = _mm256_sub_epi8(bytes, _mm256_set1_epi8('0'));
        __m256i control = _mm256_sub_epi8(bytes, _mm256_set1_epi8(9));
        __m256i blank = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(' '));
        int shift = 32 * half;
        c.letter |= BITS(BELOW(lower, 26)) << shift;
        c.digit |= BITS(BELOW(digit, 10)) << shift;
        c.space |= BITS(_mm256_or_si256(BELOW(control, 5), blank)) << shift;
        c.blank |= BITS(blank) << shift;
        c.apostrophe |= BITS(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\''))) << shift;
        c.high |= BITS(bytes) << shift;
    }
    *found = c;
}
#endif

static inline int has_avx2(void) {
#ifdef BPE_HAS_AVX2
    return __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

static inline classify_function choose_classify(int portable) {
#ifdef BPE_HAS_AVX2
    if (!portable && has_avx2()) return classify_avx2;
#endif
    return classify_portable;
}

/* The character at text[0], a byte of 0x80 or more: its length in bytes, and its category (with WHITE_SPACE) in *category.
 * A byte that begins no well-formed UTF-8 sequence (Unicode 17, table 3-7) is a character of its own, one byte long and of
 * category Cs: what `bytes.decode("utf-8", "surrogateescape")` makes of it. */
static inline size_t decode_character(const uint8_t *text, size_t room, uint8_t *category) {
    uint32_t code, lead = text[0];
    size_t size;
    if (lead >= 0xc2 && lead <= 0xdf && room >= 2 && (text[1] & 0xc0) == 0x80) {
        code = (lead & 0x1f) << 6 | (text[1] & 0x3f);
        size = 2;
    } else if (lead >= 0xe0 && lead <= 0xef && room >= 3 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80) {
        code = (lead & 0x0f) << 12 | (uint32_t)(text[1] & 0x3f) << 6 | (text[2] & 0x3f);
        size = 3;
        if (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)) goto malformed;
    } else if (lead >= 0xf0 && lead <= 0xf4 && room >= 4 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
               (text[3] & 0xc0) == 0x80) {
        code = (lead & 0x07) << 18 | (uint32_t)(text[1] & 0x3f) << 12 | (uint32_t)(text[2] & 0x3f) << 6 | (text[3] & 0x3f);
        size = 4;
        if (code < 0x10000 || code > 0x10ffff) goto malformed;
    } else {
        goto malformed;
    }
    *category = unicode_stage2[(uint32_t)unicode_stage1[code >> 7] << 7 | (code & 127)];
    return size;
malformed:
    *category = CATEGORY_CS;
    return 1;
}
#endif
