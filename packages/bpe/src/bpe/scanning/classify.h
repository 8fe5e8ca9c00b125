/* Sixty-four bytes of text to words of sixty-four bits: which bytes are letters, digits, white space and so on.
 *
 * This is the only part of scanning that looks at bytes one by one, so it is the part with vector code: AVX2 where the
 * processor has it, asked once at run time, and a portable twin that answers the same for everyone else (and for the tests,
 * which hold the two equal). Both only mark bytes of 0x80 and above as `high`; characters.h does the rest. */
#ifndef BPE_CLASSIFY_H
#define BPE_CLASSIFY_H
#include "native/bytes.h"
#include "scanning/unicode.h"

enum { LETTER, UPPER, LOWER, MARK, DIGIT, SPACE, PUNCTUATION, OTHER, BLANK, LINE, APOSTROPHE, SLASH, HIGH,
       CONTINUATION, INSIDE, HAN, MASKS, CLASS = 7 };

/* What is known of 64 consecutive bytes, by name or by number. */
typedef union {
    struct {
        /* The classes, of which a character has one, and all its bytes with it. Which of them a family of patterns
         * uses, and for what, class_of() says. Only characters beyond ASCII are ever marked `mark` or `other`. */
        uint64_t letter, upper, lower, mark, digit, space, punctuation, other;
        uint64_t blank, line, apostrophe, slash; /* ' ', '\r' or '\n', '\'' and '/' themselves */
        uint64_t high, continuation;             /* bytes from 0x80, and those of them below 0xc0 */
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

/* The portable twin: a byte's masks as the bits of one byte, eight of which make a matrix of 8 x 8 bits; that, transposed,
 * is eight bits of every mask. No family wants more than eight masks. */
static uint8_t portable_masks[FAMILIES][256];

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

static inline uint64_t transpose_bits(uint64_t x) { /* Warren, Hacker's Delight, section 7-3 */
    uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
    return x ^ t ^ (t << 28);
}

static inline uint64_t top_bits(uint64_t x) { return ((x & 0x8080808080808080ULL) >> 7) * 0x0102040810204080ULL >> 56; }

static inline void classify_portable(const uint8_t *text, word_masks *found, int family, int wants) {
    memset(found, 0, sizeof *found);
    for (int group = 0; group < 64; group += 8) {
        uint64_t bytes = 0, rows = 0;
        for (int i = 0; i < 8; i++) {
            bytes |= (uint64_t)text[group + i] << (8 * i);
            rows |= (uint64_t)portable_masks[family][text[group + i]] << (8 * i);
        }
        rows = transpose_bits(rows);
        for (int mask = 0, place = 0; mask < MASKS; mask++)
            if (wants >> mask & 1) found->of[mask] |= (rows >> (8 * place++) & 255) << group;
        found->high |= top_bits(bytes) << group;
        found->continuation |= top_bits(bytes & ~(bytes << 1)) << group;
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
        SET(continuation, _mm256_cmpgt_epi8(_mm256_set1_epi8((char)0xc0), bytes));
    }
}

/* The same with AVX-512, where a comparison gives a mask at once. */
#define AVX512 __attribute__((target("avx512bw,avx512vbmi2,bmi,bmi2")))
#define BETWEEN(value, first, count) _mm512_cmplt_epu8_mask(_mm512_sub_epi8(value, _mm512_set1_epi8(first)), _mm512_set1_epi8(count))
#define EQUAL(byte) _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte))

AVX512 static inline __attribute__((always_inline)) void classify_avx512(const uint8_t *text, word_masks *found, int wants) {
    const __m512i bytes = _mm512_loadu_si512(text);
    const uint64_t letter = BETWEEN(_mm512_or_si512(bytes, _mm512_set1_epi8(0x20)), 'a', 26), upper = BETWEEN(bytes, 'A', 26);
    const uint64_t digit = BETWEEN(bytes, '0', 10), blank = EQUAL(' '), high = _mm512_movepi8_mask(bytes);
    memset(found, 0, sizeof *found);
    if (wants & BIT(LETTER)) found->letter = letter;
    if (wants & BIT(UPPER)) found->upper = upper;
    if (wants & BIT(LOWER)) found->lower = letter & ~upper;
    if (wants & BIT(DIGIT)) found->digit = digit;
    if (wants & BIT(SPACE)) found->space = BETWEEN(bytes, 9, 5) | blank;
    if (wants & BIT(PUNCTUATION)) found->punctuation = BETWEEN(bytes, '!', 94) & ~(letter | digit);
    if (wants & BIT(BLANK)) found->blank = blank;
    if (wants & BIT(LINE)) found->line = EQUAL('\n') | EQUAL('\r');
    if (wants & BIT(APOSTROPHE)) found->apostrophe = EQUAL('\'');
    if (wants & BIT(SLASH)) found->slash = EQUAL('/');
    found->high = high;
    if (high) found->continuation = _mm512_cmplt_epi8_mask(bytes, _mm512_set1_epi8((char)0xc0));
}

/* The places of the ones of a word, ascending, plus `base`; returns how many. Room for 64 of them, whatever the count. */
AVX512 static size_t places_avx512(uint64_t ones, size_t base, size_t *places) {
    static const uint8_t iota[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                     22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                                     44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const size_t count = (size_t)__builtin_popcountll(ones);
    const __m512i from = _mm512_set1_epi64((long long)base);
    uint8_t packed[64];
    _mm512_storeu_si512(packed, _mm512_maskz_compress_epi8(ones, _mm512_loadu_si512(iota)));
    for (size_t i = 0; i < count; i += 8)
        _mm512_storeu_si512(places + i, _mm512_add_epi64(from, _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(packed + i)))));
    return count;
}

static inline int has_avx512(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi2");
}
#define VECTOR_TWIN(name, wants) \
    AVX2 static void classify_avx2_##name(const uint8_t *text, word_masks *found) { classify_avx2(text, found, wants); } \
    AVX512 static void classify_avx512_##name(const uint8_t *text, word_masks *found) { classify_avx512(text, found, wants); }
#define CHOOSE(name) \
    return twin <= AVX512_TWIN && has_avx512() ? classify_avx512_##name \
         : twin <= AVX2_TWIN && has_avx2() ? classify_avx2_##name : classify_portable_##name
#else
#define VECTOR_TWIN(name, wants)
#define CHOOSE(name) return classify_portable_##name
static inline int has_avx512(void) { return 0; }
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

/* Which of the twins may serve, at best: this one or one that comes after it. */
enum { AVX512_TWIN, AVX2_TWIN, PORTABLE_TWIN };

static inline classify_function choose_classify(int family, int twin) {
    (void)twin;
    switch (family) {
    case FAMILY_GPT2: CHOOSE(gpt2);
    case FAMILY_O200K: CHOOSE(o200k);
    case FAMILY_DEEPSEEK: CHOOSE(deepseek);
    default: CHOOSE(cl100k);
    }
}

/* The places of the ones of a word, ascending, plus `base`; returns how many. The vector twins write several at a time, so
 * that the processor has a branch to guess for all of them; there has to be room for 64, whatever the count. */
typedef size_t (*places_function)(uint64_t ones, size_t base, size_t *places);

static size_t places_portable(uint64_t ones, size_t base, size_t *places) {
    size_t count = 0;
    while (ones) {
        places[count++] = base + count_trailing_zeros(ones);
        ones &= ones - 1;
    }
    return count;
}

#ifdef BPE_HAS_AVX2
__attribute__((target("avx2,bmi,popcnt"))) static size_t places_bmi(uint64_t ones, size_t base, size_t *places) {
    const size_t count = (size_t)__builtin_popcountll(ones);
    for (size_t i = 0; i < count; i += 4)
        for (size_t j = 0; j < 4; j++) {
            places[i + j] = base + _tzcnt_u64(ones); /* 64 of zero */
            ones &= ones - 1;
        }
    return count;
}
#endif

static inline places_function choose_places(int twin) {
    (void)twin;
#ifdef BPE_HAS_AVX2
    if (twin <= AVX512_TWIN && has_avx512()) return places_avx512;
    if (twin <= AVX2_TWIN && has_avx2() && __builtin_cpu_supports("bmi")) return places_bmi;
#endif
    return places_portable;
}

/* The class of a category (of unicode_stage2, WHITE_SPACE included) to a family. */
static inline uint8_t class_of_category(int family, uint8_t category) {
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

static inline uint8_t category_of(uint32_t code) {
    return unicode_stage2[(uint32_t)unicode_stage1[code >> 7] << 7 | (code & 127)];
}

/* The class of a code point to a family, plus IS_HAN in deepseek-v3's second split, [\u4e00-\u9fa5\u3040-\u30ff]. */
#define IS_HAN 0x80
static inline uint8_t class_of(int family, uint32_t code) {
    uint8_t category = category_of(code);
    if (family == FAMILY_DEEPSEEK && ((code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff)))
        return class_of_category(family, category) | IS_HAN;
    return class_of_category(family, category);
}

/* class_of() for every code point below 0x10000, filled when a text is first scanned for its family. */
static uint8_t class_table[FAMILIES][0x10000 + 4]; /* a gather reads four bytes at each place */
enum { EMPTY_TABLE, FILLING_TABLE, FULL_TABLE };
static atomic_word class_table_state[FAMILIES];

static void fill_class_table(int family) {
    if (exchange_if(&class_table_state[family], EMPTY_TABLE, FILLING_TABLE)) {
        for (uint32_t code = 0; code < 0x10000; code++) class_table[family][code] = class_of(family, code);
        store_release(&class_table_state[family], FULL_TABLE);
    }
    while (load_acquire(&class_table_state[family]) != FULL_TABLE) {} /* another thread is at it, for a fraction of a millisecond */
}

static inline void need_class_table(int family) {
    if (load_acquire(&class_table_state[family]) != FULL_TABLE) fill_class_table(family);
}

static inline void fill_portable_masks(void) {
    for (int family = 0; family < FAMILIES; family++)
        for (int byte = 0; byte < 256; byte++)
            for (int mask = 0, place = 0; mask < MASKS; mask++)
                if (family_wants[family] >> mask & 1) portable_masks[family][byte] |= in_mask(mask, byte) << place++;
}
#endif
