from cpython.ref cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from bpe.native.bytes cimport packed_key
from bpe.encoding.cache cimport Cache, cache_batch, fetch_function
from bpe.encoding.ranks cimport Piece, Ranks
from bpe.scanning.special_tokens cimport Rules, SpecialTokens
from bpe.native.text cimport Text

cdef enum:
    BLOCK = 1 << 17             # bytes or code points of a block

ctypedef struct Ids:            # what is encoded so far
    uint32_t *ids
    size_t size, room
    size_t pages                # bytes, where `ids` is of zeroed_block(); 0: of malloc()

cdef class Encoder:
    cdef Ranks ranks
    cdef uint32_t *id_of        # by symbol
    cdef int scanner
    cdef fetch_function fetch
    cdef list idle              # caches not in use,
    cdef Cache at_hand          # and one more, which takes no list
    cdef readonly size_t cache_bytes
    cdef size_t cache_left      # of these, what no cache has
    cdef size_t busy, sharers   # caches in use, and the most of them that were or will be at once
    cdef Ids spare              # memory for the ids of a short text, where no call has it
    cdef PyObject **numbers     # by id: the int, once a list wanted it
    cdef int add(
        self, Cache cache, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size, Ids *out
    ) except -1 nogil
    cdef int settle(self, Cache cache, const uint8_t *text, cache_batch *batch, size_t i, size_t count) except -1 nogil
    cdef void settle_together(
        self, Cache cache, cache_batch *batch, const Piece *pieces, const size_t *which, size_t count
    ) noexcept nogil
    cdef int merge(self, Cache cache, packed_key key, const uint8_t *text, size_t size, Ids *out) except -1 nogil
    cdef int let_grow(self, Cache cache, size_t factor) except -1 nogil
    cdef int prepare(self, Cache cache, size_t size) except -1 nogil
    cdef int add_text(
        self, Cache cache, const uint8_t *text, size_t size, SpecialTokens special, Ids *out
    ) except -1 nogil
    cdef Cache take_cache(self)
    cdef give_cache(self, Cache cache)
    cdef share(self, size_t threads)
    cdef bint take(self, text, Rules rules, Ids *out) except -1
    cdef bint take_blocks(self, Text text, Rules rules, Ids *out) except -1
    cdef object list_of(self, text, Rules rules)
    cdef object array_of(self, text, Rules rules)
    cdef Ids borrow(self) noexcept
    cdef int give_back(self, Ids *out) except -1
    cdef list to_list(self, const uint32_t *ids, size_t size)

cdef class Numbers:
    cdef Ids all
    cdef object part(self, const uint32_t *ids, Py_ssize_t size)

cdef object array_of(Ids *out)
cdef size_t most_bytes(Text text) noexcept nogil
cdef void free_ids(Ids *out) noexcept nogil
cdef void let_go(Ids *out) noexcept


cdef inline int reserve(Ids *out, size_t more) except -1 nogil:
    """Room for so many ids more."""
    if out.size + more > out.room:
        make_room(out, max(out.size + more, out.room + out.room // 2, <size_t> 256))
    return 0


cdef int make_room(Ids *out, size_t room) except -1 nogil
cdef int reserve_for(Ids *out, size_t size) except -1
