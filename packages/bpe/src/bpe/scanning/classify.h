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
            for (int mask = 0, place = 0; mask < MASKS; mask++)
                if (family_wants[family] >> mask & 1) byte_masks[family][byte] |= in_mask(mask, byte) << place++;
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
        for (int mask = 0, place = 0; mask < MASKS; mask++)
            if (wants >> mask & 1) masks->of[mask] |= (rows >> (8 * place++) & 255) << group;
        masks->high |= top_bits(bytes) << group;
        masks->continuation |= top_bits(bytes & ~(bytes << 1)) << group;
    }
}

#ifdef BPE_X86
/* AVX2: 32 bytes at a time. `wants` is a constant to the compiler, which leaves out the masks that are not used. */
#define IS(byte) _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte))
#define BELOW(value, bound) _mm256_cmpeq_epi8(_mm256_min_epu8(value, _mm256_set1_epi8((bound) - 1)), value)
#define FROM(value, first, count) /* first <= value < first + count */ \
    BELOW(_mm256_sub_epi8(value, _mm256_set1_epi8(first)), count)
#define SET(mask, vector) masks->mask |= (uint64_t)(uint32_t)_mm256_movemask_epi8(vector) << (32 * half)

TARGET_AVX2 static inline
    __attribute__((always_inline)) void classify_avx2(const uint8_t *text, word_masks *masks, int wants) {
    memset(masks, 0, sizeof *masks);
    for (int half = 0; half < 2; half++) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(text + 32 * half));
        __m256i letter = FROM(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), 'a', 26), upper = FROM(bytes, 'A', 26);
        __m256i digit = FROM(bytes, '0', 10), blank = IS(' '), seen = FROM(bytes, '!', 94);
        if (wants & BIT(LETTER)) SET(letter, letter);
        if (wants & BIT(UPPER)) SET(upper, upper);
        if (wants & BIT(LOWER)) SET(lower, _mm256_andnot_si256(upper, letter));
        if (wants & BIT(DIGIT)) SET(digit, digit);
        if (wants & BIT(SPACE)) SET(space, _mm256_or_si256(FROM(bytes, 9, 5), blank));
        if (wants & BIT(PUNCTUATION)) SET(punctuation, _mm256_andnot_si256(_mm256_or_si256(letter, digit), seen));
        if (wants & BIT(BLANK)) SET(blank, blank);
        if (wants & BIT(LINE)) SET(line, _mm256_or_si256(IS('\n'), IS('\r')));
        if (wants & BIT(APOSTROPHE)) SET(apostrophe, IS('\''));
        if (wants & BIT(SLASH)) SET(slash, IS('/'));
        SET(high, bytes);
        SET(continuation, _mm256_cmpgt_epi8(_mm256_set1_epi8((char)0xc0), bytes));
    }
}

/* AVX-512: 64 bytes at a time, and a comparison gives a mask at once. */
#define BETWEEN(value, first, count) \
    _mm512_cmplt_epu8_mask(_mm512_sub_epi8(value, _mm512_set1_epi8(first)), _mm512_set1_epi8(count))
#define EQUAL(byte) _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte))

TARGET_AVX512 static inline
    __attribute__((always_inline)) void classify_avx512(const uint8_t *text, word_masks *masks, int wants) {
    const __m512i bytes = _mm512_loadu_si512(text);
    const uint64_t letter = BETWEEN(_mm512_or_si512(bytes, _mm512_set1_epi8(0x20)), 'a', 26);
    const uint64_t upper = BETWEEN(bytes, 'A', 26), digit = BETWEEN(bytes, '0', 10), blank = EQUAL(' ');
    const uint64_t high = _mm512_movepi8_mask(bytes);
    memset(masks, 0, sizeof *masks);
    if (wants & BIT(LETTER)) masks->letter = letter;
    if (wants & BIT(UPPER)) masks->upper = upper;
    if (wants & BIT(LOWER)) masks->lower = letter & ~upper;
    if (wants & BIT(DIGIT)) masks->digit = digit;
    if (wants & BIT(SPACE)) masks->space = BETWEEN(bytes, 9, 5) | blank;
    if (wants & BIT(PUNCTUATION)) masks->punctuation = BETWEEN(bytes, '!', 94) & ~(letter | digit);
    if (wants & BIT(BLANK)) masks->blank = blank;
    if (wants & BIT(LINE)) masks->line = EQUAL('\n') | EQUAL('\r');
    if (wants & BIT(APOSTROPHE)) masks->apostrophe = EQUAL('\'');
    if (wants & BIT(SLASH)) masks->slash = EQUAL('/');
    masks->high = high;
    if (high) masks->continuation = _mm512_cmplt_epi8_mask(bytes, _mm512_set1_epi8((char)0xc0));
}
#define VECTOR_VERSIONS(name, wants)                                                           \
    TARGET_AVX2 static void classify_avx2_##name(const uint8_t *text, word_masks *masks) {     \
        classify_avx2(text, masks, wants);                                                     \
    }                                                                                          \
    TARGET_AVX512 static void classify_avx512_##name(const uint8_t *text, word_masks *masks) { \
        classify_avx512(text, masks, wants);                                                   \
    }
#define CHOOSE(name)                                      \
    return level >= LEVEL_AVX512 ? classify_avx512_##name \
           : level >= LEVEL_AVX2 ? classify_avx2_##name   \
                                 : classify_portable_##name
#elif defined(BPE_NEON)
/* NEON: 64 bytes at a time, in four vectors of sixteen: the first has bytes 0, 4, 8 and so on, the second
 * bytes 1, 5, 9. Then a mask, which NEON has no instruction for, comes together in six: the top bits of four vectors
 * become four bits of one vector's bytes, in order, and these nibbles are joined by a narrowing shift. */
#define INLINE_NEON static inline __attribute__((always_inline))

INLINE_NEON uint64_t mask_neon(uint8x16x4_t tops) {
    const uint8x16_t twos = vsriq_n_u8(tops.val[1], tops.val[0], 1), others = vsriq_n_u8(tops.val[3], tops.val[2], 1);
    const uint8x16_t fours = vsriq_n_u8(others, twos, 2);
    const uint16x8_t eights = vreinterpretq_u16_u8(vsriq_n_u8(fours, fours, 4));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(eights, 4)), 0);
}

INLINE_NEON uint64_t equal_neon(uint8x16x4_t bytes, uint8_t byte) {
    for (int i = 0; i < 4; i++) bytes.val[i] = vceqq_u8(bytes.val[i], vdupq_n_u8(byte));
    return mask_neon(bytes);
}

INLINE_NEON uint64_t between_neon(uint8x16x4_t bytes, uint8_t first, uint8_t count) {
    for (int i = 0; i < 4; i++) bytes.val[i] = vcltq_u8(vsubq_u8(bytes.val[i], vdupq_n_u8(first)), vdupq_n_u8(count));
    return mask_neon(bytes);
}

INLINE_NEON void classify_neon(const uint8_t *text, word_masks *masks, int wants) {
    const uint8x16x4_t bytes = vld4q_u8(text);
    uint8x16x4_t small = bytes, line = bytes;
    for (int i = 0; i < 4; i++) {
        small.val[i] = vorrq_u8(bytes.val[i], vdupq_n_u8(0x20));
        line.val[i] = vorrq_u8(vceqq_u8(bytes.val[i], vdupq_n_u8('\n')), vceqq_u8(bytes.val[i], vdupq_n_u8('\r')));
    }
    const uint64_t letter = between_neon(small, 'a', 26), upper = between_neon(bytes, 'A', 26);
    const uint64_t digit = between_neon(bytes, '0', 10), blank = equal_neon(bytes, ' '), high = mask_neon(bytes);
    memset(masks, 0, sizeof *masks);
    if (wants & BIT(LETTER)) masks->letter = letter;
    if (wants & BIT(UPPER)) masks->upper = upper;
    if (wants & BIT(LOWER)) masks->lower = letter & ~upper;
    if (wants & BIT(DIGIT)) masks->digit = digit;
    if (wants & BIT(SPACE)) masks->space = between_neon(bytes, 9, 5) | blank;
    if (wants & BIT(PUNCTUATION)) masks->punctuation = between_neon(bytes, '!', 94) & ~(letter | digit);
    if (wants & BIT(BLANK)) masks->blank = blank;
    if (wants & BIT(LINE)) masks->line = mask_neon(line);
    if (wants & BIT(APOSTROPHE)) masks->apostrophe = equal_neon(bytes, '\'');
    if (wants & BIT(SLASH)) masks->slash = equal_neon(bytes, '/');
    masks->high = high;
    if (high) {
        uint8x16x4_t second = bytes; /* their second bits from the top */
        for (int i = 0; i < 4; i++) second.val[i] = vshlq_n_u8(bytes.val[i], 1);
        masks->continuation = high & ~mask_neon(second);
    }
}

#define VECTOR_VERSIONS(name, wants) \
    static void classify_neon_##name(const uint8_t *text, word_masks *masks) { classify_neon(text, masks, wants); }
#define CHOOSE(name) return level >= LEVEL_NEON ? classify_neon_##name : classify_portable_##name
#else
#define VECTOR_VERSIONS(name, wants)
#define CHOOSE(name) return classify_portable_##name
#endif

#define VERSIONS(name, family, wants)                                              \
    static void classify_portable_##name(const uint8_t *text, word_masks *masks) { \
        classify_portable(text, masks, family, wants);                             \
    }                                                                              \
    VECTOR_VERSIONS(name, wants)
VERSIONS(gpt2, FAMILY_GPT2, WANTS_GPT2)
VERSIONS(cl100k, FAMILY_CL100K, WANTS_CL100K)
VERSIONS(o200k, FAMILY_O200K, WANTS_O200K)
VERSIONS(deepseek, FAMILY_DEEPSEEK, WANTS_DEEPSEEK)

static inline classify_function choose_classify(int family, int level) {
    (void)level;
    switch (family) {
        case FAMILY_GPT2: CHOOSE(gpt2);
        case FAMILY_O200K: CHOOSE(o200k);
        case FAMILY_DEEPSEEK: CHOOSE(deepseek);
        default: CHOOSE(cl100k);
    }
}
#endif
