/* Lanes, in which pretokens are merged side by side (see ranks.pyx), and the vector twin of how one begins: on the table of
 * merges as it is, eight bytes or pairs of symbols at a time. Ranks.begin() answers the same for machines without it. */
#ifndef BPE_LANES_H
#define BPE_LANES_H
#include <stddef.h>
#include <stdint.h>

#include "native/cpu.h"

enum {
    SEARCHED = 64, /* bytes that a lane has room for, a bit each in a word */
    LANES = 32     /* pretokens, or windows of one, that are merged side by side */
};

/* The words of Ranks.starts, from the low bits up: a quarter of the least rank of a merge of the first byte with what the second
 * begins, as many of that of a merge of what the first ends with the second, whether the two may be joined at once, their merge. */
enum { BOUND_BITS = 20, AT_ONCE = 40, MERGE_AT = 42 };
#define UNBOUND (((uint64_t)1 << BOUND_BITS) - 1) /* as a bound */
#define NO_START (UNBOUND << BOUND_BITS | UNBOUND) /* of bytes that are no neighbours */
#define NONE UINT32_MAX
#define FREE UINT64_MAX
#define HASH 0x9E3779B97F4A7C15ULL /* Knuth's multiplicative one: the high bits are the good ones */

typedef struct {        /* a pair whose merge is on its way */
    uint64_t pair;
    size_t slot;        /* of the table of pairs; the one after the last, always free: there is none */
    uint32_t at;        /* where in the lane; SEARCHED, where nobody looks: there is none */
} Waiting;

typedef struct {        /* what goes into a lane: at most SEARCHED bytes */
    const uint8_t *text;
    size_t size;
} Unmerged;

typedef struct {                    /* a pretoken of at most SEARCHED bytes while it is merged */
    uint32_t keys[SEARCHED + 1];    /* first of all: begin_avx512() counts from those of one lane to another's. merge * SEARCHED + place, of a symbol and the next one; NONE where they do not merge */
    uint32_t symbols[SEARCHED + 1]; /* as it begins, and what each has become; in the end the first `count` are the result */
    uint8_t begins[SEARCHED];       /* of the symbols that it begins with, in the text */
    uint64_t here;                  /* a bit for each of these places that still is one */
    Waiting left, right;
    size_t searched, count;
} Lane;

typedef struct { /* what beginning wants to know of Ranks, under the same names */
    const uint64_t *starts, *pairs, *filter;
    const uint32_t *symbol_of_byte, *made; /* made: NULL where it is first_made + merge */
    uint32_t first_made;
    size_t mask;
    int shift, filter_shift, symbol_bits, merge_bits;
} MergeTables;

typedef void (*begin_function)(const MergeTables *tables, Lane *lanes, const Unmerged *pieces, size_t count);

#ifdef BPE_X86

/* Of eight bytes of a text and those after them, from number `at` on, what `starts` says. */
TARGET_AVX512 static inline __m512i starts_avx512(const MergeTables *tables, const uint8_t *text, size_t size, size_t at,
                                                 __m128i *bytes) {
    if (at >= size) return _mm512_set1_epi64(NO_START);
    const uint64_t valid = ~0ULL >> (64 - (size - at < 9 ? size - at : 9));
    const __m128i here = _mm_maskz_loadu_epi8((__mmask16)valid, text + at); /* reads no byte beyond */
    const __m512i pair = _mm512_cvtepu16_epi64(_mm_unpacklo_epi8(here, _mm_bsrli_si128(here, 1)));
    *bytes = here;
    return _mm512_mask_i64gather_epi64(_mm512_set1_epi64(NO_START), (__mmask8)(valid >> 1), pair, tables->starts, 8);
}

/* Put a piece into a lane, the bytes joined that are joined at once; its symbols go to `flat` too, and to `where` the number of
 * the key of each, counted from `key`. Returns how many there are. Up to seven more words are written. */
TARGET_AVX512 static inline size_t join_avx512(const MergeTables *tables, Lane *lane, const uint8_t *text, size_t size, uint32_t key,
                                              uint32_t *flat, uint32_t *where) {
    const __m512i unbound = _mm512_set1_epi64(UNBOUND);
    const __m256i eight = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    __m128i bytes, bytes_after = _mm_setzero_si128();
    __m512i before = _mm512_set1_epi64(NO_START), here = starts_avx512(tables, text, size, 0, &bytes), after;
    size_t symbols = 0;
    uint32_t second = 0; /* a bit for the first byte to come: it is joined to the one before */
    for (size_t at = 0; at < size; at += 8, before = here, here = after, bytes = bytes_after) {
        after = starts_avx512(tables, text, size, at + 8, &bytes_after);
        const __m512i rank = _mm512_srli_epi64(here, MERGE_AT + 2);
        const __m512i left = _mm512_and_si512(_mm512_srli_epi64(_mm512_alignr_epi64(here, before, 7), BOUND_BITS), unbound);
        const __m512i right = _mm512_and_si512(_mm512_alignr_epi64(after, here, 1), unbound);
        const __m512i lower = _mm512_and_si512(_mm512_sub_epi64(rank, left), _mm512_sub_epi64(rank, right));
        const __mmask8 joined = _mm512_movepi64_mask(_mm512_and_si512(lower, _mm512_slli_epi64(here, 63 - AT_ONCE)));
        const uint32_t valid = size - at < 8 ? (1u << (size - at)) - 1 : 0xff;
        const __mmask8 first = (__mmask8)(valid & ~((uint32_t)joined << 1 | second));
        const __m256i merge = _mm512_cvtepi64_epi32(_mm512_srli_epi64(here, MERGE_AT));
        __m256i symbol = _mm256_i32gather_epi32((const int *)tables->symbol_of_byte, _mm256_cvtepu8_epi32(bytes), 4);
        if (tables->made == NULL)
            symbol = _mm256_mask_add_epi32(symbol, joined, merge, _mm256_set1_epi32((int)tables->first_made));
        else symbol = _mm256_mmask_i32gather_epi32(symbol, joined, merge, (const int *)tables->made, 4);
        const __m256i number = _mm256_add_epi32(eight, _mm256_set1_epi32((int)at));
        symbol = _mm256_maskz_compress_epi32(first, symbol);
        _mm256_storeu_si256((__m256i *)(lane->symbols + symbols), symbol);
        _mm256_storeu_si256((__m256i *)(flat + symbols), symbol);
        _mm256_storeu_si256((__m256i *)(where + symbols), _mm256_add_epi32(eight, _mm256_set1_epi32((int)(key + symbols))));
        _mm_storel_epi64((__m128i *)(lane->begins + symbols), _mm256_cvtepi32_epi8(_mm256_maskz_compress_epi32(first, number)));
        _mm256_storeu_si256((__m256i *)(lane->keys + at), _mm256_set1_epi32(-1));
        symbols += (size_t)__builtin_popcount(first);
        second = joined >> 7;
    }
    lane->here = ~0ULL >> (SEARCHED - symbols);
    lane->searched = (symbols + 7) & ~(size_t)7;
    lane->left.slot = lane->right.slot = tables->mask + 1;
    lane->left.at = lane->right.at = SEARCHED;
    return symbols;
}

/* As Ranks.begin(). What the filter says, and whether a slot has the pair that was asked for, is no branch here either. */
TARGET_AVX512 static void begin_avx512(const MergeTables *tables, Lane *lanes, const Unmerged *pieces, size_t count) {
    enum { ROOM = LANES * (SEARCHED + 1) + 8 };
    uint32_t flat[ROOM]; /* the symbols of all pieces, after each piece one that merges with none */
    uint32_t where[ROOM], again[ROOM]; /* the key of each, and which of those have to be looked for further */
    uint64_t pairs[ROOM];
    size_t slots[ROOM];
    const int shift = tables->shift, filter_shift = tables->filter_shift;
    const int merge_bits = tables->merge_bits, symbol_bits = tables->symbol_bits;
    const uint64_t *filter = tables->filter, *entries = tables->pairs;
    const uint64_t merge_mask = ((uint64_t)1 << merge_bits) - 1;
    const uint32_t none = (1u << symbol_bits) - 1;
    const __m256i eight = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    size_t symbols = 0, questions = 0, repeated = 0;
    for (size_t i = 0; i < count; i++) {
        symbols += join_avx512(tables, &lanes[i], pieces[i].text, pieces[i].size, (uint32_t)(i * SEARCHED),
                               flat + symbols, where + symbols);
        flat[symbols] = none;
        where[symbols] = where[symbols - 1]; /* of what merges with none, as the last one */
        symbols++;
    }
    for (size_t at = 0; at + 1 < symbols; at += 8) {
        const __mmask8 asked = (__mmask8)(symbols - 1 - at < 8 ? (1u << (symbols - 1 - at)) - 1 : 0xff);
        const __m256i left = _mm256_loadu_si256((const __m256i *)(flat + at));
        const __m256i right = _mm256_loadu_si256((const __m256i *)(flat + at + 1));
        const __m512i pair = _mm512_or_si512(_mm512_sll_epi64(_mm512_cvtepu32_epi64(left), _mm_cvtsi32_si128(symbol_bits)),
                                             _mm512_cvtepu32_epi64(right));
        const __m512i hash = _mm512_mullo_epi64(pair, _mm512_set1_epi64((long long)HASH));
        const __m512i bit = _mm512_srl_epi64(hash, _mm_cvtsi32_si128(filter_shift));
        const __m512i word = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), asked, _mm512_srli_epi64(bit, 6), filter, 8);
        const __m512i turned = _mm512_rorv_epi64(word, bit); /* by the low six bits of it */
        const __mmask8 likely = _mm512_test_epi64_mask(turned, _mm512_set1_epi64(1));
        const __m256i key = _mm256_loadu_si256((const __m256i *)(where + at));
        _mm512_storeu_si512(pairs + questions, _mm512_maskz_compress_epi64(likely, pair));
        _mm512_storeu_si512(slots + questions, _mm512_maskz_compress_epi64(likely, _mm512_srl_epi64(hash, _mm_cvtsi32_si128(shift))));
        _mm256_storeu_si256((__m256i *)(where + questions), _mm256_maskz_compress_epi32(likely, key));
        questions += (size_t)__builtin_popcount(likely);
    }
    for (size_t at = 0; at < questions; at += 8) {
        const __mmask8 asked = (__mmask8)(questions - at < 8 ? (1u << (questions - at)) - 1 : 0xff);
        const __m512i free = _mm512_set1_epi64(-1), slot = _mm512_loadu_si512(slots + at);
        const __m512i entry = _mm512_mask_i64gather_epi64(free, asked, slot, entries, 8);
        const __m512i found = _mm512_srl_epi64(entry, _mm_cvtsi32_si128(merge_bits));
        const __mmask8 same = _mm512_mask_cmpeq_epi64_mask(asked, found, _mm512_loadu_si512(pairs + at));
        const __mmask8 other = _mm512_mask_cmpneq_epi64_mask((__mmask8)~same, entry, free);
        const __m256i merge = _mm512_cvtepi64_epi32(_mm512_and_si512(entry, _mm512_set1_epi64((long long)merge_mask)));
        const __m256i number = _mm256_loadu_si256((const __m256i *)(where + at));
        const __m256i place = _mm256_and_si256(number, _mm256_set1_epi32(SEARCHED - 1));
        const __m256i lane = _mm256_mullo_epi32(_mm256_srli_epi32(number, 6), _mm256_set1_epi32(sizeof(Lane) / sizeof(uint32_t)));
        const __m256i key = _mm256_or_si256(_mm256_slli_epi32(merge, 6), place); /* 64 is SEARCHED */
        _mm256_mask_i32scatter_epi32(lanes->keys, same, _mm256_add_epi32(lane, place), key, 4);
        _mm256_storeu_si256((__m256i *)(again + repeated),
                            _mm256_maskz_compress_epi32(other, _mm256_add_epi32(eight, _mm256_set1_epi32((int)at))));
        repeated += (size_t)__builtin_popcount(other);
    }
    for (size_t i = 0; i < repeated; i++) {
        const size_t at = again[i];
        const uint32_t place = where[at] % SEARCHED;
        size_t slot = slots[at];
        uint64_t entry;
        do {
            slot = (slot + 1) & tables->mask;
            entry = entries[slot];
        } while (entry != FREE && entry >> merge_bits != pairs[at]);
        if (entry != FREE) lanes[where[at] / SEARCHED].keys[place] = (uint32_t)(entry & merge_mask) * SEARCHED | place;
    }
}

#endif

/* NULL where there is no vector version. */
static inline begin_function choose_begin(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return begin_avx512;
#endif
    return NULL;
}
#endif
