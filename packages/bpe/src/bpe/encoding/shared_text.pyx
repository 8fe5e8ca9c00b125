"""One text encoded by several threads at once, into one array.

Each thread takes the next block of the text (scanning/blocks.pyx), encodes it into memory of its own, and hands the ids
in. A block's place in the result is known once all blocks before it have been handed in:

    handed in      block 0     block 2     block 3     block 1
    gets a place   0                                   1, 2 and 3

Whoever hands in the block whose turn it is gives places to it and to those that waited for it, under the lock, and
copies their ids there afterwards, while others go on. So no thread waits for another, and each id is copied once.

The array must not move while threads copy into it. Its room is one id for each byte, which is nearly always enough.
Blocks that do not fit keep their ids, and are appended by whoever asks for the result, when the array may move.
"""

cimport cython

from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock,
    WAIT_LOCK
)
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from bpe.scanning.blocks cimport Block, Blocks, Room
from bpe.encoding.cache cimport Scratch
from bpe.encoding.encoder cimport BLOCK, Encoder, most_bytes
from bpe.encoding.ids cimport Ids, free_ids, reserve, reserve_for_text, to_array
from bpe.native.memory cimport HUGE_PAGE, touch_block
from bpe.scanning.special_tokens cimport Rules
from bpe.native.text cimport TextBuffer

cdef enum:
    AHEAD = 1 << 18             # ids beyond those that were written whose pages are made before they are needed
    BLOCKS_A_THREAD = 8         # so that all threads end at about the same time
    LEAST_BLOCK = 1 << 14       # bytes or code points
    SIGNAL_BLOCKS = 1 << 7      # blocks that a thread encodes between two looks for a signal

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

ctypedef struct BlockIds:       # the ids of a block
    Ids all
    size_t number               # of the block
    size_t place                # of its ids among all
    BlockIds *next


cdef class SharedText:
    """A text to be encoded by every thread that calls work(); then array() or list() gives its ids.

    Args:
        encoder: What encodes it.
        text: str, bytes or a buffer of bytes.
        rules: What is done about special tokens.
        threads: How many threads will call work().
        block: Bytes or code points that each takes at a time, about; by default fewer of a short text.
    """

    cdef Encoder encoder
    cdef Rules rules
    cdef Blocks blocks
    cdef Ids out
    cdef PyThread_type_lock lock    # of all below, and of blocks
    cdef size_t taken, placed       # blocks
    cdef size_t touched             # ids whose pages are there
    cdef BlockIds *waiting          # handed in before their turn, by number
    cdef BlockIds *unused
    cdef bint stop
    cdef object failure             # of the first block that failed: a ValueError or UnicodeError
    cdef size_t failed              # its number

    def __cinit__(self, Encoder encoder not None, text, Rules rules not None, *, size_t threads=1, size_t block=0):
        cdef TextBuffer buffer = TextBuffer(text)
        if block == 0:
            block = max(<size_t> LEAST_BLOCK, min(<size_t> BLOCK, buffer.size // (BLOCKS_A_THREAD * threads)))
        self.encoder, self.rules = encoder, rules
        self.blocks = Blocks(buffer, rules.all, encoder.scanner, block)
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        reserve_for_text(&self.out, most_bytes(buffer))
        reserve(&self.out, most_bytes(buffer))

    def __dealloc__(self):
        free_all(self.waiting)
        free_all(self.unused)
        free_ids(&self.out)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def work(self):
        """Encode blocks until there are no more, or another thread has failed."""
        cdef Scratch scratch = self.encoder.cache.take()
        cdef Room room
        cdef size_t blocks = 0, number = 0
        room.bytes, room.size = NULL, 0
        try:
            with nogil:
                self.encoder.cache.prepare(self.blocks.text.size)
                while self.encode_block(scratch, &room, &number):
                    blocks += 1
                    if blocks % SIGNAL_BLOCKS == 0:
                        with gil:
                            PyErr_CheckSignals()
        except ValueError as error:
            with cython.critical_section(self):
                if self.failure is None or number < self.failed:
                    self.failure, self.failed = error, number
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free(room.bytes)
            self.encoder.cache.give(scratch)

    def array(self):
        """The ids as an array of uint32. Errors: see Encoder.encode_array()."""
        self.finish()
        return to_array(&self.out)

    def list(self):
        """The ids as a list. Errors: see Encoder.encode_array()."""
        self.finish()
        return self.encoder.to_list(self.out.ids, self.out.size)

    cdef int finish(self) except -1:
        """Append what did not fit; or raise the error of the first block that failed, before which all are encoded."""
        cdef BlockIds *done
        failure, self.failure = self.failure, None      # whose traceback may lead back here
        if failure is not None:
            raise failure
        while self.waiting != NULL:
            done = self.waiting
            reserve(&self.out, done.all.size)
            memcpy(self.out.ids + self.out.size, done.all.ids, done.all.size * sizeof(uint32_t))
            self.out.size += done.all.size
            self.waiting, done.next = done.next, self.unused
            self.unused = done
        return 0

    cdef bint encode_block(self, Scratch scratch, Room *room, size_t *number) except -1 nogil:
        """Encode the next block, of which `number` is then the number; returns whether there was one."""
        cdef Block block
        cdef BlockIds *done
        if self.stop:
            return False
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        try:
            number[0] = self.taken
            self.blocks.next(room, &block)
            self.taken += 1
            done = self.unused
            if done != NULL:
                self.unused = done.next
        finally:
            PyThread_release_lock(self.lock)
        if done == NULL:
            done = new_block_ids()
        done.number, done.all.size = number[0], 0
        if number[0] == 0:
            self.make_pages()
        try:
            self.rules.check(block.bytes, block.size)
            self.encoder.encode_text(
                scratch, block.bytes, block.size, self.rules.recognised, &done.all, number[0] == 0
            )
        finally:
            self.hand_in(done)
        return block.size > 0

    cdef void hand_in(self, BlockIds *done) noexcept nogil:
        """Give the ids of a block, and of those that were waiting for it, their places, and copy them there."""
        cdef BlockIds **at = &self.waiting
        cdef BlockIds *ready = NULL
        cdef BlockIds **last = &ready
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        while at[0] != NULL and at[0].number < done.number:
            at = &at[0].next
        done.next, at[0] = at[0], done
        while (
            self.waiting != NULL and self.waiting.number == self.placed
            and self.waiting.all.size <= self.out.room - self.out.size
        ):
            done = self.waiting
            self.waiting = done.next
            done.next = NULL
            done.place = self.out.size
            self.out.size += done.all.size
            self.placed += 1
            last[0] = done
            last = &done.next
        PyThread_release_lock(self.lock)
        if ready == NULL:
            return
        self.make_pages()
        done = ready
        while True:
            if done.all.size:
                memcpy(self.out.ids + done.place, done.all.ids, done.all.size * sizeof(uint32_t))
            if done.next == NULL:
                break
            done = done.next
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        done.next = self.unused
        self.unused = ready
        PyThread_release_lock(self.lock)

    cdef void make_pages(self) noexcept nogil:
        """Make the pages that are written next: two threads that meet on a new page would each make and clear one."""
        cdef size_t begin, end
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        begin = end = self.touched
        while self.out.mapped and end < min(self.out.size + AHEAD, self.out.mapped // sizeof(uint32_t)):
            end += HUGE_PAGE // sizeof(uint32_t)
        self.touched = end
        PyThread_release_lock(self.lock)
        if end > begin:
            end = min(end, self.out.mapped // sizeof(uint32_t))
            touch_block(self.out.ids + begin, (end - begin) * sizeof(uint32_t))


cdef BlockIds *new_block_ids() except NULL nogil:
    cdef BlockIds *done = <BlockIds *> calloc(1, sizeof(BlockIds))
    if done == NULL:
        with gil:
            raise MemoryError
    return done


cdef void free_all(BlockIds *done) noexcept nogil:
    cdef BlockIds *next
    while done != NULL:
        next = done.next
        free_ids(&done.all)
        free(done)
        done = next
