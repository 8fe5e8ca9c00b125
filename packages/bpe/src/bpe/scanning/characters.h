/* Characters beyond ASCII: decoded, and marked in the words of classify.h. */
#ifndef BPE_CHARACTERS_H
#define BPE_CHARACTERS_H
#include "native/character.h"
#include "scanning/classes.h"

static inline uint8_t read_class(const uint8_t *text, size_t room, int family, size_t *length) {
    uint32_t code;
    *length = decode_character(text, room, &code);
    return code < 0x10000 ? class_table[family][code] : class_of(family, code);
}

/* Mark the characters beyond ASCII in the masks of the 64 bytes at `text`; `room` bytes are left of the text.
 *
 * spill, spill_class: the bytes of these 64 that belong to a character which began before them, and its class; left as
 * the next 64 need them.
 *
 * Each character is found by its first byte, whatever comes before, so that the processor can work on several at once.
 * Bytes that are no part of a character stay unmarked. */
static void mark_characters(const uint8_t *text, size_t room, int family, word_masks *word, uint64_t *spill,
                            uint8_t *spill_class) {
    const uint8_t *classes = class_table[family];
    uint64_t inside = *spill, han = *spill_class & IS_HAN ? *spill : 0;
    size_t i = 0, length = 0;
    uint8_t char_class = 0;
    word->of[*spill_class & CLASS] |= *spill;
    for (uint64_t leads = word->high & ~word->continuation; leads; leads &= leads - 1) {
        const uint8_t *at = text + (i = count_trailing_zeros(leads));
        if (at[0] >= 0xc2 && at[0] <= 0xdf && room > 64 && (at[1] & 0xc0) == 0x80) {
            length = 2;
            char_class = classes[(at[0] & 0x1f) << 6 | (at[1] & 0x3f)];
        } else {
            char_class = read_class(at, room - i, family, &length);
        }
        uint64_t rest = (1ULL << length) - 2;
        word->of[char_class & CLASS] |= (rest | 1) << i;
        inside |= rest << i;
        han |= char_class & IS_HAN ? (rest | 1) << i : 0;
    }
    *spill = i + length > 64 ? (1ULL << (i + length - 64)) - 1 : 0;
    *spill_class = char_class;
    word->inside = inside;
    word->han = han;
}
#endif
