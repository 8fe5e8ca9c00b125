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
#endif
