/* Looking pretokens up in a cache, a batch of 128 at a time: the two loops that most of encoding goes through.
 *
 *     fetch     key of each pretoken -> hash -> its set, prefetched       (cache_prepare)
 *     take      key found in its set -> ids copied to the output          (cache_take)
 *
 * By the time the second loop begins, the sets of the batch are in the L1 cache or on their way, so that it
 * waits for one load rather than for 128. It stops at the first pretoken that is not in its set; encoder.pyx then
 * settles all that are missing of the batch at once, and lets it go on.
 *
 * A set is two slots in one cache line of 64 bytes. A slot is four words of eight bytes:
 *
 *     0               8               16                24
 *     +---------------+---------------+-----------------+-------------------------------------------+
 *     |      low      |     high      | ids[0], ids[1]  | ids[2] | count, IN_RING | version        |
 *     +---------------+---------------+-----------------+-------------------------------------------+
 *      key: the bytes of a pretoken    ids of a pretoken of up to three; high == 0: the slot is free
 *      of at most 15, with its length
 *
 * What a slot has no room for is in the ring (see cache.pyx): the bytes of a longer pretoken, whose `low` is then its
 * hash and `high` LONG_KEY plus its size, and ids beyond three. The third word is then their offset in the ring, which
 * counts all bytes that were ever written to it.
 *
 * All threads of an encoder read and fill one cache. Reading takes no lock; one thread at a time writes. Three things
 * could go wrong, in the terms of C11's memory model; every word of slots and ring is read and written by atomic
 * operations, so that none of them is a data race.
 *
 * A slot that is read while it is written (a sequence lock, as in Boehm, "Can seqlocks get along with programming
 * language memory models?", 2012). The writer stores an odd version (relaxed), passes a release fence, stores the words
 * (relaxed) and stores the next even version (release). The reader loads the version (acquire), then the words
 * (relaxed), passes an acquire fence and loads the version again (relaxed); odd or different versions count as absence.
 * Suppose that both versions are V. The acquire load read V from the store that ended a write, so the words of that
 * write, or later ones, are what the reader sees. Had one of them come from a later write, then the release fence of
 * that write would synchronize with the reader's acquire fence, and the second load would see its odd version, or one
 * after it. So all words come from the write that ended with V. This needs versions that do not repeat while a reader
 * is between its two loads: a slot whose version is near its end is worn and no longer written, until the versions are
 * set to zero when no reader is inside (below).
 *
 * An entry of the ring that is read while it is overwritten. Before the words of an entry the writer moves `written` on
 * (relaxed) and passes a release fence. The reader copies the words (relaxed), passes an acquire fence and loads
 * `written`. If a copied word came from a later entry, that fence pair makes the load see a `written` so large that the
 * offset is no longer alive. The words of its own entry are visible, since the slot that names the offset was stored
 * after them (release) and read before them (acquire). Offsets have 64 bits and never repeat.
 *
 * A table that is moved, or whose versions are set to zero, while it is read. Each thread has a flag that says whether
 * it is inside; whoever wants to be alone sets `alone`, then waits for each flag in turn. Both sides store, then load
 * the other's variable, sequentially consistently: in the one order of these four operations one of the two stores
 * comes first, and the other side sees it. Threads look at `alone` and `attention` after each batch. */
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

#ifndef CACHE_VERSION_BITS
#define CACHE_VERSION_BITS 18 /* tests have fewer, so that versions come to their end */
#endif

enum {
    WAYS = 2,          /* slots of a set */
    INLINE_IDS = 3,    /* ids that a slot has room for */
    COPIED_IDS = 16,   /* ids that are copied from the ring in one go, however few there are */
    SWAP_EVERY = 16,   /* every 16th hit in the second slot of a set swaps it to the front */
    BATCH = 128,       /* pretokens */
    LONGEST = 4096,    /* bytes, and ids, of the longest pretoken that is kept */
    COUNT_SHIFT = 32,  /* of the number of ids, in the last word of a slot */
    VERSION_SHIFT = 46 /* of the version */
};
#define COUNT_BITS 0x1fffu                     /* of the number of ids, */
#define IN_RING 0x2000u                        /* and a flag beside them: they are in the ring */
#define NO_OFFSET (~(uint64_t)0)               /* in place of one in the ring */
#define WRITING ((uint64_t)1 << VERSION_SHIFT) /* the version is odd */
#define VERSION_COUNT ((uint64_t)1 << CACHE_VERSION_BITS)

typedef struct {
    uint64_t low, high; /* the key */
    uint64_t ids;       /* the first two ids, or the offset in the ring */
    uint64_t last;      /* the third id, the number of ids, IN_RING, the version */
} cache_slot;

typedef struct cache_reader { /* a thread that encodes */
    int inside;               /* 1 while it may look into the table */
    struct cache_reader *next;
    char apart[64];
} cache_reader;

typedef struct {
    cache_slot *slots;
    size_t mask; /* of the first slot of a set */
    uint64_t *ring;
    uint64_t ring_size; /* bytes, a power of two */
    uint64_t seed;      /* of hashes: hash_seed */
    int shared;         /* 1 once there was a second thread */
    int alone;          /* 1 while no thread may look into the table */
    int attention;      /* 1 if the table should grow, or a slot is worn */
    int bounded;        /* 1 if it may grow no more */
    char apart[64];     /* what threads read all the time is not in the line of what they write */
    uint64_t written;   /* bytes to the ring, in all */
    size_t taken;       /* slots in use */
    size_t evicted;     /* pretokens forgotten since it last grew */
    int worn;           /* 1 if a slot is */
    int writing;        /* lock of slots, ring and the counts above */
    int growing;        /* lock of those who want to be alone */
    cache_reader *readers;
} cache_table;

typedef struct {
    packed_key keys[BATCH];
    cache_slot *sets[BATCH];
    size_t begins[BATCH + 1];
} cache_batch;

/* Two ids lie in a word as in memory. */
static inline uint64_t two_ids(const uint32_t *ids) {
    uint64_t word;
    memcpy(&word, ids, sizeof word);
    return word;
}

static inline uint64_t load_word(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static inline void store_word(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

/* Locks that are held for moments; `growing`, while the table grows. */
static inline void cache_acquire(int *lock) {
    for (int turn = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); turn++) wait_a_moment(turn);
}

static inline void cache_release(int *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

/* Who reads, and who is alone */

static inline void add_reader(cache_table *table, cache_reader *reader) { /* by one thread at a time */
    reader->next = table->readers;
    __atomic_store_n(&table->readers, reader, __ATOMIC_SEQ_CST);
}

static inline void reader_leaves(cache_reader *reader) { __atomic_store_n(&reader->inside, 0, __ATOMIC_RELEASE); }

/* Look into the table from now on, unless another thread wants to be alone; returns whether it may. */
static inline int reader_enters(cache_reader *reader, const cache_table *table) {
    __atomic_exchange_n(&reader->inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&table->alone, __ATOMIC_SEQ_CST)) return 1;
    reader_leaves(reader);
    return 0;
}

/* Wait until no thread looks into the table, and let none in. A thread that is inside itself would wait for ever. */
static inline void be_alone(cache_table *table) {
    cache_acquire(&table->growing);
    __atomic_store_n(&table->alone, 1, __ATOMIC_SEQ_CST);
    cache_reader *reader = __atomic_load_n(&table->readers, __ATOMIC_SEQ_CST);
    for (; reader != NULL; reader = reader->next)
        for (int turn = 0; __atomic_load_n(&reader->inside, __ATOMIC_SEQ_CST); turn++) wait_a_moment(turn);
}

static inline void be_no_longer_alone(cache_table *table) {
    __atomic_store_n(&table->attention, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&table->alone, 0, __ATOMIC_SEQ_CST);
    cache_release(&table->growing);
}

/* 1 if the table should grow, or a slot is worn. */
static inline int cache_needs_care(const cache_table *table) {
    return __atomic_load_n(&table->attention, __ATOMIC_RELAXED);
}

/* 1 if a thread should leave the table for a moment, between two batches. */
static inline int cache_calls(const cache_table *table) {
    return cache_needs_care(table) | __atomic_load_n(&table->alone, __ATOMIC_RELAXED);
}

static inline size_t cache_slots(const cache_table *table) {
    return __atomic_load_n(&table->mask, __ATOMIC_RELAXED) + WAYS;
}

static inline int cache_bounded(const cache_table *table) { return __atomic_load_n(&table->bounded, __ATOMIC_RELAXED); }

static inline void bound(cache_table *table) { __atomic_store_n(&table->bounded, 1, __ATOMIC_RELAXED); }

static inline void set_mask(cache_table *table, size_t mask) { __atomic_store_n(&table->mask, mask, __ATOMIC_RELAXED); }

/* 1 if more than half of the slots are in use, or more than 1 in 32 was overwritten, and the table may grow. */
static inline int cache_crowded(const cache_table *table) {
    return !cache_bounded(table) && (table->taken * 2 > cache_slots(table) || table->evicted * 32 > cache_slots(table));
}

/* Hashes and sets */

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

static inline const uint64_t *cache_entry(const cache_table *table, uint64_t offset) {
    return table->ring + (offset & (table->ring_size - 1)) / sizeof(uint64_t);
}

/* Make the keys of a batch and prefetch their sets, and what long pretokens have in the ring. The pretokens end at
 * ends[0 .. count), the first begins at `begin`; `size` is the text's. */
static void cache_prepare(const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends,
                          size_t count, cache_batch *batch) {
    cache_slot *const slots = table->slots;
    const size_t mask = table->mask;
    const uint64_t seed = table->seed;
    size_t longs = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t length = ends[i] - begin;
        packed_key key;
        uint64_t hash;
        if (length <= PACKED) {
            key = pack_key(text + begin, length, size - begin);
            hash = hash_pair(key.low, key.high, seed);
        } else {
            key.low = hash = hash_bytes(text + begin, length, seed);
            key.high = LONG_KEY + length;
            longs++;
        }
        batch->keys[i] = key;
        batch->begins[i] = begin;
        batch->sets[i] = &slots[hash & mask];
        prefetch(batch->sets[i]);
        begin = ends[i];
    }
    batch->begins[count] = begin;
    for (size_t i = 0; longs; i++)
        if (batch->keys[i].high >= LONG_KEY) {
            if (load_word(&batch->sets[i]->low) == batch->keys[i].low)
                prefetch(cache_entry(table, load_word(&batch->sets[i]->ids)));
            longs--;
        }
}

/* Reading */

static inline int cache_matches(const cache_slot *slot, packed_key key) {
    return ((load_word(&slot->low) ^ key.low) | (load_word(&slot->high) ^ key.high)) == 0;
}

/* 1 if a slot has this key and is not being written; `ids` and `last` are then its other words. They count if
 * cache_unchanged() says so afterwards. */
static inline int cache_read(const cache_slot *slot, packed_key key, uint64_t *ids, uint64_t *last) {
    *last = __atomic_load_n(&slot->last, __ATOMIC_ACQUIRE);
    if ((load_word(&slot->low) ^ key.low) | (load_word(&slot->high) ^ key.high) | (*last & WRITING)) return 0;
    *ids = load_word(&slot->ids);
    return 1;
}

static inline int cache_unchanged(const cache_slot *slot, uint64_t last) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return load_word(&slot->last) == last;
}

/* 1 if the entry at an offset of the ring has not been overwritten. */
static inline int cache_alive(const cache_table *table, uint64_t offset) {
    return load_word(&table->written) - offset <= table->ring_size;
}

/* A word of the bytes of a text, zeros after its last. */
static inline uint64_t text_word(const uint8_t *text, size_t at, size_t size) {
    uint64_t word = 0;
    if (size - at >= sizeof word) return eight_bytes(text + at);
    memcpy(&word, text + at, size - at);
    return word;
}

/* Copy the `count` ids that a pretoken has in the ring, and up to COPIED_IDS or one more; returns whether they are its.
 * text, size: the bytes that stand behind the ids there; none of a short pretoken. */
static inline int cache_copy(const cache_table *table, uint64_t offset, size_t count, const uint8_t *text, size_t size,
                             uint32_t *to) {
    const uint64_t *entry = cache_entry(table, offset), *bytes = entry + (count + 1) / 2;
    for (size_t at = 0; at < size; at += sizeof *bytes)
        if (load_word(bytes++) != text_word(text, at, size)) return 0;
    const size_t words = count <= COPIED_IDS ? COPIED_IDS / 2 : (count + 1) / 2;
    for (size_t i = 0; i < words; i++) {
        const uint64_t word = load_word(&entry[i]);
        memcpy(to + 2 * i, &word, sizeof word);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return cache_alive(table, offset);
}

static inline size_t long_size(packed_key key) { return key.high >= LONG_KEY ? (size_t)(key.high - LONG_KEY) : 0; }

/* cache_take() where `shared` is a constant. Whatever their number, all three ids are copied with what stands behind
 * them. */
static inline __attribute__((always_inline)) size_t take_ids(const cache_table *table, const uint8_t *text,
                                                             const cache_batch *batch, size_t i, size_t count,
                                                             uint32_t **to, const uint32_t *limit, const int shared) {
    uint32_t *at = *to;
    for (; i < count; i++) {
        cache_slot *slot = batch->sets[i];
        const packed_key key = batch->keys[i];
        uint64_t words[2]; /* ids and last */
        if (shared) {
            if (!cache_read(slot, key, &words[0], &words[1])) {
                slot++;
                if (!cache_read(slot, key, &words[0], &words[1])) break;
            }
            memcpy(at, words, sizeof *words);
            at[2] = (uint32_t)words[1];
            if (!cache_unchanged(slot, words[1])) break;
        } else {
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
            words[0] = slot->ids;
            words[1] = slot->last;
            memcpy(at, words, sizeof *words);
            at[2] = (uint32_t)words[1];
        }
        const uint32_t slot_count = (uint32_t)(words[1] >> COUNT_SHIFT) & (COUNT_BITS | IN_RING);
        if (slot_count <= INLINE_IDS) {
            at += slot_count;
            continue;
        }
        const size_t size = slot_count & COUNT_BITS;
        if ((size_t)(limit - at) < size + COPIED_IDS + (count - i) * (INLINE_IDS + 1)) break;
        if (!cache_copy(table, words[0], size, text + batch->begins[i], long_size(key), at)) break;
        at += size;
    }
    *to = at;
    return i;
}

/* Append the ids of the pretokens from number `i` on at *to, as long as they are in their sets and `limit` leaves room
 * for COPIED_IDS and INLINE_IDS + 1 for each pretoken left; returns the number of the first that is not. Until there is
 * a second thread, every 16th hit in the second slot of a set swaps it to the front, so that the most used are
 * looked at first, and little is written. */
static size_t cache_take(const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i,
                         size_t count, uint32_t **to, const uint32_t *limit) {
    return table->shared ? take_ids(table, text, batch, i, count, to, limit, 1)
                         : take_ids(table, text, batch, i, count, to, limit, 0);
}

/* Number of ids of a pretoken in either of its sets, which are then at `to` or in the ring at *offset; 0 for none. */
static size_t cache_find(const cache_table *table, packed_key key, uint32_t *to, uint64_t *offset) {
    for (int n = 0; n < 2 * WAYS; n++) {
        const cache_slot *set = n < WAYS ? cache_set(table, key) : cache_second_set(table, key), *slot = set + n % WAYS;
        uint64_t ids, last;
        if (!cache_read(slot, key, &ids, &last) || !cache_unchanged(slot, last)) continue;
        const uint32_t slot_count = (uint32_t)(last >> COUNT_SHIFT);
        if (slot_count & IN_RING && !cache_alive(table, ids)) continue;
        *offset = slot_count & IN_RING ? ids : NO_OFFSET;
        memcpy(to, &ids, sizeof ids);
        to[2] = (uint32_t)last;
        return slot_count & COUNT_BITS;
    }
    return 0;
}

/* 1 if a set was full once, so that what belongs to it may be in another. */
static inline int cache_full(const cache_slot *set) { return load_word(&set[WAYS - 1].high) != 0; }

/* 1 if a set seems to hold a pretoken: it may be gone a moment later, or in the ring have been overwritten. */
static inline int cache_holds(const cache_slot *set, packed_key key) {
    return cache_matches(set, key) || cache_matches(set + 1, key);
}

/* Writing, by the thread that has the lock `writing`, or is alone */

/* True if a slot is taken, and what it has in the ring still there. */
static inline int cache_in_use(const cache_table *table, const cache_slot *slot) {
    return slot->high && (!(slot->last >> COUNT_SHIFT & IN_RING) || cache_alive(table, slot->ids));
}

/* 1 if a slot must not be written: its next version would be one that it had before. */
static inline int cache_worn(const cache_slot *slot) { return (slot->last >> VERSION_SHIFT) + 2 >= VERSION_COUNT; }

static inline void cache_write(cache_slot *slot, const cache_slot *with) {
    const uint64_t version = slot->last >> VERSION_SHIFT | 1; /* odd already where a fork came during a write */
    store_word(&slot->last, version << VERSION_SHIFT);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    store_word(&slot->low, with->low);
    store_word(&slot->high, with->high);
    store_word(&slot->ids, with->ids);
    __atomic_store_n(&slot->last, with->last | (version + 1) << VERSION_SHIFT, __ATOMIC_RELEASE);
}

/* The slot for a key: one that is free or has the key, else the second of its first set; NULL if all are worn. `set`
 * is then the set that it is in. */
static inline cache_slot *cache_slot_for(cache_table *table, packed_key key, cache_slot **set) {
    cache_slot *first = *set;
    for (int n = 0; n < 2 * WAYS; n++) {
        if (n == WAYS) *set = cache_second_set(table, key);
        cache_slot *slot = *set + n % WAYS;
        /* its key may be there: a pretoken that comes twice in a batch is put in twice */
        const int suits = !cache_in_use(table, slot) || (n < WAYS && cache_matches(slot, key));
        if (suits && !cache_worn(slot)) return slot;
    }
    *set = first;
    for (int n = WAYS - 1; n >= 0; n--)
        if (!cache_worn(first + n)) return first + n;
    return NULL;
}

/* An offset for `size` bytes, whole words, over the oldest entries. From now on no thread takes what was there. */
static inline uint64_t cache_take_ring(cache_table *table, size_t size) {
    const uint64_t last = table->ring_size - 1;
    uint64_t offset = table->written;
    if ((offset & last) + size > table->ring_size) offset = (offset | last) + 1;
    store_word(&table->written, offset + size);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return offset;
}

/* Insert a pretoken with its ids, over the second slot of its first set where both sets are full; returns the set that
 * it is in, or `first` if it is too long for the cache.
 *
 *     key     its key
 *     first   the first set that its hash names
 *     text    its bytes
 *     ids     its ids; COPIED_IDS of them may be read, whatever the count
 *     count   how many they are */
static cache_slot *cache_keep(cache_table *table, packed_key key, cache_slot *first, const uint8_t *text,
                              const uint32_t *ids, size_t count) {
    const size_t size = long_size(key);
    if (size > LONGEST || count > LONGEST) return first;
    cache_acquire(&table->writing);
    cache_slot slot = {key.low, key.high, two_ids(ids), ids[2] | (uint64_t)count << COUNT_SHIFT};
    if (size || count > INLINE_IDS) {
        slot.ids = cache_take_ring(table, ((count + 1) / 2 + (size + 7) / 8) * sizeof(uint64_t));
        slot.last = (count | IN_RING) << COUNT_SHIFT;
        uint64_t *entry = (uint64_t *)cache_entry(table, slot.ids);
        for (size_t i = 0; i < count; i += 2) store_word(entry++, two_ids(ids + i));
        for (size_t at = 0; at < size; at += sizeof *entry) store_word(entry++, text_word(text, at, size));
    }
    cache_slot *to = cache_slot_for(table, key, &first);
    if (to != NULL) {
        table->taken += !to->high;
        table->evicted += cache_in_use(table, to) && !cache_matches(to, key);
        cache_write(to, &slot);
    }
    if (to == NULL || cache_worn(to)) table->worn = 1;
    if (table->worn || cache_crowded(table)) __atomic_store_n(&table->attention, 1, __ATOMIC_RELAXED);
    cache_release(&table->writing);
    return first;
}

/* Set all versions to zero; alone. A slot that was left half written by a fork stays odd, which says that it is. */
static void cache_renew(cache_table *table) {
    const uint64_t kept = ~(~(uint64_t)0 << VERSION_SHIFT) | WRITING;
    for (size_t i = 0; i < table->mask + WAYS; i++) table->slots[i].last &= kept;
    table->worn = 0;
}
#endif
