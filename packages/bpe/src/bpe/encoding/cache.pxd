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
        int shared

    ctypedef struct cache_reader:
        int inside
        cache_reader *next

    ctypedef struct cache_batch:
        packed_key keys[128]
        cache_slot *sets[128]
        size_t begins[129]

    ctypedef size_t (*fetch_function)(
        cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size, size_t begin,
        const size_t *ends, size_t count, cache_batch *batch
    ) noexcept nogil
    fetch_function choose_fetch(int level)
    void cache_acquire(int *lock)
    void cache_release(int *lock)
    void wait_for_readers(const cache_reader *readers)
    bint reader_enters(cache_reader *reader, const int *alone)
    void reader_leaves(cache_reader *reader)
    uint64_t cache_place(const cache_slot *slot)
    bint cache_alive(const cache_table *table, uint64_t place)
    bint cache_still_alive(const cache_table *table, uint64_t place)
    uint8_t *cache_entry(const cache_table *table, uint64_t place)
    void cache_write_ring(cache_table *table, uint64_t written)
    uint64_t cache_hash(const cache_table *table, packed_key key)
    cache_slot *cache_set(const cache_table *table, packed_key key)
    cache_slot *cache_second_set(const cache_table *table, packed_key key)
    void cache_prepare(
        const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch, fetch_function fetch
    )
    bint cache_matches(const cache_slot *slot, packed_key key)
    void cache_read()
    bint cache_unchanged(const cache_slot *slot, packed_key key)
    void cache_write(cache_slot *slot, const cache_slot *other)
    bint cache_full(const cache_slot *set)
    bint cache_holds(const cache_slot *set, packed_key key)
    size_t cache_take(
        const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i, size_t count, uint32_t **to,
        const uint32_t *limit
    )

cdef enum:
    LONGEST = 4096              # bytes of the longest pretoken worth keeping

cdef class Scratch:
    cdef cache_reader *reader   # of the cache, which frees it
    cdef Work work
    cdef Ids ids                # of the text that is being encoded

cdef class Cache:
    cdef readonly size_t bytes
    cdef bint bounded           # it may grow no more
    cdef int alone              # 1 while no thread may look into the table
    cdef cache_table table
    cdef size_t taken           # slots in use
    cdef size_t evicted         # pretokens forgotten since it last grew
    cdef int writing            # lock of all that is in the table and of the counts above
    cdef int growing            # lock of those who want to be alone
    cdef cache_reader *readers  # all there ever were
    cdef list idle              # Scratches not in use,
    cdef Scratch at_hand        # and one more, which takes no list
    cdef size_t forks           # of the process, as far as this cache has heard
    cdef Scratch take(self)
    cdef give(self, Scratch scratch)
    cdef int enter(self, Scratch scratch) except -1 nogil
    cdef int let_grow(self, Scratch scratch) except -1 nogil
    cdef int prepare(self, size_t size) except -1 nogil
    cdef void be_alone(self) noexcept nogil
    cdef void be_no_longer_alone(self) noexcept nogil
    cdef int grow_to(self, size_t slots) except -1 nogil
    cdef bint is_full(self) noexcept nogil
    cdef size_t slots(self) noexcept nogil
    cdef cache_slot *keep(
        self, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    ) noexcept nogil
    cdef cache_slot *put(self, cache_slot *first, const cache_slot *slot) noexcept nogil
    cdef bint append_ids(self, packed_key key, const uint8_t *text, Ids *out) except -1 nogil
    cdef uint64_t take_ring(self, size_t size) noexcept nogil
    cdef bint grow(self, size_t factor) noexcept nogil
    cdef void grow_ring(self, uint64_t size) noexcept nogil
    cdef void split_sets(self, const cache_table *old) noexcept nogil
    cdef int after_fork(self) except -1
    cdef int make_table(self) except -1
