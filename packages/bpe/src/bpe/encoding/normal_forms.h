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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "encoding/normalization_tables.h"
#include "native/bytes.h"
#include "native/character.h"

enum { FORM_NFD, FORM_NFKD, FORM_NFC, FORM_NFKC };

enum {
    FIRST_SYLLABLE = 0xac00,
    SYLLABLES = 11172,
    FIRST_LEAD = 0x1100,
    LEADS = 19,
    FIRST_VOWEL = 0x1161,
    VOWELS = 21,
    BEFORE_FINALS = 0x11a7, /* a syllable without a final has this number of one */
    FINALS = 28,
    PAIR_SLOTS = 4096, /* of the table of compositions: four times as many as there are */
    FEW_BYTES = 16,    /* of a stretch whose code points are on the stack: */
    FEW_CODES = 96     /* three bytes decompose to eighteen at most */
};

/* A code point of a stretch. change: 1 for one that a decomposition adds, 1 - n for one made of n that were there. */
typedef struct {
    uint32_t code;
    int32_t change;
    uint8_t class;
} NormalCode;

/* A text that is being normalized.
 *
 * origins: where asked for, two numbers for each part of the result: twice the position where it begins, and 1 more for
 * a part that is copied; and the position in the text. */
typedef struct {
    uint8_t *bytes;
    size_t size, room;
    uint64_t *origins;
    size_t parts, origin_room;
    bool wants_origins;
} NormalText;

static struct {
    uint32_t first, second, code;
} normal_slots[PAIR_SLOTS];

static inline size_t normal_slot(uint32_t first, uint32_t second) {
    return (size_t)((first * 0x9e3779b1u ^ second * 0x85ebca6bu) >> 20);
}

/* Fill the table of compositions: once, before anything is composed. */
static void normal_fill_slots(void) {
    for (size_t i = 0; i < sizeof(normal_pairs) / sizeof(*normal_pairs); i += 3) {
        size_t at = normal_slot(normal_pairs[i], normal_pairs[i + 1]);
        while (normal_slots[at].code) at = (at + 1) % PAIR_SLOTS;
        normal_slots[at].first = normal_pairs[i];
        normal_slots[at].second = normal_pairs[i + 1];
        normal_slots[at].code = normal_pairs[i + 2];
    }
}

/* The composite of two code points; 0 for none. */
static inline uint32_t normal_composed(uint32_t first, uint32_t second) {
    if (first - FIRST_LEAD < LEADS && second - FIRST_VOWEL < VOWELS)
        return FIRST_SYLLABLE + ((first - FIRST_LEAD) * VOWELS + second - FIRST_VOWEL) * FINALS;
    if (first - FIRST_SYLLABLE < SYLLABLES && second - BEFORE_FINALS - 1 < FINALS - 1) {
        return (first - FIRST_SYLLABLE) % FINALS ? 0 : first + second - BEFORE_FINALS;
    }
    for (size_t at = normal_slot(first, second); normal_slots[at].code; at = (at + 1) % PAIR_SLOTS) {
        if (normal_slots[at].first == first && normal_slots[at].second == second) return normal_slots[at].code;
    }
    return 0;
}

/* The code point at text[at], and its size in bytes. */
static inline uint32_t normal_decode(const uint8_t *text, size_t size, size_t at, size_t *length) {
    uint32_t code;
    *length = decode_character(text + at, size - at, &code);
    return code;
}

static inline size_t normal_record(uint32_t code) {
    return normal_stage2[(size_t)normal_stage1[code >> 7] << 7 | (code & 127)];
}

/* Room for `more` bytes and origins; false where there is no memory. */
static bool normal_reserve(NormalText *out, size_t more) {
    if (out->room - out->size < more) {
        const size_t room = 2 * out->room + more;
        uint8_t *bytes = realloc(out->bytes, room);
        if (!bytes) return false;
        out->bytes = bytes;
        out->room = room;
    }
    if (out->wants_origins && out->origin_room - out->parts < more) {
        const size_t room = 2 * out->origin_room + more;
        uint64_t *origins = realloc(out->origins, 2 * room * sizeof(uint64_t));
        if (!origins) return false;
        out->origins = origins;
        out->origin_room = room;
    }
    return true;
}

static inline void normal_note(NormalText *out, size_t from, bool copied) {
    if (!out->wants_origins) return;
    out->origins[2 * out->parts] = (uint64_t)out->size << 1 | copied;
    out->origins[2 * out->parts + 1] = from;
    out->parts++;
}

static bool normal_copy(NormalText *out, const uint8_t *text, size_t from, size_t to) {
    if (from == to) return true;
    if (!normal_reserve(out, to - from)) return false;
    normal_note(out, from, true);
    memcpy(out->bytes + out->size, text + from, to - from);
    out->size += to - from;
    return true;
}

/* Append a code point, or a byte that is no UTF-8 (see decode_character()), which there is room for. */
static inline void normal_append(NormalText *out, uint32_t code) {
    uint8_t *to = out->bytes + out->size;
    if ((code & ~0x7fu) == 0xdc80) {
        *to++ = (uint8_t)code;
    } else {
        to = encode_character(code, to);
    }
    out->size = (size_t)(to - out->bytes);
}

/* The code points that one decomposes to at to[..], where there is room for three and for its whole decomposition. */
static inline size_t normal_decompose(uint32_t code, int form, NormalCode *to) {
    const size_t record = normal_record(code);
    const uint32_t syllable = code - FIRST_SYLLABLE;
    const size_t index = form & 1 ? normal_compatible[record] : normal_canonical[record];
    if (syllable < SYLLABLES) {
        const uint32_t final = syllable % FINALS;
        to[0] = (NormalCode){FIRST_LEAD + syllable / (VOWELS * FINALS), 0, 0};
        to[1] = (NormalCode){FIRST_VOWEL + syllable / FINALS % VOWELS, 1, 0};
        to[2] = (NormalCode){BEFORE_FINALS + final, 1, 0};
        return final ? 3 : 2;
    }
    if (!index) {
        *to = (NormalCode){code, 0, normal_class[record]};
        return 1;
    }
    for (uint32_t i = 0; i < normal_codes[index]; i++) {
        const uint32_t part = normal_codes[index + 1 + i];
        to[i] = (NormalCode){part, i > 0, normal_class[normal_record(part)]};
    }
    return normal_codes[index];
}

/* Put marks that stand side by side in the order of their classes, equal ones as they stood. */
static bool normal_order(NormalCode *codes, size_t count) {
    for (size_t begin = 0; begin < count;) {
        size_t end = begin + 1;
        bool ordered = true;
        if (codes[begin].class) {
            for (; end < count && codes[end].class; end++) ordered &= codes[end - 1].class <= codes[end].class;
        }
        if (!ordered) { /* by counting, which is linear in the marks of a hostile text */
            size_t starts[257] = {0};
            NormalCode *sorted = malloc((end - begin) * sizeof(NormalCode));
            if (!sorted) return false;
            for (size_t i = begin; i < end; i++) starts[codes[i].class + 1]++;
            for (int i = 0; i < 256; i++) starts[i + 1] += starts[i];
            for (size_t i = begin; i < end; i++) sorted[starts[codes[i].class]++] = codes[i];
            memcpy(codes + begin, sorted, (end - begin) * sizeof(NormalCode));
            free(sorted);
        }
        begin = end;
    }
    return true;
}

/* Compose what can be composed; returns how many code points are left. */
static size_t normal_compose(NormalCode *codes, size_t count) {
    size_t count_out = 0, starter = 0;
    bool has_starter = false;
    for (size_t i = 0; i < count; i++) {
        const NormalCode code = codes[i];
        if (has_starter && (count_out == starter + 1 || codes[count_out - 1].class < code.class)) {
            const uint32_t composed = normal_composed(codes[starter].code, code.code);
            if (composed) {
                codes[starter].code = composed;
                codes[starter].change += code.change - 1;
                continue;
            }
        }
        if (!code.class) {
            starter = count_out;
            has_starter = true;
        }
        codes[count_out++] = code;
    }
    return count_out;
}

/* Append text[begin .. end) in a form. */
static bool normal_stretch(NormalText *out, const uint8_t *text, size_t begin, size_t end, int form) {
    NormalCode few[FEW_CODES], *codes = few;
    size_t count = 0, length, most = 0, next = begin, last = begin;
    if (end - begin > FEW_BYTES) {
        for (size_t at = begin; at < end; at += length) {
            const size_t record = normal_record(normal_decode(text, end, at, &length));
            const size_t index = form & 1 ? normal_compatible[record] : normal_canonical[record];
            most += index && normal_codes[index] > 3 ? normal_codes[index] : 3;
        }
        if (most > FEW_CODES && !(codes = malloc(most * sizeof(NormalCode)))) return false;
    }
    for (size_t at = begin; at < end; at += length) {
        count += normal_decompose(normal_decode(text, end, at, &length), form, codes + count);
    }
    bool done = normal_order(codes, count);
    if (done && form >= FORM_NFC) count = normal_compose(codes, count);
    done = done && normal_reserve(out, 4 * count);
    for (size_t i = 0; done && i < count; i++) {
        if (out->wants_origins) { /* one that was added belongs to the last that was taken from the text */
            const size_t first = next;
            for (int32_t take = 1 - codes[i].change; take > 0 && next < end; take--) {
                normal_decode(text, end, next, &length);
                last = next;
                next += length;
            }
            normal_note(out, codes[i].change > 0 ? last : first, false);
        }
        normal_append(out, codes[i].code);
    }
    if (codes != few) free(codes);
    return done;
}

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

/* The number of the first code point from `at` on that may change, or `count`: see NORMAL_FIND. */
static size_t normal_find(const void *units, int width, size_t count, size_t at, int form) {
    return width == 1   ? normal_find_1(units, count, at, form)
           : width == 2 ? normal_find_2(units, count, at, form)
                        : normal_find_4(units, count, at, form);
}

/* The first position from `at` on that is no ASCII, or `size`. */
static inline size_t normal_skip_ascii(const uint8_t *text, size_t size, size_t at) {
    uint64_t word;
    for (; at + 8 <= size; at += 8) {
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (at < size && text[at] < 0x80) at++;
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
        const uint8_t mark = normal_mark(normal_decode(text, size, at, &length), form);
        if ((mark != MAY_CHANGE) & ((mark == 0) | (mark >= last))) {
            boundary = mark ? boundary : at;
            last = mark;
            at += length;
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
