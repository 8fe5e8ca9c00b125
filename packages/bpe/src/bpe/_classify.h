/* Sixty-four bytes of text to words of sixty-four bits: which bytes are letters, digits, white space and so on.
 *
 * This is the only part of scanning that looks at bytes one by one, so it is the part with vector code: AVX2 where the
 * processor has it, asked once at run time, and a portable twin that answers the same for everyone else (and for the tests,
 * which hold the two equal). Bytes of 0x80 and above are only marked `high` here; decode_character() classifies those. */
#ifndef BPE_CLASSIFY_H
#define BPE_CLASSIFY_H
#include "_bytes.h"
#include "_unicode.h"

enum { LETTER, UPPER, LOWER, MARK, DIGIT, SPACE, PUNCTUATION, OTHER, BLANK, LINE, APOSTROPHE, SLASH, HIGH, INSIDE, HAN, MASKS };

/* What is known of 64 consecutive bytes, by name or by number. */
typedef union {
    struct {
        /* The classes, of which a character has one, and all its bytes with it. Which of them a family of patterns
         * uses, and for what, class_of() says. Only characters beyond ASCII are ever marked `mark` or `other`. */
        uint64_t letter, upper, lower, mark, digit, space, punctuation, other;
        uint64_t blank, line, apostrophe, slash; /* ' ', '\r' or '\n', '\'' and '/' themselves */
        uint64_t high;                           /* bytes from 0x80 */
        uint64_t inside;                         /* bytes of a well-formed character other than its first */
        uint64_t han;                            /* bytes of what deepseek-v3 splits off as Chinese and Japanese */
    };
    uint64_t of[MASKS];
} word_masks;

/* Patterns that want the same classes of characters. */
enum { FAMILY_GPT2, FAMILY_CL100K, FAMILY_MARKS, FAMILY_O200K, FAMILY_DEEPSEEK, FAMILIES };

#define BIT(mask) (1 << (mask))
#define COMMON (BIT(DIGIT) | BIT(SPACE) | BIT(BLANK))
enum {
    WANTS_GPT2 = COMMON | BIT(LETTER) | BIT(APOSTROPHE),
    WANTS_CL100K = WANTS_GPT2 | BIT(LINE),
    WANTS_O200K = COMMON | BIT(UPPER) | BIT(LOWER) | BIT(LINE) | BIT(APOSTROPHE) | BIT(SLASH),
    WANTS_DEEPSEEK = COMMON | BIT(LETTER) | BIT(LINE) | BIT(PUNCTUATION)
};

typedef void (*classify_function)(const uint8_t *text, word_masks *found);

/* The class of a category (of unicode_stage2, WHITE_SPACE included) to a family. */
static inline uint8_t class_of(int family, int category) {
    if (category & WHITE_SPACE) return SPACE;
    if (category <= CATEGORY_LO) {
        if (family != FAMILY_O200K || category >= CATEGORY_LM) return LETTER; /* to o200k: a letter that has no case */
        return category == CATEGORY_LL ? LOWER : UPPER;
    }
    if (category <= CATEGORY_ME) {
        if (family == FAMILY_MARKS || family == FAMILY_DEEPSEEK) return LETTER;
        return family == FAMILY_O200K ? MARK : OTHER;
    }
    if (category <= CATEGORY_NO) return DIGIT;
    return family == FAMILY_DEEPSEEK && category <= CATEGORY_SO ? PUNCTUATION : OTHER;
}

/* The portable twin: a byte's masks as the bits of one byte, eight of which make a matrix of 8 x 8 bits; that, transposed,
 * is eight bits of every mask. No family wants more than eight masks. */
static uint8_t portable_masks[FAMILIES][256];
static uint8_t class_table[FAMILIES][256];

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

static const int family_wants[FAMILIES] = {WANTS_GPT2, WANTS_CL100K, WANTS_CL100K, WANTS_O200K, WANTS_DEEPSEEK};

static inline void fill_tables(void) {
    for (int family = 0; family < FAMILIES; family++) {
        for (int i = 0; i < 256; i++) {
            uint8_t bits = 0;
            for (int mask = 0, place = 0; mask < MASKS; mask++)
                if (family_wants[family] >> mask & 1) bits |= in_mask(mask, i) << place++;
            portable_masks[family][i] = bits;
            class_table[family][i] = class_of(family, i);
        }
    }
}

static inline uint64_t transpose_bits(uint64_t x) { /* Warren, Hacker's Delight, section 7-3 */
    uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
    return x ^ t ^ (t << 28);
}

static inline void classify_portable(const uint8_t *text, word_masks *found, int family, int wants) {
    memset(found, 0, sizeof *found);
    for (int group = 0; group < 64; group += 8) {
        uint64_t rows = 0;
        for (int i = 0; i < 8; i++) {
            rows |= (uint64_t)portable_masks[family][text[group + i]] << (8 * i);
            found->high |= (uint64_t)(text[group + i] >> 7) << (group + i);
        }
        rows = transpose_bits(rows);
        for (int mask = 0, place = 0; mask < MASKS; mask++)
            if (wants >> mask & 1) found->of[mask] |= (rows >> (8 * place++) & 255) << group;
    }
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define BPE_HAS_AVX2 1
#define AVX2 __attribute__((target("avx2")))

#define IS(byte) _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte))
#define FROM(value, first, count) /* first <= value < first + count */ \
    BELOW(_mm256_sub_epi8(value, _mm256_set1_epi8(first)), count)
#define BELOW(value, bound) _mm256_cmpeq_epi8(_mm256_min_epu8(value, _mm256_set1_epi8((bound) - 1)), value)
#define SET(mask, vector) found->mask |= (uint64_t)(uint32_t)_mm256_movemask_epi8(vector) << (32 * half)

/* `wants` is a constant to the compiler, which leaves out what is not wanted. */
AVX2 static inline __attribute__((always_inline)) void classify_avx2(const uint8_t *text, word_masks *found, int wants) {
    memset(found, 0, sizeof *found);
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
    }
}
#define VECTOR_TWIN(name, wants) \
    AVX2 static void classify_avx2_##name(const uint8_t *text, word_masks *found) { classify_avx2(text, found, wants); }
#define CHOOSE(name) return !portable && has_avx2() ? classify_avx2_##name : classify_portable_##name
#else
#define VECTOR_TWIN(name, wants)
#define CHOOSE(name) return classify_portable_##name
#endif

static inline int has_avx2(void) {
#ifdef BPE_HAS_AVX2
    return __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

#define TWINS(name, family, wants)                                                       \
    VECTOR_TWIN(name, wants)                                                             \
    static void classify_portable_##name(const uint8_t *text, word_masks *found) {       \
        classify_portable(text, found, family, wants);                                   \
    }
TWINS(gpt2, FAMILY_GPT2, WANTS_GPT2)
TWINS(cl100k, FAMILY_CL100K, WANTS_CL100K)
TWINS(o200k, FAMILY_O200K, WANTS_O200K)
TWINS(deepseek, FAMILY_DEEPSEEK, WANTS_DEEPSEEK)

static inline classify_function choose_classify(int family, int portable) {
    (void)portable;
    switch (family) {
    case FAMILY_GPT2: CHOOSE(gpt2);
    case FAMILY_O200K: CHOOSE(o200k);
    case FAMILY_DEEPSEEK: CHOOSE(deepseek);
    default: CHOOSE(cl100k);
    }
}

/* The character at text[0], a byte of 0x80 or more: its length in bytes, its category (with WHITE_SPACE) in *category, its
 * code point in *code. A byte that begins no well-formed UTF-8 sequence (Unicode 17, table 3-7) is a character of its own,
 * one byte long and of category Cs: what `bytes.decode("utf-8", "surrogateescape")` makes of it. */
static inline size_t decode_character(const uint8_t *text, size_t room, uint8_t *category, uint32_t *code_point) {
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
    *code_point = code;
    return size;
malformed:
    *category = CATEGORY_CS;
    *code_point = lead;
    return 1;
}

static inline uint8_t category_of_ascii(uint8_t byte) {
    return unicode_stage2[(uint32_t)unicode_stage1[0] << 7 | byte];
}
#endif
