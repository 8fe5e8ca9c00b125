# The cache of an encoder: the ids of pretokens, of bounded size, for all threads.
#
# The cache is a hash table in sets of two slots; a set is one cache line. cache.h has a diagram, the loops that look
# pretokens up, how they are put in, and why threads may do both at once. A pretoken's hash names two sets. It goes into
# the first, or, if that is full, into the second; if both are full, it replaces the second slot of the first set, which
# is usually the less used one.
#
# Long pretokens and long lists of ids do not fit into a slot. They are in a ring buffer beside the table; new entries
# overwrite the oldest. A slot whose entry was overwritten counts as free.
#
# A cache starts small and grows when half of its slots are taken, as far as its bound allows. So the cache of a short
# text stays in the processor's nearest caches, and a long text gets all the memory that is allowed.
#
# Text that comes again and again, as a prompt or the turns of a conversation, is looked up by stretches: some 4 kB
# between two safe cuts (scan_cut), whose pretokens, and so whose ids, depend on their own bytes alone. A stretch is
# kept when it comes for the second time; new text pays for little more than a hash of 128 bytes of it. Its key says
# little of its bytes, but these are compared with those in the ring, so that two stretches of one key only replace each
# other. The table of stretches is made with the cache and never grows or moves, so threads read it without entering it,
# and a slot whose versions have come to their end keeps what it has; the rest of cache.h's argument holds for it too.
# `seen` is read and written by relaxed atomics: where two threads meet, a stretch is kept one time earlier or later.

cdef extern from "encoding/cache.h" nogil:
    enum:
        WAYS
        INLINE_IDS
        COPIED_IDS
        BATCH
        LONGEST                 # bytes of the longest pretoken worth keeping
    const uint64_t NO_OFFSET
    uint64_t load_word(const uint64_t *word)
    void store_word(uint64_t *word, uint64_t value)

    ctypedef struct cache_slot:
        uint64_t low, high, ids, last

    ctypedef struct cache_reader:
        int inside
        cache_reader *next

    ctypedef struct cache_table:
        cache_slot *slots
        size_t mask
        uint64_t *ring
        uint64_t ring_size, written, seed
        int shared, alone, attention, bounded, worn, writing, growing
        size_t taken, evicted
        cache_reader *readers

    ctypedef struct cache_batch:
        packed_key keys[128]
        cache_slot *sets[128]
        size_t begins[129]

    void cache_acquire(int *lock)
    void cache_release(int *lock)
    void add_reader(cache_table *table, cache_reader *reader)
    bint reader_enters(cache_reader *reader, const cache_table *table)
    void reader_leaves(cache_reader *reader)
    void be_alone(cache_table *table)
    void be_no_longer_alone(cache_table *table)
    bint cache_needs_care(const cache_table *table)
    bint cache_calls(const cache_table *table)
    size_t cache_slots(const cache_table *table)
    bint cache_bounded(const cache_table *table)
    bint cache_crowded(const cache_table *table)
    void bound(cache_table *table)
    void set_mask(cache_table *table, size_t mask)
    cache_slot *cache_set(const cache_table *table, packed_key key)
    cache_slot *cache_second_set(const cache_table *table, packed_key key)
    void cache_prepare(
        const cache_table *table, const uint8_t *text, size_t size, size_t begin, const size_t *ends, size_t count,
        cache_batch *batch
    )
    size_t cache_take(
        const cache_table *table, const uint8_t *text, const cache_batch *batch, size_t i, size_t count, uint32_t **to,
        const uint32_t *limit
    )
    size_t cache_find(const cache_table *table, packed_key key, uint32_t *to, uint64_t *offset)
    bint cache_copy(
        const cache_table *table, uint64_t offset, size_t count, const uint8_t *text, size_t size, uint32_t *to
    )
    bint cache_full(const cache_slot *set)
    bint cache_holds(const cache_slot *set, packed_key key)
    bint cache_in_use(const cache_table *table, const cache_slot *slot)
    size_t long_size(packed_key key)
    cache_slot *cache_keep(
        cache_table *table, packed_key key, cache_slot *first, const uint8_t *text, const uint32_t *ids, size_t count
    )
    void cache_renew(cache_table *table)

cdef enum:
    SLOT_BYTES = 64             # of a slot and its share of the ring
    FEWEST_SLOTS = 1 << 10      # slots of a new cache, even above the bound
    TEXT_A_SLOT = 16            # bytes of a text for which one slot is reserved before it is encoded
    MOST_BEFORE = 1 << 19       # most slots that are reserved beforehand; a cache that needs more grows
    STRETCH = 7 << 9            # bytes of a stretch, or up to LONGEST; longer ones, without a safe cut, are not kept
    LEAST_STRETCH = 1 << 10     # bytes of one that is kept
    STRETCH_RING = 1 << 20      # bytes of those kept and their ids
    SEEN = 1 << 8               # stretches that are known to have come once
    STRETCHES_FROM = 1 << 24    # bytes of a cache from which on stretches are kept beside it
    MOST_IDS = 1 << 14          # ids whose memory stays with its thread from one text to the next

cdef size_t forks = 0           # between the process that imported bpe and this one


def _count_fork():
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


cdef class Scratch:
    """The memory of one thread that encodes, beside the cache."""

    cdef cache_reader *reader   # of the cache, which frees it
    cdef Work work
    cdef size_t unchecked       # bytes since the last look for a signal
    cdef Ids ids                # of the text that is being encoded

    def __dealloc__(self):
        free_work(&self.work)
        free_ids(&self.ids)


cdef class Cache:
    """The cache of an encoder. It takes at most `bytes`, or the least that a cache may have."""

    cdef readonly size_t bytes
    cdef cache_table table
    cdef cache_table stretches
    cdef uint64_t seen[SEEN]    # the hash of the last stretch that has come for each remainder
    cdef list idle              # Scratches not in use,
    cdef Scratch at_hand        # and one more, which takes no list
    cdef size_t forks           # of the process when the cache last looked

    def __cinit__(self, size_t bytes):
        self.bytes = bytes
        self.idle = []
        self.forks = forks
        self.make_table()
        if bytes >= STRETCHES_FROM:
            self.make_stretches()

    cdef int make_table(self) except -1:
        cdef size_t slots = FEWEST_SLOTS
        self.table.mask = slots - WAYS
        self.table.seed = hash_seed
        self.table.ring_size = slots * (SLOT_BYTES - sizeof(cache_slot))
        self.table.slots = <cache_slot *> checked_block(slots * sizeof(cache_slot))
        self.table.ring = <uint64_t *> checked_block(ring_bytes(self.table.ring_size))
        self.table.written = self.table.taken = self.table.evicted = 0
        self.table.worn = self.table.attention = self.table.bounded = 0
        return 0

    def __dealloc__(self):
        cdef cache_reader *next
        while self.table.readers != NULL:
            next = self.table.readers.next
            free(self.table.readers)
            self.table.readers = next
        if self.table.slots != NULL:
            free_block(self.table.slots, cache_slots(&self.table) * sizeof(cache_slot))
        free_sparse_block(self.stretches.slots, FEWEST_SLOTS * sizeof(cache_slot))
        free_sparse_block(self.stretches.ring, ring_bytes(STRETCH_RING))
        if self.table.ring != NULL:
            free_block(self.table.ring, ring_bytes(self.table.ring_size))

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
        add_reader(&self.table, scratch.reader)
        if scratch.reader.next != NULL and not self.table.shared:
            with nogil:
                be_alone(&self.table)
                self.table.shared = True
                be_no_longer_alone(&self.table)
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
        while not reader_enters(scratch.reader, &self.table):
            with gil, nogil:            # whoever is alone may be waiting for the GIL
                cache_acquire(&self.table.growing)
                cache_release(&self.table.growing)
        return 0

    cdef int step_aside(self, Scratch scratch) except -1 nogil:
        """Between two batches: give the table what it needs (see tend()), or let a thread that is alone go on."""
        reader_leaves(scratch.reader)
        if cache_needs_care(&self.table):
            self.tend(0)
        return self.enter(scratch)

    cdef int prepare(self, size_t size) except -1 nogil:
        """Grow, before a text of `size` bytes, to the slots that such a text needs at least."""
        cdef size_t slots = cache_slots(&self.table), needed = slots
        while needed < min(size // TEXT_A_SLOT, <size_t> MOST_BEFORE):
            needed *= 2
        if needed > slots and not cache_bounded(&self.table):
            self.tend(needed)
        return 0

    cdef int tend(self, size_t slots) except -1 nogil:
        """Grow to a number of slots, a power of two, and if the table is crowded, as far as the bound allows; renew
        versions if a slot is worn. Not between enter() and reader_leaves().
        """
        cdef size_t now
        with gil, nogil:
            be_alone(&self.table)
            now = cache_slots(&self.table)
            if cache_crowded(&self.table):
                slots = max(slots, 2 * now)
            if slots > now and not cache_bounded(&self.table):
                while slots > now and slots * SLOT_BYTES > self.bytes:
                    slots //= 2
                if slots == now or not self.grow(slots // now):
                    bound(&self.table)
            if self.table.worn:
                cache_renew(&self.table)
            be_no_longer_alone(&self.table)
        return 0

    cdef int after_fork(self) except -1:
        """In a child process, where no thread goes on that was at work here when the process forked."""
        cdef cache_reader *reader = self.table.readers
        if self.table.alone:
            self.make_table()           # the old one was being moved, and is lost
        self.stretches.writing = self.table.writing = self.table.growing = self.table.alone = 0
        while reader != NULL:
            reader.inside = 0
            reader = reader.next
        self.forks = forks
        return 0

    # Stretches

    cdef int make_stretches(self) except -1:
        self.stretches.mask = FEWEST_SLOTS - WAYS
        self.stretches.seed = hash_seed
        self.stretches.bounded = True
        self.stretches.ring_size = STRETCH_RING
        self.stretches.slots = <cache_slot *> checked_sparse_block(FEWEST_SLOTS * sizeof(cache_slot))
        self.stretches.ring = <uint64_t *> checked_sparse_block(ring_bytes(STRETCH_RING))
        return 0

    cdef int keep_stretch(self, packed_key key, const uint8_t *text, Ids *out, size_t first) except -1 nogil:
        """Keep a stretch with its ids, those of `out` from number `first` on, if it comes for the second time."""
        cdef uint64_t *seen = &self.seen[key.low % SEEN]
        if load_word(seen) != key.low:
            store_word(seen, key.low)
            return 0
        reserve(out, COPIED_IDS)
        cache_keep(&self.stretches, key, cache_set(&self.stretches, key), text, out.ids + first, out.size - first)
        return 0

    # Growing

    cdef bint grow(self, size_t factor) noexcept nogil:
        """Grow slots and ring by a factor, a power of two; returns whether there was memory for it.

        They stay in place, or their pages are moved: only their new part is new memory. A set becomes
        `factor` sets, as its index is the low bits of the hash: itself, and those one old size after it, two, and on.
        """
        cdef cache_table old = self.table
        cdef size_t slots = cache_slots(&self.table)
        cdef void *block = grown_block(old.slots, slots * sizeof(cache_slot), factor * slots * sizeof(cache_slot))
        if block == NULL:
            return False
        self.table.slots = <cache_slot *> block
        set_mask(&self.table, factor * slots - WAYS)
        self.table.taken = self.table.evicted = 0
        self.grow_ring(factor * slots * (SLOT_BYTES - sizeof(cache_slot)))
        self.split_sets(&old)
        return True

    cdef void grow_ring(self, uint64_t size) noexcept nogil:
        """Grow the ring to a size, a power of two, if there is memory for it."""
        cdef uint64_t old_size = self.table.ring_size, begin, end
        cdef uint8_t *ring = <uint8_t *> grown_block(self.table.ring, ring_bytes(old_size), ring_bytes(size))
        if ring == NULL:
            return
        self.table.ring, self.table.ring_size = <uint64_t *> ring, size
        begin = self.table.written - old_size if self.table.written > old_size else 0
        while begin < self.table.written:                   # no entry stands across a multiple of the old size
            end = min(self.table.written, (begin | (old_size - 1)) + 1)
            if (begin & (size - 1)) >= old_size:
                memcpy(ring + (begin & (size - 1)), ring + (begin & (old_size - 1)), end - begin)
            begin = end

    cdef void split_sets(self, const cache_table *old) noexcept nogil:
        """Move the slots of the old table, the first part of the new one, to their sets in the new one."""
        cdef size_t at, n
        cdef cache_slot both[WAYS]
        cdef cache_slot *first
        cdef packed_key key
        cdef int i
        for n in range(old.mask // WAYS + 1):
            at = WAYS * n
            if not (self.table.slots[at].high or self.table.slots[at + 1].high):
                continue
            memcpy(both, &self.table.slots[at], sizeof(both))
            memset(&self.table.slots[at], 0, sizeof(both))
            for i in range(WAYS):
                if not cache_in_use(old, &both[i]):
                    continue
                key.low, key.high = both[i].low, both[i].high
                first = cache_set(&self.table, key)
                if (<size_t> (first - self.table.slots) & old.mask) == at:
                    first[first.high != 0] = both[i]
                    self.table.taken += 1


cdef bint append_ids(const cache_table *table, packed_key key, const uint8_t *text, Ids *out) except -1 nogil:
    """Append the ids of a pretoken, from either of its sets; returns whether it is in the table."""
    cdef uint64_t offset = 0
    cdef size_t count
    reserve(out, INLINE_IDS)
    count = cache_find(table, key, out.ids + out.size, &offset)
    if count and offset != NO_OFFSET:
        reserve(out, count + COPIED_IDS)
        if not cache_copy(table, offset, count, text, long_size(key), out.ids + out.size):
            return False
    out.size += count
    return count > 0


cdef inline packed_key stretch_key(const uint8_t *text, size_t size) noexcept nogil:
    """The key of a stretch: a hash of its first and last 64 bytes, and its size."""
    cdef packed_key key
    key.low = hash_bytes(text + size - 64, 64, hash_bytes(text, 64, hash_seed))
    key.high = LONG_KEY + size
    return key


cdef inline size_t ring_bytes(uint64_t size) noexcept nogil:
    return size + COPIED_IDS * sizeof(uint32_t)
