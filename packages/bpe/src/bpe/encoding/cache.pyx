"""The cache of an encoder: the ids of pretokens, of bounded size, for all threads.

The cache is a hash table in sets of two slots; a set is one cache line. cache.h has a diagram, and the loops that look
pretokens up. A pretoken's hash names two sets. It goes into the first, or, if that is full, into the second; if both
are full, it replaces the second slot of the first set, which is usually the less used one.

Long pretokens and long lists of ids do not fit into a slot. They are in a ring buffer beside the table, in which new
entries overwrite the oldest. A slot whose entry was overwritten counts as free.

A cache starts small and grows when half of its slots are taken, as far as its bound allows. So the cache of a short
text stays in the processor's nearest caches, and a long text gets all the memory that is allowed.
"""

import os

cimport cython

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from bpe.encoding.ids cimport free_ids, reserve
from bpe.encoding.ranks cimport free_work
from bpe.native.bytes cimport LONG_KEY
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, free_block, grown_block

cdef enum:
    SLOT_BYTES = 64             # of a slot and its share of the ring

    # A cache grows when more than 1 slot in TAKEN_SHARE is in use, or more than 1 in EVICTED_SHARE was overwritten.
    TAKEN_SHARE = 2
    EVICTED_SHARE = 32
    MOVED_SHARE = 8             # 1 slot in so many, at most, is moved from a second set when a cache grows

    NEW_SLOTS = 1 << 12         # of a new cache,
    FEWEST_SLOTS = 1 << 10      # or, where its bound allows no more, so many whatever the bound
    TEXT_A_SLOT = 16            # bytes of a text for which a cache has a slot before the text begins,
    MOST_BEFORE = 1 << 19       # up to so many: a cache that comes to need more grows
    MOST_IDS = 1 << 14          # ids for which memory stays from one text to the next

cdef size_t forks = 0           # between the first process and this one, since bpe was imported


def _count_fork():
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


cdef class Scratch:
    """The memory of one thread that encodes, beside the cache."""

    def __dealloc__(self):
        free_work(&self.work)
        free_ids(&self.ids)


cdef class Cache:
    """The cache of an encoder. It takes at most `bytes`, or the least that a cache may have."""

    def __cinit__(self, size_t bytes):
        self.bytes = bytes
        self.idle = []
        self.forks = forks
        self.make_table()

    cdef int make_table(self) except -1:
        cdef size_t slots = NEW_SLOTS if self.bytes >= NEW_SLOTS * SLOT_BYTES else FEWEST_SLOTS
        self.table.mask = slots - WAYS
        self.table.seed = hash_seed
        self.table.ring_size = slots * (SLOT_BYTES - sizeof(cache_slot))
        self.table.slots = <cache_slot *> checked_block(slots * sizeof(cache_slot))
        self.table.ring = <uint8_t *> checked_block(ring_bytes(self.table.ring_size))
        self.table.written = self.taken = self.evicted = 0
        return 0

    def __dealloc__(self):
        cdef cache_reader *next
        while self.readers != NULL:
            next = self.readers.next
            free(self.readers)
            self.readers = next
        if self.table.slots != NULL:
            free_block(self.table.slots, self.slots() * sizeof(cache_slot))
        if self.table.ring != NULL:
            free_block(self.table.ring, ring_bytes(self.table.ring_size))

    cdef size_t slots(self) noexcept nogil:
        return self.table.mask + WAYS

    # Threads: take(), then enter() and reader_leaves() around each stretch of work on the table, then give()

    @cython.critical_section
    cdef Scratch take(self):
        cdef Scratch scratch = self.at_hand
        if self.forks != forks:
            self.after_fork()
        if scratch is not None:
            self.at_hand = None
            return scratch
        if self.idle:
            return self.idle.pop()
        scratch = Scratch()
        scratch.reader = <cache_reader *> calloc(1, sizeof(cache_reader))
        if scratch.reader == NULL:
            raise MemoryError
        scratch.reader.next = self.readers
        self.readers = scratch.reader
        if scratch.reader.next != NULL and not self.table.shared:
            with nogil:
                self.be_alone()
                self.table.shared = True
                self.be_no_longer_alone()
        return scratch

    @cython.critical_section
    cdef give(self, Scratch scratch):
        scratch.ids.size = 0
        if scratch.ids.room > MOST_IDS:
            free_ids(&scratch.ids)
        if self.at_hand is None:
            self.at_hand = scratch
        else:
            self.idle.append(scratch)

    cdef int enter(self, Scratch scratch) except -1 nogil:
        """Look into the table from now on, once no other thread wants to be alone; until reader_leaves()."""
        while not reader_enters(scratch.reader, &self.alone):
            with gil, nogil:            # see be_alone()
                cache_acquire(&self.growing)
                cache_release(&self.growing)
        return 0

    cdef int let_grow(self, Scratch scratch) except -1 nogil:
        """Grow where the cache is full, or let another thread grow it, between two batches of a thread that is in."""
        reader_leaves(scratch.reader)
        if self.is_full():
            self.grow_to(2 * self.slots())
        return self.enter(scratch)

    cdef int prepare(self, size_t size) except -1 nogil:
        """Grow, before a text of `size` bytes, to the slots that such a text needs at least."""
        cdef size_t slots = self.slots()
        while slots < min(size // TEXT_A_SLOT, <size_t> MOST_BEFORE):
            slots *= 2
        return self.grow_to(slots)

    cdef int grow_to(self, size_t slots) except -1 nogil:
        """Grow to a number of slots, a power of two, or by as much of it as the bound allows. Not between enter() and
        reader_leaves()."""
        if self.bounded or slots <= self.slots():
            return 0
        with gil, nogil:
            self.be_alone()
            if slots > self.slots():    # another thread may have been faster
                while slots > self.slots() and slots * SLOT_BYTES > self.bytes:
                    slots //= 2
                self.bounded = slots == self.slots() or not self.grow(slots // self.slots())
            self.be_no_longer_alone()
        return 0

    cdef void be_alone(self) noexcept nogil:
        """Wait until no thread looks into the table, and let none in. Without the GIL, which one of them may want."""
        cache_acquire(&self.growing)
        cache_acquire(&self.alone)
        wait_for_readers(self.readers)

    cdef void be_no_longer_alone(self) noexcept nogil:
        cache_release(&self.alone)
        cache_release(&self.growing)

    cdef int after_fork(self) except -1:
        """In a child: of the threads that were at work here when the process forked, none goes on."""
        cdef cache_reader *reader = self.readers
        if self.alone:
            self.make_table()           # the old one was being moved, and is lost
        self.writing = self.growing = self.alone = 0
        while reader != NULL:
            reader.inside = 0
            reader = reader.next
        self.forks = forks
        return 0

    # Pretokens

    cdef cache_slot *keep(
        self, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    ) noexcept nogil:
        """Insert a pretoken with its ids; returns the set that it is in, or `first` if it is too long for the cache.

        Args:
            key: The key of the pretoken.
            first: The first set that its hash names.
            text: Its bytes.
            ids: Its ids; COPIED_IDS of them may be read, whatever the count.
            count: How many ids it has.
        """
        cdef size_t size = key.high - LONG_KEY if key.high >= LONG_KEY else 0
        cdef uint64_t place
        cdef uint8_t *entry
        cdef cache_slot slot
        if size > LONGEST:
            return first
        cache_acquire(&self.writing)
        slot.low, slot.high, slot.count = key.low, key.high, <uint32_t> count
        memcpy(slot.ids, ids, INLINE_IDS * sizeof(uint32_t))
        if size or count > INLINE_IDS:
            place = self.take_ring(count * sizeof(uint32_t) + size)
            slot.ids[0], slot.ids[1], slot.ids[2] = <uint32_t> place, <uint32_t> (place >> 32), 0
            slot.count = slot.count | IN_RING
            entry = cache_entry(&self.table, place)
            if count > COPIED_IDS:
                memcpy(entry, ids, count * sizeof(uint32_t))
            else:
                memcpy(entry, ids, COPIED_IDS * sizeof(uint32_t))   # a few stores, and no call; see cache_alive()
            if size:
                memcpy(entry + count * sizeof(uint32_t), text, size)
        first = self.put(first, &slot)
        cache_release(&self.writing)
        return first

    cdef cache_slot *put(self, cache_slot *first, const cache_slot *slot) noexcept nogil:
        """Insert a slot into its first set, its second, or over the second slot of the first; returns the set."""
        cdef cache_slot *second
        cdef packed_key key
        cdef int i
        key.low, key.high = slot.low, slot.high
        for i in range(WAYS):
            # it may match: a pretoken that comes twice in a batch is put in twice
            if not in_use(&self.table, &first[i]) or cache_matches(&first[i], key):
                self.taken += first[i].high == 0
                cache_write(&first[i], slot)
                return first
        second = cache_second_set(&self.table, key)
        for i in range(WAYS):
            if not in_use(&self.table, &second[i]):
                self.taken += second[i].high == 0
                cache_write(&second[i], slot)
                return second
        cache_write(&first[WAYS - 1], slot)
        self.evicted += 1
        return first

    cdef bint append_ids(self, packed_key key, const uint8_t *text, Ids *out) except -1 nogil:
        """Append the ids of a pretoken, from either of its sets; returns whether it is in the cache."""
        cdef size_t size = key.high - LONG_KEY if key.high >= LONG_KEY else 0, count
        cdef const cache_slot *slot
        cdef cache_slot read
        cdef const uint8_t *entry
        cdef uint64_t place
        cdef int turn, i
        for turn in range(2):
            for i in range(WAYS):
                slot = (cache_second_set(&self.table, key) if turn else cache_set(&self.table, key)) + i
                if not cache_matches(slot, key):
                    continue
                cache_read()
                read = slot[0]
                if not cache_unchanged(slot, key):
                    continue
                count = read.count & ~IN_RING
                reserve(out, count)
                if not read.count & IN_RING:
                    memcpy(out.ids + out.size, read.ids, count * sizeof(uint32_t))
                    out.size += count
                    return True
                place = cache_place(&read)
                entry = cache_entry(&self.table, place)
                if not cache_alive(&self.table, place) or memcmp(entry + count * sizeof(uint32_t), text, size):
                    continue
                memcpy(out.ids + out.size, entry, count * sizeof(uint32_t))
                if cache_still_alive(&self.table, place):
                    out.size += count
                    return True
        return False

    cdef uint64_t take_ring(self, size_t size) noexcept nogil:
        """A place for `size` bytes, in one piece and aligned, over the oldest entries."""
        cdef uint64_t last = self.table.ring_size - 1
        cdef uint64_t place = (self.table.written + 7) & ~<uint64_t> 7
        if (place & last) + size > self.table.ring_size:
            place = (place | last) + 1
        cache_write_ring(&self.table, place + size)
        return place

    # Growing

    cdef bint is_full(self) noexcept nogil:
        """True if the cache should grow and may."""
        return not self.bounded and (
            self.taken * TAKEN_SHARE > self.slots() or self.evicted * EVICTED_SHARE > self.slots()
        )

    cdef bint grow(self, size_t factor) noexcept nogil:
        """Grow slots and ring by a factor, a power of two; returns whether there was memory for it.

        They stay where they are, or their pages are moved: only what is new of them is new memory. A set becomes
        `factor` sets, as its place is the low bits of the hash: itself, and those one old size after it, two, and on.
        """
        cdef cache_table old = self.table
        cdef size_t slots = self.slots()
        cdef void *block = grown_block(old.slots, slots * sizeof(cache_slot), factor * slots * sizeof(cache_slot))
        if block == NULL:
            return False
        self.table.slots = <cache_slot *> block
        self.table.mask = factor * slots - WAYS
        self.taken = self.evicted = 0
        self.grow_ring(factor * slots * (SLOT_BYTES - sizeof(cache_slot)))
        self.split_sets(&old)
        return True

    cdef void grow_ring(self, uint64_t size) noexcept nogil:
        """Grow the ring to a size, a power of two, if there is memory for it."""
        cdef uint64_t old_size = self.table.ring_size, begin, end
        cdef uint8_t *ring = <uint8_t *> grown_block(self.table.ring, ring_bytes(old_size), ring_bytes(size))
        if ring == NULL:
            return
        self.table.ring, self.table.ring_size = ring, size
        begin = self.table.written - old_size if self.table.written > old_size else 0
        while begin < self.table.written:                   # no entry stands across a multiple of the old size
            end = min(self.table.written, (begin | (old_size - 1)) + 1)
            if (begin & (size - 1)) >= old_size:
                memcpy(ring + (begin & (size - 1)), ring + (begin & (old_size - 1)), end - begin)
            begin = end

    cdef void split_sets(self, const cache_table *old) noexcept nogil:
        """Move what is in the sets of the old table, the first part of the new one, to where it belongs now."""
        cdef size_t slots = old.mask + WAYS, most_moved = slots // MOVED_SHARE, moved = 0, at, n
        cdef cache_slot *second_sets = <cache_slot *> malloc(most_moved * sizeof(cache_slot))
        cdef cache_slot both[WAYS]
        cdef cache_slot *first
        cdef packed_key key
        cdef int i
        for n in range(slots // WAYS):
            at = WAYS * n
            if not (self.table.slots[at].high or self.table.slots[at + 1].high):
                continue
            memcpy(both, &self.table.slots[at], sizeof(both))
            memset(&self.table.slots[at], 0, sizeof(both))
            for i in range(WAYS):
                if not in_use(old, &both[i]):
                    continue
                key.low, key.high = both[i].low, both[i].high
                first = cache_set(&self.table, key)
                if (<size_t> (first - self.table.slots) & old.mask) == at:
                    first[first.high != 0] = both[i]
                    self.taken += 1
                elif moved < most_moved and second_sets != NULL:    # otherwise it is forgotten
                    second_sets[moved] = both[i]
                    moved += 1
        for n in range(moved):
            key.low, key.high = second_sets[n].low, second_sets[n].high
            self.put(cache_set(&self.table, key), &second_sets[n])
        free(second_sets)


cdef inline bint in_use(const cache_table *table, const cache_slot *slot) noexcept nogil:
    """True if a slot is taken, and what it has in the ring still there."""
    return slot.high and (not slot.count & IN_RING or cache_alive(table, cache_place(slot)))


cdef inline size_t ring_bytes(uint64_t size) noexcept nogil:
    return size + COPIED_IDS * sizeof(uint32_t)
