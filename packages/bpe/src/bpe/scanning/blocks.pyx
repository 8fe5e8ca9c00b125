"""A text in blocks that may be encoded apart: their ids, one after another, are those of the text.

A block ends where a pretoken surely does and no special token has its inside (see bpe.scanning.safe_cut). Bytes and
ASCII are not copied. Any other str is converted a block at a time, into memory that stays in a near cache.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy

from bpe.scanning.safe_cut cimport safe_place
from bpe.native.memory cimport checked_realloc
from bpe.native.text cimport LONE, room_for

cdef enum:
    LOOK_BACK = 1 << 10         # bytes from the end of what is converted in which the block's end is looked for first


cdef class Blocks:
    """The blocks of a text, of about `block` bytes or code points each.

    special: the special tokens that no block's end may cut. scanner: a scanner.scanner_of(), not -1.
    """

    def __cinit__(self, TextBuffer text not None, SpecialTokens special not None, int scanner, size_t block):
        self.text, self.special, self.scanner, self.block = text, special, scanner, block

    def __dealloc__(self):
        free(self.rest)

    cdef int next(self, Room *room, Block *block) except -1 nogil:
        """The next block, in `room` if it has to be made. UnicodeError, which names no place, for a surrogate."""
        cdef size_t end
        if self.text.bytes == NULL:
            return self.convert(room, block)
        end = self.text.size
        if end - self.at > self.block + self.block // 2:
            end = safe_place(self.text.bytes, self.text.size, self.at + self.block, self.scanner, self.special)
        block.bytes, block.size = self.text.bytes + self.at, end - self.at
        self.at = end
        return 0

    cdef int convert(self, Room *room, Block *block) except -1 nogil:
        cdef size_t size = self.rest_size, more = self.block, found, end, back
        need_room(room, room_for(more) + size)
        if size:                            # or there may be no rest to copy from
            memcpy(room.bytes, self.rest, size)
        while True:
            more = min(more, self.text.size - self.at)
            need_room(room, room_for(more) + size)
            found = self.text.convert(self.at, more, room.bytes + size)
            if found == LONE:
                with gil:
                    raise UnicodeError("the text has a lone surrogate, which has no UTF-8")
            self.at += more
            size += found
            end = size
            if self.at == self.text.size:
                break
            back = self.special.longest + LOOK_BACK
            while True:
                back = min(back, size)
                end = safe_place(room.bytes, size, size - back, self.scanner, self.special)
                if end + self.special.longest <= size and end < size:
                    break
                end = 0
                if back == size:
                    break
                back *= 8
            if end:
                break
            more = size                     # doubled, so that a text without such a place costs no more than any other
        block.bytes, block.size = room.bytes, end
        self.rest_size = size - end
        if self.rest_size > self.rest_room:
            self.rest = <uint8_t *> checked_realloc(self.rest, self.rest_size)
            self.rest_room = self.rest_size
        if self.rest_size:
            memcpy(self.rest, room.bytes + end, self.rest_size)
        return 0


cdef int need_room(Room *room, size_t size) except -1 nogil:
    if room.size < size:
        room.bytes = <uint8_t *> checked_realloc(room.bytes, size)
        room.size = size
    return 0
