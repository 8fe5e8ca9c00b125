# A text that all threads encode into one array, as a sequence of blocks (scanning/blocks.pyx). Each thread encodes the
# next block into memory of its own, and hands the ids in. A block's place in the array is settled once all blocks
# before it have been handed in:
#
#     handed in      block 0     block 2     block 3     block 1
#     gets a place   0                                   1, 2 and 3
#
# Whoever hands in the block whose turn it is gives places to it and to those that waited for it, under the lock, and
# copies their ids there afterwards, while others go on. So no thread waits for another, and each id is copied once.
# The array must not move while threads copy into it. Its room is one id for each byte, which is nearly always enough.
# Blocks that do not fit keep their ids, and are appended when the threads have ended and the array may move.


ctypedef struct BlockIds:       # the ids of a block
    Ids all
    size_t number               # of the block
    size_t place                # of its ids among all
    BlockIds *next


cdef class LongText:
    """A text of a batch that all threads encode, block by block."""

    cdef Blocks blocks
    cdef Ids out
    cdef size_t index               # of the text in its batch
    cdef PyThread_type_lock lock    # of all below, and of blocks
    cdef size_t taken, placed       # blocks
    cdef size_t touched             # ids whose pages are there
    cdef BlockIds *waiting          # handed in before their turn, by number
    cdef BlockIds *unused
    cdef bint stop                  # after the last block, or the first that failed
    cdef size_t failed              # the number of that block

    def __cinit__(self, TextBuffer text not None, Batch batch not None, size_t index, size_t block):
        if block == 0:
            block = max(<size_t> LEAST_BLOCK, min(<size_t> BLOCK, text.size // (BLOCKS_A_THREAD * batch.threads)))
        self.index = index
        self.blocks = Blocks(text, batch.rules.all, batch.encoder.scanner, block)
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        reserve_for_text(&self.out, most_bytes(text))
        reserve(&self.out, most_bytes(text))

    def __dealloc__(self):
        free_all(self.waiting)
        free_all(self.unused)
        free_ids(&self.out)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef bint encode_block(self, Batch batch, Scratch scratch, Room *room, size_t *number) except -1 nogil:
        """Encode the next block, whose number is then `number`; returns whether there was one."""
        cdef Block block
        cdef BlockIds *done
        if self.stop or batch.stop:
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
            batch.rules.check(block.bytes, block.size)
            batch.encoder.encode_text(
                scratch, block.bytes, block.size, batch.rules.recognised, &done.all, number[0] == 0
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

    cdef int finish(self) except -1:
        """Append what did not fit, when no thread is at work on the text any more."""
        cdef BlockIds *done
        while self.waiting != NULL:
            done = self.waiting
            reserve(&self.out, done.all.size)
            memcpy(self.out.ids + self.out.size, done.all.ids, done.all.size * sizeof(uint32_t))
            self.out.size += done.all.size
            self.waiting, done.next = done.next, self.unused
            self.unused = done
        return 0


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
