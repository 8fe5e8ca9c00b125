"""Many texts encoded by several threads at once.

Each thread takes the next few texts and puts their ids, one after another, into memory of its own, with a cache of its own. It
needs the GIL for none of this: the arrays, or lists, are made of that memory in the end.
"""

from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock, WAIT_LOCK
)
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from bpe._blocks cimport Room, need_room
from bpe._cache cimport Cache
from bpe._encode cimport Encoder, Ids, copied, free_ids
from bpe._special cimport Rules
from bpe._text cimport LONE, Text, convert_units, room_for

cdef enum:
    AT_ONCE = 1 << 15           # bytes or code points of the texts that a thread takes, about

ctypedef struct Part:           # what one thread has encoded
    Ids all
    Part *next

ctypedef struct Given:          # a text, as Text has it, and what became of it
    const uint8_t *bytes
    const uint8_t *units
    size_t size
    int width
    bint refused
    Part *part                  # where its ids are, from `begin` on
    size_t begin, count


cdef class Batch:
    """Texts to be encoded by every thread that calls work(); then arrays() or lists(), of which each is as Encoder gives it."""

    cdef Encoder encoder
    cdef Rules rules
    cdef list texts                 # a Text each
    cdef Given *given
    cdef readonly size_t size       # bytes or code points of all
    cdef PyThread_type_lock lock    # of all below
    cdef size_t next
    cdef Part *parts
    cdef bint stop

    def __cinit__(self, Encoder encoder not None, texts, Rules rules not None):
        cdef Text text
        cdef size_t i
        self.encoder, self.rules = encoder, rules
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
        cdef Part *next
        while self.parts != NULL:
            next = self.parts.next
            free_ids(&self.parts.all)
            free(self.parts)
            self.parts = next
        free(self.given)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def work(self):
        """Encode texts until there are no more, or another thread has failed."""
        cdef Cache cache = self.encoder.take_cache()
        cdef Part *part = <Part *> calloc(1, sizeof(Part))
        cdef Room room
        cdef size_t begin, end, count = len(self.texts)
        room.bytes, room.size = NULL, 0
        try:
            if part == NULL:
                raise MemoryError
            with nogil:
                self.encoder.prepare(cache, self.size)
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
                part.next, self.parts = self.parts, part
                PyThread_release_lock(self.lock)
                while self.take(count, &begin, &end):
                    for begin in range(begin, end):
                        self.encode_one(cache, &room, part, &self.given[begin])
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free(room.bytes)
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

    cdef int encode_one(self, Cache cache, Room *room, Part *part, Given *given) except -1 nogil:
        cdef const uint8_t *text = given.bytes
        cdef size_t size = given.size
        given.part, given.begin = part, part.all.size
        if text == NULL:
            need_room(room, room_for(size))
            size = convert_units(given.units, given.width, size, room.bytes)
            text = room.bytes
        if size == LONE or (self.rules.refused.longest and self.rules.refused.find(text, size, 0).index >= 0):
            given.refused = True
            return 0
        self.encoder.add_text(cache, text, size, self.rules.recognised, &part.all)
        given.count = part.all.size - given.begin
        return 0

    def arrays(self):
        """The ids of each text as an array of uint32; None: see Encoder.encode_array()."""
        cdef Given *given
        cdef size_t i
        cdef list found = []
        for i in range(len(self.texts)):
            given = &self.given[i]
            found.append(None if given.refused else copied(given.part.all.ids + given.begin, given.count))
        return found

    def lists(self):
        """The ids of each text as a list; None: see Encoder.encode()."""
        cdef Given *given
        cdef size_t i
        cdef list found = []
        for i in range(len(self.texts)):
            given = &self.given[i]
            found.append(None if given.refused else self.encoder.to_list(given.part.all.ids + given.begin, given.count))
        return found
