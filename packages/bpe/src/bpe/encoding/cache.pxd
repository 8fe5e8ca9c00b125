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
    const uint32_t IN_RING

    ctypedef struct cache_slot:
        uint64_t low, high
        uint32_t ids[3]
        uint32_t count

    ctypedef struct cache_table:
        cache_slot *slots
        size_t mask
        uint8_t *ring
        uint64_t ring_size, written
        uint64_t seed

    ctypedef struct cache_batch:
        packed_key keys[128]
        cache_slot *sets[128]
        size_t begins[129]

    ctypedef size_t (*fetch_function)(
        cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size, size_t begin,
        const size_t *ends, size_t count, cache_batch *batch
    ) noexcept nogil
    fetch_function choose_fetch(int level)
    uint64_t cache_place(const cache_slot *slot)
    bint cache_alive(const cache_table *table, const cache_slot *slot)
    uint8_t *cache_entry(const cache_table *table, const cache_slot *slot)
    uint64_t cache_hash(const cache_table *table, packed_key key)
    cache_slot *cache_set(const cache_table *table, packed_key key)
    cache_slot *cache_second_set(const cache_table *table, packed_key key)
    void cache_prepare(
        const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch, fetch_function fetch
    )
    bint cache_matches(const cache_slot *slot, packed_key key)
    bint cache_full(const cache_slot *set)
    bint cache_holds(const cache_slot *set, packed_key key)
    size_t cache_take(
        const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i, size_t count, uint32_t **to,
        const uint32_t *limit
    )

cdef class Cache:
    cdef cache_table table
    cdef size_t taken           # slots in use
    cdef size_t evicted         # pretokens forgotten since it last grew
    cdef bint bounded           # its pool lets it grow no more
    cdef Work work
    cdef Ids ids                # of the text that is being encoded
    cdef size_t slots(self) noexcept nogil
    cdef cache_slot *keep(
        self, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    ) noexcept nogil
    cdef cache_slot *put(self, cache_slot *first, const cache_slot *slot) noexcept nogil
    cdef const cache_slot *look_again(self, packed_key key, const uint8_t *text) noexcept nogil
    cdef uint64_t take_ring(self, size_t size) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef bint grow(self, size_t factor) noexcept nogil
    cdef void grow_ring(self, uint64_t size) noexcept nogil
    cdef void split_sets(self, const cache_table *old) noexcept nogil

cdef class CachePool:
    cdef readonly size_t bytes
    cdef size_t bytes_left      # of these, what no cache has
    cdef list idle              # caches not in use,
    cdef Cache at_hand          # and one more, which takes no list
    cdef size_t busy, sharers   # caches in use, and the most of them that were or will be at once
    cdef Cache take(self)
    cdef give(self, Cache cache)
    cdef share(self, size_t threads)
    cdef int prepare(self, Cache cache, size_t size) except -1 nogil
    cdef int let_grow(self, Cache cache, size_t factor) except -1 nogil
