"""Encoding: pretokens to ids by merge rank, with a bounded cache.

A pretoken is first looked up in a cache; most of any text is there. One that is not is merged: its bytes become symbols, and
while two neighbours have a rank, the pair of the lowest rank, the leftmost of equals, becomes one. Short pretokens are
searched afresh after each merge, which is fastest while everything is in registers and first-level cache; from HEAP_FROM
bytes on a heap of candidate pairs over a linked list makes the cost n log n, whatever the text.

The cache belongs to one thread at a time. An Encoder keeps those that are not in use, hands one to each call, and never
holds more bytes in all of them than it was given. A cache is direct-mapped: a pretoken has one slot, and the latest wins it.
"""

import numpy as np

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromUnsignedLong
from cpython.ref cimport Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from bpe._bytes cimport hash_bytes, hash_pair, pack_key, packed_key, prefetch
from bpe._intern cimport SHORT
from bpe._memory cimport checked_malloc, checked_realloc
from bpe._scan cimport SCAN_ENDS, Pattern, Scanner, scan_block, scan_start
from bpe._special cimport Hit, SpecialTokens

cdef enum:
    AHEAD = 64                  # pretokens whose slots are fetched before they are looked up
    INLINE = 3                  # ids that fit in a slot of the cache
    HEAP_FROM = 48              # symbols from which on the heap is faster than searching afresh
    SMALL_CACHE = 1 << 10       # slots of a cache that is not kept
    MOST = 0x7FFFFFFF           # bytes of a pretoken

cdef uint32_t NONE = <uint32_t> -1
cdef uint64_t FREE = <uint64_t> -1

ctypedef struct Merge:          # of the table of merges
    uint64_t pair               # left symbol << 32 | right symbol, or FREE
    uint32_t rank, made

ctypedef struct Slot:           # of a cache: half a cache line
    uint64_t low, high          # pack_key() of the pretoken; high == 0: free
    uint32_t count              # how many ids
    uint32_t ids[INLINE]

ctypedef struct Token:          # of the table of whole tokens
    uint64_t hash
    uint32_t id                 # NONE: free

ctypedef struct Candidate:      # of the heap of a long pretoken
    uint32_t rank, at, made
    uint32_t left, right        # the symbols it would join; others there by now: it is void

ctypedef struct Ids:            # what is encoded so far
    uint32_t *ids
    size_t size, room


cdef class Cache:
    """A direct-mapped table of pretokens and their ids; `slots` is a power of two, and room for one call's work."""

    cdef Slot *slots
    cdef size_t mask
    cdef uint32_t *symbols      # work space for a pretoken being merged
    cdef int64_t *next          # and for a long one
    cdef int64_t *previous
    cdef Candidate *heap
    cdef size_t symbols_room, links_room, heap_room, heap_size

    def __cinit__(self, size_t slots):
        self.slots = <Slot *> calloc(slots, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        self.mask = slots - 1

    def __dealloc__(self):
        free(self.slots)
        free(self.symbols)
        free(self.next)
        free(self.previous)
        free(self.heap)


cdef class Encoder:
    """The merges of a vocabulary, ready to encode.

    symbols: the bytes of each symbol, in any order but with the 256 single bytes among them. ids: the id of each.
    merges: (left symbol, right symbol, made symbol), an array of shape (merges, 3); ranks: the rank of each, lowest first.
    whole_first: a pretoken that is a token is that token, whatever the merges say. scanner: a bpe._scan.scanner_of().
    cache_bytes: the most that all caches together may take.
    """

    cdef Merge *merges
    cdef size_t merges_mask
    cdef Token *tokens          # only with whole_first: bytes to symbol
    cdef size_t tokens_mask
    cdef const uint8_t **token_text
    cdef uint32_t *token_size
    cdef uint32_t *id_of        # by symbol
    cdef uint32_t[256] symbol_of_byte
    cdef size_t symbols
    cdef bint whole_first
    cdef int scanner
    cdef tuple kept             # keeps token_text alive
    cdef size_t cache_slots
    cdef list idle              # caches not in use
    cdef int caches             # how many there are, in use or not
    cdef int most_caches

    def __cinit__(
        self, *, symbols, ids, merges, ranks, bint whole_first, int scanner, size_t cache_bytes
    ):
        cdef const uint32_t[::1] id_array = np.ascontiguousarray(ids, dtype=np.uint32)
        cdef const uint32_t[:, ::1] merge_array = np.ascontiguousarray(merges, dtype=np.uint32).reshape(-1, 3)
        cdef const uint32_t[::1] rank_array = np.ascontiguousarray(ranks, dtype=np.uint32)
        cdef size_t i, slots
        self.kept = tuple(symbols)
        self.symbols = len(self.kept)
        self.whole_first, self.scanner = whole_first, scanner
        self.idle = []
        self.token_text = <const uint8_t **> checked_malloc(self.symbols * sizeof(uint8_t *))
        self.token_size = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
        self.id_of = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
        for i in range(256):
            self.symbol_of_byte[i] = NONE
        for i in range(self.symbols):
            self.token_text[i] = <const uint8_t *> <const char *> (<bytes> self.kept[i])
            self.token_size[i] = len(<bytes> self.kept[i])
            self.id_of[i] = id_array[i]
            if self.token_size[i] == 1:
                self.symbol_of_byte[self.token_text[i][0]] = i
        slots = 64
        while slots < merge_array.shape[0] * 2:
            slots *= 2
        self.merges = <Merge *> checked_malloc(slots * sizeof(Merge))
        memset(self.merges, 0xFF, slots * sizeof(Merge))
        self.merges_mask = slots - 1
        for i in range(merge_array.shape[0]):
            self.add_merge(merge_array[i, 0], merge_array[i, 1], merge_array[i, 2], rank_array[i])
        if whole_first:
            self.add_tokens()
        # A cache is worth having from a few thousand slots on, and not worth more than its share of the bound.
        slots = SMALL_CACHE
        while slots < 1 << 19 and slots * 4 * sizeof(Slot) <= cache_bytes:
            slots *= 2
        self.cache_slots = slots
        self.most_caches = max(<size_t> 1, cache_bytes // (slots * sizeof(Slot)))

    def __dealloc__(self):
        free(self.merges)
        free(self.tokens)
        free(self.token_text)
        free(self.token_size)
        free(self.id_of)

    cdef void add_merge(self, uint64_t left, uint64_t right, uint32_t made, uint32_t rank) noexcept nogil:
        cdef uint64_t pair = left << 32 | right
        cdef size_t at = hash_pair(pair, 0) & self.merges_mask
        while self.merges[at].pair != FREE:
            if self.merges[at].pair == pair:
                return                      # the first mention of a pair is the one that counts
            at = (at + 1) & self.merges_mask
        self.merges[at].pair, self.merges[at].rank, self.merges[at].made = pair, rank, made

    cdef inline const Merge *find_merge(self, uint64_t left, uint64_t right) noexcept nogil:
        """The merge of two symbols, or NULL."""
        cdef uint64_t pair = left << 32 | right
        cdef size_t at = hash_pair(pair, 0) & self.merges_mask
        while self.merges[at].pair != pair:
            if self.merges[at].pair == FREE:
                return NULL
            at = (at + 1) & self.merges_mask
        return &self.merges[at]

    cdef int add_tokens(self) except -1:
        cdef size_t slots = 64, at
        cdef uint64_t hash
        cdef uint32_t symbol
        while slots < self.symbols * 2:
            slots *= 2
        self.tokens = <Token *> checked_malloc(slots * sizeof(Token))
        memset(self.tokens, 0xFF, slots * sizeof(Token))
        self.tokens_mask = slots - 1
        for symbol in range(<uint32_t> self.symbols):
            hash = hash_bytes(self.token_text[symbol], self.token_size[symbol])
            at = hash & self.tokens_mask
            while self.tokens[at].id != NONE:
                at = (at + 1) & self.tokens_mask
            self.tokens[at].hash, self.tokens[at].id = hash, symbol
        return 0

    cdef uint32_t find_token(self, const uint8_t *text, size_t size) noexcept nogil:
        """The symbol whose bytes these are, or NONE."""
        cdef uint64_t hash = hash_bytes(text, size)
        cdef size_t at = hash & self.tokens_mask
        cdef uint32_t symbol
        while self.tokens[at].id != NONE:
            symbol = self.tokens[at].id
            if (
                self.tokens[at].hash == hash
                and self.token_size[symbol] == size
                and memcmp(self.token_text[symbol], text, size) == 0
            ):
                return symbol
            at = (at + 1) & self.tokens_mask
        return NONE

    # Merging one pretoken

    cdef int merge(self, Cache cache, const uint8_t *text, size_t size, Ids *out) except -1 nogil:
        """Append the ids of one pretoken to `out`."""
        cdef uint32_t symbol
        cdef uint32_t *symbols
        cdef size_t i, count
        if self.whole_first:
            symbol = self.find_token(text, size)
            if symbol != NONE:
                reserve(out, 1)
                out.ids[out.size] = self.id_of[symbol]
                out.size += 1
                return 0
        if size > MOST:
            with gil:
                raise ValueError(f"a pretoken of {size:,} bytes; the most is {MOST:,}: choose a pattern that splits this text")
        if size > cache.symbols_room:
            cache.symbols = <uint32_t *> checked_realloc(cache.symbols, (size + 256) * sizeof(uint32_t))
            cache.symbols_room = size + 256
        symbols = cache.symbols
        for i in range(size):
            symbols[i] = self.symbol_of_byte[text[i]]
            if symbols[i] == NONE:
                with gil:
                    raise KeyError(f"byte {text[i]:#04x} has no token in this vocabulary")
        count = self.merge_short(symbols, size) if size < HEAP_FROM else self.merge_long(cache, size)
        reserve(out, count)
        for i in range(count):
            out.ids[out.size + i] = self.id_of[symbols[i]]
        out.size += count
        return 0

    cdef size_t merge_short(self, uint32_t *symbols, size_t size) noexcept nogil:
        """Merge in place; returns how many symbols are left. Ranks are kept beside the symbols, so that a merge asks the
        table about its two new neighbours only."""
        cdef uint32_t ranks[HEAP_FROM]
        cdef uint32_t made[HEAP_FROM]
        cdef uint32_t best
        cdef size_t i, at
        for i in range(size - 1):
            self.look(symbols + i, ranks + i, made + i)
        while size > 1:
            best = NONE
            at = 0
            for i in range(size - 1):
                if ranks[i] < best:
                    best = ranks[i]
                    at = i
            if best == NONE:
                break
            symbols[at] = made[at]
            size -= 1
            for i in range(at + 1, size):
                symbols[i] = symbols[i + 1]
            for i in range(at, size - 1):
                ranks[i] = ranks[i + 1]
                made[i] = made[i + 1]
            if at + 1 < size:
                self.look(symbols + at, ranks + at, made + at)
            if at:
                self.look(symbols + at - 1, ranks + at - 1, made + at - 1)
        return size

    cdef inline void look(self, const uint32_t *symbols, uint32_t *rank, uint32_t *made) noexcept nogil:
        """Rank and result of merging symbols[0] and symbols[1]; rank NONE where they do not merge."""
        cdef const Merge *found = self.find_merge(symbols[0], symbols[1])
        rank[0] = NONE
        if found != NULL:
            rank[0], made[0] = found.rank, found.made

    cdef size_t merge_long(self, Cache cache, size_t size) except? 0 nogil:
        """As merge_short, with a heap and a linked list; a symbol that was merged into the one before it becomes NONE."""
        cdef uint32_t *symbols = cache.symbols
        cdef Candidate best
        cdef size_t i, count = 0
        cdef int64_t at, after
        if size > cache.links_room:
            cache.next = <int64_t *> checked_realloc(cache.next, (size + 256) * sizeof(int64_t))
            cache.previous = <int64_t *> checked_realloc(cache.previous, (size + 256) * sizeof(int64_t))
            cache.links_room = size + 256
        cache.heap_size = 0
        for i in range(size):
            cache.next[i] = i + 1 if i + 1 < size else -1
            cache.previous[i] = <int64_t> i - 1
        for i in range(size - 1):
            self.consider(cache, i)
        while cache.heap_size:
            best = pop(cache)
            at = best.at
            if symbols[at] != best.left:
                continue
            after = cache.next[at]
            if after < 0 or symbols[after] != best.right:
                continue
            symbols[at] = best.made
            symbols[after] = NONE
            cache.next[at] = cache.next[after]
            if cache.next[at] >= 0:
                cache.previous[cache.next[at]] = at
                self.consider(cache, at)
            if cache.previous[at] >= 0:
                self.consider(cache, cache.previous[at])
        at = 0
        while at >= 0:
            symbols[count] = symbols[at]
            count += 1
            at = cache.next[at]
        return count

    cdef inline int consider(self, Cache cache, size_t at) except -1 nogil:
        """Put the pair that begins at `at` into the heap, if it can be merged."""
        cdef uint32_t left = cache.symbols[at], right = cache.symbols[cache.next[at]]
        cdef const Merge *found = self.find_merge(left, right)
        cdef Candidate candidate
        if found == NULL:
            return 0
        candidate.rank, candidate.made = found.rank, found.made
        candidate.at, candidate.left, candidate.right = <uint32_t> at, left, right
        return push(cache, candidate)

    # Text to ids

    cdef int add(
        self, Cache cache, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size, Ids *out
    ) except -1 nogil:
        """Append the ids of the pretokens that end at ends[:count], the first from `begin` on."""
        cdef packed_key keys[AHEAD]
        cdef Slot *slots[AHEAD]
        cdef size_t begins[AHEAD]
        cdef size_t done = 0, i, batch, length, before
        cdef Slot *slot
        while done < count:
            batch = min(<size_t> AHEAD, count - done)
            for i in range(batch):
                length = ends[done + i] - begin
                begins[i] = begin
                if length <= SHORT:
                    keys[i] = pack_key(text + begin, length, size - begin)
                    slots[i] = &cache.slots[hash_pair(keys[i].low, keys[i].high) & cache.mask]
                    prefetch(slots[i])
                else:
                    keys[i].high = 0
                begin = ends[done + i]
            reserve(out, batch * INLINE)
            for i in range(batch):
                if keys[i].high:
                    slot = slots[i]
                    if slot.low == keys[i].low and slot.high == keys[i].high:
                        # always INLINE of them: three stores cost less than a loop
                        memcpy(out.ids + out.size, slot.ids, INLINE * sizeof(uint32_t))
                        out.size += slot.count
                        continue
                    before = out.size
                    self.merge(cache, text + begins[i], ends[done + i] - begins[i], out)
                    length = out.size - before
                    if length <= INLINE:
                        slot.low, slot.high, slot.count = keys[i].low, keys[i].high, <uint32_t> length
                        memcpy(slot.ids, out.ids + before, length * sizeof(uint32_t))
                else:
                    self.merge(cache, text + begins[i], ends[done + i] - begins[i], out)
                reserve(out, (batch - i) * INLINE)
            done += batch
        return 0

    cdef int add_text(
        self, Cache cache, const uint8_t *text, size_t size, SpecialTokens special, Ids *out
    ) except -1 nogil:
        cdef Scanner scanner
        cdef Hit hit
        cdef size_t ends[SCAN_ENDS]
        cdef size_t at = 0, count, begin
        while at < size:
            hit = special.find(text, size, at)
            scan_start(&scanner, <Pattern> self.scanner, text + at, hit.begin - at)
            begin = 0
            while True:
                count = scan_block(&scanner, ends)
                if count == 0:
                    break
                self.add(cache, text + at, ends, count, begin, size - at, out)
                begin = ends[count - 1]
            if hit.index >= 0:
                reserve(out, 1)
                out.ids[out.size] = special.numbers[hit.index]
                out.size += 1
            at = hit.end
        return 0

    cdef Cache take_cache(self):
        """An idle cache, or a new one: a small one to throw away where the bound leaves no more. Under the GIL, so no lock."""
        if self.idle:
            return self.idle.pop()
        if self.caches >= self.most_caches:
            return Cache(SMALL_CACHE)
        self.caches += 1
        return Cache(self.cache_slots)

    cdef give_cache(self, Cache cache):
        if cache.mask + 1 == self.cache_slots and len(self.idle) < self.most_caches:
            self.idle.append(cache)

    cdef Numbers encode_ids(self, const uint8_t[::1] text, SpecialTokens special):
        cdef Numbers out = Numbers()
        cdef Cache cache
        if text.shape[0]:
            cache = self.take_cache()
            try:
                with nogil:
                    self.add_text(cache, &text[0], text.shape[0], special, &out.all)
            finally:
                self.give_cache(cache)
        return out

    def encode(self, const uint8_t[::1] text not None, SpecialTokens special not None):
        """The ids of `text` as a list; see encode_array()."""
        return self.encode_ids(text, special).to_list()

    def encode_array(self, const uint8_t[::1] text not None, SpecialTokens special not None):
        """The ids of `text` as an array of uint32; releases the GIL for the work.

        special: the special tokens to recognise, with their ids. KeyError for a byte that has no token. The pattern must
        be one with a scanner.
        """
        return np.asarray(self.encode_ids(text, special))

    def encode_pieces(self, pieces):
        """The ids of pretokens that were split by the caller (bytes), as an array of uint32."""
        cdef Numbers out = Numbers()
        cdef Cache cache = self.take_cache()
        cdef const uint8_t[::1] piece
        cdef size_t end
        try:
            for piece in pieces:
                end = piece.shape[0]
                if end:
                    self.add(cache, &piece[0], &end, 1, 0, end, &out.all)
        finally:
            self.give_cache(cache)
        return np.asarray(out)

    @property
    def cache_bytes(self):
        """The most that the caches kept between calls take together."""
        return self.most_caches * self.cache_slots * sizeof(Slot)


cdef class Numbers:
    """A growing array of ids that NumPy can look at without a copy."""

    cdef Ids all
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    def __dealloc__(self):
        free(self.all.ids)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self.shape[0] = self.all.size
        self.strides[0] = sizeof(uint32_t)
        buffer.buf = self.all.ids if self.all.ids != NULL else <uint32_t *> self.shape
        buffer.obj = self
        buffer.len = self.all.size * sizeof(uint32_t)
        buffer.itemsize = sizeof(uint32_t)
        buffer.readonly = 0
        buffer.ndim = 1
        buffer.format = b"I"
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL

    cdef list to_list(self):
        cdef list numbers = PyList_New(self.all.size)
        cdef size_t i
        cdef object number
        for i in range(self.all.size):
            number = PyLong_FromUnsignedLong(self.all.ids[i])
            Py_INCREF(number)       # PyList_SET_ITEM takes a reference of its own
            PyList_SET_ITEM(numbers, i, number)
        return numbers


cdef inline int reserve(Ids *out, size_t more) except -1 nogil:
    cdef size_t room
    if out.size + more > out.room:
        room = max(out.size + more, out.room + out.room // 2, <size_t> 256)
        out.ids = <uint32_t *> checked_realloc(out.ids, room * sizeof(uint32_t))
        out.room = room
    return 0


cdef inline bint earlier(const Candidate *a, const Candidate *b) noexcept nogil:
    return a.rank < b.rank or (a.rank == b.rank and a.at < b.at)


cdef int push(Cache cache, Candidate candidate) except -1 nogil:
    cdef size_t at = cache.heap_size, parent
    if at == cache.heap_room:
        cache.heap_room = cache.heap_room * 2 + 256
        cache.heap = <Candidate *> checked_realloc(cache.heap, cache.heap_room * sizeof(Candidate))
    cache.heap_size += 1
    while at:
        parent = (at - 1) // 2
        if not earlier(&candidate, &cache.heap[parent]):
            break
        cache.heap[at] = cache.heap[parent]
        at = parent
    cache.heap[at] = candidate
    return 0


cdef Candidate pop(Cache cache) noexcept nogil:
    cdef Candidate first = cache.heap[0], moved
    cdef size_t at = 0, child
    cache.heap_size -= 1
    moved = cache.heap[cache.heap_size]
    while 2 * at + 1 < cache.heap_size:
        child = 2 * at + 1
        if child + 1 < cache.heap_size and earlier(&cache.heap[child + 1], &cache.heap[child]):
            child += 1
        if not earlier(&cache.heap[child], &moved):
            break
        cache.heap[at] = cache.heap[child]
        at = child
    cache.heap[at] = moved
    return first
