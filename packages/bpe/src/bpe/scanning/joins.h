/* Splitting what SentencePiece-style tokenizers do not split: between two characters that no token joins.
 *
 * Such a tokenizer merges a text as a whole, or what lies between two spaces. But a merge across the border of two
 * characters makes a token with these two side by side. Where no token holds them so, no merge ever crosses
 * the border, and the text can be split there without changing an id. A filter says of any two characters whether a
 * token may hold them side by side: a bit for each hash of a pair. Where two pairs share a bit it says yes too often,
 * and the text is split less often than it could be.
 *
 * A space is written ▁ in the files of these tokenizers, and a ▁ in a text counts as a space. What begins with a space
 * is a piece of its own, as in Metaspace with "split"; without, a run of spaces stays together with what follows it. */
#ifndef BPE_JOINS_H
#define BPE_JOINS_H
#include <stdlib.h>

#include "scanning/classify.h"
#include "scanning/scanner_state.h"

typedef struct {
    uint64_t *bits;
    int shift;       /* of a hash, which leaves the number of a bit */
    int every_space; /* 1 if a piece begins at every space, */
    int crosses;     /* or else 1 if a token goes on across a space */
} joins;

static joins *joins_of[MOST_OWN]; /* by number; NULL for a number that is free */

static inline int is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

static inline int is_mark(const uint8_t *text, size_t size, size_t at) {
    return text[at] == 0xe2 && size - at >= 3 && text[at + 1] == 0x96 && text[at + 2] == 0x81;
}

/* 1 if a space or ▁ begins at `at`, or ends there. */
static inline int space_from(const uint8_t *text, size_t size, size_t at) {
    return text[at] == ' ' || is_mark(text, size, at);
}

static inline int space_before(const uint8_t *text, size_t at) {
    return text[at - 1] == ' ' || (at >= 3 && is_mark(text, at, at - 3));
}

/* The bit of two characters; at most three bytes of each count. around: three bytes, the lowest first, that
 * end with the one, and three from where the other begins; inside: how many of the last two of the one are no first
 * bytes. */
static inline uint64_t pair_bit(const joins *j, uint64_t around, uint64_t inside) {
    static const uint64_t of_left[3] = {0xff0000, 0xffff00, 0xffffff};
    static const uint8_t of_right[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3};
    const uint64_t right = ((1ULL << 8 * of_right[around >> 28 & 15]) - 1) << 24;
    return (around & (of_left[inside] | right)) * 0x9e3779b97f4a7c15ULL >> j->shift;
}

static inline uint64_t get_pair(const joins *j, uint64_t bit) { return j->bits[bit / 64] >> bit % 64 & 1; }

/* pair_bit() of the characters on both sides of `at`, which is inside the text. */
static inline uint64_t pair_at(const joins *j, const uint8_t *text, size_t size, size_t at) {
    uint64_t around = 0;
    for (size_t i = at < 3 ? 3 - at : 0; i < 6 && at + i - 3 < size; i++) around |= (uint64_t)text[at + i - 3] << 8 * i;
    const int inside = is_continuation(around >> 16 & 0xff);
    return pair_bit(j, around, inside + (inside & is_continuation(around >> 8 & 0xff)));
}

/* Note all pairs of a token. */
static void add_joins(joins *j, const uint8_t *token, size_t size) {
    for (size_t at = 1; at < size; at++) {
        if (is_continuation(token[at])) continue;
        const uint64_t bit = pair_at(j, token, size, at);
        j->bits[bit / 64] |= 1ULL << bit % 64;
        j->crosses |= !j->every_space && token[at] == ' ' && token[at - 1] != ' ';
    }
}

/* 1 if a piece begins at `at`, where a character begins, and another one before it. Between letters of ASCII none
 * does, which is for the caller to see. */
static inline int joins_begin(const joins *j, const uint8_t *text, size_t size, size_t at) {
    if (j->every_space && space_from(text, size, at)) return 1;
    if (space_before(text, at)) return 0;
    if (space_from(text, size, at) && !(j->crosses && text[at] == ' ')) return !j->crosses;
    return !get_pair(j, pair_at(j, text, size, at));
}

/* 1 if a ▁ may be in the 64 bytes at `at` or end just before them. */
static inline int has_mark(const uint8_t *at) {
    uint8_t found = 0;
    for (int i = -16; i < 64; i++) found |= (uint8_t)((at[i] == 0xe2) & (at[i + 1] == 0x96));
    return found;
}

/* The beginnings of pieces in the 64 bytes at `at`, which are classified. Spaces are told from the masks; the filter is
 * asked unless both characters are letters of ASCII, as some token joins nearly any two of these. No branch depends on
 * the characters, which cannot be predicted, but where there is a ▁. */
static inline uint64_t joins_begins(const joins *j, const uint8_t *text, size_t size, size_t at, const word_masks *word,
                                    joins_before *before) {
    const uint64_t blank = word->blank, after_blank = blank << 1 | before->blank;
    const uint64_t inside = word->continuation << 1 | before->inside >> 1;
    const uint64_t two_inside = inside & (word->continuation << 2 | before->inside);
    uint64_t positions = ~(word->continuation | (word->letter & (word->letter << 1 | before->letter)));
    uint64_t begins = 0, joined = 0;
    uint8_t copy[16 + 64 + 8];
    const uint8_t *from = text + at;
    if (at < 16 || size - at < 64 + 8) {
        const size_t back = at < 16 ? at : 16, rest = size - at < 64 + 8 ? size - at : 64 + 8;
        memset(copy, 0, sizeof copy);
        memcpy(copy + 16 - back, from - back, back + rest);
        from = copy + 16;
        if (at == 0) positions &= ~1ULL;
        if (rest < 64) positions &= (1ULL << rest) - 1;
    }
    if ((word->high | before->inside) && has_mark(from)) {
        for (; positions; positions &= positions - 1) {
            const int i = count_trailing_zeros(positions);
            begins |= (uint64_t)joins_begin(j, text, size, at + i) << i;
        }
    } else {
        if (!j->crosses) begins = j->every_space ? blank : blank & ~after_blank;
        positions &= ~(after_blank | (j->crosses ? 0 : blank));
        for (uint64_t rest = positions; rest; rest &= rest - 1) {
            const int i = count_trailing_zeros(rest);
            const uint64_t around = little_endian(eight_bytes(from + i - 3));
            joined |= get_pair(j, pair_bit(j, around, (inside >> i & 1) + (two_inside >> i & 1))) << i;
        }
        begins |= positions & ~joined;
    }
    before->blank = blank >> 63;
    before->letter = word->letter >> 63;
    before->inside = word->continuation >> 62;
    return begins;
}

static inline int is_letter(uint8_t byte) { return (uint8_t)((byte | 0x20) - 'a') < 26; }

/* The first position from `at` on where a piece surely begins, whatever follows the text, or `size`. */
static size_t joins_cut(const joins *j, const uint8_t *text, size_t size, size_t at) {
    for (at = at ? at : 1; at < size; at++) {
        const size_t length = text[at] < 0xc0 ? 1 : text[at] < 0xe0 ? 2 : text[at] < 0xf0 ? 3 : 4;
        if (size - at < length) return size; /* the rest of the character is still to come */
        if (is_continuation(text[at]) || (is_letter(text[at]) && is_letter(text[at - 1]))) continue;
        if (joins_begin(j, text, size, at)) return at;
    }
    return size;
}
#endif
