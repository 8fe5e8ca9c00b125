/* One stretch of a text in a normal form: decomposed, its marks in order, composed. See normal_forms.h. */
#ifndef BPE_NORMAL_STRETCH_H
#define BPE_NORMAL_STRETCH_H
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
 * origins: where asked for, two numbers for each part of the result: twice the place where it begins, and 1 more for a
 * part that is copied; and the place in the text. */
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
    if (code < 0x80 || (code & ~0x7fu) == 0xdc80) {
        to[0] = (uint8_t)code;
        out->size += 1;
    } else if (code < 0x800) {
        to[0] = (uint8_t)(0xc0 | code >> 6);
        to[1] = (uint8_t)(0x80 | (code & 0x3f));
        out->size += 2;
    } else if (code < 0x10000) {
        to[0] = (uint8_t)(0xe0 | code >> 12);
        to[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (code & 0x3f));
        out->size += 3;
    } else {
        to[0] = (uint8_t)(0xf0 | code >> 18);
        to[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        to[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        to[3] = (uint8_t)(0x80 | (code & 0x3f));
        out->size += 4;
    }
}

/* The code points that one decomposes to at to[..], where there is room for three and for its whole decomposition. */
static inline size_t normal_decompose(uint32_t code, int form, NormalCode *to) {
    const size_t record = normal_record(code);
    const uint32_t syllable = code - FIRST_SYLLABLE;
    const size_t place = form & 1 ? normal_compatible[record] : normal_canonical[record];
    if (syllable < SYLLABLES) {
        const uint32_t final = syllable % FINALS;
        to[0] = (NormalCode){FIRST_LEAD + syllable / (VOWELS * FINALS), 0, 0};
        to[1] = (NormalCode){FIRST_VOWEL + syllable / FINALS % VOWELS, 1, 0};
        to[2] = (NormalCode){BEFORE_FINALS + final, 1, 0};
        return final ? 3 : 2;
    }
    if (!place) {
        *to = (NormalCode){code, 0, normal_class[record]};
        return 1;
    }
    for (uint32_t i = 0; i < normal_codes[place]; i++) {
        const uint32_t part = normal_codes[place + 1 + i];
        to[i] = (NormalCode){part, i > 0, normal_class[normal_record(part)]};
    }
    return normal_codes[place];
}

/* Put marks that stand side by side in the order of their classes, equal ones as they stood. */
static bool normal_order(NormalCode *codes, size_t count) {
    for (size_t begin = 0; begin < count;) {
        size_t end = begin + 1;
        bool ordered = true;
        if (codes[begin].class) {
            for (; end < count && codes[end].class; end++) ordered &= codes[end - 1].class <= codes[end].class;
        }
        if (!ordered && end - begin <= 16) {
            for (size_t i = begin + 1; i < end; i++) {
                const NormalCode code = codes[i];
                size_t at = i;
                for (; at > begin && codes[at - 1].class > code.class; at--) codes[at] = codes[at - 1];
                codes[at] = code;
            }
        } else if (!ordered) { /* by counting: as many marks as a hostile text has */
            size_t places[257] = {0};
            NormalCode *sorted = malloc((end - begin) * sizeof(NormalCode));
            if (!sorted) return false;
            for (size_t i = begin; i < end; i++) places[codes[i].class + 1]++;
            for (int i = 0; i < 256; i++) places[i + 1] += places[i];
            for (size_t i = begin; i < end; i++) sorted[places[codes[i].class]++] = codes[i];
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
            const size_t place = form & 1 ? normal_compatible[record] : normal_canonical[record];
            most += place && normal_codes[place] > 3 ? normal_codes[place] : 3;
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

#endif
