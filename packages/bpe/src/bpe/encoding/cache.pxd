from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from bpe.encoding.ids cimport Ids
from bpe.encoding.ranks cimport Work
from bpe.native.bytes cimport packed_key

cdef extern from "encoding/cache.h" nogil:
    enum:
        WAYS
        INLINE_IDS
        COPIED_IDS
        BATCH
        LONGEST                 # bytes of the longest pretoken worth keeping
    const uint64_t NO_PLACE

    ctypedef struct cache_slot:
        uint64_t low, high, ids, last

    ctypedef struct cache_reader:
        int inside
        cache_reader *next

    ctypedef struct cache_table:
        cache_slot *slots
        size_t mask
        uint64_t *ring
        uint64_t ring_size, written, seed
        int shared, alone, attention, bounded, worn, writing, growing
        size_t taken, evicted
        cache_reader *readers

    ctypedef struct cache_batch:
        packed_key keys[128]
        cache_slot *sets[128]
        size_t begins[129]

    void cache_acquire(int *lock)
    void cache_release(int *lock)
    void add_reader(cache_table *table, cache_reader *reader)
    bint reader_enters(cache_reader *reader, const cache_table *table)
    void reader_leaves(cache_reader *reader)
    void be_alone(cache_table *table)
    void be_no_longer_alone(cache_table *table)
    bint cache_needs_care(const cache_table *table)
    bint cache_calls(const cache_table *table)
    size_t cache_slots(const cache_table *table)
    bint cache_bounded(const cache_table *table)
    bint cache_crowded(const cache_table *table)
    void bound(cache_table *table)
    void set_mask(cache_table *table, size_t mask)
    cache_slot *cache_set(const cache_table *table, packed_key key)
    cache_slot *cache_second_set(const cache_table *table, packed_key key)
    void cache_prepare(
        const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch
    )
    size_t cache_take(
        const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i, size_t count, uint32_t **to,
        const uint32_t *limit
    )
    size_t cache_find(const cache_table *table, packed_key key, uint32_t *to, uint64_t *place)
    bint cache_copy(
        const cache_table *table, uint64_t place, size_t count, const uint8_t *text, size_t size, uint32_t *to
    )
    bint cache_full(const cache_slot *set)
    bint cache_holds(const cache_slot *set, packed_key key)
    bint cache_in_use(const cache_table *table, const cache_slot *slot)
    size_t long_size(packed_key key)
    uint64_t without_version(uint64_t last)
    cache_slot *cache_put(cache_table *table, cache_slot *set, const cache_slot *slot)
    cache_slot *cache_keep(
        cache_table *table, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    )
    void cache_renew(cache_table *table)

cdef class Scratch:
    cdef cache_reader *reader   # of the cache, which frees it
    cdef Work work
    cdef Ids ids                # of the text that is being encoded

cdef class Cache:
    cdef readonly size_t bytes
    cdef cache_table table
    cdef list idle              # Scratches not in use,
    cdef Scratch at_hand        # and one more, which takes no list
    cdef size_t forks           # of the process when the cache last looked
    cdef Scratch take(self)
    cdef give(self, Scratch scratch)
    cdef int enter(self, Scratch scratch) except -1 nogil
    cdef int step_aside(self, Scratch scratch) except -1 nogil
    cdef int prepare(self, size_t size) except -1 nogil
    cdef int tend(self, size_t slots) except -1 nogil
    cdef bint append_ids(self, packed_key key, const uint8_t *text, Ids *out) except -1 nogil
    cdef bint grow(self, size_t factor) noexcept nogil
    cdef void grow_ring(self, uint64_t size) noexcept nogil
    cdef void split_sets(self, const cache_table *old) noexcept nogil
    cdef int after_fork(self) except -1
    cdef int make_table(self) except -1
