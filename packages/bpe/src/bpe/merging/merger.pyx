"""Merging: counted pretokens to the list of merges, by pair counts and a lazily versioned heap.

The words (distinct pretokens) lie in one array of numbers: length, count, symbols. The numbers have 16 bits where that will do
for all symbols there will be, or 32: what is in fewer cache lines is merged faster. For each pair of adjacent symbols worth
knowing there is its count and its postings, the words it occurs in; a table of numbers finds it. Each step takes the best
pair, rewrites the words in its postings, drops these, and brings the counts of the neighbouring pairs up to date. Words of
hundreds of symbols are held in another way, which takes time in proportion to their length: see long_words.pxi.

What keeps this fast is what it does not touch:

* A pair's count only falls after the step that made it, so a pair waits where its count put it, in a bucket of pairs that count
  about as much, and nothing is done about it until that bucket's turn comes. Then it goes into a heap or, if it has fallen
  since (that is the version check), into a lower bucket.
* A pair whose count is below the `floor` can be left out altogether, postings and all, as long as better pairs are left. The
  floor starts near the count that the last merge will probably have; when pairs run out before enough merges are made, it is
  lowered and everything is counted again from the words as they are now. That is exact for any floor, and keeps what is looked
  at small enough to stay in the cache.
* The changes that one merge makes are summed by neighbouring symbol first, and reach the table once for each neighbour.
* Postings are visited in order, so the words to come are known and prefetched; so is what the next merge needs, the pair at
  the heap's top but one, its postings and the first of their words, while this one is made.

Two merges never give the same bytes, so every merge makes a new symbol. Take a stretch of a word that lies between two
borders of symbols: what happens inside it until one of the borders falls does not depend on what is outside, because every
merge is applied everywhere at once. Two such stretches of the same bytes are therefore cut the same way at all times, and
the step that joins the last two symbols of one joins those of all the others.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from bpe.native.bytes cimport count_leading_zeros, count_trailing_zeros, hash_pair, prefetch
from bpe.native.cpu cimport level_of
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, checked_malloc, checked_realloc, free_block, trim_heap

cdef extern from "merging/find.h" nogil:
    enum:
        FIND_SLACK
    size_t find_narrow(const uint16_t *symbols, size_t size, uint32_t a, uint32_t b)
    size_t find_wide(const uint32_t *symbols, size_t size, uint32_t a, uint32_t b)

cdef extern from "merging/rewrite.h" nogil:
    enum:
        REWRITE_MOST
        REWRITE_BATCH
        REWRITE_HEADER
    ctypedef struct rewritten:
        uint32_t found, size
        uint16_t *before
    ctypedef struct rewritten_batch:
        rewritten *of
    ctypedef void (*rewrite_function)(uint16_t *, const uint32_t *, size_t, uint32_t, uint32_t, uint32_t, rewritten_batch *) noexcept
    rewrite_function choose_rewrite(int level)

cdef enum:
    NARROW_HEADER = REWRITE_HEADER  # numbers before a word's symbols: its length, and its count in eight bytes; five
    WIDE_HEADER = 3
    AHEAD = 16                  # postings prefetched before they are visited
    LONG_AHEAD = 64             # the same of long words: 0.50 s instead of 0.69 for 10 MB of English as one word, 32,000 tokens
    NEAR = 1 << 24              # numbers of all words up to which vectors pay: beyond, they wait for memory, and for more of it
    FORESEEN = 4                # of them prefetched while the pair before is merged
    RECORD = 12                 # bytes before a pretoken in its record (see _records)
    HEED = 1 << 16              # words between two looks for a pending Ctrl-C
    WORK = 1 << 20              # words and neighbours visited by advance() in one go, about
    BYTE_PAIRS = 1 << 16
    LONG_WORD = 512             # symbols; the same speed from 256 to 2,048
    ALONE = 1 << 10             # postings from which on they are freed as soon as they are used
    BLOCK = 1 << 14             # postings of many pairs
    STEPS = 32                  # buckets to a doubling of the count
    BUCKETS = 60 * STEPS

cdef uint32_t NO_PAIR = <uint32_t> -1
cdef uint32_t NOWHERE = <uint32_t> -1   # marks a number that belongs to no word; cut to 16 bits where they have 16

ctypedef fused Symbol:
    uint16_t
    uint32_t

ctypedef struct Pair:
    uint64_t key                # left << 32 | right
    int64_t count               # 0 when it is merged or left behind
    uint32_t *postings          # places of words in Merger.words; may name a word twice, or one that no longer has the pair
    uint32_t postings_size      # from ALONE on they are a block of their own
    uint32_t next               # the number of another pair in the same bucket, or NO_PAIR

ctypedef struct Entry:          # of the heap
    int64_t count
    uint64_t head               # what decides among equal counts, or its begin: the greatest comes first
    uint64_t key
    uint32_t pair

ctypedef union Places:
    size_t number               # in which a pair occurs, as long as they are counted
    uint32_t *postings          # then: where its next posting goes; NULL: it is left aside

ctypedef struct BytePair:       # of the first symbols, while they are all there is
    int64_t count
    Places places

ctypedef struct Made:           # a merge: it made symbol `first` + its place in the list
    uint32_t left, right
    int64_t count

ctypedef struct LongWord:
    size_t begin                # its first cell
    int64_t count

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
    there are others; it changes time and memory only. level: the SIMD level, by default that of the process. long_word: words
    of more symbols are held as long ones (see long_words.pxi); it changes time and memory only.
    """

    cdef void *words            # of uint16_t or uint32_t
    cdef size_t words_size      # in these
    cdef bint wide
    cdef size_t long_word       # symbols of the longest short word
    cdef uint32_t *cells        # of the long words: see long_words.pxi
    cdef size_t cells_size
    cdef LongWord *long_words
    cdef size_t long_size
    cdef bint spelled
    cdef size_t most            # symbols there will be
    cdef Pair *pairs
    cdef size_t pairs_size, pairs_room
    cdef uint32_t *slots        # numbers of pairs, by hash; NO_PAIR where there is none
    cdef size_t mask
    cdef uint32_t bucket[BUCKETS]   # the first pair of each, or NO_PAIR
    cdef size_t level           # the bucket whose pairs are in the heap
    cdef Entry *heap
    cdef size_t heap_size, heap_room
    cdef void **blocks          # of shorter postings, to be freed when all are counted again
    cdef size_t blocks_size, blocks_room
    cdef uint32_t *block        # what is left of the last of BLOCK postings
    cdef size_t block_room
    cdef Side left, right
    cdef int64_t twins          # change of (new, new)
    cdef Record *twin_records
    cdef size_t twin_size, twin_room
    cdef uint8_t *text          # the bytes of all symbols, one after another
    cdef size_t text_size, text_room
    cdef size_t *token          # where in it those of each symbol begin
    cdef uint32_t *token_size
    cdef uint64_t *token_head   # its first eight bytes as a big-endian number
    cdef size_t symbols, symbols_room
    cdef size_t first           # symbols there were to start from
    cdef Made *made
    cdef size_t work            # done by advance() so far
    cdef readonly size_t visited    # symbols looked at while merging, in all
    cdef size_t max_token_bytes
    cdef bint by_bytes
    cdef int64_t min_count, floor
    cdef rewrite_function rewrite_short     # NULL: this processor has none

    def __cinit__(
        self, const uint8_t[::1] records not None, *, list tokens not None, bint spelled=False, bint by_bytes, size_t most,
        int64_t min_count, size_t max_token_bytes, int64_t floor, level=None, size_t long_word=LONG_WORD,
    ):
        cdef uint8_t of_byte[256]
        if not spelled and sorted(tokens) != [bytes([byte]) for byte in range(256)]:
            raise ValueError("the tokens must be the 256 bytes, each once")
        self.rewrite_short = choose_rewrite(level_of(level))
        self.long_word = long_word
        self.by_bytes = by_bytes
        self.spelled = spelled
        self.first = len(tokens)
        self.most = self.first + most
        self.made = <Made *> checked_malloc(most * sizeof(Made))
        self.max_token_bytes = max_token_bytes or <size_t> -1
        self.min_count = max(<int64_t> 1, min_count)
        self.floor = max(floor, self.min_count)
        for symbol, token in enumerate(tokens):
            if not spelled:
                of_byte[<uint8_t> token[0]] = symbol
            memcpy(self.next_symbol(len(token)), <const char *> token, len(token))
            self.add_symbol(len(token))
        self.make_room(records)
        if self.words_size > NEAR:
            self.rewrite_short = NULL
        if self.wide:
            load(self, <uint32_t *> self.words, records, of_byte)
        else:
            load(self, <uint16_t *> self.words, records, of_byte)
        if self.long_size:
            load_long(self, records, of_byte)
        self.count_pairs()

    def __dealloc__(self):
        self.forget_pairs()
        free_side(&self.left)
        free_side(&self.right)
        free(self.blocks)
        free_block(self.words, (self.words_size + FIND_SLACK) * self.width())
        free_block(self.cells, self.cells_size * sizeof(uint32_t))
        free(self.long_words)
        free(self.heap)
        free(self.twin_records)
        free(self.made)
        free(self.text)
        free(self.token)
        free(self.token_size)
        free(self.token_head)
        trim_heap()

    # The words

    cdef inline size_t width(self) noexcept nogil:
        return sizeof(uint32_t) if self.wide else sizeof(uint16_t)

    cdef int make_room(self, const uint8_t[::1] records) except -1:
        cdef size_t at = 0, end = records.shape[0], words = 0, total = 0, cells = 1, i
        cdef uint32_t size, symbol
        with nogil:
            while at < end:
                memcpy(&size, &records[at + 8], 4)
                at += RECORD + size
                if not self.spelled and size > self.long_word:
                    self.long_size += 1
                    cells += size + 1
                elif self.spelled and size // 4 > self.long_word:
                    self.long_size += 1
                    for i in range(size // 4):
                        memcpy(&symbol, &records[at - size + 4 * i], 4)
                        cells += self.token_size[symbol]
                    cells += 1
                else:
                    size = size // 4 if self.spelled else size
                    if size > 1:
                        words += 1
                        total += size
        self.wide = self.most > <size_t> 1 << 16
        total += words * (WIDE_HEADER if self.wide else NARROW_HEADER)
        if total + cells >= NOWHERE:
            raise MemoryError(
                f"the distinct pretokens come to {total + cells:,} symbols, more than the {NOWHERE:,} that can be merged; "
                "choose a pattern that splits the text into shorter pieces"
            )
        self.words = checked_block((total + FIND_SLACK) * self.width())
        self.words_size = total
        if self.long_size:
            self.cells = <uint32_t *> checked_block(cells * sizeof(uint32_t))
            self.cells_size = cells
            self.long_words = <LongWord *> checked_malloc(self.long_size * sizeof(LongWord))
        return 0

    # The table of pairs

    cdef Pair *find(self, uint64_t key) noexcept nogil:
        """The pair, or NULL."""
        cdef size_t at = hash_pair(key, 0, hash_seed) & self.mask
        while self.slots[at] != NO_PAIR:
            if self.pairs[self.slots[at]].key == key:
                return &self.pairs[self.slots[at]]
            at = (at + 1) & self.mask
        return NULL

    cdef Pair *add(self, uint64_t key) except NULL nogil:
        """A pair that is not there yet; moves the others."""
        cdef Pair *pair
        cdef size_t room
        if self.pairs_size == self.pairs_room:
            if self.pairs_size == NO_PAIR:
                with gil:
                    raise MemoryError(f"there are more than {NO_PAIR:,} pairs of symbols; choose a larger min_count or less text")
            room = min(self.pairs_room + self.pairs_room // 2 + 1024, <size_t> NO_PAIR)
            self.pairs = <Pair *> checked_realloc(self.pairs, room * sizeof(Pair))
            self.pairs_room = room
        if (self.pairs_size + 1) * 8 > (self.mask + 1) * 5:
            self.make_slots(self.pairs_size * 2)
        pair = &self.pairs[self.pairs_size]
        memset(pair, 0, sizeof(Pair))
        pair.key = key
        self.link(<uint32_t> self.pairs_size)
        self.pairs_size += 1
        return pair

    cdef inline void link(self, uint32_t number) noexcept nogil:
        cdef size_t at = hash_pair(self.pairs[number].key, 0, hash_seed) & self.mask
        while self.slots[at] != NO_PAIR:
            at = (at + 1) & self.mask
        self.slots[at] = number

    cdef int make_slots(self, size_t wanted) except -1 nogil:
        """Slots for `wanted` pairs, and those that there are in them."""
        cdef size_t slots = 1024, i
        while slots * 5 < wanted * 8 + 8:
            slots *= 2
        free(self.slots)
        self.slots = NULL
        self.slots = <uint32_t *> checked_malloc(slots * sizeof(uint32_t))
        self.mask = slots - 1
        memset(self.slots, 0xFF, slots * sizeof(uint32_t))
        for i in range(self.pairs_size):
            self.link(<uint32_t> i)
        return 0

    cdef void drop_postings(self, Pair *pair) noexcept nogil:
        if pair.postings_size >= ALONE:
            free(pair.postings)
        pair.postings, pair.postings_size = NULL, 0

    cdef void forget_pairs(self) noexcept nogil:
        cdef size_t i
        for i in range(self.pairs_size):
            self.drop_postings(&self.pairs[i])
        for i in range(self.blocks_size):
            free(self.blocks[i])
        free(self.pairs)
        free(self.slots)
        self.pairs, self.slots, self.block = NULL, NULL, NULL
        self.pairs_size = self.pairs_room = self.blocks_size = self.block_room = self.heap_size = 0

    cdef int count_pairs(self) except -1:
        """Count every pair in the words as they are; keep those that reach the floor, with postings and in the buckets."""
        cdef size_t i
        self.forget_pairs()
        for i in range(BUCKETS):
            self.bucket[i] = NO_PAIR
        self.level = BUCKETS
        self.make_slots(0)
        if self.symbols == 256 and not self.spelled:
            self.count_byte_pairs()
        else:
            self.count_all_pairs()
        return 0

    cdef int count_byte_pairs(self) except -1:
        """The same while the symbols are the 256 bytes: counted without a search."""
        cdef BytePair *found = <BytePair *> checked_block(BYTE_PAIRS * sizeof(BytePair))    # a page for each left byte
        cdef BytePair *here
        cdef uint8_t begun[256]         # whether a pair begins with a byte: the pages of others are not looked at
        cdef Pair *pair
        cdef uint64_t key
        cdef size_t i
        memset(begun, 0, sizeof(begun))
        try:
            if self.wide:
                tally_bytes(self, <uint32_t *> self.words, found, begun)
            else:
                tally_bytes(self, <uint16_t *> self.words, found, begun)
            with nogil:
                tally_long_bytes(self, found, begun)
                for i in range(BYTE_PAIRS):
                    if not begun[i >> 8]:
                        continue
                    here = &found[i]
                    key = <uint64_t> i >> 8 << 32 | i & 255
                    if here.count >= self.floor and self.allowed(key):
                        pair = self.add(key)
                        pair.count, pair.postings_size = here.count, <uint32_t> here.places.number
                    here.places.postings = NULL
                self.place_postings()
                for i in range(self.pairs_size):
                    pair = &self.pairs[i]
                    found[(pair.key >> 32) << 8 | <uint32_t> pair.key].places.postings = pair.postings
            if self.wide:
                post_bytes(self, <uint32_t *> self.words, found)
            else:
                post_bytes(self, <uint16_t *> self.words, found)
            with nogil:
                post_long_bytes(self, found)
        finally:
            free_block(found, BYTE_PAIRS * sizeof(BytePair))
        return 0

    cdef int count_all_pairs(self) except -1:
        cdef size_t slots = 1 << 12, kept = 0, i
        cdef int64_t *sieve = NULL      # by hash: the sum of the counts of the pairs that have it
        cdef uint32_t *filled           # by pair: how many postings it has so far
        cdef Pair *pair
        while slots < (self.words_size + self.cells_size) // 8 and slots < 1 << 22:
            slots *= 2
        if self.floor > 1:
            sieve = <int64_t *> checked_block(slots * sizeof(int64_t))
        try:
            if self.wide:
                tally(self, <uint32_t *> self.words, sieve, slots - 1)
            else:
                tally(self, <uint16_t *> self.words, sieve, slots - 1)
        finally:
            free_block(sieve, slots * sizeof(int64_t))
        with nogil:
            for i in range(self.pairs_size):
                pair = &self.pairs[i]
                if pair.count >= self.floor and self.allowed(pair.key):
                    self.pairs[kept] = pair[0]
                    kept += 1
            self.pairs_size = kept
            self.make_slots(kept)
            self.place_postings()
        filled = <uint32_t *> checked_block(kept * sizeof(uint32_t))
        try:
            if self.wide:
                post(self, <uint32_t *> self.words, filled)
            else:
                post(self, <uint16_t *> self.words, filled)
            with nogil:
                post_long(self, filled)
        finally:
            free_block(filled, kept * sizeof(uint32_t))
        return 0

    cdef int place_postings(self) except -1 nogil:
        """Room for the postings of all pairs, which say how many they have, and the pairs into the buckets."""
        cdef size_t total = 0, i
        cdef uint32_t *block
        cdef Pair *pair
        for i in range(self.pairs_size):
            self.pairs[i].postings = NULL
            if self.pairs[i].postings_size < ALONE:
                total += self.pairs[i].postings_size
        block = self.new_postings(total)
        for i in range(self.pairs_size):
            pair = &self.pairs[i]
            if pair.postings_size < ALONE:
                pair.postings = block
                block += pair.postings_size
            else:
                pair.postings = <uint32_t *> checked_malloc(pair.postings_size * sizeof(uint32_t))
            offer(self, <uint32_t> i)
        return 0

    cdef inline bint allowed(self, uint64_t key) noexcept nogil:
        return <size_t> self.token_size[key >> 32] + self.token_size[<uint32_t> key] <= self.max_token_bytes

    cdef uint32_t *new_postings(self, size_t size) except NULL nogil:
        """Room for so many, which stays until all are counted again."""
        cdef uint32_t *postings
        if size > BLOCK // 8:
            return self.new_block(size)
        if size > self.block_room or self.block == NULL:
            self.block = self.new_block(BLOCK)
            self.block_room = BLOCK
        postings = self.block
        self.block += size
        self.block_room -= size
        return postings

    cdef uint32_t *new_block(self, size_t size) except NULL nogil:
        if self.blocks_size == self.blocks_room:
            self.blocks = <void **> checked_realloc(self.blocks, (self.blocks_room * 2 + 64) * sizeof(void *))
            self.blocks_room = self.blocks_room * 2 + 64
        self.blocks[self.blocks_size] = checked_malloc(size * sizeof(uint32_t))
        self.blocks_size += 1
        return <uint32_t *> self.blocks[self.blocks_size - 1]

    # One step

    cdef uint8_t *next_symbol(self, size_t size) except NULL nogil:
        """Where the bytes of the next symbol go."""
        cdef size_t room
        if self.text_size + size > self.text_room:
            room = (self.text_size + size) * 2
            self.text = <uint8_t *> checked_realloc(self.text, room)
            self.text_room = room
        if self.symbols == self.symbols_room:
            room = min(self.most, self.symbols * 2 + 512)
            self.token = <size_t *> checked_realloc(self.token, room * sizeof(size_t))
            self.token_size = <uint32_t *> checked_realloc(self.token_size, room * sizeof(uint32_t))
            self.token_head = <uint64_t *> checked_realloc(self.token_head, room * sizeof(uint64_t))
            grow_side(&self.left, self.symbols_room, room)
            grow_side(&self.right, self.symbols_room, room)
            self.symbols_room = room
        return self.text + self.text_size

    cdef void add_symbol(self, size_t size) noexcept nogil:
        """The next symbol, whose bytes have been put where next_symbol() says."""
        cdef const uint8_t *token = self.text + self.text_size
        cdef uint64_t head = 0
        cdef size_t i
        for i in range(8):
            head = head << 8 | (token[i] if i < size else 0)
        self.token[self.symbols] = self.text_size
        self.token_size[self.symbols] = <uint32_t> size
        self.token_head[self.symbols] = head
        self.text_size += size
        self.symbols += 1

    cdef int join(self, uint32_t left, uint32_t right, int64_t count) except -1 nogil:
        """A new symbol of two."""
        cdef size_t size = self.token_size[left], both = size + self.token_size[right]
        cdef uint8_t *token = self.next_symbol(both)
        cdef Made *made = &self.made[self.symbols - self.first]
        memcpy(token, self.text + self.token[left], size)
        memcpy(token + size, self.text + self.token[right], both - size)
        made.left, made.right, made.count = left, right, count
        self.add_symbol(both)
        return 0

    cdef int merge(self, uint32_t number) except -1 nogil:
        """Merge a pair in all words into the last symbol."""
        cdef uint32_t made = <uint32_t> (self.symbols - 1), x
        cdef Pair *pair = &self.pairs[number]
        cdef uint32_t a = <uint32_t> (pair.key >> 32), b = <uint32_t> pair.key
        cdef size_t size = pair.postings_size, short = first_long(self, pair.postings, pair.postings_size), i
        self.work += size + 1
        self.visited += size
        foresee_pairs(self)
        if self.wide:
            rewrite_all(self, <uint32_t *> self.words, pair.postings, short, a, b, made)
        else:
            rewrite_all(self, <uint16_t *> self.words, pair.postings, short, a, b, made)
        rewrite_long(self, pair.postings + short, size - short, a, b, made)
        pair.count = 0
        self.drop_postings(pair)
        foresee_postings(self)
        for i in range(self.left.touched_size):
            self.foresee(<uint64_t> self.left.touched[i] << 32 | a)
        for i in range(self.right.touched_size):
            self.foresee(<uint64_t> b << 32 | self.right.touched[i])
        for i in range(self.left.touched_size):
            x = self.left.touched[i]
            self.lower(<uint64_t> x << 32 | a, self.left.change[x])
        for i in range(self.right.touched_size):
            x = self.right.touched[i]
            self.lower(<uint64_t> b << 32 | x, self.right.change[x])
        self.lower(<uint64_t> b << 32 | a, self.twins)
        foresee_words(self)
        self.add_new(made)
        self.work += self.left.touched_size + self.right.touched_size
        self.forget_changes()
        return 0

    cdef inline void foresee(self, uint64_t key) noexcept nogil:
        """Have the slot of a pair fetched, which will be asked for soon."""
        prefetch(&self.slots[hash_pair(key, 0, hash_seed) & self.mask])

    cdef inline void lower(self, uint64_t key, int64_t by) noexcept nogil:
        cdef Pair *pair
        if by:
            pair = self.find(key)
            if pair != NULL and pair.count:
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
        """The pairs of symbol `made` that reach the floor, with their postings."""
        cdef uint64_t twin = <uint64_t> made << 32 | made
        cdef uint32_t *postings
        cdef Pair *pair
        cdef size_t i
        self.add_side(&self.left, made, True)
        self.add_side(&self.right, made, False)
        if self.twins >= self.floor and self.allowed(twin):
            postings = NULL if self.twin_size >= ALONE else self.new_postings(self.twin_size)
            pair = &self.pairs[self.enter(twin, self.twins, postings, self.twin_size)]
            for i in range(self.twin_size):
                pair.postings[i] = self.twin_records[i].word
            pair.postings_size = <uint32_t> self.twin_size
        return 0

    cdef int add_side(self, Side *side, uint32_t made, bint neighbour_is_left) except -1 nogil:
        cdef size_t i, total = 0, size
        cdef uint32_t symbol
        cdef uint64_t key
        cdef uint32_t *block = NULL
        cdef Pair *pair
        for i in range(side.touched_size):
            symbol = side.touched[i]
            key = <uint64_t> symbol << 32 | made if neighbour_is_left else <uint64_t> made << 32 | symbol
            if side.change[symbol] < self.floor or not self.allowed(key):
                side.change[symbol] = 0
            else:
                self.foresee(key)
                if side.words[symbol] < ALONE:
                    total += side.words[symbol]
        if total:
            block = self.new_postings(total)
        for i in range(side.touched_size):
            symbol = side.touched[i]
            if side.change[symbol]:
                key = <uint64_t> symbol << 32 | made if neighbour_is_left else <uint64_t> made << 32 | symbol
                size = side.words[symbol]
                side.words[symbol] = <uint32_t> self.enter(key, side.change[symbol], block, size)   # from here on: the number of its pair
                if size < ALONE:
                    block += size
        for i in range(side.records_size):
            symbol = side.records[i].neighbour
            if side.change[symbol]:
                pair = &self.pairs[side.words[symbol]]
                pair.postings[pair.postings_size] = side.records[i].word
                pair.postings_size += 1
        return 0

    cdef int64_t enter(self, uint64_t key, int64_t count, uint32_t *postings, size_t size) except -1 nogil:
        """A new pair, with room for its postings where `postings` says or, from ALONE on, of its own; its number."""
        cdef Pair *pair = self.add(key)
        cdef uint32_t number = <uint32_t> (self.pairs_size - 1)
        pair.count = count
        pair.postings = <uint32_t *> checked_malloc(size * sizeof(uint32_t)) if size >= ALONE else postings
        offer(self, number)
        return number

    cdef void forget_changes(self) noexcept nogil:
        self.twins = 0
        self.twin_size = 0
        forget_side(&self.left)
        forget_side(&self.right)

    def apply(self, uint32_t left, uint32_t right):
        """Merge a pair whatever it counts, as the next that advance() would; how often it occurred.

        Pairs below the floor are not known, and pass for pairs that do not occur: make the floor as low as it takes.
        """
        cdef Pair *pair = self.find(<uint64_t> left << 32 | right)
        cdef int64_t count = 0 if pair == NULL else pair.count
        PyErr_CheckSignals()
        if self.symbols == self.most or left >= self.symbols or right >= self.symbols:
            raise ValueError(f"{left} and {right} cannot be merged: there are {self.symbols} symbols of at most {self.most}")
        with nogil:
            self.join(left, right, count)
            if count:
                self.merge(<uint32_t> (pair - self.pairs))
        return count

    def advance(self, size_t merges):
        """Merge the best pairs, so many or, where that takes long, fewer; how many there are now. No more than before: no pair is left.

        Looks for a pending Ctrl-C.
        """
        cdef size_t stop = min(self.most, self.symbols + merges), begin = self.symbols
        cdef int64_t number = -1
        self.work = 0
        while self.symbols < stop and (self.work < WORK or self.symbols == begin):
            PyErr_CheckSignals()
            with nogil:
                while self.symbols < stop and self.work < WORK:
                    number = best(self)
                    if number < 0:
                        break
                    self.join(<uint32_t> (self.pairs[number].key >> 32), <uint32_t> self.pairs[number].key, self.pairs[number].count)
                    self.merge(<uint32_t> number)
            if number < 0:
                if self.floor == self.min_count:
                    break
                self.floor = max(self.min_count, self.floor // 4)
                self.count_pairs()
        return self.symbols - self.first

    def made_from(self, size_t begin):
        """The merges from number `begin` on: a list of (left, right, count), two symbols and how often the pair occurred.

        Merge i made symbol len(tokens) + i.
        """
        cdef size_t i
        return [(self.made[i].left, self.made[i].right, self.made[i].count) for i in range(begin, self.symbols - self.first)]

    def result(self):
        """(the bytes of each symbol, those of the start first; the symbols left and right of each merge, two uint32)."""
        cdef size_t i, merges = self.symbols - self.first
        cdef bytearray halves = PyByteArray_FromStringAndSize(NULL, merges * 2 * sizeof(uint32_t))
        cdef uint32_t *out = <uint32_t *> PyByteArray_AS_STRING(halves)
        for i in range(merges):
            out[2 * i], out[2 * i + 1] = self.made[i].left, self.made[i].right
        return [(<const char *> self.text + self.token[i])[: self.token_size[i]] for i in range(self.symbols)], halves


cdef void forget_side(Side *side) noexcept nogil:
    cdef size_t i
    for i in range(side.touched_size):
        side.change[side.touched[i]] = 0
        side.words[side.touched[i]] = 0
    side.touched_size = side.records_size = 0


cdef int grow_side(Side *side, size_t old, size_t room) except -1 nogil:
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


include "queue.pxi"
include "words.pxi"
include "long_words.pxi"
