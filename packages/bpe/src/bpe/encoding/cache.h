/* Looking pretokens up in a cache, a batch of 128 at a time: the two loops that most of encoding goes through.
 *
 *     fetch     key of each pretoken -> hash -> its set, prefetched       (cache_prepare)
 *     take      key found in its set -> ids copied to the output          (cache_take)
 *
 * By the time the second loop begins, the sets of the batch are in the first-level cache or on their way, so that it
 * waits for one load rather than for 128. It stops at the first pretoken that is not in its set; encoder.pyx then
 * settles all that are missing of the batch at once, and lets it go on.
 *
 * A set is two slots in one cache line of 64 bytes. A slot of 32 bytes:
 *
 *     0               8               16       20       24       28       32
 *     +---------------+---------------+--------+--------+--------+--------+
 *     |      low      |     high      | ids[0] | ids[1] | ids[2] | count  |     high == 0: free
 *     +---------------+---------------+--------+--------+--------+--------+
 *      key: the bytes of a pretoken    ids of a pretoken of up to three
 *      of at most 15, with its length
 *
 * What a slot has no room for is in the ring (see cache.pyx): the bytes of a longer pretoken, whose `low` is then its
 * hash and `high` LONG_KEY plus its size, and ids beyond three. ids[0] and ids[1] are then its place in the ring. What
 * changes a cache is in cache.pyx. */
#ifndef BPE_CACHE_H
#define BPE_CACHE_H
#include "native/bytes.h"
#include "native/cpu.h"

enum {
    WAYS = 2,        /* slots of a set */
    INLINE_IDS = 3,  /* ids that a slot has room for */
    COPIED_IDS = 16, /* ids that are copied from the ring in one go, however few there are */
    SWAP_EVERY = 16, /* of the pretokens found second in their set, one in so many is moved to the front */
    BATCH = 128,     /* pretokens */
    IDS_BEYOND = BATCH * (INLINE_IDS + 1) + COPIED_IDS /* ids that may be written beyond those of a batch */
};
#define IN_RING 0x80000000u /* flag in `count`: the ids are in the ring */

typedef struct {
    uint64_t low, high;
    uint32_t ids[INLINE_IDS];
    uint32_t count;
} cache_slot;

typedef struct {
    cache_slot *slots;
    size_t mask; /* of the first slot of a set */
    uint8_t *ring;
    uint64_t ring_size, written; /* bytes; written: all that ever were */
    uint64_t seed;               /* of hashes: hash_seed */
} cache_table;

typedef struct {
    packed_key keys[BATCH];
    cache_slot *sets[BATCH];
    size_t begins[BATCH + 1];
} cache_batch;

static inline uint64_t cache_place(const cache_slot *slot) { return (uint64_t)slot->ids[1] << 32 | slot->ids[0]; }

/* 1 if what a slot has in the ring is still there, and not so old that it may be overwritten by what comes next. */
static inline int cache_alive(const cache_table *table, const cache_slot *slot) {
    return table->written - cache_place(slot) <= table->ring_size - COPIED_IDS * sizeof(uint32_t);
}

static inline uint8_t *cache_entry(const cache_table *table, const cache_slot *slot) {
    return table->ring + (cache_place(slot) & (table->ring_size - 1));
}

static inline uint64_t cache_hash(const cache_table *table, packed_key key) {
    return key.high >= LONG_KEY ? key.low : hash_pair(key.low, key.high, table->seed);
}

/* The set that a pretoken goes to, and the one that it goes to where the first is full. */
static inline cache_slot *cache_set(const cache_table *table, packed_key key) {
    return &table->slots[cache_hash(table, key) & table->mask];
}

static inline cache_slot *cache_second_set(const cache_table *table, packed_key key) {
    return &table->slots[cache_hash(table, key) >> 32 & table->mask];
}

/* Make the keys of a batch and prefetch their sets; returns how many are of long pretokens. The pretokens end at
 * ends[0 .. count), the first begins at `begin`. */
typedef size_t (*fetch_function)(cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size,
                                 size_t begin, const size_t *ends, size_t count, cache_batch *batch);

/* The body of each version. `short_key` makes the key of a short pretoken: an expression, as a function that is
 * compiled for one processor cannot be inlined into one that is compiled for all. Everything the loop needs stays in
 * registers. */
#define FETCH_SETS(short_key)                                        \
    size_t longs = 0;                                                \
    for (size_t i = 0; i < count; i++) {                             \
        const size_t length = ends[i] - begin;                       \
        packed_key key;                                              \
        uint64_t hash;                                               \
        if (length <= SHORT) {                                       \
            key = short_key;                                         \
            hash = hash_pair(key.low, key.high, seed);               \
        } else {                                                     \
            key.low = hash = hash_bytes(text + begin, length, seed); \
            key.high = LONG_KEY + length;                            \
            longs++;                                                 \
        }                                                            \
        batch->keys[i] = key;                                        \
        batch->begins[i] = begin;                                    \
        batch->sets[i] = &slots[hash & mask];                        \
        prefetch(batch->sets[i]);                                    \
        begin = ends[i];                                             \
    }                                                                \
    return longs

static size_t fetch_portable(cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size,
                             size_t begin, const size_t *ends, size_t count, cache_batch *batch) {
    FETCH_SETS(pack_key(text + begin, length, size - begin));
}

#ifdef BPE_X86
/* As pack_key(); no byte beyond the pretoken is read, so it does not matter where the text ends. */
TARGET_AVX512 static inline packed_key pack_key_avx512(const uint8_t *at, size_t size) {
    const __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)_bzhi_u32(0xffff, (unsigned)size), at);
    packed_key key = {(uint64_t)_mm_cvtsi128_si64(bytes), (uint64_t)_mm_extract_epi64(bytes, 1) | (uint64_t)size << 56};
    return key;
}

TARGET_AVX512 static size_t fetch_avx512(cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text,
                                         size_t size, size_t begin, const size_t *ends, size_t count,
                                         cache_batch *batch) {
    (void)size;
    FETCH_SETS(pack_key_avx512(text + begin, length));
}
#endif

static inline fetch_function choose_fetch(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX512) return fetch_avx512;
#endif
    return fetch_portable;
}

static void cache_prepare(const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends,
                          size_t count, cache_batch *batch, fetch_function fetch) {
    size_t longs = fetch(table->slots, table->mask, table->seed, text, size, begin, ends, count, batch);
    batch->begins[count] = ends[count - 1];
    for (size_t i = 0; longs; i++)
        if (batch->keys[i].high >= LONG_KEY) {
            if (batch->sets[i]->low == batch->keys[i].low) prefetch(cache_entry(table, batch->sets[i]));
            longs--;
        }
}

static inline int cache_matches(const cache_slot *slot, packed_key key) {
    return ((slot->low ^ key.low) | (slot->high ^ key.high)) == 0;
}

/* 1 if a set was full once, so that what belongs to it may be in another. */
static inline int cache_full(const cache_slot *set) { return set[WAYS - 1].high != 0; }

/* 1 if a set seems to hold a pretoken: what a long one has in the ring may be another's, or gone. */
static inline int cache_holds(const cache_slot *set, packed_key key) {
    return cache_matches(set, key) || cache_matches(set + 1, key);
}

/* Append the ids of the pretokens from number `i` on at *to, as long as they are in their sets and `limit` leaves room
 * for COPIED_IDS and INLINE_IDS + 1 for each pretoken left; returns the number of the first that is not. Of what is
 * found second in its set, one in SWAP_EVERY changes places with the first: so what is used most comes to be looked at
 * first, and little is written. */
static size_t cache_take(const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i,
                         size_t count, uint32_t **to, const uint32_t *limit) {
    uint32_t *at = *to;
    for (; i < count; i++) {
        cache_slot *slot = batch->sets[i];
        const packed_key key = batch->keys[i];
        if (!cache_matches(slot, key)) {
            if (!cache_matches(slot + 1, key)) break;
            if (i % SWAP_EVERY) {
                slot++;
            } else {
                const cache_slot second = slot[1];
                slot[1] = slot[0];
                slot[0] = second;
            }
        }
        memcpy(at, slot->ids, sizeof slot->ids + sizeof slot->count); /* one store of 16 bytes, whatever the count */
        if (slot->count <= INLINE_IDS) {
            at += slot->count;
            continue;
        }
        const size_t found = slot->count & ~IN_RING;
        const uint8_t *entry = cache_entry(table, slot);
        if ((size_t)(limit - at) < found + COPIED_IDS + (count - i) * (INLINE_IDS + 1)) break;
        if (!cache_alive(table, slot)) break;
        if (key.high >= LONG_KEY && memcmp(entry + found * sizeof *at, text + batch->begins[i], key.high - LONG_KEY))
            break;
        if (found <= COPIED_IDS) memcpy(at, entry, COPIED_IDS * sizeof *at);
        else memcpy(at, entry, found * sizeof *at);
        at += found;
    }
    *to = at;
    return i;
}
#endif
