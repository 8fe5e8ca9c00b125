/* A pair of symbols of one byte each replaced in a whole word, 64 symbols at a time, and its neighbours counted. */
#ifndef BPE_PASSES_H
#define BPE_PASSES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "native/bytes.h"
#include "native/cpu.h"

enum {
    PASS_SLACK = 128,      /* bytes behind a word that a pass may read */
    PASS_LISTED = 1 << 12, /* neighbours that are listed before they are counted */
    PASS_AHEAD = 1 << 12   /* bytes between what is read and what is fetched: a quarter to a half faster than without */
};

/* What stands beside the new symbols. A symbol is counted in one of four tables: to add to a number that was added to
 * just before is to wait. */
typedef struct {
    uint32_t left[4][256], right[4][256]; /* how often each symbol stands there */
    size_t doubles;                       /* how often another new symbol stands to the left */
    size_t replaced;
} pass_neighbours;

/* Replace `a`, `b` by `made`, left to right, in word[:size], which a border follows: a symbol that is neither. Returns
 * the new size; the border follows again. Adds to `beside`, where the borders count as neighbours. */
typedef size_t (*pass_function)(uint8_t *word, size_t size, uint8_t a, uint8_t b, uint8_t made,
                                pass_neighbours *beside);

/* The places at which a pair is replaced, of those at which it stands, if both its symbols are the same: in a run of
 * places every other one, from the first on. */
static inline uint64_t every_other(uint64_t places) {
    const uint64_t even = 0x5555555555555555;
    const uint64_t firsts = places & ~(places << 1);
    const uint64_t from_even = places & ~(places + (firsts & even)); /* the sum has carried all through these runs */
    return (from_even & even) | (places & ~from_even & ~even);
}

static inline void count_listed(const uint8_t *symbols, size_t size, uint32_t counts[4][256]) {
    size_t i = 0;
    for (; i + 4 <= size; i += 4) {
        counts[0][symbols[i]]++;
        counts[1][symbols[i + 1]]++;
        counts[2][symbols[i + 2]]++;
        counts[3][symbols[i + 3]]++;
    }
    for (; i < size; i++) counts[0][symbols[i]]++;
}

/* In both versions the word is rewritten where it lies: what is written ends before what is still to be read. */
#if defined(BPE_X86) || defined(BPE_NEON)
#define BPE_PASSES 1

/* A bit for each of 64 symbols that is `symbol`. */
#ifdef BPE_X86
static inline uint64_t equal_64(const uint8_t *symbols, uint8_t symbol) {
    const __m128i all = _mm_set1_epi8((char)symbol);
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++) {
        const __m128i equal = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(symbols + 16 * i)), all);
        bits |= (uint64_t)(unsigned)_mm_movemask_epi8(equal) << 16 * i;
    }
    return bits;
}
#else
static inline uint64_t equal_64(const uint8_t *symbols, uint8_t symbol) {
    static const uint8_t bit_of[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t all = vdupq_n_u8(symbol), bit = vld1q_u8(bit_of);
    const uint8x16_t first = vandq_u8(vceqq_u8(vld1q_u8(symbols), all), bit);
    const uint8x16_t second = vandq_u8(vceqq_u8(vld1q_u8(symbols + 16), all), bit);
    const uint8x16_t third = vandq_u8(vceqq_u8(vld1q_u8(symbols + 32), all), bit);
    const uint8x16_t fourth = vandq_u8(vceqq_u8(vld1q_u8(symbols + 48), all), bit);
    const uint8x16_t sums = vpaddq_u8(vpaddq_u8(first, second), vpaddq_u8(third, fourth));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}
#endif

static size_t pass_portable(uint8_t *word, size_t size, uint8_t a, uint8_t b, uint8_t made, pass_neighbours *beside) {
    uint8_t *out = word, last = word[size], joined[2 * 64]; /* `last`: the symbol before those that are looked at */
    uint64_t found_before = 0;
    for (size_t i = 0; i <= size; i += 64) {
        const uint8_t *const here = word + i;
        const size_t count = size - i < 63 ? size - i + 1 : 64;
        prefetch(here + PASS_AHEAD);
        uint64_t found = equal_64(here, a) & equal_64(here + 1, b) & ~(uint64_t)0 >> (64 - count);
        if (a == b) found = every_other(found & ~(found_before >> 63));
        const uint64_t behind = found << 2 | found_before >> 62; /* what follows a pair */
        size_t begin = found_before >> 63, joined_size = 0;      /* the first symbol may be the second of a pair */
        for (uint64_t places = found; places; places &= places - 1) {
            const size_t place = count_trailing_zeros(places);
            const uint8_t left = place ? here[place - 1] : last, right = here[place + 2];
            const int is_double = behind >> place & 1, pair_follows = right == a && here[place + 3] == b;
            beside->replaced++;
            beside->doubles += is_double;
            beside->left[place & 3][left] += !is_double;
            beside->right[place & 3][right] += !pair_follows;
            memcpy(joined + joined_size, here + begin, 64);
            joined_size += place - begin;
            joined[joined_size++] = made;
            begin = place + 2;
        }
        last = here[63];
        if (begin < count) {
            memcpy(joined + joined_size, here + begin, 64);
            joined_size += count - begin;
        }
        if (count == 64) memcpy(out, joined, 64);
        else memcpy(out, joined, joined_size);
        out += joined_size;
        found_before = found;
    }
    return out - word - 1;
}
#endif

#ifdef BPE_X86
/* Nothing here branches on where the pair stands, which no processor can predict. */
TARGET_AVX512 static size_t pass_avx512(uint8_t *word, size_t size, uint8_t a, uint8_t b, uint8_t made,
                                        pass_neighbours *beside) {
    const __m512i lefts = _mm512_set1_epi8((char)a), rights = _mm512_set1_epi8((char)b);
    const __m512i mades = _mm512_set1_epi8((char)made);
    uint8_t left[PASS_LISTED + 64], right[PASS_LISTED + 64];
    size_t left_size = 0, right_size = 0;
    uint8_t *out = word;
    __m512i before = _mm512_set1_epi8((char)word[size]); /* the 64 symbols before: at first, borders */
    uint64_t found_before = 0;
    for (size_t i = 0; i <= size; i += 64) {
        const uint64_t whole = size - i < 63 ? ((uint64_t)2 << (size - i)) - 1 : ~(uint64_t)0;
        const __m512i here = _mm512_loadu_si512(word + i), next = _mm512_loadu_si512(word + i + 1);
        _mm_prefetch((const char *)word + i + PASS_AHEAD, _MM_HINT_T0);
        uint64_t found = _mm512_mask_cmpeq_epi8_mask(whole, here, lefts) & _mm512_cmpeq_epi8_mask(next, rights);
        if (a == b) found = every_other(found & ~(found_before >> 63));
        const uint64_t seconds = found << 1 | found_before >> 63; /* the second halves of pairs, which go */
        const uint64_t behind = found << 2 | found_before >> 62;  /* what follows a pair */
        const uint64_t kept = whole & ~seconds;

        /* `here`, moved on by one symbol: in lanes of 16 symbols, and the last one of each lane into the next lane */
        const __m512i lanes = _mm512_alignr_epi64(here, before, 6);
        const __m512i to_the_left = _mm512_alignr_epi8(here, lanes, 15);
        const uint64_t alone = found & ~behind, followed = behind & ~found & whole;
        _mm512_storeu_si512(left + left_size, _mm512_maskz_compress_epi8(alone, to_the_left));
        _mm512_storeu_si512(right + right_size, _mm512_maskz_compress_epi8(followed, here));
        left_size += __builtin_popcountll(alone);
        right_size += __builtin_popcountll(followed);
        beside->doubles += __builtin_popcountll(found & behind);
        beside->replaced += __builtin_popcountll(found);
        if (left_size > PASS_LISTED || right_size > PASS_LISTED) {
            count_listed(left, left_size, beside->left);
            count_listed(right, right_size, beside->right);
            left_size = right_size = 0;
        }

        const __m512i replaced = _mm512_maskz_compress_epi8(kept, _mm512_mask_mov_epi8(here, found, mades));
        const size_t kept_size = __builtin_popcountll(kept);
        if (whole == ~(uint64_t)0) _mm512_storeu_si512(out, replaced);
        else _mm512_mask_storeu_epi8(out, ((uint64_t)1 << kept_size) - 1, replaced);
        out += kept_size;
        before = here;
        found_before = found;
    }
    count_listed(left, left_size, beside->left);
    count_listed(right, right_size, beside->right);
    return out - word - 1;
}
#endif

/* NULL where no version has the vectors of this processor. */
static inline pass_function choose_pass(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return pass_avx512;
#endif
#ifdef BPE_PASSES
    return pass_portable;
#else
    return NULL;
#endif
}
#endif
