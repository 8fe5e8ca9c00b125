/* Looking pretokens up in a cache, a batch at a time: the two loops that most of encoding goes through. What a cache
 * is, and all that changes one, is in cache.pyx. */
#ifndef BPE_CACHE_H
#define BPE_CACHE_H
#include "native/bytes.h"
#include "native/cpu.h"

enum {
    WAYS = 2,             /* slots of a set: one cache line */
    INLINE = 3,           /* ids that fit in a slot */
    MANY = 16,            /* ids that may be read from a place in the ring, however few are there */
    SELDOM = 16,          /* of the pretokens found second in their set one is moved to the front */
    BATCH = 128,          /* pretokens whose slots are on their way at once */
    LOOSE_IDS = 8 * BATCH /* of a batch's pretokens that are not put into the cache */
};
#define IN_RING 0x80000000u /* of `count`: the ids are in the ring */
#define LOOSE 0x40000000u   /* with IN_RING: they are not, but at the address in `ids` */

/* What a pretoken encodes to. One of at most SHORT bytes is pack_key()'s two words; of a longer one `low` is the hash,
 * `high` is LONG_KEY plus its size, and its bytes are in the ring, after its ids. Ids that do not fit are in the ring
 * too, at the place in `ids`. */
typedef struct {
    uint64_t low, high; /* high == 0: free */
    uint32_t ids[INLINE];
    uint32_t count;
} cache_slot;

typedef struct {
    cache_slot *slots;
    size_t mask; /* of the first slot of a set */
    uint8_t *ring;
    uint64_t ring_size, written;
    uint64_t seed; /* of hashes: hash_seed */
} cache_table;

typedef struct {
    packed_key keys[BATCH];
    cache_slot *sets[BATCH];
    size_t begins[BATCH + 1];
    cache_slot loose[BATCH]; /* of pretokens that are not put into the cache, for as long as the batch lasts */
    uint32_t loose_ids[LOOSE_IDS + MANY];
    size_t loose_size;
} cache_batch;

static inline uint64_t cache_place(const cache_slot *slot) { return (uint64_t)slot->ids[1] << 32 | slot->ids[0]; }

/* Whether what a slot has in the ring is still there, and not so old that it may be written over by what comes next.
 * */
static inline int cache_alive(const cache_table *table, const cache_slot *slot) {
    return table->written - cache_place(slot) <= table->ring_size - MANY * sizeof(uint32_t);
}

static inline uint8_t *cache_entry(const cache_table *table, const cache_slot *slot) {
    return table->ring + (cache_place(slot) & (table->ring_size - 1));
}

/* The first slot of the set that a pretoken goes to where its first is full. */
static inline cache_slot *cache_second(const cache_table *table, packed_key key) {
    const uint64_t hash = key.high >= LONG_KEY ? key.low : hash_pair(key.low, key.high, table->seed);
    return &table->slots[hash >> 32 & table->mask];
}

/* Make the keys of a batch and fetch their sets; returns how many are of long pretokens. `short_key` makes that of a
 * short one: a macro, because what is written for one processor cannot be inlined into what is for any. There is
 * nothing else in these functions, so that all that the loop goes through stays in registers. */
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

typedef size_t (*fetch_function)(cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size,
                                 size_t begin, const size_t *ends, size_t count, cache_batch *batch);

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

/* Make the keys of the pretokens that end at ends[0 .. count), the first from `begin` on, and fetch their sets. */
static void cache_prepare(const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends,
                          size_t count, cache_batch *batch, fetch_function fetch) {
    size_t longs = fetch(table->slots, table->mask, table->seed, text, size, begin, ends, count, batch);
    batch->begins[count] = ends[count - 1];
    batch->loose_size = 0;
    for (size_t i = 0; longs; i++)
        if (batch->keys[i].high >= LONG_KEY) {
            if (batch->sets[i]->low == batch->keys[i].low) prefetch(cache_entry(table, batch->sets[i]));
            longs--;
        }
}

/* Let a pretoken of a batch, number i, have its ids, of which MANY may be read, without a place in the cache; returns
 * whether there was room for them. */
static inline int cache_hold(cache_batch *batch, size_t i, const uint32_t *ids, size_t count) {
    cache_slot *slot = &batch->loose[i];
    memcpy(slot->ids, ids, sizeof slot->ids);
    slot->count = (uint32_t)count;
    if (count > INLINE) {
        uint32_t *place = batch->loose_ids + batch->loose_size;
        if (count > LOOSE_IDS - batch->loose_size) return 0;
        if (count <= MANY) memcpy(place, ids, MANY * sizeof *ids);
        else memcpy(place, ids, count * sizeof *ids);
        batch->loose_size += count;
        slot->ids[0] = (uint32_t)(uintptr_t)place;
        slot->ids[1] = (uint32_t)((uint64_t)(uintptr_t)place >> 32);
        slot->count |= IN_RING | LOOSE;
    }
    slot->low = batch->keys[i].low;
    slot->high = batch->keys[i].high;
    batch->sets[i] = slot;
    return 1;
}

static inline int cache_matches(const cache_slot *slot, packed_key key) {
    return ((slot->low ^ key.low) | (slot->high ^ key.high)) == 0;
}

/* Whether a set was full once, so that what belongs to it may be in another. */
static inline int cache_crowded(const cache_slot *set) { return set[WAYS - 1].high != 0; }

/* Whether the set of a pretoken seems to hold it: what a long one has in the ring may be another's, or gone. */
static inline int cache_first(const cache_batch *batch, size_t i) {
    return cache_matches(batch->sets[i], batch->keys[i]) || cache_matches(batch->sets[i] + 1, batch->keys[i]);
}

/* Append the ids of the pretokens from number `i` on at *to, as long as they are in their sets and `limit` leaves room
 * for MANY ids and INLINE + 1 for each pretoken left; returns the number of the first that is not. Of what is found
 * second in its set, one in SELDOM changes places with the first: so what is used most comes to be looked at first,
 * and little is written. */
static size_t cache_take(const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i,
                         size_t count, uint32_t **to, const uint32_t *limit) {
    uint32_t *at = *to;
    for (; i < count; i++) {
        cache_slot *slot = batch->sets[i];
        const packed_key key = batch->keys[i];
        if (!cache_matches(slot, key)) {
            if (!cache_matches(slot + 1, key)) break;
            if (i % SELDOM) {
                slot++;
            } else {
                const cache_slot second = slot[1];
                slot[1] = slot[0];
                slot[0] = second;
            }
        }
        memcpy(at, slot->ids, sizeof slot->ids + sizeof slot->count); /* one store of 16 bytes, whatever the count */
        if (slot->count <= INLINE) {
            at += slot->count;
            continue;
        }
        const size_t found = slot->count & ~(IN_RING | LOOSE);
        const uint8_t *entry;
        if ((size_t)(limit - at) < found + MANY + (count - i) * (INLINE + 1)) break;
        if (slot->count & LOOSE) { /* of this very pretoken */
            entry = (const uint8_t *)(uintptr_t)cache_place(slot);
        } else {
            entry = cache_entry(table, slot);
            if (!cache_alive(table, slot)) break;
            if (key.high >= LONG_KEY &&
                memcmp(entry + found * sizeof *at, text + batch->begins[i], key.high - LONG_KEY))
                break;
        }
        if (found <= MANY) memcpy(at, entry, MANY * sizeof *at);
        else memcpy(at, entry, found * sizeof *at);
        at += found;
    }
    *to = at;
    return i;
}
#endif
