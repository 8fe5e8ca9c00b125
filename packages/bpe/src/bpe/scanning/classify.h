/* Sixty-four bytes of text to words of sixty-four bits: which bytes are letters, digits, white space and so on.
 *
 *     text        I t ' s   2 a m .
 *     letter      1 1 0 1 0 0 1 1 0      (bit 0 of the word on the left)
 *     digit       0 0 0 0 0 1 0 0 0
 *     space       0 0 0 0 1 0 0 0 0
 *     apostrophe  0 0 1 0 0 0 0 0 0
 *
 * This is the only part of scanning that looks at every byte, so it is the part with vector code. Bytes from 0x80 on
 * are only marked `high` here; characters.h does the rest. */
#ifndef BPE_CLASSIFY_H
#define BPE_CLASSIFY_H
#include "native/bytes.h"
#include "native/cpu.h"

/* Numbers of the masks. The first eight are the classes of characters, so that a class fits in the bits of CLASS. */
enum {
    LETTER,
    UPPER,
    LOWER,
    MARK,
    DIGIT,
    SPACE,
    PUNCTUATION,
    OTHER,
    BLANK,
    LINE,
    APOSTROPHE,
    SLASH,
    HIGH,
    CONTINUATION,
    INSIDE,
    HAN,
    MASKS,
    CLASS = 7
};

/* The masks of 64 consecutive bytes, by name or by number. */
typedef union {
    struct {
        /* The classes. A character has one, and all its bytes have it. Which of them a family of patterns
         * uses, and for what, class_of() says. Only characters beyond ASCII are ever marked `mark` or `other`. */
        uint64_t letter, upper, lower, mark, digit, space, punctuation, other;
        uint64_t blank, line, apostrophe, slash; /* ' ', '\r' or '\n', '\'' and '/' themselves */
        uint64_t high, continuation;             /* bytes from 0x80; bytes from 0x80 to 0xbf */
        uint64_t inside;                         /* bytes of a well-formed character other than its first */
        uint64_t han;                            /* bytes of what deepseek-v3 splits off as Chinese and Japanese */
    };
    uint64_t of[MASKS];
} word_masks;

/* Patterns that want the same classes of characters, and the masks that they want. */
enum { FAMILY_GPT2, FAMILY_CL100K, FAMILY_MARKS, FAMILY_O200K, FAMILY_DEEPSEEK, FAMILIES };

#define BIT(mask) (1 << (mask))
#define COMMON (BIT(DIGIT) | BIT(SPACE) | BIT(BLANK))
enum {
    WANTS_GPT2 = COMMON | BIT(LETTER) | BIT(APOSTROPHE),
    WANTS_CL100K = WANTS_GPT2 | BIT(LINE),
    WANTS_O200K = COMMON | BIT(UPPER) | BIT(LOWER) | BIT(LINE) | BIT(APOSTROPHE) | BIT(SLASH),
    WANTS_DEEPSEEK = COMMON | BIT(LETTER) | BIT(LINE) | BIT(PUNCTUATION)
};
static const int family_wants[FAMILIES] = {WANTS_GPT2, WANTS_CL100K, WANTS_CL100K, WANTS_O200K, WANTS_DEEPSEEK};

typedef void (*classify_function)(const uint8_t *text, word_masks *masks);

/* The functions of a level, made of one whose last argument is a constant to the compiler, and an array of them. */
#define FAMILY_VERSION(level, target, name)                                                \
    target static void classify_##level##_##name(const uint8_t *text, word_masks *masks) { \
        classify_##level(text, masks, FAMILY_##name, WANTS_##name);                        \
    }
#define FAMILY_VERSIONS(level, target)                                                                           \
    FAMILY_VERSION(level, target, GPT2)                                                                          \
    FAMILY_VERSION(level, target, CL100K)                                                                        \
    FAMILY_VERSION(level, target, O200K)                                                                         \
    FAMILY_VERSION(level, target, DEEPSEEK)                                                                      \
    static const classify_function classify_##level##_of[FAMILIES] = {                                           \
        classify_##level##_GPT2, classify_##level##_CL100K, classify_##level##_CL100K, classify_##level##_O200K, \
        classify_##level##_DEEPSEEK};

/* Portable: a table gives the masks of a byte as the bits of one byte. Eight of them are a matrix of 8 x 8 bits,
 * which, transposed, is eight bits of each mask. No family wants more than eight masks. */
static uint8_t byte_masks[FAMILIES][256];

static inline int in_mask(int mask, int byte) {
    switch (mask) {
        case LETTER: return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
        case UPPER: return byte >= 'A' && byte <= 'Z';
        case LOWER: return byte >= 'a' && byte <= 'z';
        case DIGIT: return byte >= '0' && byte <= '9';
        case SPACE: return byte == ' ' || (byte >= 9 && byte <= 13);
        case PUNCTUATION: return byte > ' ' && byte < 127 && !in_mask(LETTER, byte) && !in_mask(DIGIT, byte);
        case BLANK: return byte == ' ';
        case LINE: return byte == '\n' || byte == '\r';
        case APOSTROPHE: return byte == '\'';
        case SLASH: return byte == '/';
        default: return 0;
    }
}

static inline void fill_byte_masks(void) {
    for (int family = 0; family < FAMILIES; family++)
        for (int byte = 0; byte < 256; byte++)
            for (int mask = 0, bit = 0; mask < MASKS; mask++)
                if (family_wants[family] >> mask & 1) byte_masks[family][byte] |= in_mask(mask, byte) << bit++;
}

static inline uint64_t transpose_bits(uint64_t x) { /* Warren, Hacker's Delight, section 7-3 */
    uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
    return x ^ t ^ (t << 28);
}

static inline uint64_t top_bits(uint64_t x) { return ((x & 0x8080808080808080ULL) >> 7) * 0x0102040810204080ULL >> 56; }

static inline void classify_portable(const uint8_t *text, word_masks *masks, int family, int wants) {
    memset(masks, 0, sizeof *masks);
    for (int group = 0; group < 64; group += 8) {
        uint64_t bytes = 0, rows = 0;
        for (int i = 0; i < 8; i++) {
            bytes |= (uint64_t)text[group + i] << (8 * i);
            rows |= (uint64_t)byte_masks[family][text[group + i]] << (8 * i);
        }
        rows = transpose_bits(rows);
        for (int mask = 0, bit = 0; mask < MASKS; mask++)
            if (wants >> mask & 1) masks->of[mask] |= (rows >> (8 * bit++) & 255) << group;
        masks->high |= top_bits(bytes) << group;
        masks->continuation |= top_bits(bytes & ~(bytes << 1)) << group;
    }
}

FAMILY_VERSIONS(portable, )

/* By vectors, each level with four operations on the 64 bytes: load_, with_bit_, equal_ and between_.
 * Masks that are not wanted are left out. */
#define CLASSIFY(level, target, vector)                                                                               \
    target static inline __attribute__((always_inline)) void classify_##level(const uint8_t *text, word_masks *masks, \
                                                                              int family, int wants) {                \
        (void)family;                                                                                                 \
        const vector bytes = load_##level(text);                                                                      \
        const uint64_t letter = between_##level(with_bit_##level(bytes, 0x20), 'a', 26);                              \
        const uint64_t upper = between_##level(bytes, 'A', 26), digit = between_##level(bytes, '0', 10);              \
        const uint64_t blank = equal_##level(bytes, ' '), high = between_##level(bytes, 0x80, 0x80);                  \
        memset(masks, 0, sizeof *masks);                                                                              \
        if (wants & BIT(LETTER)) masks->letter = letter;                                                              \
        if (wants & BIT(UPPER)) masks->upper = upper;                                                                 \
        if (wants & BIT(LOWER)) masks->lower = letter & ~upper;                                                       \
        if (wants & BIT(DIGIT)) masks->digit = digit;                                                                 \
        if (wants & BIT(SPACE)) masks->space = between_##level(bytes, 9, 5) | blank;                                  \
        if (wants & BIT(PUNCTUATION)) masks->punctuation = between_##level(bytes, '!', 94) & ~(letter | digit);       \
        if (wants & BIT(BLANK)) masks->blank = blank;                                                                 \
        if (wants & BIT(LINE)) masks->line = equal_##level(bytes, '\n') | equal_##level(bytes, '\r');                 \
        if (wants & BIT(APOSTROPHE)) masks->apostrophe = equal_##level(bytes, '\'');                                  \
        if (wants & BIT(SLASH)) masks->slash = equal_##level(bytes, '/');                                             \
        masks->high = high;                                                                                           \
        if (high) masks->continuation = between_##level(bytes, 0x80, 0x40);                                           \
    }

#ifdef BPE_X86
/* AVX2: two vectors of 32 bytes. */
typedef struct {
    __m256i low, high;
} bytes_avx2;

TARGET_AVX2 static inline bytes_avx2 load_avx2(const uint8_t *text) {
    return (bytes_avx2){_mm256_loadu_si256((const __m256i *)text), _mm256_loadu_si256((const __m256i *)(text + 32))};
}

TARGET_AVX2 static inline bytes_avx2 with_bit_avx2(bytes_avx2 bytes, uint8_t bit) {
    const __m256i all = _mm256_set1_epi8((char)bit);
    return (bytes_avx2){_mm256_or_si256(bytes.low, all), _mm256_or_si256(bytes.high, all)};
}

TARGET_AVX2 static inline uint64_t equal_avx2(bytes_avx2 bytes, uint8_t byte) {
    const __m256i all = _mm256_set1_epi8((char)byte);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes.low, all)) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes.high, all)) << 32;
}

TARGET_AVX2 static inline uint64_t between_avx2(bytes_avx2 bytes, uint8_t first, uint8_t count) {
    const __m256i begin = _mm256_set1_epi8((char)first), last = _mm256_set1_epi8((char)(count - 1));
    const __m256i low = _mm256_sub_epi8(bytes.low, begin), high = _mm256_sub_epi8(bytes.high, begin);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(low, last), low)) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(high, last), high)) << 32;
}

CLASSIFY(avx2, TARGET_AVX2, bytes_avx2)
FAMILY_VERSIONS(avx2, TARGET_AVX2)

/* AVX-512: one vector, of which a comparison gives a mask at once. */
#define load_avx512(text) _mm512_loadu_si512(text)
#define with_bit_avx512(bytes, bit) _mm512_or_si512(bytes, _mm512_set1_epi8(bit))
#define equal_avx512(bytes, byte) _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte))
#define between_avx512(bytes, first, count) \
    _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8((char)(first))), _mm512_set1_epi8((char)(count)))

CLASSIFY(avx512, TARGET_AVX512, __m512i)
FAMILY_VERSIONS(avx512, TARGET_AVX512)

#elif defined(BPE_NEON)
/* NEON: four vectors of sixteen: the first has bytes 0, 4, 8 and so on, the second bytes 1, 5, 9. Then a mask, which
 * NEON has no instruction for, comes together in six: the top bits of four vectors become four bits of one vector's
 * bytes, in order, and these nibbles are joined by a narrowing shift. */
static inline uint64_t mask_neon(uint8x16x4_t tops) {
    const uint8x16_t twos = vsriq_n_u8(tops.val[1], tops.val[0], 1), others = vsriq_n_u8(tops.val[3], tops.val[2], 1);
    const uint8x16_t fours = vsriq_n_u8(others, twos, 2);
    const uint16x8_t eights = vreinterpretq_u16_u8(vsriq_n_u8(fours, fours, 4));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(eights, 4)), 0);
}

#define load_neon(text) vld4q_u8(text)
static inline uint8x16x4_t with_bit_neon(uint8x16x4_t bytes, uint8_t bit) {
    for (int i = 0; i < 4; i++) bytes.val[i] = vorrq_u8(bytes.val[i], vdupq_n_u8(bit));
    return bytes;
}

static inline uint64_t equal_neon(uint8x16x4_t bytes, uint8_t byte) {
    for (int i = 0; i < 4; i++) bytes.val[i] = vceqq_u8(bytes.val[i], vdupq_n_u8(byte));
    return mask_neon(bytes);
}

static inline uint64_t between_neon(uint8x16x4_t bytes, uint8_t first, uint8_t count) {
    for (int i = 0; i < 4; i++) bytes.val[i] = vcltq_u8(vsubq_u8(bytes.val[i], vdupq_n_u8(first)), vdupq_n_u8(count));
    return mask_neon(bytes);
}

CLASSIFY(neon, , uint8x16x4_t)
FAMILY_VERSIONS(neon, )
#endif

static inline classify_function choose_classify(int family, int level) {
    (void)level;
#if defined(BPE_X86)
    if (level >= LEVEL_AVX512) return classify_avx512_of[family];
    if (level >= LEVEL_AVX2) return classify_avx2_of[family];
#elif defined(BPE_NEON)
    if (level >= LEVEL_NEON) return classify_neon_of[family];
#endif
    return classify_portable_of[family];
}
#endif
