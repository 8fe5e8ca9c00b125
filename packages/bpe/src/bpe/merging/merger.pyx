"""Merging: counted pretokens to the list of merges.

The commonest pair of adjacent symbols becomes a new symbol, again and again. Five structures do it, each in a file of
its own:

    SymbolTable  symbols.pxi     the bytes that each symbol stands for
    Words        words.pxi       the distinct pretokens as symbols, with their counts
    PairTable    pairs.pxi       the pairs by hash, each with its count and its postings, where it occurs
    PairQueue    queue.pxi       which pair is the best
    Changes      replace.pxi     what replacing a pair in its words changes around it

A step takes the best pair out of the queue, replaces it in the words of its postings, lowers the counts of the pairs
that it broke, and adds the pairs that the new symbol makes. It is fast for what it does not touch:

* A pair's count only falls after the step that made it. So a pair waits in the queue where its first count put it, and
  is looked at again when its turn comes.
* A pair below the `floor` is left out altogether, postings and all, as long as there are better ones. The floor begins
  near the count that the last merge will probably have; when pairs run out before enough merges are made, it is lowered
  and all pairs are counted again from the words as they are (few_symbols.pxi, recount.pxi). That is exact for any
  floor, and the pairs that are looked at stay few enough for the cache.
* Before all pairs are counted again, the words are closed up: the cells that merges left free are given back.
* The changes of one merge are summed by neighbouring symbol, and reach the table once for each neighbour.
* Stale postings are filtered without a branch, which would be mispredicted.
* Cells of words have 16 bits where that will do for every symbol: what takes fewer cache lines is merged faster.
* Postings are in order, so that the next words are known and prefetched.

Two merges never give the same bytes, so every merge makes a new symbol. Take a stretch of a word that lies between two
borders of symbols: its merges, until one of the borders falls, do not depend on the text outside, because
every merge is applied everywhere at once. Two such stretches of the same bytes are therefore cut the same way at all
times, and the step that joins the last two symbols of one joins those of all the others.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy, memset

from bpe.counting.records cimport HEADER, count_of, size_of
from bpe.counting.records import total_size
from bpe.native.bytes cimport count_leading_zeros, hash_pair, prefetch, prefetch_far
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, checked_malloc, checked_realloc, free_block, trim_block, trim_heap

include "symbols.pxi"
include "superwords.pxi"
include "words.pxi"
include "pairs.pxi"
include "queue.pxi"
include "replace.pxi"
include "few_symbols.pxi"
include "recount.pxi"

cdef enum:
    WORK = 1 << 20              # words and neighbours that advance() visits in one go, about
    BYTES_A_CELL = 12           # that counting all pairs takes where memory is not bounded: a list, and postings


ctypedef struct Merge:          # of the pair that made symbol `first` + its index in the list
    uint32_t left, right


cdef inline int64_t lower(int64_t floor) noexcept nogil:
    """The next floor when pairs run out. Steps are smaller where counts are small, for there more pairs share one."""
    return floor // 4 if floor > 16 else floor // 2 if floor > 4 else floor - 1


cdef class Merger:
    """Merges over counted pretokens, given as records (see bpe.counting.records).

    Args:
        records, tokens, spelled, consume: As learn() takes them.
        by_bytes: Ties go to the greatest (left bytes, right bytes), or to the smallest (left symbol, right symbol).
        most: How many merges there will be at most.
        min_count, max_token_bytes, max_words: See bpe.merging.learn.Rule.
        floor: Pairs that count less are left out as long as there are others. It changes time and memory only.
        memory_limit: Bytes of words and postings together, a quarter at least of postings; 0 for no limit.
    """

    cdef SymbolTable symbols
    cdef Words words
    cdef PairTable table
    cdef PairQueue queue
    cdef Changes changes
    cdef Merge *merges
    cdef size_t first           # symbols there were to start from
    cdef int64_t min_count
    cdef int64_t weight         # about the sum of the counts of all pairs
    cdef size_t work            # done by advance() so far
    cdef size_t memory_limit
    cdef uint8_t[::1] consumed  # the records, where their memory is used again

    def __cinit__(
        self, const uint8_t[::1] records not None, *, list tokens not None, bint spelled=False, bint by_bytes,
        size_t most, int64_t min_count, size_t max_token_bytes, int64_t floor, bint consume=False,
        size_t max_words=0, size_t memory_limit=0,
    ):
        cdef uint8_t symbol_of[256]
        if not spelled and sorted(tokens) != [bytes([byte]) for byte in range(256)]:
            raise ValueError("the tokens must be the 256 bytes, each once")
        self.first = len(tokens)
        self.symbols.most = self.first + most
        self.merges = <Merge *> checked_malloc(most * sizeof(Merge))
        self.min_count = max(<int64_t> 1, min_count)
        self.weight = total_size(records) // (sizeof(uint32_t) if spelled else 1)
        self.table.floor = max(floor, self.min_count)
        self.table.longest, self.table.most_words = max_token_bytes or <size_t> -1, max_words
        self.queue.table, self.queue.symbols, self.queue.by_bytes = &self.table, &self.symbols, by_bytes
        for symbol, token in enumerate(tokens):
            if not spelled:
                symbol_of[<uint8_t> token[0]] = symbol
            memcpy(reserve_symbol(&self.symbols, len(token)), <const char *> token, len(token))
            add_symbol(&self.symbols, len(token))
        load_words(&self.words, records, NULL if spelled else symbol_of, self.symbols.most)
        if consume:
            self.use_for_postings(records.base)
        elif hasattr(records.base, "madvise"):  # a map of a file, whose pages come back if they are read again
            import mmap

            records.base.madvise(mmap.MADV_DONTNEED)
        self.memory_limit = memory_limit
        self.count_pairs()

    cdef int use_for_postings(self, records) except -1:
        """Let postings go where the records are, which have been read."""
        self.consumed = records
        cdef size_t size = self.consumed.shape[0], before
        if size >= 2 * sizeof(uint32_t):
            before = -<size_t> &self.consumed[0] % sizeof(uint32_t)     # bytes that are not aligned
            self.table.spare = <uint32_t *> (&self.consumed[0] + before)
            self.table.spare_size = (size - before) // sizeof(uint32_t)
        return 0

    def __dealloc__(self):
        free_symbols(&self.symbols)
        free_words(&self.words)
        free_pairs(&self.table)
        free_queue(&self.queue)
        free_changes(&self.changes)
        free(self.merges)
        trim_heap()

    def advance(self, size_t merges):
        """Merge the best pairs: `merges` of them or, where that takes long, fewer. How many merges there are now.

        No more than before: no pair is left. Raises KeyboardInterrupt for a pending Ctrl-C.
        """
        cdef size_t stop = min(self.symbols.most, self.symbols.count + merges), begin = self.symbols.count
        cdef int64_t number = -1
        cdef Pair *pair
        self.work = 0
        while self.symbols.count < stop and (self.work < WORK or self.symbols.count == begin):
            PyErr_CheckSignals()
            with nogil:
                while self.symbols.count < stop and self.work < WORK:
                    number = best_pair(&self.queue)
                    if number < 0:
                        break
                    pair = &self.table.pairs[number]
                    self.make_symbol(left_of(pair.key), right_of(pair.key), pair.count)
                    self.merge(<uint32_t> number)
                    if not self.can_go_on():
                        break
            if not self.can_go_on():
                self.count_pairs()
            elif number < 0:
                if self.table.floor == self.min_count:
                    break
                self.table.floor = max(self.min_count, lower(self.table.floor))
                self.count_pairs()
        return self.symbols.count - self.first

    def result(self):
        """The bytes of each symbol, those of the start first; and the two symbols of each merge, as uint32."""
        cdef size_t i, size = (self.symbols.count - self.first) * sizeof(Merge)
        cdef bytearray halves = PyByteArray_FromStringAndSize(<const char *> self.merges, size)
        tokens = [
            (<const char *> self.symbols.bytes + self.symbols.begin[i])[: self.symbols.size[i]]
            for i in range(self.symbols.count)
        ]
        return tokens, halves

    @property
    def visited(self):
        """The number of postings that merging has processed."""
        return self.changes.visited

    cdef int count_pairs(self) except -1:
        """Count all pairs in the words as they are, and put those that reach the floor into the queue."""
        cdef size_t i, room
        if self.table.slots != NULL:
            self.close_up()
        clear_pairs(&self.table)
        clear_queue(&self.queue)
        self.table.most_postings = 0
        if self.memory_limit and self.words.room + BYTES_A_CELL * self.words.size > self.memory_limit:
            room = self.memory_limit - min(self.memory_limit, self.words.room)
            self.table.most_postings = max(room, self.memory_limit // 4) // sizeof(uint32_t)
        reserve_pairs(&self.table, PAIRS_PER_SYMBOL * self.symbols.most)
        make_slots(&self.table, 0)
        if self.symbols.count <= FEW_SYMBOLS:
            count_pairs_of_few(&self.table, &self.words, &self.symbols)
        else:
            count_all_pairs(&self.table, &self.words, &self.symbols, self.weight)
        with nogil:
            for i in range(self.table.size):
                push_pair(&self.queue, <uint32_t> i)
        return 0

    cdef void close_up(self) noexcept:
        """Close the gaps that merges left in the words."""
        if self.words.wide:
            close_up_words(&self.words, <uint32_t *> self.words.cells, &self.symbols)
        else:
            close_up_words(&self.words, <uint16_t *> self.words.cells, &self.symbols)

    cdef inline bint can_go_on(self) noexcept nogil:
        """True if the next pair can be replaced before the words are closed up."""
        return self.symbols.widest <= self.words.widest // 2    # there is room for the length of any new symbol

    cdef int make_symbol(self, uint32_t left, uint32_t right, int64_t count) except -1 nogil:
        """The symbol of a merge."""
        cdef Merge *merge = &self.merges[self.symbols.count - self.first]
        merge.left, merge.right = left, right
        self.weight -= count    # more than are replaced, where runs of a symbol overlap
        join_symbols(&self.symbols, left, right)
        reserve_changes(&self.changes, self.symbols.room)
        return 0

    cdef int merge(self, uint32_t number) except -1 nogil:
        """Replace a pair by the last symbol in all words, and bring the table and the queue up to date."""
        cdef uint32_t product = <uint32_t> (self.symbols.count - 1)
        cdef Pair *pair = &self.table.pairs[number]
        cdef uint32_t a = left_of(pair.key), b = right_of(pair.key)
        cdef Side *left = &self.changes.left
        cdef Side *right = &self.changes.right
        cdef size_t size = pair.postings_size
        self.work += size + 1
        self.changes.visited += size
        reserve_postings(&self.changes, size)
        if self.words.wide:
            replace_in_words(
                &self.words, <uint32_t *> self.words.cells, &self.changes, &self.symbols,
                pair.postings, size, a, b, product
            )
        else:
            replace_in_words(
                &self.words, <uint16_t *> self.words.cells, &self.changes, &self.symbols,
                pair.postings, size, a, b, product
            )
        pair.count = 0
        drop_postings(&self.table, pair)
        lower_counts(&self.table, &self.changes, a, b)
        self.add_pairs_of_side(left, product, True)
        self.add_pairs_of_side(right, product, False)
        self.add_double(product)
        self.work += left.touched_size + right.touched_size
        clear_changes(&self.changes)
        return 0

    cdef int add_pairs_of_side(self, Side *side, uint32_t product, bint is_left) except -1 nogil:
        """The pairs of the new symbol and its neighbours on one side that reach the floor, with their postings."""
        cdef size_t i, size, posted = 0, posting_sum = 0     # postings
        cdef uint32_t symbol
        cdef uint64_t key
        cdef uint32_t **next_posting
        cdef Beside *beside
        for i in range(side.touched_size):
            symbol = side.touched[i]
            beside = &side.beside[symbol]
            key = key_of(symbol, product) if is_left else key_of(product, symbol)
            if beside.change < self.table.floor or not is_short(&self.table, &self.symbols, key):
                beside.change, beside.postings.next = 0, NULL
            else:
                prefetch_slot(&self.table, hash_of(key))
        for i in range(side.touched_size):
            symbol = side.touched[i]
            beside = &side.beside[symbol]
            if beside.change:
                key = key_of(symbol, product) if is_left else key_of(product, symbol)
                size = beside.postings.number
                beside.postings.next = new_postings(&self.table, size)
                self.add_counted(key, beside.change, beside.postings.next, size)
                posting_sum += size
        i = 0
        while posted < posting_sum:
            next_posting = &side.beside[side.neighbours[i].symbol].postings.next
            if next_posting[0] != NULL:
                next_posting[0][0] = side.neighbours[i].posting
                next_posting[0] += 1
                posted += 1
            i += 1
        return 0

    cdef int add_double(self, uint32_t product) except -1 nogil:
        """The pair of the new symbol and itself."""
        cdef uint64_t key = key_of(product, product)
        cdef size_t size = self.changes.doubles_size
        cdef uint32_t *postings
        if self.changes.doubles >= self.table.floor and is_short(&self.table, &self.symbols, key):
            postings = new_postings(&self.table, size)
            if size:
                memcpy(postings, self.changes.double_postings, size * sizeof(uint32_t))
            self.add_counted(key, self.changes.doubles, postings, size)
        return 0

    cdef int add_counted(self, uint64_t key, int64_t count, uint32_t *postings, size_t size) except -1 nogil:
        """A new pair, which has `size` postings."""
        cdef Pair *pair = add_pair(&self.table, key)
        pair.count, pair.postings, pair.postings_size = count, postings, <uint32_t> size
        return push_pair(&self.queue, <uint32_t> (self.table.size - 1))
