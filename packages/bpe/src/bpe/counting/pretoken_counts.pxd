from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from bpe.scanning.scanner cimport ScannedPattern
from bpe.scanning.special_tokens cimport SpecialTokens

cdef enum:
    SLOTS_AHEAD = 16            # between the slot that is read and the one whose long pretoken is fetched

# A pretoken in the table. At most PACKED bytes: pack_key()'s two words, the length in the last byte of `high`. Longer:
# `low` is its hash, and `high` is LONG_KEY plus its offset in the arena, where its length (4 bytes) and bytes are.
ctypedef struct Slot:
    uint64_t low, high          # high == 0: the slot is free
    uint64_t count

cdef class PretokenCounts:
    cdef Slot *slots
    cdef size_t used            # slots that are not free
    cdef readonly size_t packed     # bytes that their records have
    cdef size_t mask            # the number of slots, a power of two, less one
    cdef int shift              # from a hash to its slot
    cdef uint64_t spread        # the table is for one of this many shares of all hashes; 1: for all of them
    cdef uint8_t *arena
    cdef size_t arena_size, arena_room
    cdef readonly uint64_t splitting, adding    # nanoseconds that every TIMED-th block took to split, and to count
    cdef int add(self, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size) except -1 nogil
    cdef int add_text(
        self, const uint8_t *text, size_t size, ScannedPattern pattern, SpecialTokens special
    ) except -1 nogil
    cdef void set_slots(self, size_t count) noexcept nogil
    cdef int add_range(self, PretokenCounts other, size_t share, size_t shares) except -1 nogil
    cdef int add_slot(self, PretokenCounts other, const Slot *slot, uint64_t hash) except -1 nogil
    cdef void prefetch_for(self, PretokenCounts other, const Slot *slot) noexcept nogil
    cdef int make_room(self, size_t more) except -1 nogil
    cdef int grow(self) except -1 nogil
    cdef Slot *find_short(self, uint64_t low, uint64_t high, uint64_t hash) noexcept nogil
    cdef Slot *find_long(self, const uint8_t *text, size_t size, uint64_t hash) noexcept nogil
    cdef int take_long(self, Slot *slot, const uint8_t *text, size_t size, uint64_t hash) except -1 nogil
    cdef const uint8_t *long_entry(self, const Slot *slot) noexcept nogil
    cdef const uint8_t *bytes_of(self, const Slot *slot, uint8_t *room, size_t *size) noexcept nogil
