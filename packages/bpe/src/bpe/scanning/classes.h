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
enum { EMPTY_TABLE, FILLING_TABLE, FULL_TABLE };
static atomic_word class_table_state[FAMILIES];

static void fill_class_table(int family) {
    if (exchange_if(&class_table_state[family], EMPTY_TABLE, FILLING_TABLE)) {
        for (uint32_t code = 0; code < 0x10000; code++) class_table[family][code] = class_of(family, code);
        store_release(&class_table_state[family], FULL_TABLE);
    }
    while (load_acquire(&class_table_state[family]) != FULL_TABLE) {
    } /* another thread fills it, in a fraction of a millisecond */
}

/* In a child process after a fork: a table that another thread was filling is filled by nobody here. */
static void after_fork_of_class_tables(void) {
    for (int family = 0; family < FAMILIES; family++)
        exchange_if(&class_table_state[family], FILLING_TABLE, EMPTY_TABLE);
}

static inline void need_class_table(int family) {
    if (load_acquire(&class_table_state[family]) != FULL_TABLE) fill_class_table(family);
}
#endif
