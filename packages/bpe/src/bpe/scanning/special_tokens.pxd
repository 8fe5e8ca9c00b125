from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

ctypedef struct Needle:
    const uint8_t *text
    size_t size
    int index                   # its place in SpecialTokens.names

ctypedef struct Hit:
    size_t begin, end
    int index                   # -1: none, and begin == end == the size of the text

cdef class SpecialTokens:
    cdef readonly tuple names   # the special tokens as bytes, in the order given
    cdef readonly tuple ids     # an id for each name, or none at all
    cdef uint32_t *numbers      # the ids again
    cdef readonly size_t longest
    cdef Needle *needles        # grouped by first byte, longest first in each group
    cdef int first[257]         # needles[first[b]:first[b + 1]] begin with byte b
    cdef int only_byte          # the first byte of all of them, or -1
    cdef Hit find(self, const uint8_t *text, size_t size, size_t at) noexcept nogil
    cdef bint straddles(self, const uint8_t *text, size_t size, size_t at) noexcept nogil
    cdef bint ends_at(self, const uint8_t *text, size_t at) noexcept nogil

cdef class Rules:
    cdef readonly SpecialTokens recognised, refused, all
    cdef int refused_in(self, const uint8_t *text, size_t size) noexcept nogil
    cdef object refusal(self, int index)
    cdef int check(self, const uint8_t *text, size_t size) except -1 nogil
