"""A column of texts encoded by several threads at once: where each lies in one piece of memory in, ids in one out.

It is what encode_arrow() has under it. No Python object is made of a text or of an id. Each thread takes the next rows,
encodes them one after another with a cache of its own, and leaves their ids in one segment of memory; join() copies
the segments to their places in the result.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock,
    WAIT_LOCK
)
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bpe.encoding.cache cimport Cache
from bpe.encoding.encoder cimport Encoder
from bpe.encoding.ids cimport Ids, free_ids, reserve
from bpe.native.memory cimport checked_malloc
from bpe.scanning.special_tokens cimport Rules

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef enum:
    MOST_AT_ONCE = 1 << 17      # bytes of the rows that a thread takes, about,
    FEWEST_AT_ONCE = 1 << 14    # and towards the end of the column
    SIGNAL_TURNS = 1 << 8       # times that a thread takes some rows between two looks for a signal

ctypedef struct Segment:        # the ids of the rows from number `first` to before `last`
    Ids ids
    size_t first, last
    Segment *next


cdef class Column:
    """Rows to be encoded by every thread that calls work(); then ends() and join() give the ids of all.

    Args:
        encoder: What encodes them.
        data: A buffer of bytes that all rows lie in.
        begins, sizes: Where each row lies in it, in bytes; int64, checked by the caller.
        rules: What is done about special tokens.
        threads: How many threads will call work().
        longest: Rows of this many bytes are left to the caller; `long` has their numbers.

    Attributes:
        size: Bytes of the rows that are not long.
        long: The numbers of those that are.
        refused: The number of a row that holds a special token that is refused, or -1; the work ends with the first.
    """

    cdef Encoder encoder
    cdef Rules rules
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef const int64_t[::1] begins, sizes
    cdef int64_t *counts            # of ids, by row; -1 for what is left to the caller
    cdef size_t rows, threads
    cdef readonly size_t size
    cdef readonly list long
    cdef readonly Py_ssize_t refused
    cdef PyThread_type_lock lock    # of all below
    cdef size_t next, rest          # what nobody has taken: the first of the rows, and their bytes
    cdef Segment *segments
    cdef bint stop

    def __cinit__(
        self, Encoder encoder not None, data, const int64_t[::1] begins not None, const int64_t[::1] sizes not None,
        Rules rules not None, *, size_t threads=1, size_t longest=<size_t> -1
    ):
        cdef size_t i
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        self.data = <const uint8_t *> self.buffer.buf
        self.encoder, self.rules, self.threads = encoder, rules, threads
        self.begins, self.sizes, self.rows = begins, sizes, begins.shape[0]
        self.long, self.refused = [], -1
        encoder.pool.share(threads)
        self.counts = <int64_t *> calloc(max(<size_t> 1, self.rows), sizeof(int64_t))
        self.lock = PyThread_allocate_lock()
        if self.counts == NULL or self.lock == NULL:
            raise MemoryError
        for i in range(self.rows):
            if <size_t> sizes[i] >= longest:
                self.counts[i] = -1
                self.long.append(i)
            else:
                self.size += sizes[i]
        self.rest = self.size

    def __dealloc__(self):
        cdef Segment *next
        while self.segments != NULL:
            next = self.segments.next
            free_ids(&self.segments.ids)
            free(self.segments)
            self.segments = next
        free(self.counts)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)
        PyBuffer_Release(&self.buffer)

    def work(self):
        """Encode rows until there are no more, or another thread has failed."""
        cdef Cache cache = self.encoder.pool.take()
        cdef Ids found
        cdef size_t begin, end, size, i, times = 0
        memset(&found, 0, sizeof(Ids))
        try:
            with nogil:
                self.encoder.pool.prepare(cache, self.size)
                while self.take(&begin, &end, &size):
                    reserve(&found, size // 3)      # about as many as most texts have
                    for i in range(begin, end):
                        if self.counts[i] < 0:
                            continue
                        if not self.encode_row(cache, i, &found):
                            break
                    self.keep(begin, end, &found)
                    times += 1
                    if times % SIGNAL_TURNS == 0:
                        with gil:
                            PyErr_CheckSignals()
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free_ids(&found)
            self.encoder.pool.give(cache)

    cdef bint take(self, size_t *begin, size_t *end, size_t *size) noexcept nogil:
        """Take the next rows, fewer towards the end, so that all threads end at once; returns whether there were."""
        cdef size_t share, wanted, taken = 0
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        share = self.rest // (4 * max(<size_t> 1, self.threads))
        wanted = max(<size_t> FEWEST_AT_ONCE, min(<size_t> MOST_AT_ONCE, share))
        begin[0] = self.next
        while not self.stop and self.next < self.rows and taken < wanted:
            if self.counts[self.next] >= 0:
                taken += self.sizes[self.next]
            self.next += 1
        end[0] = self.next
        self.rest -= taken
        size[0] = taken
        PyThread_release_lock(self.lock)
        return end[0] > begin[0]

    cdef bint encode_row(self, Cache cache, size_t row, Ids *found) except -1 nogil:
        """Append the ids of a row; False where it holds what is refused, which ends the work."""
        cdef const uint8_t *text = self.data + self.begins[row]
        cdef size_t size = self.sizes[row], before = found.size
        if self.rules.refused.longest and self.rules.refused.find(text, size, 0).index >= 0:
            self.refused, self.stop = row, True
            return False
        self.encoder.encode_text(cache, text, size, self.rules.recognised, found, True)
        self.counts[row] = found.size - before
        return True

    cdef int keep(self, size_t first, size_t last, Ids *found) except -1 nogil:
        """Keep the ids of some rows, and begin anew with none."""
        cdef Segment *segment = <Segment *> checked_malloc(sizeof(Segment))
        segment.ids, segment.first, segment.last = found[0], first, last
        memset(found, 0, sizeof(Ids))
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        segment.next, self.segments = self.segments, segment
        PyThread_release_lock(self.lock)
        return 0

    def set_count(self, size_t row, int64_t count):
        """Say how many ids a row has that was left to the caller, who writes them beside those of join()."""
        self.counts[row] = count

    def ends(self, int64_t[::1] ends not None):
        """Write where the ids of each row end in the result: as many numbers as there are rows."""
        cdef int64_t total = 0
        cdef size_t i
        for i in range(self.rows):
            total += self.counts[i]
            ends[i] = total

    def join(self, const int64_t[::1] ends not None, uint32_t[::1] ids not None):
        """Write the ids of all rows but the long ones to their places; `ends` as ends() gave them."""
        cdef Segment *segment = self.segments
        cdef size_t i, at, long = len(self.long)
        cdef uint32_t *out = &ids[0] if ids.shape[0] else NULL
        cdef set apart = set(self.long)
        while segment != NULL:
            if long == 0:
                at = ends[segment.first] - self.counts[segment.first]
                if segment.ids.size:
                    memcpy(out + at, segment.ids.ids, segment.ids.size * sizeof(uint32_t))
            else:
                at = 0
                for i in range(segment.first, segment.last):
                    if i not in apart:
                        if self.counts[i]:
                            memcpy(
                                out + ends[i] - self.counts[i], segment.ids.ids + at, self.counts[i] * sizeof(uint32_t)
                            )
                        at += self.counts[i]
            segment = segment.next
