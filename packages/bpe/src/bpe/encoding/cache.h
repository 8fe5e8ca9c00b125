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
 * hash and `high` LONG_KEY plus its size, and ids beyond three. ids[0] and ids[1] are then its place in the ring.
 *
 * All threads of an encoder read and fill one cache. Reading takes no lock: ids that were copied count if the slot
 * still has the key, and the ring the entry, afterwards. One thread at a time writes: it takes the key of a slot away
 * first and sets the new one last, and moves `written` on before it writes to the ring. When the cache grows, all other
 * threads have to be out of it: each has a flag that says whether it is inside, and after each batch looks whether
 * another wants to be alone. */
#ifndef BPE_CACHE_H
#define BPE_CACHE_H
#include "native/bytes.h"
#include "native/cpu.h"

#ifdef _WIN32
#include <windows.h>
static inline void wait_a_moment(int turn) { Sleep(turn > 64); }
#else
#include <sched.h>
#include <unistd.h>
static inline void wait_a_moment(int turn) { turn > 64 ? usleep(50) : sched_yield(); }
#endif

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
    uint64_t ring_size;
    uint64_t seed;    /* of hashes: hash_seed */
    int shared;       /* 1 once there was a second thread */
    char apart[64];   /* what threads read all the time is not in the line of what they write */
    uint64_t written; /* bytes to the ring, in all */
} cache_table;

typedef struct cache_reader { /* a thread that encodes */
    int inside;               /* 1 while it may look into the table */
    struct cache_reader *next;
    char apart[64];
} cache_reader;

typedef struct {
    packed_key keys[BATCH];
    cache_slot *sets[BATCH];
    size_t begins[BATCH + 1];
} cache_batch;

/* Locks that are held for moments; of `growing`, while the table grows. */
static inline void cache_acquire(int *lock) {
    for (int turn = 0; __atomic_exchange_n(lock, 1, __ATOMIC_SEQ_CST); turn++) wait_a_moment(turn);
}

static inline void cache_release(int *lock) { __atomic_store_n(lock, 0, __ATOMIC_SEQ_CST); }

static inline void wait_for_readers(const cache_reader *readers) {
    for (; readers != NULL; readers = readers->next)
        for (int turn = 0; __atomic_load_n(&readers->inside, __ATOMIC_SEQ_CST); turn++) wait_a_moment(turn);
}

static inline void reader_leaves(cache_reader *reader) { __atomic_store_n(&reader->inside, 0, __ATOMIC_RELEASE); }

/* Look into the table from now on, unless another thread wants to be alone; returns whether it may. */
static inline int reader_enters(cache_reader *reader, const int *alone) {
    __atomic_exchange_n(&reader->inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(alone, __ATOMIC_SEQ_CST)) return 1;
    reader_leaves(reader);
    return 0;
}

static inline uint64_t cache_place(const cache_slot *slot) { return (uint64_t)slot->ids[1] << 32 | slot->ids[0]; }

/* 1 if what is at a place of the ring is still there, and not so old that it may be overwritten by what comes next. */
static inline int cache_alive(const cache_table *table, uint64_t place) {
    return __atomic_load_n(&table->written, __ATOMIC_ACQUIRE) - place <=
           table->ring_size - COPIED_IDS * sizeof(uint32_t);
}

/* The same, after it was read. */
static inline int cache_still_alive(const cache_table *table, uint64_t place) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return cache_alive(table, place);
}

static inline uint8_t *cache_entry(const cache_table *table, uint64_t place) {
    return table->ring + (place & (table->ring_size - 1));
}

/* Begin an entry of the ring that ends where `written` ends: from now on no thread takes what was there. */
static inline void cache_write_ring(cache_table *table, uint64_t written) {
    __atomic_store_n(&table->written, written, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
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
            if (batch->sets[i]->low == batch->keys[i].low) prefetch(cache_entry(table, cache_place(batch->sets[i])));
            longs--;
        }
}

static inline int cache_matches(const cache_slot *slot, packed_key key) {
    return ((slot->low ^ key.low) | (slot->high ^ key.high)) == 0;
}

/* Between cache_matches() and reading the ids: what is read is no older than the key. */
static inline void cache_read(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

/* After the ids were read: 1 if the slot still has the key, so that they are its ids. */
static inline int cache_unchanged(const cache_slot *slot, packed_key key) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const uint64_t high = __atomic_load_n(&slot->high, __ATOMIC_ACQUIRE); /* first, as it is set last */
    return ((high ^ key.high) | (__atomic_load_n(&slot->low, __ATOMIC_RELAXED) ^ key.low)) == 0;
}

static inline void cache_write(cache_slot *slot, const cache_slot *with) {
    __atomic_store_n(&slot->high, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&slot->low, with->low, __ATOMIC_RELAXED);
    memcpy(slot->ids, with->ids, sizeof slot->ids + sizeof slot->count);
    __atomic_store_n(&slot->high, with->high, __ATOMIC_RELEASE);
}

/* 1 if a set was full once, so that what belongs to it may be in another. */
static inline int cache_full(const cache_slot *set) { return set[WAYS - 1].high != 0; }

/* 1 if a set seems to hold a pretoken: what a long one has in the ring may be another's, or gone. */
static inline int cache_holds(const cache_slot *set, packed_key key) {
    return cache_matches(set, key) || cache_matches(set + 1, key);
}

/* Append the ids of the pretokens from number `i` on at *to, as long as they are in their sets and `limit` leaves room
 * for COPIED_IDS and INLINE_IDS + 1 for each pretoken left; returns the number of the first that is not. Until there is
 * a second thread, one in SWAP_EVERY of what is found second in its set changes places with the first: so what is used
 * most comes to be looked at first, and little is written. */
static size_t cache_take(const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i,
                         size_t count, uint32_t **to, const uint32_t *limit) {
    uint32_t *at = *to;
    const int shared = table->shared;
    for (; i < count; i++) {
        cache_slot *slot = batch->sets[i];
        const packed_key key = batch->keys[i];
        if (!cache_matches(slot, key)) {
            if (!cache_matches(slot + 1, key)) break;
            if (shared || i % SWAP_EVERY) {
                slot++;
            } else {
                const cache_slot second = slot[1];
                slot[1] = slot[0];
                slot[0] = second;
            }
        }
        if (shared) cache_read();
        const uint32_t slot_count = slot->count;
        memcpy(at, slot->ids, sizeof slot->ids + sizeof slot->count); /* one store of 16 bytes, whatever the count */
        if (shared && !cache_unchanged(slot, key)) break;
        if (slot_count <= INLINE_IDS) {
            at += slot_count;
            continue;
        }
        const size_t ids = slot_count & ~IN_RING;
        const uint64_t place = (uint64_t)at[1] << 32 | at[0];
        const uint8_t *entry = cache_entry(table, place);
        if ((size_t)(limit - at) < ids + COPIED_IDS + (count - i) * (INLINE_IDS + 1)) break;
        if (!cache_alive(table, place)) break;
        if (key.high >= LONG_KEY && memcmp(entry + ids * sizeof *at, text + batch->begins[i], key.high - LONG_KEY))
            break;
        if (ids <= COPIED_IDS) memcpy(at, entry, COPIED_IDS * sizeof *at);
        else memcpy(at, entry, ids * sizeof *at);
        if (!cache_still_alive(table, place)) break;
        at += ids;
    }
    *to = at;
    return i;
}
#endif
