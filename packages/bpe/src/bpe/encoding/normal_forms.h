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
