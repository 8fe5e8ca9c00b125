from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from bpe.scanning.special_tokens cimport SpecialTokens
from bpe.native.text cimport TextBuffer

ctypedef struct Room:           # memory for a block that has to be made
    uint8_t *bytes
    size_t size

ctypedef struct Block:
    const uint8_t *bytes
    size_t size                 # 0: the text is at its end

cdef class Blocks:
    cdef TextBuffer text
    cdef SpecialTokens special
    cdef int scanner
    cdef size_t block
    cdef size_t at              # how much of the text is read: bytes of it, or code points
    cdef uint8_t *rest          # converted text that no block has yet
    cdef size_t rest_size, rest_room
    cdef int next(self, Room *room, Block *block) except -1 nogil
    cdef int convert(self, Room *room, Block *block) except -1 nogil

cdef int need_room(Room *room, size_t size) except -1 nogil
