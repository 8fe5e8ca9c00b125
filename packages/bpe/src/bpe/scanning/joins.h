/* Splitting what SentencePiece-style tokenizers do not split: between two characters that no token joins.
 *
 * Such a tokenizer merges a text as a whole, or what lies between two spaces. But a merge across the border of two
 * characters makes a token in which these two stand side by side. Where no token holds them so, no merge ever crosses
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

#define MOST_JOINS 4096

typedef struct {
    uint64_t *bits;
    int shift;       /* of a hash, which leaves the number of a bit */
    int every_space; /* whether a piece begins at every space, */
    int crosses;     /* or else whether a token goes on across a space */
} joins;

/* Made while the GIL is held, and never unmade. */
static joins *joins_of[MOST_JOINS];
static uint32_t joins_count;

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

/* The bit of the characters on both sides of `at`, which is inside the text: of each at most three bytes, the last ones
 * and the first ones. */
static inline uint64_t pair_bit(const joins *j, const uint8_t *text, size_t size, size_t at) {
    uint64_t pair = (uint64_t)text[at - 1] << 16 | (uint64_t)text[at] << 24;
    if (is_continuation(text[at - 1]) && at >= 2) {
        pair |= (uint64_t)text[at - 2] << 8;
        if (is_continuation(text[at - 2]) && at >= 3) pair |= text[at - 3];
    }
    if (text[at] >= 0xc0 && size - at >= 2) {
        pair |= (uint64_t)text[at + 1] << 32;
        if (text[at] >= 0xe0 && size - at >= 3) pair |= (uint64_t)text[at + 2] << 40;
    }
    return pair * 0x9e3779b97f4a7c15ULL >> j->shift;
}

static inline int may_join(const joins *j, const uint8_t *text, size_t size, size_t at) {
    const uint64_t bit = pair_bit(j, text, size, at);
    return (int)(j->bits[bit / 64] >> bit % 64 & 1);
}

/* Note all pairs of a token. */
static void add_joins(joins *j, const uint8_t *token, size_t size) {
    for (size_t at = 1; at < size; at++) {
        if (is_continuation(token[at])) continue;
        const uint64_t bit = pair_bit(j, token, size, at);
        j->bits[bit / 64] |= 1ULL << bit % 64;
        j->crosses |= token[at] == ' ' && token[at - 1] != ' ';
    }
}

/* 1 if a piece begins at `at`, where a character begins, and another one before it. Between letters of ASCII none
 * does, which is for the caller to see. */
static inline int joins_begin(const joins *j, const uint8_t *text, size_t size, size_t at) {
    if (j->every_space && space_from(text, size, at)) return 1;
    if (space_before(text, at)) return 0;
    if (!space_from(text, size, at)) return !may_join(j, text, size, at);
    return !j->crosses || (text[at] == ' ' && !may_join(j, text, size, at));
}

/* The beginnings of pieces in the 64 bytes at `at`, which are classified. Spaces are told from the masks; the filter is
 * asked unless both characters are letters of ASCII, hardly any two of which no token joins. */
static inline uint64_t joins_begins(const joins *j, const uint8_t *text, size_t size, size_t at, const word_masks *word,
                                    joins_before *before) {
    const uint64_t blank = word->blank, letter = word->letter;
    const uint64_t after_blank = blank << 1 | before->blank, after_high = word->high << 1 | before->high;
    const uint64_t after_letter = letter << 1 | before->letter;
    uint64_t begins = j->every_space ? blank : blank & ~after_blank;
    uint64_t places = ~(word->continuation | blank | after_blank | (letter & after_letter));
    if (j->every_space) places |= after_blank & word->high & ~word->continuation; /* a mark may be there, */
    else places |= j->crosses ? begins : begins & after_high;                     /* or before the space */
    if (at == 0) places &= ~1ULL;
    if (size - at < 64) places &= (1ULL << (size - at)) - 1;
    for (; places; places &= places - 1) {
        const int i = count_trailing_zeros(places);
        begins &= ~(1ULL << i);
        begins |= (uint64_t)joins_begin(j, text, size, at + i) << i;
    }
    before->blank = blank >> 63;
    before->letter = letter >> 63;
    before->high = word->high >> 63;
    return begins;
}

static inline int is_letter(uint8_t byte) { return (uint8_t)((byte | 0x20) - 'a') < 26; }

/* The first place from `at` on where a piece surely begins, whatever follows the text, or `size`. */
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
