from cpython.ref cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from bpe.encoding.cache cimport Cache, Scratch, cache_batch
from bpe.encoding.ids cimport Ids
from bpe.encoding.ranks cimport Piece, Ranks
from bpe.native.bytes cimport packed_key
from bpe.scanning.scanner cimport cut_table
from bpe.scanning.special_tokens cimport Rules, SpecialTokens

cdef enum Space:                # texts that get a space in front
    NO_SPACE
    FIRST_SPACE                 # the beginning of a text, unless it is a space
    EACH_SPACE                  # that, and what follows a special or added token, unless it begins with a space
    ALWAYS_SPACE                # the same, also where it begins with a space
    TEXT_SPACE                  # as ALWAYS_SPACE, but nothing after an added token; also a text that begins with one

cdef class Encoder:
    cdef Ranks ranks
    cdef uint32_t *ids          # by symbol; NULL where its number is its id
    cdef uint32_t first_beginning   # ids from it on stand for the beginnings of characters; NONE: there are none
    cdef uint32_t *byte_ids     # how many ids each of these stands for, and which, in four numbers
    cdef Space space
    cdef uint8_t *added         # by id, as far as there are any: whether it is an added token
    cdef size_t added_end
    cdef int scanner
    cdef object scanner_number  # which keeps a scanner of its own
    cdef cut_table *cuts        # where pretokens are cut, or NULL
    cdef Cache cache
    cdef PyObject **ints        # by id, for ids below shared_ints: the Python int, once a list wanted it
    cdef size_t shared_ints
    cdef int encode_pretokens(
        self, Scratch scratch, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size,
        Ids *out
    ) except -1 nogil
    cdef size_t encode_batch(
        self, Scratch scratch, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size,
        Ids *out
    ) except? 0 nogil
    cdef int settle(
        self, Scratch scratch, const uint8_t *text, cache_batch *batch, size_t i, size_t count
    ) except -1 nogil
    cdef int encode_one(
        self, Scratch scratch, packed_key key, const uint8_t *text, size_t size, Ids *out
    ) except -1 nogil
    cdef int encode_text(
        self, Scratch scratch, const uint8_t *text, size_t size, SpecialTokens special, Ids *out, bint begins
    ) except -1 nogil
    cpdef object encode_array(self, text, Rules rules, bint begins=*)
    cdef object ids_of(self, text, Rules rules, bint begins, bint as_list)
    cdef list to_list(self, const uint32_t *ids, size_t size)
