"""Many texts encoded by several threads at once.

Each thread takes the next few texts, encodes them one after another with a cache of its own, and keeps their ids in one piece of
memory. It needs the GIL for none of this. The arrays that are made in the end look into those pieces, each of which is freed
with the last array that does.
"""

from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock, WAIT_LOCK
)
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bpe._blocks cimport Room, need_room
from bpe._cache cimport Cache
from bpe._encode cimport Encoder, Ids, Numbers, free_ids
from bpe._memory cimport checked_malloc
from bpe._special cimport Rules
from bpe._text cimport LONE, Text, convert_units, room_for

cdef enum:
    AT_ONCE = 1 << 16           # bytes or code points of the texts that a thread takes, about

ctypedef struct Piece:          # of memory: the ids of the texts from number `first` to before `last`
    uint32_t *ids
    size_t first, last
    Piece *next

ctypedef struct Given:          # a text, as Text has it, and what became of it
    const uint8_t *bytes
    const uint8_t *units
    size_t size
    int width
    bint refused
    size_t begin, count         # of its ids in their piece


cdef class Batch:
    """Texts to be encoded by every thread that calls work(); then arrays() or lists(), of which each is as Encoder gives it.

    threads: how many will.
    """

    cdef Encoder encoder
    cdef Rules rules
    cdef list texts                 # a Text each
    cdef Given *given
    cdef readonly size_t size       # bytes or code points of all
    cdef PyThread_type_lock lock    # of all below
    cdef size_t next
    cdef Piece *pieces
    cdef bint stop

    def __cinit__(self, Encoder encoder not None, texts, Rules rules not None, *, size_t threads=1):
        cdef Text text
        cdef size_t i
        self.encoder, self.rules = encoder, rules
        encoder.share(threads)
        self.texts = [Text(one) for one in texts]
        self.given = <Given *> calloc(len(self.texts) + 1, sizeof(Given))
        self.lock = PyThread_allocate_lock()
        if self.given == NULL or self.lock == NULL:
            raise MemoryError
        for i, text in enumerate(self.texts):
            self.given[i].bytes, self.given[i].units = text.bytes, text.units
            self.given[i].size, self.given[i].width = text.size, text.width
            self.size += text.size

    def __dealloc__(self):
        cdef Piece *next
        while self.pieces != NULL:
            next = self.pieces.next
            free(self.pieces.ids)
            free(self.pieces)
            self.pieces = next
        free(self.given)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def work(self):
        """Encode texts until there are no more, or another thread has failed."""
        cdef Cache cache = self.encoder.take_cache()
        cdef Room room
        cdef Ids found
        cdef size_t begin, end, i, count = len(self.texts)
        room.bytes, room.size = NULL, 0
        memset(&found, 0, sizeof(Ids))
        try:
            with nogil:
                self.encoder.prepare(cache, self.size)
                while self.take(count, &begin, &end):
                    found.size = 0
                    for i in range(begin, end):
                        self.encode_one(cache, &room, &found, &self.given[i])
                    self.keep(begin, end, &found)
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free(room.bytes)
            free_ids(&found)
            self.encoder.give_cache(cache)

    cdef bint take(self, size_t count, size_t *begin, size_t *end) noexcept nogil:
        """The next texts to encode; returns whether there are any."""
        cdef size_t size = 0
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        begin[0] = self.next
        while not self.stop and self.next < count and size < AT_ONCE:
            size += self.given[self.next].size
            self.next += 1
        end[0] = self.next
        PyThread_release_lock(self.lock)
        return end[0] > begin[0]

    cdef int encode_one(self, Cache cache, Room *room, Ids *found, Given *given) except -1 nogil:
        cdef const uint8_t *text = given.bytes
        cdef size_t size = given.size
        given.begin = found.size
        if text == NULL:
            need_room(room, room_for(size))
            size = convert_units(given.units, given.width, size, room.bytes)
            text = room.bytes
        if size == LONE or (self.rules.refused.longest and self.rules.refused.find(text, size, 0).index >= 0):
            given.refused = True
            return 0
        self.encoder.add_text(cache, text, size, self.rules.recognised, found)
        given.count = found.size - given.begin
        return 0

    cdef int keep(self, size_t first, size_t last, const Ids *found) except -1 nogil:
        """Keep a copy of the ids of some texts, in a piece of memory no larger than they are."""
        cdef Piece *piece = <Piece *> checked_malloc(sizeof(Piece))
        piece.ids, piece.first, piece.last = NULL, first, last
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        piece.next, self.pieces = self.pieces, piece
        PyThread_release_lock(self.lock)
        piece.ids = <uint32_t *> checked_malloc(found.size * sizeof(uint32_t))
        if found.size:
            memcpy(piece.ids, found.ids, found.size * sizeof(uint32_t))
        return 0

    def arrays(self):
        """The ids of each text as an array of uint32, once; None: see Encoder.encode_array()."""
        cdef list found = [None] * len(self.texts)
        cdef Piece *piece = self.pieces
        cdef Numbers numbers
        cdef size_t i
        while piece != NULL:
            numbers = Numbers()
            numbers.all.ids, piece.ids = piece.ids, NULL
            for i in range(piece.first, piece.last):
                if not self.given[i].refused:
                    found[i] = numbers.part(numbers.all.ids + self.given[i].begin, self.given[i].count)
            piece = piece.next
        return found

    def lists(self):
        """The ids of each text as a list; None: see Encoder.encode()."""
        cdef list found = [None] * len(self.texts)
        cdef Piece *piece = self.pieces
        cdef size_t i
        while piece != NULL:
            for i in range(piece.first, piece.last):
                if not self.given[i].refused:
                    found[i] = self.encoder.to_list(piece.ids + self.given[i].begin, self.given[i].count)
            piece = piece.next
        return found
