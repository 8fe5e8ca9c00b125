from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from bpe.native.bytes cimport packed_key
from bpe.encoding.ranks cimport Work

cdef extern from "encoding/cache.h" nogil:
    enum:
        WAYS
        INLINE
        MANY
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
        cache_slot *slots, size_t mask, uint64_t seed, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch
    ) noexcept nogil
    fetch_function choose_fetch(int level)
    uint64_t cache_place(const cache_slot *slot)
    bint cache_alive(const cache_table *table, const cache_slot *slot)
    uint8_t *cache_entry(const cache_table *table, const cache_slot *slot)
    void cache_prepare(
        const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch, fetch_function fetch
    )
    bint cache_hold(cache_batch *batch, size_t i, const uint32_t *ids, size_t count)
    cache_slot *cache_second(const cache_table *table, packed_key key)
    bint cache_matches(const cache_slot *slot, packed_key key)
    bint cache_crowded(const cache_slot *set)
    bint cache_first(const cache_batch *batch, size_t i)
    size_t cache_take(
        const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i, size_t count, uint32_t **to,
        const uint32_t *limit
    )

cdef enum:
    SLOT_BYTES = 64             # what a slot and its share of the ring take

cdef class Cache:
    cdef cache_table table
    cdef size_t held, evicted   # slots taken, and pretokens forgotten, since it last grew
    cdef size_t coming          # bytes of the text, as far as known
    cdef size_t met, held_then  # bytes since the text began or it last grew, and what was held then
    cdef bint full              # its owner lets it grow no more
    cdef size_t looked, missed  # pretokens looked up lately, and short ones that had to be merged
    cdef size_t again           # of these, what was noted before
    cdef bint sparing, was_new  # whether pretokens are noted before they are put in; whether many were new before these
    cdef uint64_t *notes        # a bit for each pretoken noted, by its hash
    cdef size_t notes_mask, noted
    cdef Work work
    cdef size_t slots(self) noexcept nogil
    cdef cache_slot *keep(
        self, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    ) noexcept nogil
    cdef cache_slot *first(self, packed_key key) noexcept nogil
    cdef cache_slot *put(self, cache_slot *first, const cache_slot *slot) noexcept nogil
    cdef const cache_slot *look_again(self, packed_key key, const uint8_t *text) noexcept nogil
    cdef bint wants_more(self) noexcept nogil
    cdef void expect(self, size_t size) noexcept nogil
    cdef size_t factor(self) noexcept nogil
    cdef bint grow(self, size_t factor) noexcept nogil
    cdef void judge(self, size_t looked) noexcept nogil
    cdef bint can_note(self) noexcept nogil
    cdef bint met_before(self, packed_key key) noexcept nogil
    cdef uint64_t take_ring(self, size_t size) noexcept nogil
