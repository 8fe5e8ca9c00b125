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
 * For the same reason the marks of neighbours go to two arrays in turn, which are joined in the end. Bytes that are no
 * part of a character stay unmarked. */
static void characters_portable(const uint8_t *text, size_t room, int family, word_masks *word, uint64_t *spill,
                                uint8_t *spill_class) {
    const uint8_t *classes = class_table[family];
    uint64_t marks[2][CLASS + 1] = {{0}}, inside = *spill, han = *spill_class & IS_HAN ? *spill : 0;
    size_t i = 0, length = 0, side = 0;
    uint8_t char_class = 0;
    marks[0][*spill_class & CLASS] = *spill;
    for (uint64_t leads = word->high & ~word->continuation; leads; leads &= leads - 1) {
        const uint8_t *at = text + (i = count_trailing_zeros(leads));
        if (at[0] >= 0xc2 && at[0] <= 0xdf && room > 64 && (at[1] & 0xc0) == 0x80) {
            length = 2;
            char_class = classes[(at[0] & 0x1f) << 6 | (at[1] & 0x3f)];
        } else {
            char_class = read_class(at, room - i, family, &length);
        }
        uint64_t rest = (1ULL << length) - 2;
        marks[side ^= 1][char_class & CLASS] |= (rest | 1) << i;
        inside |= rest << i;
        han |= char_class & IS_HAN ? (rest | 1) << i : 0;
    }
    *spill = i + length > 64 ? (1ULL << (i + length - 64)) - 1 : 0;
    *spill_class = char_class;
    for (int each = 0; each <= CLASS; each++) word->of[each] |= marks[0][each] | marks[1][each];
    word->inside = inside;
    word->han = han;
}

typedef void (*characters_function)(const uint8_t *text, size_t room, int family, word_masks *word, uint64_t *spill,
                                    uint8_t *spill_class);

#ifdef BPE_X86
/* AVX-512: sixteen characters at a time. Their bytes are moved together, and what is found of each goes back to its
 * place by depositing the bits of a mask where the first bytes are. Characters of four bytes, and the end of the text,
 * go the other way. */
TARGET_AVX512 static void characters_avx512(const uint8_t *text, size_t room, int family, word_masks *word,
                                            uint64_t *spill, uint8_t *spill_class) {
    if (room < 66) { /* before anything is read: beyond the text may be nothing */
        characters_portable(text, room, family, word, spill, spill_class);
        return;
    }
    const uint64_t all = word->high & ~word->continuation;
    const __m512i first = _mm512_loadu_si512(text);
    if (_mm512_cmpge_epu8_mask(first, _mm512_set1_epi8((char)0xf0)) & all) {
        characters_portable(text, room, family, word, spill, spill_class);
        return;
    }
    const __m512i second = _mm512_loadu_si512(text + 1), third = _mm512_loadu_si512(text + 2);
    const __m512i continues = _mm512_set1_epi32(0xc0), continued = _mm512_set1_epi32(0x80);
    const __m512i six = _mm512_set1_epi32(0x3f);
    const void *classes = class_table[family];
    uint64_t marks[CLASS + 1] = {0}, inside = *spill, han = *spill_class & IS_HAN ? *spill : 0;
    size_t length = 0;
    uint8_t last = 0;
    marks[*spill_class & CLASS] = *spill;
    for (uint64_t left = all; left;) {
        const uint64_t leads = _pdep_u64(0xffff, left);
        const __mmask16 lanes = (__mmask16)((1u << __builtin_popcountll(leads)) - 1);
        const __m512i a = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_maskz_compress_epi8(leads, first)));
        const __m512i b = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_maskz_compress_epi8(leads, second)));
        const __m512i c = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_maskz_compress_epi8(leads, third)));
        const __m512i low = _mm512_and_si512(b, six);
        const __m512i of_two = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(a, _mm512_set1_epi32(0x1f)), 6), low);
        const __m512i of_three =
            _mm512_or_si512(_mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(a, _mm512_set1_epi32(0x0f)), 12),
                                            _mm512_slli_epi32(low, 6)),
                            _mm512_and_si512(c, six));
        const __mmask16 goes_on = _mm512_mask_cmpeq_epi32_mask(lanes, _mm512_and_si512(b, continues), continued);
        const __mmask16 begins_three = _mm512_mask_cmpge_epu32_mask(goes_on, a, _mm512_set1_epi32(0xe0));
        const __mmask16 two =
            (__mmask16)(_mm512_mask_cmpge_epu32_mask(goes_on, a, _mm512_set1_epi32(0xc2)) & ~begins_three);
        __mmask16 three = _mm512_mask_cmpeq_epi32_mask(begins_three, _mm512_and_si512(c, continues), continued);
        three = _mm512_mask_cmpge_epu32_mask(three, of_three, _mm512_set1_epi32(0x800));
        three &= (__mmask16)~_mm512_mask_cmpeq_epi32_mask(three, _mm512_and_si512(of_three, _mm512_set1_epi32(0xf800)),
                                                          _mm512_set1_epi32(0xd800));
        __m512i code = _mm512_or_si512(a, _mm512_set1_epi32(0xdc00)); /* of what is no part of a character */
        code = _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(code, two, of_two), three, of_three);
        const __m512i rows = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, code, classes, 1);
        const uint64_t longer = _pdep_u64(two | three, leads), longest = _pdep_u64(three, leads);
        const __m512i lane_classes = _mm512_and_si512(rows, _mm512_set1_epi32(CLASS));
        for (int which = 0; which <= CLASS; which++) {
            const uint64_t begin =
                _pdep_u64(_mm512_mask_cmpeq_epi32_mask(lanes, lane_classes, _mm512_set1_epi32(which)), leads);
            marks[which] |= begin | (begin & longer) << 1 | (begin & longest) << 2;
        }
        inside |= longer << 1 | longest << 2;
        const uint64_t begin = _pdep_u64(_mm512_mask_test_epi32_mask(lanes, rows, _mm512_set1_epi32(IS_HAN)), leads);
        han |= begin | (begin & longer) << 1 | (begin & longest) << 2;
        left &= ~leads;
        if (!left) {
            const int lane = __builtin_popcountll(leads) - 1;
            length = 1 + ((two | three) >> lane & 1) + (three >> lane & 1);
            last = (uint8_t)_mm512_cvtsi512_si32(_mm512_maskz_compress_epi32((__mmask16)(1u << lane), rows));
        }
    }
    const size_t i = all ? 63 - count_leading_zeros(all) : 0;
    *spill = i + length > 64 ? (1ULL << (i + length - 64)) - 1 : 0;
    *spill_class = last;
    for (int which = 0; which <= CLASS; which++) word->of[which] |= marks[which];
    word->inside = inside;
    word->han = han;
}
#endif

static inline characters_function choose_characters(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return characters_avx512;
#endif
    return characters_portable;
}
#endif
