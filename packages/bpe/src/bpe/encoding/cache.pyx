"""A cache of the ids of pretokens, of bounded size, and the pool of all caches of an encoder.

The cache is a hash table in sets of two slots; a set is one cache line. cache.h has a diagram, and the loops that look
pretokens up. A pretoken's hash names two sets. It goes into the first, or, if that is full, into the second; if both
are full, it replaces the second slot of the first set, which is usually the less used one.

Long pretokens and long lists of ids do not fit into a slot. They are in a ring buffer beside the table, in which new
entries overwrite the oldest. A slot whose entry was overwritten counts as free.

A cache starts small and grows when half of its slots are taken, as far as its pool allows. So the cache of a short
text stays in the processor's nearest caches, and a long text gets all the memory that is allowed.
"""

cimport cython

from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from bpe.encoding.ids cimport free_ids
from bpe.encoding.ranks cimport free_work
from bpe.native.bytes cimport LONG_KEY
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, free_block, grown_block

cdef enum:
    LONGEST = 4096              # bytes of the longest pretoken worth keeping
    SLOT_BYTES = 64             # of a slot and its share of the ring

    # A cache grows when more than 1 slot in TAKEN_SHARE is in use, or more than 1 in EVICTED_SHARE was overwritten.
    TAKEN_SHARE = 2
    EVICTED_SHARE = 32
    MOVED_SHARE = 8             # 1 slot in so many, at most, is moved from a second set when a cache grows

    # The pool
    NEW_SLOTS = 1 << 12         # of a new cache
    SPARE_SLOTS = 1 << 10       # of a cache that is thrown away after use, where the bound leaves no more
    TEXT_A_SLOT = 16            # bytes of a text for which a cache has a slot before the text begins,
    MOST_BEFORE = 1 << 19       # up to so many: a cache that comes to need more grows
    MOST_IDS = 1 << 14          # ids for which a cache keeps memory from one text to the next


cdef class Cache:
    """A cache, used by one thread at a time.

    Args:
        slots: The number of slots to begin with, a power of two. Each takes SLOT_BYTES.
    """

    def __cinit__(self, size_t slots):
        self.table.mask = slots - WAYS
        self.table.seed = hash_seed
        self.table.ring_size = slots * (SLOT_BYTES - sizeof(cache_slot))
        self.table.slots = <cache_slot *> checked_block(slots * sizeof(cache_slot))
        self.table.ring = <uint8_t *> checked_block(ring_bytes(self.table.ring_size))

    def __dealloc__(self):
        free_table(&self.table)
        free_work(&self.work)
        free_ids(&self.ids)

    cdef size_t slots(self) noexcept nogil:
        return self.table.mask + WAYS

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
        slot.low, slot.high, slot.count = key.low, key.high, <uint32_t> count
        memcpy(slot.ids, ids, INLINE_IDS * sizeof(uint32_t))
        if size or count > INLINE_IDS:
            place = self.take_ring(count * sizeof(uint32_t) + size)
            slot.ids[0], slot.ids[1], slot.ids[2] = <uint32_t> place, <uint32_t> (place >> 32), 0
            slot.count = slot.count | IN_RING
            entry = cache_entry(&self.table, &slot)
            if count > COPIED_IDS:
                memcpy(entry, ids, count * sizeof(uint32_t))
            else:
                memcpy(entry, ids, COPIED_IDS * sizeof(uint32_t))   # a few stores, and no call; see cache_alive()
            if size:
                memcpy(entry + count * sizeof(uint32_t), text, size)
        return self.put(first, &slot)

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
                first[i] = slot[0]
                return first
        second = cache_second_set(&self.table, key)
        for i in range(WAYS):
            if not in_use(&self.table, &second[i]):
                self.taken += second[i].high == 0
                second[i] = slot[0]
                return second
        first[WAYS - 1] = slot[0]
        self.evicted += 1
        return first

    cdef const cache_slot *look_again(self, packed_key key, const uint8_t *text) noexcept nogil:
        """The slot of a pretoken in either of its sets, or NULL."""
        cdef const cache_slot *slot
        cdef size_t ids
        cdef int turn, i
        for turn in range(2):
            for i in range(WAYS):
                slot = (cache_second_set(&self.table, key) if turn else cache_set(&self.table, key)) + i
                if cache_matches(slot, key) and in_use(&self.table, slot):
                    if key.high < LONG_KEY:
                        return slot
                    ids = (slot.count & ~IN_RING) * sizeof(uint32_t)
                    if not memcmp(cache_entry(&self.table, slot) + ids, text, key.high - LONG_KEY):
                        return slot
        return NULL

    cdef uint64_t take_ring(self, size_t size) noexcept nogil:
        """A place for `size` bytes, in one piece and aligned, over the oldest entries."""
        cdef uint64_t last = self.table.ring_size - 1
        cdef uint64_t place = (self.table.written + 7) & ~<uint64_t> 7
        if (place & last) + size > self.table.ring_size:
            place = (place | last) + 1
        self.table.written = place + size
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


cdef class CachePool:
    """The caches of an encoder, one for each call that is running. Together they take at most `bytes`.

    Each method is one step to all threads: by the GIL, or, where there is none, by a critical section.
    """

    def __cinit__(self, size_t bytes):
        self.bytes = self.bytes_left = bytes
        self.idle = []
        self.sharers = 1

    @cython.critical_section
    cdef Cache take(self):
        """An idle cache, or a new one. If the bound leaves no memory for it: a small one, thrown away after use."""
        cdef Cache cache = self.at_hand
        self.busy += 1
        if cache is not None:
            self.at_hand = None
            return cache
        if self.idle:
            return self.idle.pop()
        if self.bytes_left < NEW_SLOTS * SLOT_BYTES:
            self.sharers = max(self.sharers, self.busy)
            return Cache(SPARE_SLOTS)
        self.bytes_left -= NEW_SLOTS * SLOT_BYTES
        return Cache(NEW_SLOTS)

    @cython.critical_section
    cdef give(self, Cache cache):
        self.busy -= 1
        cache.ids.size = 0
        if cache.ids.room > MOST_IDS:
            free_ids(&cache.ids)
        if cache.slots() == SPARE_SLOTS:
            return
        if cache.slots() > NEW_SLOTS and cache.slots() * SLOT_BYTES > self.bytes // self.sharers:
            self.bytes_left += cache.slots() * SLOT_BYTES       # larger than its share: dropped
        elif self.at_hand is None:
            self.at_hand = cache
        else:
            self.idle.append(cache)

    cdef share(self, size_t threads):
        """Make room for the caches of this many threads: those larger than their share are dropped."""
        cdef list idle = []
        cdef Cache cache
        with cython.critical_section(self):
            if threads > self.sharers:
                idle = self.idle
                if self.at_hand is not None:
                    idle.append(self.at_hand)
                self.sharers, self.idle, self.at_hand = threads, [], None
                self.busy += len(idle)
        for cache in idle:
            self.give(cache)

    cdef int prepare(self, Cache cache, size_t size) except -1 nogil:
        """Grow a cache, before a text of `size` bytes, to the slots that such a text needs at least."""
        cdef size_t factor = 1
        while factor * cache.slots() < min(size // TEXT_A_SLOT, <size_t> MOST_BEFORE):
            factor *= 2
        return 0 if cache.bounded else self.let_grow(cache, factor)

    cdef int let_grow(self, Cache cache, size_t factor) except -1 nogil:
        """Grow a cache by a factor, a power of two, or by as much of it as the bound allows."""
        cdef size_t now = cache.slots() * SLOT_BYTES
        if factor == 1:
            return 0
        with gil, cython.critical_section(self):
            while factor > 1 and (
                (factor - 1) * now > self.bytes_left or factor * now > self.bytes // self.sharers
            ):
                factor //= 2
            cache.bounded = factor == 1
            self.bytes_left -= (factor - 1) * now
        if not cache.bounded and not cache.grow(factor):
            cache.bounded = True
            with gil, cython.critical_section(self):
                self.bytes_left += (factor - 1) * now
        return 0


cdef inline bint in_use(const cache_table *table, const cache_slot *slot) noexcept nogil:
    """True if a slot is taken, and what it has in the ring still there."""
    return slot.high and (not slot.count & IN_RING or cache_alive(table, slot))


cdef inline size_t ring_bytes(uint64_t size) noexcept nogil:
    return size + COPIED_IDS * sizeof(uint32_t)


cdef void free_table(cache_table *table) noexcept nogil:
    if table.slots != NULL:
        free_block(table.slots, (table.mask + WAYS) * sizeof(cache_slot))
    if table.ring != NULL:
        free_block(table.ring, ring_bytes(table.ring_size))
