/* The merges of a vocabulary as tables: which pairs of symbols merge, and which bytes can be joined without asking.
 *
 * `pairs` is a hash table with linear probing. An entry is one word, so that all of them stay in a near cache:
 *
 *     63                                                     0
 *     +------------------+------------------+----------------+
 *     |   left symbol    |   right symbol   |     merge      |     FREE, all ones: nothing here
 *     +------------------+------------------+----------------+
 *        symbol_bits        symbol_bits        merge_bits
 *
 * A merge is numbered by its rank: the lower goes first. Most pairs that are looked up do not merge; `filter`, a Bloom
 * filter of one hash function, says so of nine in ten from a table a sixteenth of the size.
 *
 * `byte_pairs` has a word for each two bytes, number first + 256 * second, XOR NO_BYTE_PAIR. So it is zero for the many
 * bytes that nothing takes, and a small vocabulary writes few pages of the table:
 *
 *     63                    42 41 40 39                20 19                 0
 *     +-----------------------+--+--+--------------------+--------------------+
 *     |         merge         | 0| J|    takes_second    |    takes_first     |
 *     +-----------------------+--+--+--------------------+--------------------+
 *
 *     takes_first     least rank of a merge of the first byte with a symbol that begins with the second, divided by 4
 *     takes_second    least rank of a merge of a symbol that ends with the first byte with the second, divided by 4
 *     J               1 if the two bytes merge, and all merges that their symbol takes part in come later
 *     merge           the merge that joins them, if J is 1
 *
 * About half of all merges join two bytes, and these need not wait for their turn. Let A, B be neighbours that merge
 * with rank r, and X, Y the bytes before and after them, so that J is set, r < takes_second of X A, and r <
 * takes_first of B Y. Then nothing takes A or B before they join, and nothing that their joining makes possible comes
 * before r either. So they are joined at once. (J is set for all pairs of bytes that merge in a vocabulary that was
 * trained, but not in any that is made up.) */
#ifndef BPE_MERGE_TABLES_H
#define BPE_MERGE_TABLES_H
#include <stddef.h>
#include <stdint.h>

#define NONE UINT32_MAX /* no symbol, or no merge */
#define FREE UINT64_MAX
#define PAIR_HASH 0x9E3779B97F4A7C15ULL /* Knuth's multiplicative hash, whose high bits are the good ones */

enum { BYTE_PAIRS = 1 << 16, TAKES_BITS = 20, JOINS_AT = 2 * TAKES_BITS, MERGE_AT = JOINS_AT + 2 };
#define TAKES_NEVER (((uint64_t)1 << TAKES_BITS) - 1)
#define NO_BYTE_PAIR (TAKES_NEVER << TAKES_BITS | TAKES_NEVER) /* at the ends of a text */

typedef struct {
    uint64_t *pairs; /* mask + 2 entries: the last is always free, and stands for a pair that needs no lookup */
    uint64_t *filter;
    uint64_t *byte_pairs;
    uint32_t *made; /* the symbol of each merge; NULL where that is first_made + merge, as in most vocabularies */
    uint32_t symbol_of_byte[256];
    uint32_t first_made;
    size_t mask;
    int shift, filter_shift, symbol_bits, merge_bits;
} MergeTables;

static inline uint32_t made_by(const MergeTables *tables, uint32_t merge) {
    return tables->made == NULL ? tables->first_made + merge : tables->made[merge];
}

static inline uint64_t pair_of(const MergeTables *tables, uint64_t left, uint64_t right) {
    return left << tables->symbol_bits | right;
}

static inline uint64_t pair_of_entry(const MergeTables *tables, uint64_t entry) { return entry >> tables->merge_bits; }

static inline uint32_t merge_of_entry(const MergeTables *tables, uint64_t entry) {
    return (uint32_t)(entry & (((uint64_t)1 << tables->merge_bits) - 1));
}

static inline uint32_t left_of_entry(const MergeTables *tables, uint64_t entry) {
    return (uint32_t)(pair_of_entry(tables, entry) >> tables->symbol_bits);
}

static inline uint32_t right_of_entry(const MergeTables *tables, uint64_t entry) {
    return (uint32_t)(pair_of_entry(tables, entry) & (((uint64_t)1 << tables->symbol_bits) - 1));
}

/* 0 where a pair surely does not merge; otherwise *slot is where its entry is looked for first. */
static inline int may_merge(const MergeTables *tables, uint64_t pair, size_t *slot) {
    const uint64_t hash = pair * PAIR_HASH;
    const size_t bit = hash >> tables->filter_shift;
    *slot = hash >> tables->shift;
    return tables->filter[bit >> 6] >> (bit & 63) & 1;
}

/* The merge of a pair, or NONE. */
static inline uint32_t find_merge(const MergeTables *tables, uint64_t pair, size_t slot) {
    for (;; slot = (slot + 1) & tables->mask) {
        const uint64_t entry = tables->pairs[slot];
        if (pair_of_entry(tables, entry) == pair) return merge_of_entry(tables, entry);
        if (entry == FREE) return NONE;
    }
}

static inline void add_merge(MergeTables *tables, uint64_t left, uint64_t right, uint32_t merge) {
    const uint64_t pair = pair_of(tables, left, right);
    const uint64_t hash = pair * PAIR_HASH;
    const size_t bit = hash >> tables->filter_shift;
    size_t slot = hash >> tables->shift;
    for (; tables->pairs[slot] != FREE; slot = (slot + 1) & tables->mask)
        if (pair_of_entry(tables, tables->pairs[slot]) == pair)
            return; /* the first mention of a pair is the one that counts */
    tables->pairs[slot] = pair << tables->merge_bits | merge;
    tables->filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
}

static inline size_t byte_pair_at(uint8_t first, uint8_t second) { return (size_t)second << 8 | first; }

static inline uint64_t byte_pair_entry(uint32_t takes_first, uint32_t takes_second) {
    return (((uint64_t)(takes_second >> 2) & TAKES_NEVER) << TAKES_BITS | ((takes_first >> 2) & TAKES_NEVER)) ^
           NO_BYTE_PAIR;
}

static inline uint64_t with_joining(uint64_t word, uint32_t merge) {
    return word | (uint64_t)merge << MERGE_AT | (uint64_t)1 << JOINS_AT;
}

static inline uint32_t joining_merge(uint64_t word) { return (uint32_t)(word >> MERGE_AT); }

/* 1 where two bytes may be joined at once, by the words of X A, A B and B Y (see above), else 0. A difference below
 * zero has the top bit set, so that three conditions are two subtractions. */
static inline uint64_t joins_at_once(uint64_t before, uint64_t here, uint64_t after) {
    const uint64_t rank = here >> (MERGE_AT + 2), takes_second = before >> TAKES_BITS & TAKES_NEVER;
    const uint64_t takes_first = after & TAKES_NEVER;
    return ((rank - takes_second) & (rank - takes_first) & here << (63 - JOINS_AT)) >> 63;
}
#endif
