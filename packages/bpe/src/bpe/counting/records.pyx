"""Records: the counts of pretokens as bytes, which are sorted, written to disk, added up there, and merged.

    | count, 8 bytes | size, 4 bytes | pretoken |       one after another, in the byte order of the machine

Sorted records are in the order of the pretokens' bytes, so that files of them that do not fit in memory together are
added up in one pass.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy, memset

from bpe.native.bytes cimport LONG_KEY, PACKED, count_leading_zeros, prefetch
from bpe.counting.pretoken_counts cimport SLOTS_AHEAD, PretokenCounts, Slot
from bpe.native.memory cimport checked_malloc, touch_block

cdef enum:
    BLOCK = 1 << 20             # bytes read or written at a time
    TOUCHED = 1 << 17           # bytes whose pages are made together, few enough to stay in the cache
    STEPS = 16                  # bins of a histogram to each power of two

ctypedef struct SortKey:        # a record, and the first eight bytes of its pretoken as a big-endian number
    uint64_t head
    const uint8_t *record

ctypedef struct Run:            # a file of sorted records: its next one, and its number
    SortKey first
    size_t number


cdef uint64_t head_of(const uint8_t *record) noexcept nogil:
    cdef uint64_t head = 0
    cdef uint32_t size = size_of(record), i
    for i in range(min(size, <uint32_t> 8)):
        head |= <uint64_t> record[HEADER + i] << (56 - 8 * i)
    return head


cdef int compare(const SortKey *a, const SortKey *b) noexcept nogil:
    cdef uint32_t a_size, b_size
    cdef int order
    if a.head != b.head:
        return 1 if a.head > b.head else -1
    a_size, b_size = size_of(a.record), size_of(b.record)
    order = memcmp(a.record + HEADER, b.record + HEADER, min(a_size, b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef int compare_records(const void *a, const void *b) noexcept nogil:
    return compare(<const SortKey *> a, <const SortKey *> b)


def pack_table(PretokenCounts counts not None):
    """The records of a table, in no particular order. The table stays as it is."""
    cdef bytearray packed = PyByteArray_FromStringAndSize(NULL, counts.packed)
    pack_into(counts, packed, 0, len(packed))
    return packed


def pack_into(PretokenCounts counts not None, bytearray packed not None, size_t at, size_t end):
    """Write the records of a table to packed[at:end], which has room for them; nothing is written beyond."""
    cdef size_t i, size
    cdef uint32_t size32
    cdef uint8_t room[PACKED + 1]
    cdef const uint8_t *text
    cdef uint8_t *out = <uint8_t *> PyByteArray_AS_STRING(packed)
    cdef Slot *slot
    if end > <size_t> len(packed):
        raise ValueError("the records do not fit")
    with nogil:
        touch_block(out + at, min(end - at, <size_t> TOUCHED))
        for i in range(counts.mask + 1):
            slot = &counts.slots[(i + SLOTS_AHEAD) & counts.mask]
            if slot.high >= LONG_KEY:
                prefetch(counts.long_entry(slot))
            slot = &counts.slots[i]
            if slot.high:
                text = counts.bytes_of(slot, room, &size)
                if at + HEADER + size > end:
                    with gil:
                        raise ValueError("the records do not fit")
                size32 = <uint32_t> size
                memcpy(out + at, &slot.count, 8)
                memcpy(out + at + 8, &size32, 4)
                memcpy(out + at + HEADER, text, size)
                at += HEADER + size


def room_for(list tables not None):
    """A bytearray in which the records of several tables, added up, have room; memory is taken as it is written."""
    cdef PretokenCounts table
    cdef size_t most = 0
    for table in tables:
        most += table.arena_size + <size_t> len(table) * (HEADER + PACKED)
    return PyByteArray_FromStringAndSize(NULL, most)


def sorted_blocks(const uint8_t[::1] records not None):
    """Yield the records sorted, in blocks."""
    cdef size_t at = 0, n = number_of_records(records), i
    cdef SortKey *order = <SortKey *> checked_malloc(n * sizeof(SortKey))
    cdef bytearray out = bytearray()
    try:
        with nogil:
            for i in range(n):
                order[i].head, order[i].record = head_of(&records[at]), &records[at]
                at += HEADER + size_of(&records[at])
            qsort(order, n, sizeof(SortKey), compare_records)
        for i in range(n):
            out += (<const char *> order[i].record)[: HEADER + size_of(order[i].record)]
            if len(out) >= BLOCK:
                yield bytes(out)
                out.clear()
        if out:
            yield bytes(out)
    finally:
        free(order)


def items(const uint8_t[::1] records not None):
    """Yield (pretoken, count) for each record."""
    cdef size_t at = 0, size
    while at < <size_t> records.shape[0]:
        size = checked_size(records, at)
        yield (<const char *> &records[at])[HEADER : HEADER + size], count_of(&records[at])
        at += HEADER + size


def number_of_records(const uint8_t[::1] records not None):
    """Return the number of records."""
    cdef size_t at = 0, n = 0, size = records.shape[0]
    while at < size:
        at += HEADER + checked_size(records, at)
        n += 1
    return n


cdef size_t checked_size(const uint8_t[::1] records, size_t at) except? <size_t> -1:
    """size_of() the record at an offset. ValueError where the records end before it does."""
    cdef size_t room = records.shape[0] - at
    if room < HEADER or size_of(&records[at]) > room - HEADER:
        raise ValueError(f"expected whole records, got {room} bytes of one at byte {at}")
    return size_of(&records[at])


def approximate_kth_largest_count(const uint8_t[::1] records not None, size_t k):
    """The k-th largest count, or up to a sixteenth less; 1 if there are fewer than k records.

    By a histogram of the counts' logarithms, with STEPS bins to each power of two, which is summed up from the largest
    bin down.
    """
    cdef size_t bins[64 * STEPS]        # by the position of a count's first bit, and by the four bits that follow it
    cdef size_t at = 0, size = records.shape[0], larger = 0, bin
    cdef uint64_t count
    cdef int power
    memset(bins, 0, sizeof(bins))
    while at < size:
        count = count_of(&records[at]) or 1
        power = 63 - count_leading_zeros(count)
        bins[power * STEPS + (count << (63 - power) >> 59) % STEPS] += 1
        at += HEADER + size_of(&records[at])
    for bin in reversed(range(64 * STEPS)):
        larger += bins[bin]
        if larger >= k:
            power = bin // STEPS
            return max(1, <uint64_t> (STEPS + bin % STEPS) << 59 >> (63 - power))   # the least count of the bin
    return 1


def check_records(const uint8_t[::1] records not None):
    """Raise ValueError where these bytes are not whole records, or count more than fits in 63 bits, as a file's may."""
    cdef size_t at = 0, end = records.shape[0]
    cdef uint64_t total = 0, most = (<uint64_t> 1 << 63) - 1
    while at < end:
        if end - at < HEADER or end - at - HEADER < size_of(&records[at]):
            raise ValueError("the last record is cut short")
        if size_of(&records[at]) == 0 or count_of(&records[at]) == 0:
            raise ValueError("a record has no pretoken, or counts none")
        if count_of(&records[at]) > (most - total) // size_of(&records[at]):
            raise ValueError(f"the records are of more than {most:,} bytes of text")
        total += count_of(&records[at]) * size_of(&records[at])
        at += HEADER + size_of(&records[at])


def total_size(const uint8_t[::1] records not None):
    """The bytes of the text that was counted: of each pretoken, as often as it occurs."""
    cdef size_t at = 0, end = records.shape[0]
    cdef uint64_t total = 0
    while at < end:
        total += count_of(&records[at]) * size_of(&records[at])
        at += HEADER + size_of(&records[at])
    return total


cdef class SortedFile:
    """Sorted records of an open file, read a block at a time."""

    cdef object file
    cdef bytes block
    cdef size_t at, end         # of the records that `block` still has
    cdef SortKey first          # the record to take next; its `record` is NULL when there is none

    def __cinit__(self, file):
        self.file, self.block = file, b""
        self.next()

    cdef int next(self) except -1:
        """Step to the next record."""
        cdef const uint8_t *text = <const uint8_t *> <const char *> self.block
        cdef size_t needed
        if self.end - self.at < HEADER or self.end - self.at < HEADER + size_of(text + self.at):
            text = self.refill(self.block[self.at :] + self.file.read(BLOCK))
            if self.end == 0:
                self.first.record = NULL
                return 0
            needed = HEADER if self.end < HEADER else HEADER + size_of(text)
            if self.end < needed:   # the rest of a long record at once: block by block would copy it again each time
                text = self.refill(self.block + self.file.read(needed - self.end))
                if self.end < needed:
                    raise ValueError("a temporary file of counts is cut short")
        self.first.record = text + self.at
        self.first.head = head_of(text + self.at)
        self.at += HEADER + size_of(text + self.at)
        return 0

    cdef const uint8_t *refill(self, bytes block):
        self.block, self.at, self.end = block, 0, len(block)
        return <const uint8_t *> <const char *> block


cdef void sift_down(Run *heap, size_t size) noexcept nogil:
    """Put the first entry of a binary heap by records, which has changed, into its place."""
    cdef Run run = heap[0]
    cdef size_t at = 0, child = 1
    while child < size:
        child += child + 1 < size and compare(&heap[child + 1].first, &heap[child].first) < 0
        if compare(&run.first, &heap[child].first) <= 0:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = run


def add_sorted(files):
    """Yield blocks of the sorted records of several open files of them, added up by pretoken.

    A heap has the next record of each file, so that a record costs the logarithm of their number.
    """
    cdef list runs = [run for run in map(SortedFile, files) if (<SortedFile> run).first.record != NULL]
    cdef size_t size = len(runs), i, at
    cdef Run *heap = <Run *> checked_malloc(size * sizeof(Run))
    cdef SortedFile run
    cdef SortKey least
    cdef bytearray out = bytearray()
    cdef uint64_t count
    try:
        runs.sort(key=first_record)     # a sorted list is a heap
        for i in range(size):
            heap[i].first, heap[i].number = (<SortedFile> runs[i]).first, i
        while size:
            least, count, at = heap[0].first, 0, len(out)
            out += (<const char *> least.record)[: HEADER + size_of(least.record)]
            least.record = <const uint8_t *> PyByteArray_AS_STRING(out) + at    # which outlives the file's block
            while size and compare(&heap[0].first, &least) == 0:
                count += count_of(heap[0].first.record)
                run = <SortedFile> runs[heap[0].number]
                run.next()
                heap[0].first = run.first
                if run.first.record == NULL:
                    size -= 1
                    heap[0] = heap[size]
                sift_down(heap, size)
            memcpy(<uint8_t *> least.record, &count, 8)
            if len(out) >= BLOCK:
                yield bytes(out)
                out.clear()
        if out:
            yield bytes(out)
    finally:
        free(heap)


def first_record(SortedFile run):
    """The bytes of the pretoken of a run's next record."""
    return (<const char *> run.first.record)[HEADER : HEADER + size_of(run.first.record)]
