# One loop that encodes texts, short ones several at a time, long ones block by block, by all threads that call work().
# A thread takes the next job under the lock, encodes it without the lock and without the GIL, and hands its ids
# in as a run:
#
#     texts    0, 1, 2      3: a long text                  4, 5
#     jobs     [0 1 2]      [block 0] [block 1] [block 2]   [4 5]
#     runs     thread A     A, blocks 0 and 1   thread B    A         the same text, and B was between
#
# Neighbouring blocks that one thread encodes are one run, so that the ids of a text in one thread are never copied. The
# arrays that are made in the end are views of the runs of short texts; a run is freed with the last of its arrays.

cdef enum:
    BLOCK = 1 << 17             # bytes or code points of a block, at most
    LEAST_BLOCK = 1 << 14       # of one that several threads may take
    BLOCKS_A_THREAD = 8         # blocks of a long text for each thread at least, so that all end at about the same time
    MOST_AT_ONCE = 1 << 16      # bytes of short texts, about, that a thread takes at a time
    FEWEST_AT_ONCE = 1 << 13    # the same near the end, so that all threads end together
    SIGNAL_TURNS = 1 << 7       # jobs of a thread between two looks for a signal
    LINE = 64                   # bytes of a cache line
    FETCHED = 8                 # lines of the next text that are prefetched while one is encoded
    OBJECTS = 8                 # texts whose objects are prefetched while one is looked at

ctypedef struct Entry:          # a text, as TextBuffer has it, and its result
    const uint8_t *bytes        # NULL where it is converted
    const uint8_t *units
    size_t size
    int width
    bint continued              # it goes on from another text
    bint long                   # encoded in blocks
    bint failed                 # see `failures`
    size_t failed_block         # of a long one: the number of the first block that failed
    size_t begin, count         # of the ids of a short one in their run; of a long one only how many there are

ctypedef struct Job:            # texts from number `first` to before `last`, or of the long text `first` a block
    size_t first, last, bytes
    size_t number               # of the block
    Block block

ctypedef struct Run:            # the ids of jobs that follow each other
    Ids ids
    size_t first, last
    size_t number, next_number  # of the first block, and of the one after the last; both 0 for short texts


cdef int in_order(const void *one, const void *other) noexcept nogil:
    """The order of two runs, for qsort()."""
    cdef const Run *a = <const Run *> one
    cdef const Run *b = <const Run *> other
    if a.first != b.first:
        return 1 if a.first > b.first else -1
    return 1 if a.number > b.number else -1


cdef inline size_t about_bytes(const Entry *entry) noexcept nogil:
    """Bytes of a text in UTF-8: at least half of them, and at most twice as many."""
    return entry.size * (2 if entry.width > 1 else 1)


cdef class Batch:
    """Texts to be encoded by every thread that calls work(); then arrays() or lists() gives the ids of each.

    Args:
        texts: str, bytes or buffers of bytes; or, with begins and sizes, one buffer of bytes that all of them lie in.
        threads: The most threads that there may be.
        thread_text: Bytes of texts, about, that are worth a thread.
        longest: Texts of this many bytes, about, are encoded in blocks, if they are half of a thread's share or more.
        block: Bytes or code points of a block, about; by default such that there are several for each thread.
        begins, sizes: Offset of each text in the buffer, in bytes; int64, checked by the caller.
        continued: For each text, True if it goes on from another, so that it is given no space in front; by default
            none does.

    Attributes:
        threads: How many threads are to call work().
        failures: {number of a text: why it has no ids}: a ValueError that names a refused special token, or a
            UnicodeError for a lone surrogate.
    """

    cdef Encoder encoder
    cdef Rules rules
    cdef object texts               # a list, or a view of the buffer that all lie in
    cdef list buffers               # a TextBuffer for each that is neither bytes nor str
    cdef Py_buffer buffer           # what texts with offsets lie in
    cdef Entry *entries
    cdef size_t count               # of the texts
    cdef readonly size_t size       # bytes, about, of all that are not long
    cdef size_t block
    cdef readonly size_t threads
    cdef PyThread_type_lock lock    # of all below
    cdef size_t next, rest          # what nobody has taken: the first of the texts, and the size of short ones
    cdef Blocks blocks              # of text `next`, if it is long and has begun,
    cdef size_t number              # and the number of the one to be taken next
    cdef Run *runs
    cdef size_t run_count, run_room
    cdef bint stop
    cdef readonly dict failures

    def __cinit__(
        self, Encoder encoder not None, texts, Rules rules not None, *, size_t threads=1, size_t thread_text=1,
        size_t longest=<size_t> -1, size_t block=0, const int64_t[::1] begins=None, const int64_t[::1] sizes=None,
        continued=(),
    ):
        cdef size_t i, share
        cdef Entry *entry
        cdef bint in_place = False, several_blocks = False
        self.encoder, self.rules, self.block, self.threads = encoder, rules, block, threads
        self.buffers, self.failures = [], {}
        if begins is None:
            self.texts = list(texts)    # which nobody else can change
            self.count = PyList_GET_SIZE(self.texts)
        else:
            self.texts = memoryview(texts)
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
        for i, flag in enumerate(continued):
            self.entries[i].continued = flag
        share = self.size // (2 * threads) if threads > 1 else 0
        for i in range(self.count):
            entry = &self.entries[i]
            if about_bytes(entry) >= max(longest, share):
                entry.long = several_blocks = True
                self.size -= about_bytes(entry)
        self.rest = self.size
        if not several_blocks:
            self.threads = min(threads, 1 + self.size // thread_text)

    def __dealloc__(self):
        self.free_runs()
        free(self.runs)
        free(self.entries)
        PyBuffer_Release(&self.buffer)      # of one that was never filled, nothing
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef void free_runs(self) noexcept:
        cdef size_t i
        for i in range(self.run_count):
            free_ids(&self.runs[i].ids)
        self.run_count = 0

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
        """Encode texts until there are no more, or another thread has failed."""
        cdef Scratch scratch = self.encoder.cache.take()
        cdef Room room
        cdef Job job
        cdef Run run
        cdef bint more = True
        room.bytes, room.size = NULL, 0
        memset(&run, 0, sizeof(Run))
        memset(&job, 0, sizeof(Job))
        try:
            with nogil:
                self.encoder.cache.prepare(self.size)
            while more:
                try:
                    with nogil:
                        more = self.work_through(scratch, &room, &job, &run)
                except ValueError as error:
                    if not self.entries[job.first].long:
                        raise
                    self.fail_block(&job, error)
        finally:
            self.stop = True        # at the end there is nothing left to do, and after a failure nothing should be
            free(room.bytes)
            free_ids(&run.ids)
            self.encoder.cache.give(scratch)

    cdef bint work_through(self, Scratch scratch, Room *room, Job *job, Run *run) except -1 nogil:
        """Take jobs and encode them until there are no more; returns False then."""
        cdef size_t i, turns = 0
        cdef Entry *entry
        while self.take(room, job):
            entry = &self.entries[job.first]
            if run.first != job.first or not entry.long or run.next_number != job.number or job.number == 0:
                self.hand_in(run)
                run.first, run.last, run.number = job.first, job.last, job.number
                if not entry.long:
                    reserve(&run.ids, job.bytes // 3)       # about as many as most texts have
                elif job.number == 0:
                    self.encoder.cache.prepare(entry.size)
                    reserve(&run.ids, (entry.size if self.threads == 1 else job.block.size) // 4)
            if entry.long:
                run.next_number = job.number + 1
                self.rules.check(job.block.bytes, job.block.size)
                self.encoder.encode_text(
                    scratch, job.block.bytes, job.block.size, self.rules.recognised, &run.ids,
                    job.number == 0 and not entry.continued
                )
            else:
                for i in range(job.first, job.last):
                    self.encode_one(scratch, room, &run.ids, &self.entries[i])
            turns += 1
            if turns % SIGNAL_TURNS == 0:
                check_signals()
        self.hand_in(run)
        return False

    cdef bint take(self, Room *room, Job *job) except -1 nogil:
        """Take the next block of a long text, or the next short texts, fewer near the end; returns whether any."""
        cdef size_t share, least
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        try:
            job.first, job.number, job.bytes = self.next, 0, 0
            while not self.stop and self.next < self.count and self.entries[self.next].long:
                job.first, job.last, job.number = self.next, self.next + 1, self.number
                if not self.entries[self.next].failed and self.next_block(room, job):
                    return True
                self.next += 1
                self.number = 0
            share = self.rest // (4 * self.threads)
            least = max(<size_t> FEWEST_AT_ONCE, min(<size_t> MOST_AT_ONCE, share))
            job.first = self.next
            while (
                not self.stop and self.next < self.count and job.bytes < least and not self.entries[self.next].long
            ):
                job.bytes += about_bytes(&self.entries[self.next])
                self.next += 1
            job.last = self.next
            self.rest -= job.bytes
            return job.last > job.first
        finally:
            PyThread_release_lock(self.lock)

    cdef bint next_block(self, Room *room, Job *job) except -1 nogil:
        """Take the next block of the current long text; returns whether there was one. The first one may be empty."""
        cdef const Entry *entry = &self.entries[job.first]
        if job.number == 0:
            with gil:
                self.begin_text(entry)
        self.number += 1
        self.blocks.next(room, &job.block)
        return job.block.size > 0 or job.number == 0

    cdef int begin_text(self, const Entry *entry) except -1:
        cdef size_t block = self.block, i = entry - self.entries, begin
        if block == 0 and self.threads > 1:
            block = max(<size_t> LEAST_BLOCK, min(<size_t> BLOCK, entry.size // (BLOCKS_A_THREAD * self.threads)))
        if type(self.texts) is list:
            text = self.texts[i]
        else:
            begin = entry.units - <const uint8_t *> self.buffer.buf
            text = self.texts[begin : begin + entry.size]
        self.blocks = Blocks(TextBuffer(text), self.rules.all, self.encoder.scanner, block or BLOCK)
        return 0

    cdef fail_block(self, const Job *job, error):
        """Note why a long text has no ids: the error of its first block that failed, before which all are encoded."""
        cdef Entry *entry = &self.entries[job.first]
        with nogil:                     # whoever has the lock may wait for the GIL
            PyThread_acquire_lock(self.lock, WAIT_LOCK)
        try:
            if not entry.failed or job.number < entry.failed_block:
                entry.failed, entry.failed_block = True, job.number
                self.failures[job.first] = error.with_traceback(None)       # which would keep this batch
        finally:
            PyThread_release_lock(self.lock)

    cdef int encode_one(self, Scratch scratch, Room *room, Ids *ids, Entry *entry) except -1 nogil:
        cdef const uint8_t *text = entry.bytes
        cdef const Entry *after = entry + 1         # there is one more than there are texts
        cdef const uint8_t *next = after.bytes if after.bytes != NULL else after.units
        cdef size_t size = entry.size, line
        cdef int index
        entry.begin = ids.size
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
        self.encoder.encode_text(scratch, text, size, self.rules.recognised, ids, not entry.continued)
        entry.count = ids.size - entry.begin
        return 0

    cdef int fail(self, Entry *entry, int index) except -1 nogil:
        """Note why a text has no ids: the refused special token of this index, or, for -1, a lone surrogate."""
        entry.failed = True
        with gil:
            self.failures[entry - self.entries] = self.rules.refusal(index) if index >= 0 else lone_surrogate()
        return 0

    cdef int hand_in(self, Run *run) except -1 nogil:
        """Keep the ids of a run, in memory no larger than they are; it is empty then. One that never began is left."""
        if run.last == 0:
            return 0
        trim(&run.ids)
        PyThread_acquire_lock(self.lock, WAIT_LOCK)
        try:
            if self.run_count == self.run_room:
                self.runs = <Run *> checked_realloc(self.runs, (2 * self.run_room + 16) * sizeof(Run))
                self.run_room = 2 * self.run_room + 16
            self.runs[self.run_count] = run[0]
            self.run_count += 1
            if self.entries[run.first].long:
                self.entries[run.first].count += run.ids.size
        finally:
            PyThread_release_lock(self.lock)
        memset(run, 0, sizeof(Run))
        return 0

    def arrays(self):
        """The ids of each text as an array of uint32, once; None for those in `failures`."""
        arrays = self.results(False)
        self.free_runs()
        return arrays

    def lists(self):
        """The ids of each text as a list; None for those in `failures`."""
        cdef bint collects = PyGC_Disable()     # or it looks at every number of every list, and finds no garbage there
        try:
            return self.results(True)
        finally:
            if collects:
                PyGC_Enable()

    cdef list results(self, bint as_lists):
        cdef list results = [None] * self.count
        cdef Run *run
        cdef Run *other
        cdef Entry *entry
        cdef IdMemory memory
        cdef size_t k = 0, i
        if self.runs != NULL:    # qsort() may not be called with NULL, not even for nothing
            qsort(self.runs, self.run_count, sizeof(Run), in_order)
        while k < self.run_count:
            run = &self.runs[k]
            k += 1
            if self.entries[run.first].long:
                while k < self.run_count and self.runs[k].first == run.first:
                    other = &self.runs[k]
                    k += 1
                    if other.ids.size:
                        reserve(&run.ids, self.entries[run.first].count - run.ids.size)
                        memcpy(run.ids.ids + run.ids.size, other.ids.ids, other.ids.size * sizeof(uint32_t))
                        run.ids.size += other.ids.size
                        free_ids(&other.ids)
                if not self.entries[run.first].failed:
                    results[run.first] = (
                        self.encoder.to_list(run.ids.ids, run.ids.size) if as_lists else to_array(&run.ids)
                    )
                continue
            if not as_lists:
                memory = IdMemory()
                memory.owned = run.ids
                memset(&run.ids, 0, sizeof(Ids))
            for i in range(run.first, run.last):
                entry = &self.entries[i]
                if entry.failed:
                    continue
                if as_lists:
                    results[i] = self.encoder.to_list(run.ids.ids + entry.begin, entry.count)
                else:
                    results[i] = memory.view(memory.owned.ids + entry.begin, entry.count)
        return results

    def joined(self):
        """(the ids of all texts in one array, the end of each text's ids); a text that has failed has none."""
        cdef const Run *run
        cdef size_t i, at = 0
        cdef int64_t total = 0
        ends = np.empty(self.count, dtype=np.int64)
        cdef int64_t[::1] end = ends
        for i in range(self.count):
            total += 0 if self.entries[i].failed else self.entries[i].count
            end[i] = total
        ids = np.empty(total, dtype=np.uint32)
        cdef uint32_t[::1] out = ids
        if self.runs != NULL:    # qsort() may not be called with NULL, not even for nothing
            qsort(self.runs, self.run_count, sizeof(Run), in_order)
        for i in range(self.run_count):
            run = &self.runs[i]
            if run.ids.size and not (self.entries[run.first].long and self.entries[run.first].failed):
                memcpy(&out[at], run.ids.ids, run.ids.size * sizeof(uint32_t))
                at += run.ids.size
        return ids, ends
