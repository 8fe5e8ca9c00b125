"""Many texts encoded by several threads at once: of a list, or rows that lie in one piece of memory, as Arrow's do.

Each thread takes the next few short texts, encodes them one after another, and leaves their ids in one segment of
memory. It needs the GIL for none of this. The arrays that are made in the end are views of these segments, each of
which is freed with the last of its arrays; joined() copies all of them into one.

A long text is encoded by all threads, block by block: see long_text.pxi.
"""

cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock,
    WAIT_LOCK
)
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bpe.native.lazy_imports import numpy as np

from bpe.scanning.blocks cimport Block, Blocks, Room, need_room
from bpe.native.bytes cimport prefetch
from bpe.encoding.cache cimport Scratch
from bpe.encoding.encoder cimport BLOCK, Encoder, most_bytes
from bpe.encoding.ids cimport IdMemory, Ids, free_ids, reserve, reserve_for_text, to_array
from bpe.native.memory cimport HUGE_PAGE, checked_malloc, checked_realloc, touch_block
from bpe.scanning.special_tokens cimport Rules
from bpe.native.text cimport LONE, TextBuffer, convert_units, lone_surrogate, never_changes, room_for

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    int PyErr_CheckSignals() except -1
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MOST_AT_ONCE = 1 << 16      # bytes of short texts, about, that a thread takes at a time
    FEWEST_AT_ONCE = 1 << 13    # the same near the end, so that all threads end together
    SIGNAL_TURNS = 1 << 7       # times that a thread takes some texts, or a block, between two looks for a signal
    AHEAD = 1 << 18             # ids beyond those that were written whose pages are made before they are needed
    BLOCKS_A_THREAD = 8         # blocks of a long text for each thread at least, so that all end at about the same time
    LEAST_BLOCK = 1 << 14       # bytes or code points of the smallest block
    LINE = 64                   # bytes of a cache line
    FETCHED = 8                 # lines of the next text that are prefetched while one is encoded
    OBJECTS = 8                 # texts whose objects are prefetched while one is looked at

ctypedef struct Segment:        # the ids of the texts from number `first` to before `last`, in one piece of memory
    uint32_t *ids
    size_t first, last
    Segment *next

ctypedef struct Entry:          # a text, as TextBuffer has it, and its result
    const uint8_t *bytes        # NULL where it is converted
    const uint8_t *units
    size_t size
    int width
    bint long                   # encoded in blocks
    bint failed                 # see `failures`
    size_t begin, count         # of its ids in their segment


cdef inline size_t about_bytes(const Entry *entry) noexcept nogil:
    """Bytes of a text in UTF-8: at least half of them, and at most twice as many."""
    return entry.size * (2 if entry.width > 1 else 1)


include "long_text.pxi"


cdef class Batch:
    """Texts to be encoded by every thread that calls work(); then arrays() or lists() gives the ids of each.

    Args:
        encoder: What encodes them.
        texts: str, bytes or buffers of bytes; or, with begins and sizes, one buffer of bytes that all of them lie in.
        rules: What is done about special tokens.
        threads: The most threads that there may be.
        thread_text: Bytes of texts, about, that are worth a thread.
        longest: Texts of this many bytes, about, are encoded in blocks, if they are half of a thread's share or more.
        block: Bytes or code points that a thread takes of these at a time, about; by default fewer of a shorter one.
        begins, sizes: Place of each text in the buffer, in bytes; int64, checked by the caller.

    Attributes:
        threads: How many threads are to call work().
        failures: {number of a text: why it has no ids}: a ValueError that names a refused special token, or a
            UnicodeError for a lone surrogate.
    """

    cdef Encoder encoder
    cdef Rules rules
    cdef list texts, buffers        # those of a list; a TextBuffer for each that is neither bytes nor str
    cdef Py_buffer buffer           # what the others lie in
    cdef Entry *entries
    cdef size_t count               # of the texts
    cdef readonly size_t size       # bytes, about, of all that are not long,
    cdef size_t units               # and their bytes or code points
    cdef list long                  # a LongText for each that is
    cdef readonly size_t threads
    cdef PyThread_type_lock lock    # of all below
    cdef size_t next, rest          # what nobody has taken: the first of the texts, and their size
    cdef Segment *segments
    cdef bint stop
    cdef readonly dict failures     # by number of the text: the ValueError or UnicodeError that it raised

    def __cinit__(
        self, Encoder encoder not None, texts, Rules rules not None, *, size_t threads=1, size_t thread_text=1,
        size_t longest=<size_t> -1, size_t block=0, const int64_t[::1] begins=None, const int64_t[::1] sizes=None
    ):
        cdef size_t i, share
        cdef Entry *entry
        cdef bint in_place = False
        self.encoder, self.rules = encoder, rules
        self.buffers, self.long, self.failures = [], [], {}
        if begins is None:
            self.texts = list(texts)    # which nobody else can change
            self.count = PyList_GET_SIZE(self.texts)
        else:
            PyObject_GetBuffer(texts, &self.buffer, PyBUF_SIMPLE)
            in_place = never_changes(texts)
            self.count = begins.shape[0]
        self.entries = <Entry *> calloc(self.count + 1, sizeof(Entry))
        self.lock = PyThread_allocate_lock()
        if self.entries == NULL or self.lock == NULL:
            raise MemoryError
        for i in range(self.count):
            entry = &self.entries[i]
            if begins is not None:
                entry.size = sizes[i]
                entry.units = <const uint8_t *> self.buffer.buf + begins[i]
                if in_place or entry.size == 0:
                    entry.bytes = entry.units
            else:
                if i + OBJECTS < self.count:
                    prefetch(<void *> PyList_GET_ITEM(self.texts, i + OBJECTS))
                self.look_at(<object> PyList_GET_ITEM(self.texts, i), entry)
            self.size += about_bytes(entry)
        share = self.size // (2 * threads)
        for i in range(self.count):
            entry = &self.entries[i]
            if about_bytes(entry) >= max(longest, share):
                entry.long = True
                self.size -= about_bytes(entry)
            else:
                self.units += entry.size
        self.rest = self.size
        self.threads = threads
        for i in range(self.count):
            if self.entries[i].long:
                text = self.texts[i] if begins is None else memoryview(texts)[begins[i] : begins[i] + sizes[i]]
                self.long.append(LongText(TextBuffer(text), self, i, block))
        if not self.long:
            self.threads = min(threads, 1 + self.size // thread_text)

    def __dealloc__(self):
        cdef Segment *next
        while self.segments != NULL:
            next = self.segments.next
            free(self.segments.ids)
            free(self.segments)
            self.segments = next
        free(self.entries)
        PyBuffer_Release(&self.buffer)      # of one that was never filled, nothing
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef int look_at(self, text, Entry *entry) except -1:
        """Do as TextBuffer without creating one for a str or bytes, which the list of texts keeps alive."""
        cdef TextBuffer other
        if type(text) is str:
            entry.size = PyUnicode_GET_LENGTH(text)
            if PyUnicode_IS_ASCII(text):
                entry.bytes = <const uint8_t *> PyUnicode_DATA(text)
            else:
                entry.width, entry.units = PyUnicode_KIND(text), <const uint8_t *> PyUnicode_DATA(text)
        elif type(text) is bytes:
            entry.bytes, entry.size = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        else:
            other = TextBuffer(text)
            self.buffers.append(other)
            entry.bytes, entry.units, entry.size, entry.width = other.bytes, other.units, other.size, other.width
        return 0

    def work(self):
        """Encode texts until there are no more, or another thread has failed: the short ones, then the long ones."""
        cdef Scratch scratch = self.encoder.cache.take()
        cdef Room room
        cdef Ids ids
        cdef LongText text
        cdef size_t begin, end, size, i, number = 0, turns = 0
        room.bytes, room.size = NULL, 0
        memset(&ids, 0, sizeof(Ids))
        try:
            with nogil:
                self.encoder.cache.prepare(self.units)
                while self.take(&begin, &end, &size):
                    reserve(&ids, size // 3)      # about as many as most texts have
                    for i in range(begin, end):
                        self.encode_one(scratch, &room, &ids, &self.entries[i])
                    self.keep(begin, end, &ids)
                    turns += 1
                    if turns % SIGNAL_TURNS == 0:
                        with gil:
                            PyErr_CheckSignals()
            for text in self.long:
                try:
                    with nogil:
                        self.encoder.cache.prepare(text.blocks.text.size)
                        while text.encode_block(self, scratch, &room, &number):
                            turns += 1
                            if turns % SIGNAL_TURNS == 0:
                                with gil:
                                    PyErr_CheckSignals()
                except ValueError as error:
                    self.fail_block(text, number, error)
                text.stop = True
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free(room.bytes)
            free_ids(&ids)
            self.encoder.cache.give(scratch)

    cdef fail_block(self, LongText text, size_t number, error):
        """Note why a long text has no ids: the error of its first block that failed, before which all are encoded."""
        cdef Entry *entry = &self.entries[text.index]
        with cython.critical_section(self):
            if not entry.failed or number < text.failed:
                entry.failed, text.failed = True, number
                self.failures[text.index] = error.with_traceback(None)      # which would keep this batch

    cdef bint take(self, size_t *begin, size_t *end, size_t *size) noexcept nogil:
        """Take the next texts, fewer towards the end, so that all threads end at once; returns whether there were."""
        cdef size_t share, least, total = 0
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        share = self.rest // (4 * self.threads)
        least = max(<size_t> FEWEST_AT_ONCE, min(<size_t> MOST_AT_ONCE, share))
        begin[0] = self.next
        while not self.stop and self.next < self.count and total < least:
            if not self.entries[self.next].long:
                total += about_bytes(&self.entries[self.next])
            self.next += 1
        end[0] = self.next
        self.rest -= total
        size[0] = total
        PyThread_release_lock(self.lock)
        return end[0] > begin[0]

    cdef int encode_one(self, Scratch scratch, Room *room, Ids *ids, Entry *entry) except -1 nogil:
        cdef const uint8_t *text = entry.bytes
        cdef const Entry *after = entry + 1         # there is one more than there are texts
        cdef const uint8_t *next = after.bytes if after.bytes != NULL else after.units
        cdef size_t size = entry.size, line
        cdef int index
        entry.begin = ids.size
        if entry.long:
            return 0
        for line in range(FETCHED if next != NULL else 0):
            prefetch(next + line * LINE)
        if text == NULL:
            need_room(room, room_for(size))
            size = convert_units(entry.units, entry.width, size, room.bytes)
            text = room.bytes
            if size == LONE:
                return self.fail(entry, -1)
        index = self.rules.refused_in(text, size)
        if index >= 0:
            return self.fail(entry, index)
        self.encoder.encode_text(scratch, text, size, self.rules.recognised, ids, True)
        entry.count = ids.size - entry.begin
        return 0

    cdef int fail(self, Entry *entry, int index) except -1 nogil:
        """Note why a text has no ids: the refused special token of this index, or, for -1, a lone surrogate."""
        entry.failed = True
        with gil:
            self.failures[entry - self.entries] = self.rules.refusal(index) if index >= 0 else lone_surrogate()
        return 0

    cdef int keep(self, size_t first, size_t last, Ids *ids) except -1 nogil:
        """Keep the ids of some texts, in memory no larger than they are; `ids` are empty then."""
        cdef Segment *segment = <Segment *> checked_malloc(sizeof(Segment))
        segment.ids, segment.first, segment.last = NULL, first, last
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        segment.next, self.segments = self.segments, segment
        PyThread_release_lock(self.lock)
        segment.ids = <uint32_t *> checked_realloc(ids.ids, ids.size * sizeof(uint32_t))
        memset(ids, 0, sizeof(Ids))
        return 0

    def arrays(self):
        """The ids of each text as an array of uint32, once; None for those in `failures`."""
        cdef list arrays = [None] * self.count
        cdef Segment *segment
        cdef IdMemory memory
        cdef LongText text
        cdef size_t i
        while self.segments != NULL:
            segment = self.segments
            memory = IdMemory()
            memory.owned.ids, segment.ids = segment.ids, NULL
            for i in range(segment.first, segment.last):
                if not self.entries[i].long and not self.entries[i].failed:
                    arrays[i] = memory.view(memory.owned.ids + self.entries[i].begin, self.entries[i].count)
            self.segments = segment.next
            free(segment)
        while self.long:
            text = self.long.pop()
            if not self.entries[text.index].failed:
                text.finish()
                arrays[text.index] = to_array(&text.out)
        return arrays

    def lists(self):
        """The ids of each text as a list; None for those in `failures`."""
        cdef list lists = [None] * self.count
        cdef Segment *segment = self.segments
        cdef LongText text
        cdef size_t i
        cdef bint collects = PyGC_Disable()     # or it looks at every number of every list, and finds no garbage there
        try:
            while segment != NULL:
                for i in range(segment.first, segment.last):
                    if not self.entries[i].long and not self.entries[i].failed:
                        lists[i] = self.encoder.to_list(segment.ids + self.entries[i].begin, self.entries[i].count)
                segment = segment.next
            for text in self.long:
                if not self.entries[text.index].failed:
                    text.finish()
                    lists[text.index] = self.encoder.to_list(text.out.ids, text.out.size)
        finally:
            if collects:
                PyGC_Enable()
        return lists

    def joined(self):
        """(the ids of all texts in one array, the end of each text's ids); a text that has failed has none."""
        cdef const Segment *segment = self.segments
        cdef const Entry *entry
        cdef LongText text
        cdef size_t i
        cdef int64_t total = 0
        ends = np.empty(self.count, dtype=np.int64)
        cdef int64_t[::1] end = ends
        for text in self.long:
            text.finish()
            self.entries[text.index].count = text.out.size
        for i in range(self.count):
            total += self.entries[i].count
            end[i] = total
        ids = np.empty(total, dtype=np.uint32)
        cdef uint32_t[::1] out = ids
        while segment != NULL:
            for i in range(segment.first, segment.last):
                entry = &self.entries[i]
                if entry.count and not entry.long:
                    memcpy(&out[end[i] - entry.count], segment.ids + entry.begin, entry.count * sizeof(uint32_t))
            segment = segment.next
        for text in self.long:
            if text.out.size:
                memcpy(&out[end[text.index] - text.out.size], text.out.ids, text.out.size * sizeof(uint32_t))
        return ids, ends
