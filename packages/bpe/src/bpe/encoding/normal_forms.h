/* The normal forms of Unicode (UAX #15): NFD, NFKD, NFC and NFKC, of bytes of UTF-8.
 *
 *     text        v i e ^ . t   o k     the bytes are looked at one character at a time, ASCII by eights
 *                     |
 *     stretch       [e ^ .]             only where a mark, or a character that the form changes, asks for it: from the
 *                     |                 last character before it that nothing joins to, up to the next such character
 *     decomposed     e . ^              marks in the order of their classes, equal ones as they stood
 *     composed       ệ                  NFC and NFKC: each mark with the character before, if nothing stands between
 *
 * The text between two stretches is copied; a text without any stretch is not. Bytes that are no UTF-8 are
 * characters that nothing changes. */
#ifndef BPE_NORMAL_FORMS_H
#define BPE_NORMAL_FORMS_H
#include "encoding/normal_stretch.h"

enum {
    BLOCK_UNITS = 64,  /* code points whose marks are a word of bits */
    JOINED_UNITS = 256 /* code points that are composed before they are converted to UTF-8 */
};

/* Of each code point of the first plane, and of each form: its combining class, or MAY_CHANGE. */
enum { MAY_CHANGE = 255 };
static uint8_t normal_marks[4][0x10000];
static uint32_t normal_first[4]; /* the first code point of each form that is not 0 there */

/* Fill the tables that normal_text() needs: once, before it is called. */
static void normal_prepare(void) {
    normal_fill_slots();
    for (int form = 0; form < 4; form++) {
        for (uint32_t code = 0xffff; code < 0x10000; code--) {
            const size_t record = normal_record(code);
            normal_marks[form][code] = normal_changes[record] >> form & 1 ? MAY_CHANGE : normal_class[record];
            if (normal_marks[form][code]) normal_first[form] = code;
        }
    }
}

static inline uint8_t normal_mark(uint32_t code, int form) {
    if (code < 0x10000) return normal_marks[form][code];
    const size_t record = normal_record(code);
    return normal_changes[record] >> form & 1 ? MAY_CHANGE : normal_class[record];
}

/* The code points of a str, which Python keeps as units of one, two or four bytes each, from number `at` on, before
 * which nothing joins: the number of the first that may change, or `count`. They are looked at by thirty-twos, without
 * a branch that depends on the text, since which letters bear marks cannot be predicted. */
#define NORMAL_FIND(name, unit)                                                       \
    static size_t name(const void *units, size_t count, size_t at, int form) {        \
        const unit *const codes = units;                                              \
        uint8_t last = 0;                                                             \
        while (at < count) {                                                          \
            const size_t begin = at, end = count - at < 32 ? count : at + 32;         \
            uint8_t before = last, may_change = 0;                                    \
            unit all = 0;                                                             \
            for (size_t i = begin; i < end; i++) all |= codes[i];                     \
            if (all < normal_first[form]) {                                           \
                last = 0;                                                             \
                at = end;                                                             \
                continue;                                                             \
            }                                                                         \
            for (; at < end; at++) {                                                  \
                const uint8_t mark = normal_mark(codes[at], form);                    \
                may_change |= (mark == MAY_CHANGE) | ((mark != 0) & (mark < before)); \
                before = mark;                                                        \
            }                                                                         \
            if (may_change) {                                                         \
                for (at = begin; at < end; at++) {                                    \
                    const uint8_t mark = normal_mark(codes[at], form);                \
                    if (mark == MAY_CHANGE || (mark && mark < last)) return at;       \
                    last = mark;                                                      \
                }                                                                     \
            }                                                                         \
            last = before;                                                            \
        }                                                                             \
        return count;                                                                 \
    }

NORMAL_FIND(normal_find_1, uint8_t)
NORMAL_FIND(normal_find_2, uint16_t)
NORMAL_FIND(normal_find_4, uint32_t)

static inline uint32_t normal_unit(const void *units, int width, size_t at) {
    return width == 1 ? ((const uint8_t *)units)[at]
                      : (width == 2 ? ((const uint16_t *)units)[at] : ((const uint32_t *)units)[at]);
}

/* The number of the first code point from `at` on that may change, or `count`: see NORMAL_FIND. */
static size_t normal_find(const void *units, int width, size_t count, size_t at, int form) {
    return width == 1   ? normal_find_1(units, count, at, form)
           : width == 2 ? normal_find_2(units, count, at, form)
                        : normal_find_4(units, count, at, form);
}

/* The number of the code point with which the stretch around number `at` begins, not before `least`; and of the first
 * one behind `at` that joins to nothing before it. */
static size_t normal_begin(const void *units, int width, size_t at, size_t least, int form) {
    while (at > least && normal_mark(normal_unit(units, width, at), form)) at--;
    return at;
}

static size_t normal_end(const void *units, int width, size_t count, size_t at, int form) {
    while (at < count && normal_mark(normal_unit(units, width, at), form)) at++;
    return at;
}

/* The composition of two code points if it lies in the slot that is tried first, else 0. */
static inline uint32_t normal_in_first_slot(uint32_t first, uint32_t second) {
    const size_t at = normal_slot(first, second);
    const bool equal = !((normal_slots[at].first ^ first) | (normal_slots[at].second ^ second));
    return normal_slots[at].code & (0 - (uint32_t)equal);
}

/* The composition of a code point with the first of two others, or with both; 0 for none, or one that lies in another
 * slot. No branch depends on the number of others: a letter of Vietnamese has one mark or two, a syllable of Hangul a
 * final or none. */
static inline uint32_t normal_composed_quickly(uint32_t code, uint32_t second, uint32_t third, bool both) {
    const uint32_t all = 0 - (uint32_t)both;
    if (code - FIRST_LEAD < LEADS) {
        const uint32_t vowel = second - FIRST_VOWEL, final = (third - BEFORE_FINALS) & all;
        const uint32_t wrong = (vowel >= VOWELS) | (final >= FINALS) | (both != (final > 0));
        return (FIRST_SYLLABLE + ((code - FIRST_LEAD) * VOWELS + vowel) * FINALS + final) & (wrong - 1);
    }
    const uint32_t one = normal_in_first_slot(code, second);
    return (normal_in_first_slot(one, third) & all) | (one & ~all);
}

/* A bit for each of eight bytes that is not zero, the lowest for the first. */
static inline uint8_t normal_not_zero(const uint8_t *bytes) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    uint64_t word;
    memcpy(&word, bytes, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return (uint8_t)(((((word & low) + low) | word) >> 7 & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

/* Compose code points of a str from number *at on, before which nothing joins, to `to`, where there is room for
 * JOINED_UNITS and 2 * BLOCK_UNITS: letters whose marks all compose with them, and what does not change. Returns how
 * many there are at `to`, with *at behind what they come from: at most JOINED_UNITS, up to something else.
 *
 *     code points     t i e ^ . n g   v i e ^ . t
 *     marks           0 0 0 1 1 0 0 0 0 0 0 1 1 0    a bit for each: where runs of marks begin and end is counted,
 *     to              t i ệ n g   v i ệ t            and what lies between them copied sixteen bytes at a time */
#define NORMAL_JOIN(name, unit)                                                                                    \
    static size_t name(const void *units, size_t count, size_t *at, int form, unit *to) {                          \
        unit *const begin = to, last_block[BLOCK_UNITS + 16];                                                      \
        while (*at < count && to - begin < JOINED_UNITS) {                                                         \
            size_t size = count - *at < BLOCK_UNITS ? count - *at : BLOCK_UNITS, from = 0;                         \
            const unit *block = (const unit *)units + *at;                                                         \
            uint8_t tags[BLOCK_UNITS];                                                                             \
            uint64_t marks = 0;                                                                                    \
            if (count - *at < BLOCK_UNITS + 16) {                                                                  \
                memset(last_block, 0, sizeof(last_block));                                                         \
                block = memcpy(last_block, block, size * sizeof(unit));                                            \
            }                                                                                                      \
            for (size_t i = 0; i < BLOCK_UNITS; i += 4) {                                                          \
                tags[i] = normal_mark(block[i], form);                                                             \
                tags[i + 1] = normal_mark(block[i + 1], form);                                                     \
                tags[i + 2] = normal_mark(block[i + 2], form);                                                     \
                tags[i + 3] = normal_mark(block[i + 3], form);                                                     \
            }                                                                                                      \
            for (size_t i = 0; i < BLOCK_UNITS; i += 8) marks |= (uint64_t)normal_not_zero(tags + i) << i;         \
            marks &= ~(uint64_t)0 >> (BLOCK_UNITS - size);                                                         \
            if (marks & 1) break;                                                                                  \
            if (*at + size < count) { /* the last letter may have marks behind the block */                        \
                size = 63 - (size_t)count_leading_zeros(~marks);                                                   \
                marks &= ((uint64_t)1 << size) - 1;                                                                \
                if (!size) break;                                                                                  \
            }                                                                                                      \
            while (marks) {                                                                                        \
                const size_t first = (size_t)count_trailing_zeros(marks);                                          \
                const size_t n = (size_t)count_trailing_zeros(~(marks >> first));                                  \
                uint32_t code = normal_composed_quickly(block[first - 1], block[first], block[first + 1], n == 2); \
                if (!code || n > 2) {                                                                              \
                    code = block[first - 1];                                                                       \
                    for (size_t i = first; code && i < first + n; i++) code = normal_composed(code, block[i]);     \
                }                                                                                                  \
                if (code) {                                                                                        \
                    size_t i = from;                                                                               \
                    do memcpy(to + i - from, block + i, 16);                                                       \
                    while ((i += 16 / sizeof(unit)) < first - 1);                                                  \
                    to += first - 1 - from;                                                                        \
                    *to++ = (unit)code;                                                                            \
                    from = first + n;                                                                              \
                } else {                                                                                           \
                    uint8_t last = 0;                                                                              \
                    for (size_t i = first; i < first + n && last < MAY_CHANGE; i++) {                              \
                        const uint8_t mark = normal_mark(block[i], form);                                          \
                        last = mark < last ? MAY_CHANGE : mark;                                                    \
                    }                                                                                              \
                    if (last == MAY_CHANGE) {                                                                      \
                        size = first - 1;                                                                          \
                        break;                                                                                     \
                    }                                                                                              \
                }                                                                                                  \
                marks &= ~(uint64_t)0 << (first + n - 1) << 1;                                                     \
            }                                                                                                      \
            memcpy(to, block + from, (size - from) * sizeof(unit));                                                \
            to += size - from;                                                                                     \
            *at += size;                                                                                           \
            if (marks) break;                                                                                      \
        }                                                                                                          \
        return (size_t)(to - begin);                                                                               \
    }

NORMAL_JOIN(normal_join_2, uint16_t)
NORMAL_JOIN(normal_join_4, uint32_t)

/* See NORMAL_JOIN; 0 for units and forms that compose nothing. */
static size_t normal_join(const void *units, int width, size_t count, size_t *at, int form, void *to) {
    return form < FORM_NFC || width == 1 ? 0
           : width == 2                  ? normal_join_2(units, count, at, form, to)
                                         : normal_join_4(units, count, at, form, to);
}

/* The first place from `at` on that is no ASCII, or `size`. */
static inline size_t normal_skip_ascii(const uint8_t *text, size_t size, size_t at) {
    uint64_t word;
    for (; at + 8 <= size; at += 8) {
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (at < size && text[at] < 0x80) at++;
    return at;
}

/* The end of a stretch whose code points all compose to one, written to *composed; 0 for any other stretch.
 *
 * Most are of this kind: a letter and its marks, a syllable of Hangul. Two that compose are in canonical order,
 * whatever the first was made of, as what they compose to decomposes to them. */
static inline size_t normal_joined(const uint8_t *text, size_t size, size_t at, int form, uint32_t *composed) {
    size_t length;
    uint32_t whole = normal_decode(text, size, at, &length);
    if (form < FORM_NFC || normal_mark(whole, form)) return 0;
    for (at += length; at < size; at += length) {
        const uint32_t code = normal_decode(text, size, at, &length);
        if (!normal_mark(code, form)) break;
        whole = normal_composed(whole, code);
        if (!whole) return 0;
    }
    *composed = whole;
    return at;
}

/* Append a text in a form to `out`, whose bytes and origins are to be freed. *changed becomes 1 where it differs from
 * the text; where nothing has to be looked at, nothing is appended, and *changed and out->size stay as they were. False
 * where there is no memory. */
static bool normal_text(NormalText *out, const uint8_t *text, size_t size, int form, int *changed) {
    size_t at = 0, done = 0, boundary = 0, length;
    uint8_t last = 0;
    while (at < size) {
        if (text[at] < 0x80) {
            at = normal_skip_ascii(text, size, at + 1);
            boundary = at - 1;
            last = 0;
            continue;
        }
        uint32_t code;
        if (size - at >= 3 && text[at] >= 0xe1 && text[at] < 0xf0 && text[at] != 0xed &&
            ((text[at + 1] ^ 0x80) | (text[at + 2] ^ 0x80)) < 0x40) {
            length = 3;
            code = (uint32_t)(text[at] & 0xf) << 12 | (uint32_t)(text[at + 1] & 0x3f) << 6 | (text[at + 2] & 0x3f);
        } else {
            code = normal_decode(text, size, at, &length);
        }
        const uint8_t mark = normal_mark(code, form);
        if (mark == 0) {
            boundary = at;
            last = 0;
            at += length;
            continue;
        }
        if (mark != MAY_CHANGE && mark >= last) {
            last = mark;
            at += length;
            continue;
        }
        uint32_t composed;
        const size_t next = out->wants_origins ? 0 : normal_joined(text, size, boundary, form, &composed);
        if (next) {
            if (!normal_copy(out, text, done, boundary) || !normal_reserve(out, 4)) return false;
            normal_append(out, composed);
            *changed = 1;
            done = boundary = at = next;
            last = 0;
            continue;
        }
        for (at += length; at < size; at += length) {
            const size_t record = normal_record(normal_decode(text, size, at, &length));
            if (!(normal_changes[record] >> form & 1) && !normal_class[record]) break;
        }
        if (!normal_copy(out, text, done, boundary)) return false;
        const size_t begin = out->size;
        if (!normal_stretch(out, text, boundary, at, form)) return false;
        if (out->size - begin != at - boundary || memcmp(out->bytes + begin, text + boundary, at - boundary)) {
            *changed = 1;
        }
        done = boundary = at;
        last = 0;
    }
    return !done || normal_copy(out, text, done, size);
}
#endif
