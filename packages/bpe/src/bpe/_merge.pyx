"""Merging: counted pretokens to the list of merges, by pair counts and a lazily versioned heap.

The words (distinct pretokens) lie in one array of numbers: length, count, symbols. The numbers have 16 bits where that will do
for all symbols there will be, or 32: what is in fewer cache lines is merged faster. A table holds, for each pair of
adjacent symbols worth knowing, its count and its postings, the words it occurs in. Each step takes the best pair from the
heap, rewrites the words in its postings, and brings the counts of the neighbouring pairs up to date.

What keeps this fast is what it does not touch:

* A pair's count only falls after the step that made it, so a pair enters the heap once, is compared with the table when it
  comes to the top (that is the version check), and goes back with its true count if it has fallen since.
* A pair whose count is below the `floor` can be left out of the table and the heap altogether, postings and all, as long as
  better pairs are left. The floor starts near the count that the last merge will probably have; when the heap runs dry
  before enough merges are made, it is lowered and everything is counted again from the words as they are now. That is
  exact for any floor, and keeps the table small enough to stay in the cache.
* The changes that one merge makes are summed by neighbouring symbol first, and reach the table once for each neighbour.
* Postings are visited in order, so the words to come are known and prefetched.

Two merges never give the same bytes, so every merge makes a new symbol. Take a stretch of a word that lies between two
borders of symbols: what happens inside it until one of the borders falls does not depend on what is outside, because every
merge is applied everywhere at once. Two such stretches of the same bytes are therefore cut the same way at all times, and
the step that joins the last two symbols of one joins those of all the others.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from bpe._bytes cimport hash_pair, prefetch
from bpe._memory cimport checked_block, checked_malloc, checked_realloc, free_block

cdef extern from "_find.h" nogil:
    enum:
        FIND_SLACK
    size_t find_narrow(const uint16_t *symbols, size_t size, uint32_t a, uint32_t b)
    size_t find_wide(const uint32_t *symbols, size_t size, uint32_t a, uint32_t b)

cdef enum:
    NARROW_HEADER = 5           # numbers before a word's symbols: its length, and its count in eight bytes
    WIDE_HEADER = 3
    AHEAD = 16                  # postings prefetched before they are visited
    RECORD = 12                 # bytes before a pretoken in its record (see _records)
    HEED = 1 << 16              # words between two looks for a pending Ctrl-C

cdef uint64_t FREE = <uint64_t> -1
cdef uint32_t NOWHERE = <uint32_t> -1   # marks a number that belongs to no word; cut to 16 bits where they have 16

ctypedef fused Symbol:
    uint16_t
    uint32_t

ctypedef struct Pair:
    uint64_t key                # left << 32 | right, or FREE
    int64_t count
    uint32_t *postings          # places of words in Merger.words; may name a word twice, or one that no longer has the pair
    uint64_t postings_size

ctypedef struct Entry:          # of the heap
    int64_t count
    uint64_t key

ctypedef struct Record:         # a word that has the new symbol beside symbol `neighbour`
    uint32_t neighbour, word

# What one step learns of one side of the new symbol: for each neighbour, by how much and in how many words.
ctypedef struct Side:
    int64_t *change             # by symbol; zero between steps
    uint32_t *words             # by symbol: how many records; between steps zero
    uint32_t *touched           # the symbols with a change
    size_t touched_size
    Record *records
    size_t records_size, records_room


cdef class Merger:
    """Merges over counted pretokens, given as records (see _records).

    tokens: the symbols to start from. They are the 256 bytes, in any order; or, if the records are `spelled`, whatever their
    symbols stand for: each pretoken is then an array of uint32. by_bytes: ties go to the greatest (left bytes,
    right bytes) rather than the smallest (left symbol, right symbol). most: how many merges there will be at most.
    max_token_bytes: no merge gives a longer token (0: no bound). floor: pairs that count less are left aside as long as
    there are others; it changes time and memory only.
    """

    cdef void *words            # of uint16_t or uint32_t
    cdef size_t words_size      # in these
    cdef bint wide
    cdef bint spelled
    cdef size_t most            # symbols there will be
    cdef Pair *pairs
    cdef size_t mask, pairs_size
    cdef Entry *heap
    cdef size_t heap_size, heap_room
    cdef void **blocks          # postings, to be freed when all are counted again
    cdef size_t blocks_size, blocks_room
    cdef Side left, right
    cdef int64_t twins          # change of (new, new)
    cdef Record *twin_records
    cdef size_t twin_size, twin_room
    cdef uint8_t **token        # bytes of each symbol
    cdef uint32_t *token_size
    cdef uint64_t *token_head   # its first eight bytes as a big-endian number
    cdef size_t symbols, symbols_room
    cdef size_t max_token_bytes
    cdef bint by_bytes
    cdef int64_t min_count, floor
    cdef int64_t keep_from      # pairs of a lower count are left behind when the table is made anew

    def __cinit__(
        self, const uint8_t[::1] records not None, *, list tokens not None, bint spelled=False, bint by_bytes, size_t most,
        int64_t min_count, size_t max_token_bytes, int64_t floor,
    ):
        cdef uint8_t of_byte[256]
        if not spelled and sorted(tokens) != [bytes([byte]) for byte in range(256)]:
            raise ValueError("the tokens must be the 256 bytes, each once")
        self.by_bytes = by_bytes
        self.spelled = spelled
        self.most = len(tokens) + most
        self.max_token_bytes = max_token_bytes or <size_t> -1
        self.min_count = max(<int64_t> 1, min_count)
        self.floor = max(floor, self.min_count)
        for symbol, token in enumerate(tokens):
            if not spelled:
                of_byte[<uint8_t> token[0]] = symbol
            self.new_symbol(token)
        self.make_room(records)
        if self.wide:
            load(self, <uint32_t *> self.words, records, of_byte)
        else:
            load(self, <uint16_t *> self.words, records, of_byte)
        self.count_pairs()

    def __dealloc__(self):
        cdef size_t i
        self.forget_postings()
        for i in range(self.symbols):
            free(self.token[i])
        free_side(&self.left)
        free_side(&self.right)
        free(self.blocks)
        free_block(self.words, (self.words_size + FIND_SLACK) * self.width())
        self.free_pairs()
        free(self.heap)
        free(self.twin_records)
        free(self.token)
        free(self.token_size)
        free(self.token_head)

    # The words

    cdef inline size_t width(self) noexcept nogil:
        return sizeof(uint32_t) if self.wide else sizeof(uint16_t)

    cdef int make_room(self, const uint8_t[::1] records) except -1:
        cdef size_t at = 0, end = records.shape[0], words = 0, total = 0
        cdef uint32_t size, longest = 0
        with nogil:
            while at < end:
                memcpy(&size, &records[at + 8], 4)
                at += RECORD + size
                size = size // 4 if self.spelled else size
                if size > 1:
                    words += 1
                    total += size
                    longest = max(longest, size)
        self.wide = longest >= <uint16_t> NOWHERE or self.most > <size_t> 1 << 16
        total += words * (WIDE_HEADER if self.wide else NARROW_HEADER)
        if total >= NOWHERE:
            raise MemoryError(
                f"the distinct pretokens come to {total:,} symbols, more than the {NOWHERE:,} that can be merged; "
                "choose a pattern that splits the text into shorter pieces"
            )
        self.words = checked_block((total + FIND_SLACK) * self.width())
        self.words_size = total
        return 0

    # The table of pairs

    cdef Pair *find(self, uint64_t key) noexcept nogil:
        cdef size_t at = hash_pair(key, 0) & self.mask
        while self.pairs[at].key != key and self.pairs[at].key != FREE:
            at = (at + 1) & self.mask
        return &self.pairs[at]

    cdef Pair *find_or_add(self, uint64_t key) except NULL nogil:
        cdef Pair *pair
        if self.pairs_size * 2 > self.mask:
            self.resize_pairs(self.pairs_size * 2)
        pair = self.find(key)
        if pair.key == FREE:
            pair.key = key
            pair.count = 0
            pair.postings = NULL
            pair.postings_size = 0
            self.pairs_size += 1
        return pair

    cdef int resize_pairs(self, size_t wanted) except -1 nogil:
        """Room for `wanted` pairs; those that count less than keep_from stay behind."""
        cdef size_t slots = 1024, old_slots = self.mask + 1 if self.pairs != NULL else 0, i
        cdef Pair *old = self.pairs
        while slots < wanted * 2 + 2:
            slots *= 2
        self.pairs = <Pair *> checked_block(slots * sizeof(Pair))
        self.mask, self.pairs_size = slots - 1, 0
        for i in range(slots):
            self.pairs[i].key = FREE
        for i in range(old_slots):
            if old[i].key != FREE and old[i].count >= self.keep_from:
                self.find(old[i].key)[0] = old[i]
                self.pairs_size += 1
        free_block(old, old_slots * sizeof(Pair))
        return 0

    cdef void free_pairs(self) noexcept nogil:
        if self.pairs != NULL:
            free_block(self.pairs, (self.mask + 1) * sizeof(Pair))

    cdef int count_pairs(self) except -1:
        """Count every pair in the words as they are; keep those that reach the floor, with postings and in the heap."""
        cdef uint32_t *block
        cdef Pair *pair
        cdef size_t slot, kept = 0, used = 0, total = 0
        self.forget_postings()
        self.free_pairs()
        self.pairs, self.mask, self.pairs_size, self.heap_size = NULL, 0, 0, 0
        self.keep_from = 1
        self.resize_pairs(1 << 12)
        if self.wide:
            tally(self, <uint32_t *> self.words)
        else:
            tally(self, <uint16_t *> self.words)
        self.keep_from = self.floor
        with nogil:
            for slot in range(self.mask + 1):
                pair = &self.pairs[slot]
                if pair.key != FREE:
                    if pair.count >= self.floor and self.allowed(pair.key):
                        kept += 1
                        total += pair.postings_size
                    else:
                        pair.count = 0
            self.resize_pairs(kept)
            block = self.new_block(total)
            for slot in range(self.mask + 1):
                pair = &self.pairs[slot]
                if pair.key != FREE:
                    pair.postings = block + used
                    used += pair.postings_size
                    pair.postings_size = 0
                    self.push(pair.count, pair.key)
        if self.wide:
            post(self, <uint32_t *> self.words)
        else:
            post(self, <uint16_t *> self.words)
        return 0

    cdef inline bint allowed(self, uint64_t key) noexcept nogil:
        return <size_t> self.token_size[key >> 32] + self.token_size[<uint32_t> key] <= self.max_token_bytes

    cdef uint32_t *new_block(self, size_t size) except? NULL nogil:
        if self.blocks_size == self.blocks_room:
            self.blocks = <void **> checked_realloc(self.blocks, (self.blocks_room * 2 + 64) * sizeof(void *))
            self.blocks_room = self.blocks_room * 2 + 64
        self.blocks[self.blocks_size] = checked_malloc(size * sizeof(uint32_t))
        self.blocks_size += 1
        return <uint32_t *> self.blocks[self.blocks_size - 1]

    cdef void forget_postings(self) noexcept nogil:
        cdef size_t i
        for i in range(self.blocks_size):
            free(self.blocks[i])
        self.blocks_size = 0

    # The heap

    cdef inline bint before(self, Entry a, Entry b) noexcept nogil:
        """Whether a is merged before b."""
        cdef int order
        if a.count != b.count:
            return a.count > b.count
        if not self.by_bytes:
            return a.key < b.key
        order = self.compare_tokens(<uint32_t> (a.key >> 32), <uint32_t> (b.key >> 32))
        if order == 0:
            order = self.compare_tokens(<uint32_t> a.key, <uint32_t> b.key)
        return order > 0

    cdef inline int compare_tokens(self, uint32_t a, uint32_t b) noexcept nogil:
        cdef int order
        if a == b:
            return 0
        if self.token_head[a] != self.token_head[b]:
            return 1 if self.token_head[a] > self.token_head[b] else -1
        order = memcmp(self.token[a], self.token[b], min(self.token_size[a], self.token_size[b]))
        if order:
            return order
        return 1 if self.token_size[a] > self.token_size[b] else -1

    cdef int push(self, int64_t count, uint64_t key) except -1 nogil:
        cdef size_t at = self.heap_size, parent
        cdef Entry entry
        if at == self.heap_room:
            self.heap = <Entry *> checked_realloc(self.heap, (self.heap_room * 2 + 1024) * sizeof(Entry))
            self.heap_room = self.heap_room * 2 + 1024
        entry.count, entry.key = count, key
        self.heap_size += 1
        while at:
            parent = (at - 1) // 2
            if not self.before(entry, self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = entry
        return 0

    cdef void sift_down(self, Entry entry) noexcept nogil:
        """Put `entry` in the place of the heap's first."""
        cdef size_t at = 0, child
        while 2 * at + 1 < self.heap_size:
            child = 2 * at + 1
            if child + 1 < self.heap_size and self.before(self.heap[child + 1], self.heap[child]):
                child += 1
            if not self.before(self.heap[child], entry):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = entry

    cdef Pair *best(self) noexcept nogil:
        """The pair to merge next, or NULL where none reaches the floor."""
        cdef Pair *pair
        cdef Entry entry
        while self.heap_size:
            entry = self.heap[0]
            pair = self.find(entry.key)
            if pair.key != FREE and pair.count == entry.count:
                return pair
            if pair.key != FREE and pair.count >= self.floor:
                entry.count = pair.count
                self.sift_down(entry)
            else:  # fallen below the floor
                self.heap_size -= 1
                if self.heap_size:
                    self.sift_down(self.heap[self.heap_size])
        return NULL

    # One step

    cdef int new_symbol(self, bytes token) except -1:
        cdef uint8_t *copy = <uint8_t *> checked_malloc(len(token))
        cdef uint64_t head = 0
        cdef size_t i, room
        memcpy(copy, <const char *> token, len(token))
        if self.symbols == self.symbols_room:
            room = self.symbols_room * 2 + 512
            self.token = <uint8_t **> checked_realloc(self.token, room * sizeof(uint8_t *))
            self.token_size = <uint32_t *> checked_realloc(self.token_size, room * sizeof(uint32_t))
            self.token_head = <uint64_t *> checked_realloc(self.token_head, room * sizeof(uint64_t))
            grow_side(&self.left, self.symbols_room, room)
            grow_side(&self.right, self.symbols_room, room)
            self.symbols_room = room
        for i in range(8):
            head = head << 8 | (token[i] if i < len(token) else 0)
        self.token[self.symbols] = copy
        self.token_size[self.symbols] = len(token)
        self.token_head[self.symbols] = head
        self.symbols += 1
        return 0

    cdef bytes bytes_of(self, uint32_t symbol):
        return (<const char *> self.token[symbol])[: self.token_size[symbol]]

    cdef int merge(self, Pair *pair, uint32_t made) except -1 nogil:
        """Merge a pair in all words into the new symbol `made`."""
        cdef uint64_t key = pair.key
        cdef uint32_t a = <uint32_t> (key >> 32), b = <uint32_t> key, x
        cdef uint32_t *postings = pair.postings
        cdef size_t size = pair.postings_size, i
        if self.wide:
            rewrite_all(self, <uint32_t *> self.words, postings, size, a, b, made)
        else:
            rewrite_all(self, <uint16_t *> self.words, postings, size, a, b, made)
        pair.count = 0
        pair.postings_size = 0
        for i in range(self.left.touched_size):
            x = self.left.touched[i]
            self.lower(<uint64_t> x << 32 | a, self.left.change[x])
        for i in range(self.right.touched_size):
            x = self.right.touched[i]
            self.lower(<uint64_t> b << 32 | x, self.right.change[x])
        self.lower(<uint64_t> b << 32 | a, self.twins)
        self.add_new(made)
        self.forget_changes()
        return 0

    cdef inline void lower(self, uint64_t key, int64_t by) noexcept nogil:
        cdef Pair *pair
        if by:
            pair = self.find(key)
            if pair.key == key and pair.count:
                pair.count -= by

    cdef inline int note(self, Side *side, uint32_t symbol, int64_t count, uint32_t place) except -1 nogil:
        if side.words[symbol] == 0:
            side.touched[side.touched_size] = symbol
            side.touched_size += 1
        side.change[symbol] += count
        side.words[symbol] += 1
        if side.records_size == side.records_room:
            side.records = <Record *> checked_realloc(side.records, (side.records_room * 2 + 1024) * sizeof(Record))
            side.records_room = side.records_room * 2 + 1024
        side.records[side.records_size].neighbour = symbol
        side.records[side.records_size].word = place
        side.records_size += 1
        return 0

    cdef inline int note_twins(self, uint32_t place) except -1 nogil:
        if self.twin_size == self.twin_room:
            self.twin_records = <Record *> checked_realloc(self.twin_records, (self.twin_room * 2 + 64) * sizeof(Record))
            self.twin_room = self.twin_room * 2 + 64
        self.twin_records[self.twin_size].word = place
        self.twin_size += 1
        return 0

    cdef int add_new(self, uint32_t made) except -1 nogil:
        """Enter the pairs of symbol `made` that reach the floor into the table and the heap, with their postings."""
        cdef uint64_t twin = <uint64_t> made << 32 | made
        cdef uint32_t *block
        cdef uint32_t *place
        cdef size_t i
        self.add_side(&self.left, made, True)
        self.add_side(&self.right, made, False)
        if self.twins >= self.floor and self.allowed(twin):
            block = self.new_block(self.twin_size)
            for i in range(self.twin_size):
                block[i] = self.twin_records[i].word
            self.enter(twin, self.twins, block, self.twin_size)
        return 0

    cdef int add_side(self, Side *side, uint32_t made, bint neighbour_is_left) except -1 nogil:
        cdef size_t i, total = 0, used = 0
        cdef uint32_t symbol, words
        cdef uint64_t key
        cdef uint32_t *block
        for i in range(side.touched_size):
            symbol = side.touched[i]
            key = <uint64_t> symbol << 32 | made if neighbour_is_left else <uint64_t> made << 32 | symbol
            if side.change[symbol] >= self.floor and self.allowed(key):
                total += side.words[symbol]
            else:
                side.change[symbol] = 0
        if total == 0:
            return 0
        block = self.new_block(total)
        for i in range(side.touched_size):
            symbol = side.touched[i]
            if side.change[symbol]:
                key = <uint64_t> symbol << 32 | made if neighbour_is_left else <uint64_t> made << 32 | symbol
                self.enter(key, side.change[symbol], block + used, side.words[symbol])
                words = side.words[symbol]
                side.words[symbol] = <uint32_t> used    # from here on: where its next posting goes
                used += words
        for i in range(side.records_size):
            symbol = side.records[i].neighbour
            if side.change[symbol]:
                block[side.words[symbol]] = side.records[i].word
                side.words[symbol] += 1
        return 0

    cdef int enter(self, uint64_t key, int64_t count, uint32_t *postings, size_t size) except -1 nogil:
        cdef Pair *pair = self.find_or_add(key)
        pair.count, pair.postings, pair.postings_size = count, postings, size
        return self.push(count, key)

    cdef void forget_changes(self) noexcept nogil:
        self.twins = 0
        self.twin_size = 0
        forget_side(&self.left)
        forget_side(&self.right)

    def apply(self, uint32_t left, uint32_t right):
        """Merge a pair whatever it counts, as the next of merges() would; how often it occurred.

        Pairs below the floor are not known, and pass for pairs that do not occur: make the floor as low as it takes.
        """
        cdef Pair *pair = self.find(<uint64_t> left << 32 | right)
        cdef int64_t count = pair.count if pair.key != FREE else 0
        PyErr_CheckSignals()
        self.new_symbol(self.bytes_of(left) + self.bytes_of(right))
        if count:
            with nogil:
                self.merge(pair, <uint32_t> (self.symbols - 1))
        return count

    def merges(self):
        """Yield (left, right, count), two symbols and how often the pair occurred, best first, until no pair is left.

        Merge i makes symbol len(tokens) + i; there are `most` at most. Looks for a pending Ctrl-C at every step.
        """
        cdef Pair *pair
        cdef uint32_t left, right
        cdef int64_t count
        while self.symbols < self.most:
            PyErr_CheckSignals()
            with nogil:
                pair = self.best()
            if pair == NULL:
                if self.floor == self.min_count:
                    return
                self.floor = max(self.min_count, self.floor // 4)
                self.count_pairs()
                continue
            left, right, count = <uint32_t> (pair.key >> 32), <uint32_t> pair.key, pair.count
            self.new_symbol(self.bytes_of(left) + self.bytes_of(right))
            with nogil:
                self.merge(pair, <uint32_t> (self.symbols - 1))
            yield left, right, count


# What looks into the words, for both widths of their numbers


cdef inline size_t header(Symbol *words) noexcept nogil:
    if Symbol is uint16_t:
        return NARROW_HEADER
    else:
        return WIDE_HEADER


cdef int load(Merger self, Symbol *words, const uint8_t[::1] records, const uint8_t *of_byte) except -1:
    """The words; pretokens of one symbol are none."""
    cdef size_t at = 0, end = records.shape[0]
    cdef const uint8_t *record
    cdef uint32_t size, j, symbol
    cdef Symbol *word = words
    with nogil:
        while at < end:
            record = &records[at]
            memcpy(&size, record + 8, 4)
            at += RECORD + size
            size = size // 4 if self.spelled else size
            if size > 1:
                word[0] = <Symbol> size
                memcpy(word + 1, record, 8)
                word += header(words)
                for j in range(size):
                    if self.spelled:
                        memcpy(&symbol, record + RECORD + 4 * j, 4)
                        word[j] = <Symbol> symbol
                    else:
                        word[j] = of_byte[record[RECORD + j]]
                word += size
    return 0


cdef inline Symbol *next_word(Merger self, Symbol *words, Symbol *word) noexcept nogil:
    """A word keeps its place when it shrinks; what is left over was marked, so that it can be stepped across."""
    word += header(words) + word[0]
    while word < words + self.words_size and word[0] == <Symbol> NOWHERE:
        word += 1
    return word


cdef int tally(Merger self, Symbol *words) except -1:
    """Into the table: how often each pair occurs, and in how many places."""
    cdef Symbol *word = words
    cdef Symbol *symbols
    cdef Pair *pair
    cdef int64_t count
    cdef size_t i, heed = HEED
    with nogil:
        while word < words + self.words_size:
            memcpy(&count, word + 1, 8)
            symbols = word + header(words)
            for i in range(<size_t> word[0] - 1):
                pair = self.find_or_add(<uint64_t> symbols[i] << 32 | symbols[i + 1])
                pair.count += count
                pair.postings_size += 1
            word = next_word(self, words, word)
            heed -= 1
            if heed == 0:
                heed = HEED
                with gil:
                    PyErr_CheckSignals()
    return 0


cdef int post(Merger self, Symbol *words) except -1:
    """Into the postings of each pair that the table has: the words it occurs in, once for each place."""
    cdef Symbol *word = words
    cdef Symbol *symbols
    cdef Pair *pair
    cdef uint64_t key
    cdef size_t i, heed = HEED
    with nogil:
        while word < words + self.words_size:
            symbols = word + header(words)
            for i in range(<size_t> word[0] - 1):
                key = <uint64_t> symbols[i] << 32 | symbols[i + 1]
                pair = self.find(key)
                if pair.key == key:
                    pair.postings[pair.postings_size] = <uint32_t> (word - words)
                    pair.postings_size += 1
            word = next_word(self, words, word)
            heed -= 1
            if heed == 0:
                heed = HEED
                with gil:
                    PyErr_CheckSignals()
    return 0


cdef int rewrite_all(
    Merger self, Symbol *words, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made
) except -1 nogil:
    cdef size_t i
    for i in range(size):
        if i + AHEAD < size:
            prefetch(words + postings[i + AHEAD])
            prefetch(words + postings[i + AHEAD] + header(words) + 8)   # it may lie across two cache lines
        rewrite(self, words, postings[i], a, b, made)
    return 0


cdef inline size_t find_pair(const Symbol *symbols, size_t size, uint32_t a, uint32_t b) noexcept nogil:
    """The first place where b follows a; `size` if there is none."""
    if Symbol is uint16_t:
        return find_narrow(symbols, size, a, b)
    else:
        return find_wide(symbols, size, a, b)


cdef inline int rewrite(Merger self, Symbol *words, uint32_t place, uint32_t a, uint32_t b, uint32_t made) except -1 nogil:
    """Replace a, b by `made` in the word at `place`, left to right, and note what stands beside it."""
    cdef Symbol *word = words + place
    cdef Symbol *symbols = word + header(words)
    cdef size_t size = word[0], i = find_pair(symbols, size, a, b), out = i, next_place
    cdef int64_t count
    cdef bint joined = False    # whether symbols[out - 1] is a `made` just made
    if i == size:
        return 0
    memcpy(&count, word + 1, 8)
    while i < size:
        if joined:
            self.twins += count
            self.note_twins(place)
        elif out:
            self.note(&self.left, symbols[out - 1], count, place)
        symbols[out] = <Symbol> made
        out += 1
        i += 2
        next_place = i + find_pair(symbols + i, size - i, a, b)
        joined = next_place == i
        if i < next_place:
            self.note(&self.right, symbols[i], count, place)
            while i < next_place:
                symbols[out] = symbols[i]
                out += 1
                i += 1
    word[0] = <Symbol> out
    for i in range(out, size):
        symbols[i] = <Symbol> NOWHERE
    return 0


cdef void forget_side(Side *side) noexcept nogil:
    cdef size_t i
    for i in range(side.touched_size):
        side.change[side.touched[i]] = 0
        side.words[side.touched[i]] = 0
    side.touched_size = side.records_size = 0


cdef int grow_side(Side *side, size_t old, size_t room) except -1:
    side.change = <int64_t *> checked_realloc(side.change, room * sizeof(int64_t))
    side.words = <uint32_t *> checked_realloc(side.words, room * sizeof(uint32_t))
    side.touched = <uint32_t *> checked_realloc(side.touched, room * sizeof(uint32_t))
    memset(side.change + old, 0, (room - old) * sizeof(int64_t))
    memset(side.words + old, 0, (room - old) * sizeof(uint32_t))
    return 0


cdef void free_side(Side *side) noexcept:
    free(side.change)
    free(side.words)
    free(side.touched)
    free(side.records)
