/* The class that a family of patterns has for each character: a table, made when a text is first scanned for the
 * family. */
#ifndef BPE_CLASSES_H
#define BPE_CLASSES_H
#include "scanning/classify.h"
#include "scanning/unicode.h"

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

/* class_of() for every code point below 0x10000. */
static uint8_t class_table[FAMILIES][0x10000];
static int class_table_full[FAMILIES];

/* Several threads may fill a table at once: all of them write the same values. */
static void fill_class_table(int family) {
    for (uint32_t code = 0; code < 0x10000; code++)
        __atomic_store_n(&class_table[family][code], class_of(family, code), __ATOMIC_RELAXED);
    __atomic_store_n(&class_table_full[family], 1, __ATOMIC_RELEASE);
}

static inline uint8_t class_in_table(int family, uint32_t code) {
    return __atomic_load_n(&class_table[family][code], __ATOMIC_RELAXED);
}

static inline void need_class_table(int family) {
    if (!__atomic_load_n(&class_table_full[family], __ATOMIC_ACQUIRE)) fill_class_table(family);
}
#endif
