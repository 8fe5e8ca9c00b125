"""Distinct pretokens and how often each occurs: text to counts, in memory that follows the distinct pretokens only.

Each thread has an open-addressing table of its own, so that there is no lock. To add the tables up, each thread takes a
share of all hashes; the top bits of a hash choose its slot, so that the hashes of a share lie side by side in every
table. A pretoken of at most 15 bytes is stored in its slot as two machine words: finding it takes one cache line and
two comparisons. A longer one is in an arena, and its slot has its hash. Pretokens are hashed 64 at a time and their
slots prefetched before any is looked up, so that in a table larger than the cache the waits for memory overlap.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from bpe.counting.records cimport HEADER
from bpe.native.bytes cimport (
    LONG_KEY, PACKED, count_leading_zeros, hash_bytes, hash_pair, pack_key, packed_key, prefetch, unpack_key
)
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport LARGE, checked_block, checked_realloc, free_block, touch_block
from bpe.scanning.scanner cimport SCAN_ENDS, Scanner, number_of, scan_block, scan_start
from bpe.scanning.special_tokens cimport Hit

cdef enum:
    AHEAD = 64                  # pretokens that are hashed before the first of them is looked up
    TIMED = 32                  # every 32nd block is timed: looking at the clock for each would cost a per cent

cdef uint64_t PLACE = (<uint64_t> 1 << 56) - 1

cdef extern from "<time.h>" nogil:
    struct timespec:
        long long tv_sec
        long tv_nsec
    int timespec_get(timespec *, int)
    const int TIME_UTC


cdef inline uint64_t nanoseconds() noexcept nogil:
    """Now, by the clock that C11 has on every system."""
    cdef timespec now
    timespec_get(&now, TIME_UTC)
    return <uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec


cdef class PretokenCounts:
    """A multiset of pretokens. count*() count text; items() gives what was counted, in no particular order.

    Args:
        room: Pretokens that it has room for at first.
    """

    def __cinit__(self, size_t room=1 << 12):
        self.spread = 1
        self.set_slots(64)
        while self.mask < room * 2:
            self.set_slots(self.mask * 2 + 2)
        self.slots = new_slots(self.mask + 1)

    cdef void set_slots(self, size_t count) noexcept nogil:
        self.mask = count - 1
        self.shift = count_leading_zeros(self.mask)

    def __dealloc__(self):
        free_block(self.slots, (self.mask + 1) * sizeof(Slot))
        free(self.arena)

    def __len__(self):
        """Number of distinct pretokens."""
        return self.used

    cdef int add(
        self, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size
    ) except -1 nogil:
        """Count the pretokens that end at ends[:count], the first from `begin` on. `text` has `size` bytes."""
        cdef packed_key keys[AHEAD]
        cdef uint64_t hashes[AHEAD]
        cdef size_t begins[AHEAD]
        cdef uint64_t seed = hash_seed
        cdef size_t done = 0, i, batch, length
        cdef Slot *slot
        while done < count:
            batch = min(<size_t> AHEAD, count - done)
            self.make_room(batch)
            for i in range(batch):
                length = ends[done + i] - begin
                begins[i] = begin
                if length <= PACKED:
                    keys[i] = pack_key(text + begin, length, size - begin)
                    hashes[i] = hash_pair(keys[i].low, keys[i].high, seed)
                else:
                    hashes[i] = hash_bytes(text + begin, length, seed)
                    keys[i].high = 0
                prefetch(&self.slots[home(self, hashes[i])])
                begin = ends[done + i]
            for i in range(batch):
                if keys[i].high:
                    slot = &self.slots[home(self, hashes[i])]
                    while slot.high and (slot.low != keys[i].low or slot.high != keys[i].high):
                        slot = slot + 1 if slot != &self.slots[self.mask] else self.slots
                    if slot.high == 0:
                        slot.low, slot.high = keys[i].low, keys[i].high
                        self.used += 1
                        self.packed += HEADER + (keys[i].high >> 56)
                else:
                    length = ends[done + i] - begins[i]
                    slot = self.find_long(text + begins[i], length, hashes[i])
                    if slot.high == 0:
                        self.take_long(slot, text + begins[i], length, hashes[i])
                slot.count += 1
            done += batch
        return 0

    cdef Slot *find_short(self, uint64_t low, uint64_t high, uint64_t hash) noexcept nogil:
        cdef size_t at = home(self, hash)
        while self.slots[at].high and (self.slots[at].low != low or self.slots[at].high != high):
            at = (at + 1) & self.mask
        return &self.slots[at]

    cdef Slot *find_long(self, const uint8_t *text, size_t size, uint64_t hash) noexcept nogil:
        cdef size_t at = home(self, hash)
        cdef const uint8_t *entry
        cdef uint32_t entry_size
        while self.slots[at].high:
            if self.slots[at].low == hash and self.slots[at].high >= LONG_KEY:
                entry = self.long_entry(&self.slots[at])
                memcpy(&entry_size, entry, 4)
                if entry_size == size and memcmp(entry + 4, text, size) == 0:
                    break
            at = (at + 1) & self.mask
        return &self.slots[at]

    cdef int take_long(self, Slot *slot, const uint8_t *text, size_t size, uint64_t hash) except -1 nogil:
        cdef size_t needed = self.arena_size + 4 + size, room
        cdef uint32_t size32 = <uint32_t> size
        if size != size32:
            with gil:
                raise ValueError(f"a pretoken of {size:,} bytes, 4 GiB or more; choose a pattern that splits this text")
        if needed > self.arena_room:
            room = max(needed, self.arena_room + self.arena_room // 2, <size_t> 1 << 16)
            self.arena = <uint8_t *> checked_realloc(self.arena, room)
            self.arena_room = room
        memcpy(self.arena + self.arena_size, &size32, 4)
        memcpy(self.arena + self.arena_size + 4, text, size)
        slot.low, slot.high = hash, LONG_KEY | self.arena_size
        self.arena_size = needed
        self.used += 1
        self.packed += HEADER + size
        return 0

    cdef int make_room(self, size_t more) except -1 nogil:
        """Reserve slots for `more` pretokens, at most AHEAD."""
        while self.used + more > full(self.mask + 1):
            self.grow()
        return 0

    cdef int grow(self) except -1 nogil:
        cdef size_t old_size = self.mask + 1, i, at
        cdef Slot *old = self.slots
        cdef Slot *slots = new_slots(old_size * 2)
        self.slots = slots
        self.set_slots(old_size * 2)
        for i in range(old_size):
            if old[i].high:
                at = home(self, hash_of(&old[i]))
                while slots[at].high:
                    at = (at + 1) & self.mask
                slots[at] = old[i]
        free_block(old, old_size * sizeof(Slot))
        return 0

    cdef inline const uint8_t *long_entry(self, const Slot *slot) noexcept nogil:
        """Return the address of the length and the bytes of a long pretoken."""
        return self.arena + (slot.high & PLACE)

    cdef const uint8_t *bytes_of(self, const Slot *slot, uint8_t *room, size_t *size) noexcept nogil:
        """Return the bytes of a stored pretoken: in the arena, or written into `room`, which has PACKED + 1 bytes."""
        cdef packed_key key
        cdef uint32_t size32
        if slot.high >= LONG_KEY:
            memcpy(&size32, self.long_entry(slot), 4)
            size[0] = size32
            return self.long_entry(slot) + 4
        size[0] = slot.high >> 56
        key.low, key.high = slot.low, slot.high
        unpack_key(key, room)
        return room

    cdef int add_text(
        self, const uint8_t *text, size_t size, ScannedPattern pattern, SpecialTokens special
    ) except -1 nogil:
        cdef Scanner scanner
        cdef Hit hit
        cdef size_t ends[SCAN_ENDS]
        cdef size_t at = 0, count, begin, block = 0
        cdef uint64_t begun = 0, scan_end = 0
        while at < size:
            hit = special.find(text, size, at)
            scan_start(&scanner, pattern, text + at, hit.begin - at)
            begin = 0
            while True:
                block += 1
                if block % TIMED == 1:
                    begun = nanoseconds()
                count = scan_block(&scanner, ends)
                if block % TIMED == 1:
                    scan_end = nanoseconds()
                if count == 0:
                    break
                self.add(text + at, ends, count, begin, size - at)
                if block % TIMED == 1:
                    self.splitting += scan_end - begun
                    self.adding += nanoseconds() - scan_end
                begin = ends[count - 1]
            at = hit.end
        return 0

    def count(self, const uint8_t[::1] text not None, ScannedPattern scanner, SpecialTokens special not None):
        """Count the pretokens of `text` between the special tokens; releases the GIL. `scanner` is a scanner_of();
        KeyError for another number.
        """
        cdef size_t size = text.shape[0]
        number_of(<int> scanner)
        if size:
            with nogil:
                self.add_text(&text[0], size, scanner, special)

    def count_pieces(self, pieces):
        """Count an iterable of pretokens (bytes)."""
        cdef const uint8_t[::1] piece
        cdef size_t end
        for piece in pieces:
            end = piece.shape[0]
            if end:
                self.add(&piece[0], &end, 1, 0, end)

    def add_share(self, list tables not None, size_t share, size_t shares):
        """Add what several tables have of one of `shares` equal shares of all hashes; this one has no others."""
        cdef PretokenCounts table
        if share >= shares or (self.used and self.spread != shares):
            raise ValueError(f"share {share} of {shares} cannot be added to a table of other hashes")
        self.spread = shares
        for table in tables:
            if table is self or table.spread != 1:
                raise ValueError("a table of a share cannot be shared out again")
            with nogil:
                self.add_range(table, share, shares)

    cdef int add_range(self, PretokenCounts other, size_t share, size_t shares) except -1 nogil:
        cdef uint64_t low = first_of_share(share, shares), high = first_of_share(share + 1, shares) - 1, hash
        cdef size_t begin = home(other, low), last = home(other, high), at = begin
        cdef bint past_last = False
        # From the first slot that a hash of the share is looked for in to the last, and on to the next free one: linear
        # probing may have pushed some there.
        while not past_last or (at != begin and other.slots[at].high):
            self.prefetch_for(other, &other.slots[(at + SLOTS_AHEAD) & other.mask])
            if other.slots[at].high:
                hash = hash_of(&other.slots[at])
                if low <= hash <= high:
                    self.add_slot(other, &other.slots[at], hash)
            past_last = past_last or at == last
            at = (at + 1) & other.mask
        return 0

    cdef inline void prefetch_for(self, PretokenCounts other, const Slot *slot) noexcept nogil:
        """Fetch what adding a pretoken of another table looks at."""
        prefetch(&self.slots[home(self, hash_of(slot))])
        if slot.high >= LONG_KEY:
            prefetch(other.long_entry(slot))

    cdef int add_slot(self, PretokenCounts other, const Slot *slot, uint64_t hash) except -1 nogil:
        """Add what another table has of a pretoken."""
        cdef const uint8_t *text
        cdef size_t size
        cdef Slot *own
        self.make_room(1)
        if slot.high >= LONG_KEY:
            text = other.bytes_of(slot, NULL, &size)
            own = self.find_long(text, size, hash)
            if own.high == 0:
                self.take_long(own, text, size, hash)
        else:
            own = self.find_short(slot.low, slot.high, hash)
            if own.high == 0:
                own.low, own.high = slot.low, slot.high
                self.used += 1
                self.packed += HEADER + (slot.high >> 56)
        own.count += slot.count
        return 0

    def clear(self):
        """Forget everything, and give the memory back."""
        cdef Slot *slots = new_slots(64)
        free_block(self.slots, (self.mask + 1) * sizeof(Slot))
        free(self.arena)
        self.slots, self.used, self.packed, self.spread = slots, 0, 0, 1
        self.set_slots(64)
        self.arena, self.arena_size, self.arena_room = NULL, 0, 0

    def add_count(self, const uint8_t[::1] pretoken not None, uint64_t count):
        """Count one pretoken `count` times."""
        cdef size_t end = pretoken.shape[0]
        cdef packed_key key
        if end == 0 or count == 0:
            return
        self.add(&pretoken[0], &end, 1, 0, end)
        if end <= PACKED:
            key = pack_key(&pretoken[0], end, end)
            self.find_short(key.low, key.high, hash_pair(key.low, key.high, hash_seed)).count += count - 1
        else:
            self.find_long(&pretoken[0], end, hash_bytes(&pretoken[0], end, hash_seed)).count += count - 1

    def items(self):
        """Yield (pretoken, count) for each distinct pretoken, in no particular order."""
        cdef size_t i, size
        cdef uint8_t room[PACKED + 1]
        cdef const uint8_t *text
        for i in range(self.mask + 1):
            if self.slots[i].high:
                text = self.bytes_of(&self.slots[i], room, &size)
                yield (<const char *> text)[:size], self.slots[i].count

    @property
    def memory(self):
        """The bytes that the table takes."""
        return (self.mask + 1) * sizeof(Slot) + self.arena_room

    @property
    def memory_to_grow(self):
        """The most memory that it takes when it grows and is then packed and sorted; `memory` if that is far off."""
        return self.memory * 4 if self.used * 2 > self.mask else self.memory


cdef Slot *new_slots(size_t count) except NULL nogil:
    """Empty slots; a block of them is soon written everywhere, if only here and there."""
    cdef Slot *slots = <Slot *> checked_block(count * sizeof(Slot))
    if count * sizeof(Slot) < LARGE:
        touch_block(slots, count * sizeof(Slot))
    return slots


cdef inline size_t full(size_t slots) noexcept nogil:
    """Return the most slots that may be in use, of `slots`."""
    return slots // 8 * 5


cdef inline size_t home(PretokenCounts table, uint64_t hash) noexcept nogil:
    """The slot where a hash is looked for first."""
    return hash * table.spread >> table.shift


cdef inline uint64_t hash_of(const Slot *slot) noexcept nogil:
    return slot.low if slot.high >= LONG_KEY else hash_pair(slot.low, slot.high, hash_seed)


cdef inline uint64_t first_of_share(size_t share, size_t shares) noexcept nogil:
    """The first hash of a share, ceil(share * 2**64 / shares), which is 0 (2**64) for share == shares.

    A share has the hashes whose hash * shares >> 64 is its number.
    """
    cdef uint64_t quotient = <uint64_t> -1 // shares, rest = <uint64_t> -1 % shares + 1  # of 2**64 divided by shares
    return share * quotient + (share * rest + shares - 1) // shares
