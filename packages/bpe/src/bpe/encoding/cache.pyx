"""A bounded cache of pretokens and their ids.

A table of sets of two slots, a cache line each. A pretoken goes into the first set that its hash names, or, where that is full,
into the second; where that is full too, the second of the first set is forgotten, which is mostly the one that is used less.
Beside the table a ring of bytes holds what a slot has no room for: the bytes of long pretokens, and ids beyond three. New entries
overwrite the oldest; a slot whose entry is gone is a slot that is free. The loops that look things up are in cache.h.

A cache begins small, and grows when a third of it is taken, as far as its owner lets it: small texts stay in near memory, and large
ones get all that was allowed.

Where a sixth of what is looked up is short and new, and stays so, as in base64, putting pretokens in costs about as much as
merging them, and few are ever found. Then a short one is noted, a bit by its hash, and put in only when it comes again.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from bpe.native.bytes cimport LONG_KEY, hash_pair
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, free_block, zeroed_block
from bpe.encoding.ranks cimport free_work

cdef enum:
    LONGEST = 4096              # bytes of the longest pretoken worth keeping
    MOST_TIMES = 16             # that a cache grows at once
    WINDOW = 1 << 12            # pretokens looked up, from which is told whether many are new
    MOST_NOTES = 1 << 20        # bits, which are in near memory


cdef class Cache:
    """Made with a number of slots, a power of two; takes SLOT_BYTES for each, the ring included, and at most four for notes."""

    def __cinit__(self, size_t slots):
        self.table.mask = slots - WAYS
        self.table.seed = hash_seed
        self.table.ring_size = slots * (SLOT_BYTES - sizeof(cache_slot))
        self.table.slots = <cache_slot *> checked_block(slots * sizeof(cache_slot))
        self.table.ring = <uint8_t *> checked_block(ring_bytes(self.table.ring_size))

    def __dealloc__(self):
        free_table(&self.table)
        free(self.notes)
        free_work(&self.work)

    cdef size_t slots(self) noexcept nogil:
        return self.table.mask + WAYS

    cdef cache_slot *first(self, packed_key key) noexcept nogil:
        """The set that a pretoken goes into, or into another where it is full."""
        return &self.table.slots[hash_of(key.low, key.high) & self.table.mask]

    cdef cache_slot *keep(
        self, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    ) noexcept nogil:
        """Remember a pretoken and its ids, of which MANY may be read; returns the set in which it is, or would be."""
        cdef size_t size = key.high - LONG_KEY if key.high >= LONG_KEY else 0
        cdef uint64_t place
        cdef uint8_t *entry
        cdef cache_slot slot
        if size > LONGEST:
            return first
        slot.low, slot.high, slot.count = key.low, key.high, <uint32_t> count
        memcpy(slot.ids, ids, INLINE * sizeof(uint32_t))
        if size or count > INLINE:
            place = self.take_ring(count * sizeof(uint32_t) + size)
            slot.ids[0], slot.ids[1], slot.ids[2] = <uint32_t> place, <uint32_t> (place >> 32), 0
            slot.count = slot.count | IN_RING
            entry = cache_entry(&self.table, &slot)
            if count > MANY:
                memcpy(entry, ids, count * sizeof(uint32_t))
            else:
                memcpy(entry, ids, MANY * sizeof(uint32_t))     # a few stores, and no call; see cache_alive()
            if size:
                memcpy(entry + count * sizeof(uint32_t), text, size)
        return self.put(first, &slot)

    cdef cache_slot *put(self, cache_slot *first, const cache_slot *slot) noexcept nogil:
        cdef cache_slot *second
        cdef packed_key key
        cdef int i
        key.low, key.high = slot.low, slot.high
        for i in range(WAYS):
            if not holds(&self.table, &first[i]) or cache_matches(&first[i], key):      # met twice before it was put anywhere
                self.held += first[i].high == 0
                first[i] = slot[0]
                return first
        second = cache_second(&self.table, key)
        for i in range(WAYS):
            if not holds(&self.table, &second[i]):
                self.held += second[i].high == 0
                second[i] = slot[0]
                return second
        first[WAYS - 1] = slot[0]
        self.evicted += 1
        return first

    cdef const cache_slot *look_again(self, packed_key key, const uint8_t *text) noexcept nogil:
        """The slot of a pretoken wherever it may be, or NULL."""
        cdef uint64_t hash = hash_of(key.low, key.high)
        cdef const cache_slot *slot
        cdef int turn, i
        for turn in range(2):
            for i in range(WAYS):
                slot = &self.table.slots[(hash >> 32 * turn) & self.table.mask] + i
                if cache_matches(slot, key) and holds(&self.table, slot):
                    if key.high < LONG_KEY:
                        return slot
                    if not memcmp(
                        cache_entry(&self.table, slot) + (slot.count & ~IN_RING) * sizeof(uint32_t), text, key.high - LONG_KEY
                    ):
                        return slot
        return NULL

    cdef void judge(self, size_t looked) noexcept nogil:
        """Tell from what was looked up lately whether what comes had better be noted before it is put in."""
        cdef bint new
        self.looked += looked
        if self.looked < WINDOW:
            return
        new = self.missed * 6 > self.looked
        if self.sparing:
            self.sparing = new and self.again * 4 <= self.missed
        elif new and self.was_new:
            self.sparing = self.can_note()
        self.was_new = new
        self.looked = self.missed = self.again = 0

    cdef bint can_note(self) noexcept nogil:
        cdef size_t bits = min(32 * self.slots(), <size_t> MOST_NOTES)
        if self.notes == NULL or self.notes_mask + 1 < bits:
            free(self.notes)
            self.notes = <uint64_t *> calloc(bits // 64, sizeof(uint64_t))
            self.notes_mask, self.noted = bits - 1, 0
        return self.notes != NULL

    cdef bint met_before(self, packed_key key) noexcept nogil:
        """Whether a short pretoken was noted, or looks like one that was; now it is. When many are, all are forgotten."""
        cdef uint64_t place = hash_of(key.low, key.high) >> 40 & self.notes_mask
        cdef uint64_t bit = <uint64_t> 1 << (place & 63)
        if self.notes[place >> 6] & bit:
            self.again += 1
            return True
        self.notes[place >> 6] |= bit
        self.noted += 1
        if self.noted * 8 > self.notes_mask:      # with more, many would look like one that was noted
            memset(self.notes, 0, (self.notes_mask + 1) // 8)
            self.noted = 0
        return False

    cdef uint64_t take_ring(self, size_t size) noexcept nogil:
        """A place for so many bytes, in one piece and aligned, over the oldest entries."""
        cdef uint64_t last = self.table.ring_size - 1
        cdef uint64_t place = (self.table.written + 7) & ~<uint64_t> 7
        if (place & last) + size > self.table.ring_size:
            place = (place | last) + 1
        self.table.written = place + size
        return place

    cdef bint wants_more(self) noexcept nogil:
        # while it notes first, what it holds grows slowly, and a fuller one does not yet forget much
        return not self.full and (self.held * 3 > self.slots() << self.sparing or self.evicted * 32 > self.slots())

    cdef void expect(self, size_t size) noexcept nogil:
        """Say how much text is to come."""
        self.coming, self.met, self.held_then = size, 0, self.held

    cdef size_t factor(self) noexcept nogil:
        """How many times its slots it should have, a power of two, if what comes of the text is as new as what it met lately.

        1: half of them are enough, and the text ends soon. Else so many at once, as moving what it holds costs as much as putting it in.
        """
        cdef double rate = <double> (self.held - self.held_then) / (self.met + 1)
        cdef double wanted = 2 * (self.held + rate * self.coming)
        cdef size_t factor = 2
        if wanted <= self.slots() and self.coming and self.evicted * 32 <= self.slots():
            return 1
        while factor < MOST_TIMES and factor * self.slots() < wanted:
            factor *= 2
        return factor

    cdef bint grow(self, size_t factor) noexcept nogil:
        """So many times the slots, a power of two, and of the ring, if there is memory; returns whether."""
        cdef cache_table old = self.table, new = self.table
        cdef size_t slots = self.slots(), i
        cdef uint64_t begin, end
        cdef const cache_slot *slot
        cdef packed_key key
        self.evicted = 0
        new.mask = factor * slots - WAYS
        new.ring_size = factor * old.ring_size
        new.slots = <cache_slot *> zeroed_block(factor * slots * sizeof(cache_slot))
        new.ring = <uint8_t *> zeroed_block(ring_bytes(new.ring_size))
        if new.slots == NULL or new.ring == NULL:
            free_table(&new)
            return False
        self.table = new
        self.held = 0
        begin = old.written - old.ring_size if old.written > old.ring_size else 0
        while begin < old.written:                          # no entry stands across a multiple of the old size
            end = min(old.written, (begin | (old.ring_size - 1)) + 1)
            memcpy(new.ring + (begin & (new.ring_size - 1)), old.ring + (begin & (old.ring_size - 1)), end - begin)
            begin = end
        for i in range(slots):
            slot = &old.slots[i]
            if holds(&old, slot):
                key.low, key.high = slot.low, slot.high
                self.put(self.first(key), slot)
        self.evicted = self.met = 0
        self.held_then = self.held
        free_table(&old)
        return True


cdef inline uint64_t hash_of(uint64_t low, uint64_t high) noexcept nogil:
    return low if high >= LONG_KEY else hash_pair(low, high, hash_seed)


cdef inline bint holds(const cache_table *table, const cache_slot *slot) noexcept nogil:
    """Whether a slot is in use, and what it has in the ring still there."""
    return slot.high and (not slot.count & IN_RING or cache_alive(table, slot))


cdef inline size_t ring_bytes(uint64_t size) noexcept nogil:
    return size + MANY * sizeof(uint32_t)


cdef void free_table(cache_table *table) noexcept nogil:
    if table.slots != NULL:
        free_block(table.slots, (table.mask + WAYS) * sizeof(cache_slot))
    if table.ring != NULL:
        free_block(table.ring, ring_bytes(table.ring_size))
