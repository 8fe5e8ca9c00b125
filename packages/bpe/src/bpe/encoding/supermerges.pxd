from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef class Supermerges:
    cdef readonly int scanner       # of the words within a run
    cdef uint64_t *pairs            # by hash, linear probing: left id << 32 | right id, or NO_PAIR
    cdef uint32_t *ranks            # of each of them
    cdef uint32_t *made             # the id that each makes, by rank
    cdef size_t mask
    cdef uint32_t rank_of(self, uint32_t left, uint32_t right) noexcept nogil
    cdef size_t merge(self, uint32_t *ids, uint8_t *is_word, size_t count) except? 0 nogil
