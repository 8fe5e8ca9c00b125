from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

ctypedef struct Needle:
    const uint8_t *text
    size_t size
    int index                   # its index in SpecialTokens.names

ctypedef struct Hit:
    size_t begin, end
    int index                   # -1: none, and begin == end == the size of the text

cdef enum:
    FEW_LEADS = 8               # first bytes of special tokens that are looked for one by one
    LEAD_BLOCK = 1 << 10

cdef class SpecialTokens:
    cdef readonly tuple names   # the special tokens as bytes, in the order given
    cdef readonly tuple ids     # an id for each name, or none at all
    cdef uint32_t *numbers      # the ids again
    cdef readonly size_t longest
    cdef bint end_in_symbols    # all of ASCII, the last character neither a letter nor a digit
    cdef Needle *needles        # sorted by their bytes
    cdef int first[257]         # needles[first[b]:first[b + 1]] begin with byte b
    cdef int lead_count         # how many different first bytes they have
    cdef uint8_t leads[FEW_LEADS]   # these, where there are few
    cdef Hit find(self, const uint8_t *text, size_t size, size_t at) noexcept nogil
    cdef size_t next_lead(self, const uint8_t *text, size_t size, size_t at) noexcept nogil
    cdef int longest_at(self, const uint8_t *text, size_t size) noexcept nogil
    cdef int first_from(self, int begin, int end, size_t depth, int byte) noexcept nogil
    cdef bint straddles(self, const uint8_t *text, size_t size, size_t at) noexcept nogil
    cdef bint ends_at(self, const uint8_t *text, size_t at) noexcept nogil

cdef class Rules:
    cdef readonly SpecialTokens recognised, refused, all
    cdef int refused_in(self, const uint8_t *text, size_t size) noexcept nogil
    cdef object refusal(self, int index)
    cdef int check(self, const uint8_t *text, size_t size) except -1 nogil
