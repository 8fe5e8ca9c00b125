/* Cutting pretokens of Chinese, Japanese, Thai and Lao where no token joins two characters.
 *
 * These scripts, of three bytes a character, have few spaces, so that a pretoken is a phrase, and most phrases are new.
 * But merges stay within tokens: where no token holds two neighbouring characters side by side, nor ends or begins
 * inside one of them beside the other, no merge crosses their border, and a pretoken can be cut there without changing
 * an id. Words and single characters are left, and nearly all of them are in a small cache.
 *
 * `pairs` has a bit for each hash of two characters, of each three bytes: of the left one, which may have four, the
 * last, of the right one the first. Where two pairs share a bit, a pretoken is cut less often than it could be.
 *
 * `halves`: tokens with part of a character, which are rare, forbid every cut beside those bytes. `before` and `after`:
 * tokens that merges do not lead to stand for whole pretokens only, and forbid cuts around them, or a piece could be
 * mistaken for such a pretoken. */
#ifndef BPE_CUTS_H
#define BPE_CUTS_H
#include <stddef.h>
#include <stdint.h>

#include "native/bytes.h"

enum { PAIR_BITS = 20 }; /* of a hash: 128 KB, for some 60,000 pairs of characters in the tokens of a vocabulary */

typedef struct {
    uint64_t pairs[(1 << PAIR_BITS) / 64];
    uint64_t halves[1 << 10]; /* by the last byte of the left character and the first of the right one */
    uint64_t before[1 << 10]; /* by the second and third bytes of the right character, */
    uint64_t after[1 << 10];  /* and by the last two bytes of the left one */
} cut_table;

/* Carry from the 64 bytes before: `third` is 1 if their last byte was a third or fourth byte of a character, `inside`
 * if it was a second or later one. */
typedef struct {
    uint64_t third, inside;
} cut_before;

static inline uint64_t cut_pair(const uint8_t *left, const uint8_t *right) {
    const uint64_t pair = (uint64_t)left[0] << 40 | (uint64_t)left[1] << 32 | (uint64_t)left[2] << 24 |
                          (uint64_t)right[0] << 16 | (uint64_t)right[1] << 8 | right[2];
    return pair * 0x9e3779b97f4a7c15ULL >> (64 - PAIR_BITS);
}

static inline void set_bit(uint64_t *bits, uint64_t at) { bits[at / 64] |= 1ULL << at % 64; }
static inline uint64_t get_bit(const uint64_t *bits, uint64_t at) { return bits[at / 64] >> at % 64 & 1; }
static inline uint64_t two_bytes(uint8_t first, uint8_t second) { return (uint64_t)first << 8 | second; }

/* Forbid the cuts that a token crosses. */
static inline void add_token(cut_table *table, const uint8_t *token, size_t size) {
    for (size_t at = 1; at < size; at++) {
        const uint8_t *right = token + at;
        if (right[0] < 0xe0 || (right[-1] & 0xc0) != 0x80) continue;
        if (at < 3 || size - at < 2) {
            set_bit(table->halves, two_bytes(right[-1], right[0]));
        } else if (size - at == 2) {
            for (int last = 0x80; last < 0xc0; last++) {
                const uint8_t character[3] = {right[0], right[1], (uint8_t)last};
                set_bit(table->pairs, cut_pair(right - 3, character));
            }
        } else {
            set_bit(table->pairs, cut_pair(right - 3, right));
        }
    }
}

/* Forbid the cuts beside a token that is only ever a whole pretoken. */
static inline void add_whole_token(cut_table *table, const uint8_t *token, size_t size) {
    if (size < 3) return;
    set_bit(table->before, two_bytes(token[1], token[2]));
    set_bit(table->after, two_bytes(token[size - 2], token[size - 1]));
}

/* The positions in the 64 bytes at `at` where a pretoken can be cut. `begins`: where one begins anyway; `high`,
 * `inside`: the masks of classify.h; `ahead`: `inside` of the next 64. */
static inline uint64_t cuts_in_word(const cut_table *table, const uint8_t *at, uint64_t begins, uint64_t high,
                                    uint64_t inside, uint64_t ahead, cut_before *before) {
    const uint64_t third = inside & (inside << 1 | before->inside);
    uint64_t positions = (third << 1 | before->third) & (inside >> 1 | ahead << 63) & (inside >> 2 | ahead << 62);
    before->third = third >> 63;
    before->inside = inside >> 63;
    uint64_t cuts = 0;
    for (positions &= high & ~inside & ~begins; positions; positions &= positions - 1) {
        const int i = count_trailing_zeros(positions);
        const uint8_t *right = at + i;
        if (right[0] == 0xe0 ? right[1] < 0xb8 : right[0] < 0xe2 || right[0] > 0xe9) continue; /* has spaces */
        const uint64_t joined = get_bit(table->pairs, cut_pair(right - 3, right)) |
                                get_bit(table->halves, two_bytes(right[-1], right[0])) |
                                get_bit(table->before, two_bytes(right[1], right[2])) |
                                get_bit(table->after, two_bytes(right[-2], right[-1]));
        cuts |= (joined ^ 1) << i;
    }
    return cuts;
}
#endif
