/* One character of UTF-8. */
#ifndef BPE_CHARACTER_H
#define BPE_CHARACTER_H
#include <stddef.h>
#include <stdint.h>

/* The character at text[0]: its length in bytes, and its code point in *code. A byte that begins no well-formed UTF-8
 * sequence (Unicode 17, table 3-7) is a character of its own, one byte long, and has the code point of a lone
 * surrogate, of category Cs: what `bytes.decode("utf-8", "surrogateescape")` makes of it. */
static inline size_t decode_character(const uint8_t *text, size_t room, uint32_t *code) {
    uint32_t lead = text[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf && room >= 2 && (text[1] & 0xc0) == 0x80) {
        *code = (lead & 0x1f) << 6 | (text[1] & 0x3f);
        return 2;
    }
    if (lead >= 0xe0 && lead <= 0xef && room >= 3 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80) {
        *code = (lead & 0x0f) << 12 | (uint32_t)(text[1] & 0x3f) << 6 | (text[2] & 0x3f);
        if (*code >= 0x800 && (*code < 0xd800 || *code > 0xdfff)) return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4 && room >= 4 && (text[1] & 0xc0) == 0x80 && (text[2] & 0xc0) == 0x80 &&
        (text[3] & 0xc0) == 0x80) {
        *code = (lead & 0x07) << 18 | (uint32_t)(text[1] & 0x3f) << 12 | (uint32_t)(text[2] & 0x3f) << 6;
        *code |= text[3] & 0x3f;
        if (*code >= 0x10000 && *code <= 0x10ffff) return 4;
    }
    *code = 0xdc00 | lead;
    return 1;
}

/* The character that ends at `at`, as decode_character() has it: UTF-8 can be read backwards. */
static inline size_t decode_before(const uint8_t *text, size_t at, uint32_t *code) {
    size_t back = 1;
    while (back < 4 && back < at && (text[at - back] & 0xc0) == 0x80) back++;
    if (decode_character(text + at - back, back, code) == back) return back;
    *code = 0xdc00 | text[at - 1];
    return 1;
}

/* Write the UTF-8 of a code point to `to`, where there is room for four bytes; returns its end. */
static inline uint8_t *encode_character(uint32_t code, uint8_t *to) {
    if (code < 0x80) {
        *to++ = (uint8_t)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (uint8_t)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (uint8_t)(0xe0 | code >> 12);
        } else {
            *to++ = (uint8_t)(0xf0 | code >> 18);
            *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        }
        *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (uint8_t)(0x80 | (code & 0x3f));
    return to;
}
#endif
