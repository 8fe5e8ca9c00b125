# A text in blocks that can be encoded one by one: the ids of the blocks, joined, are the ids of the text.
#
# A block ends at a safe cut (see bpe.scanning.safe_cut): where a pretoken ends whatever follows, and not inside a
# special token. Bytes and ASCII are read in place. Any other str is converted to UTF-8 a block at a time, into memory
# that is used again for each block and so stays in the processor's L2 cache.

ctypedef struct Room:           # memory for a block that has to be made
    uint8_t *bytes
    size_t size

ctypedef struct Block:
    const uint8_t *bytes
    size_t size                 # 0: the text is at its end

cdef enum:
    LOOK_BACK = 1 << 10         # bytes before the end of the conversion where a safe cut is looked for first


cdef class Blocks:
    """The blocks of a text.

    Args:
        text: The text.
        special: The special tokens; none may be cut in two.
        scanner: Number of the scanner of the split pattern, from bpe.patterns.scanner_of(); not -1.
        block: About how many bytes or code points a block has.
    """

    cdef TextBuffer text
    cdef SpecialTokens special
    cdef int scanner
    cdef size_t block
    cdef size_t at              # how much of the text is read: bytes of it, or code points
    cdef uint8_t *rest          # converted text that no block has yet
    cdef size_t rest_size, rest_room

    def __cinit__(self, TextBuffer text not None, SpecialTokens special not None, int scanner, size_t block):
        self.text, self.special, self.scanner, self.block = text, special, scanner, block

    def __dealloc__(self):
        free(self.rest)

    cdef int next(self, Room *room, Block *block) except -1 nogil:
        """The next block; its size is 0 after the last. UnicodeError for a lone surrogate.

        The block lies in the text itself, or in `room` if it has to be converted.
        """
        cdef size_t end
        if self.text.bytes == NULL:
            return self.convert(room, block)
        end = self.text.size
        if end - self.at > self.block + self.block // 2:
            end = find_safe_cut(self.text.bytes, self.text.size, self.at + self.block, self.scanner, self.special)
        block.bytes, block.size = self.text.bytes + self.at, end - self.at
        self.at = end
        return 0

    cdef int convert(self, Room *room, Block *block) except -1 nogil:
        """next() of a str that is not ASCII: what was left of the last conversion, and the next `self.block` units."""
        cdef size_t size = self.rest_size, more = self.block, length, end, back
        need_room(room, room_for(more) + size)
        if size:                            # self.rest may be NULL otherwise
            memcpy(room.bytes, self.rest, size)
        while True:
            more = min(more, self.text.size - self.at)
            need_room(room, room_for(more) + size)
            length = self.text.convert(self.at, more, room.bytes + size)
            if length == LONE:
                raise_lone_surrogate()
            self.at += more
            size += length
            end = size
            if self.at == self.text.size:
                break
            back = self.special.longest + LOOK_BACK
            while True:
                back = min(back, size)
                end = find_safe_cut(room.bytes, size, size - back, self.scanner, self.special)
                if end + self.special.longest <= size and end < size:
                    break
                end = 0
                if back == size:
                    break
                back *= 8
            if end:
                break
            more = size                     # no safe cut in it: twice as much, so that the time stays linear
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
