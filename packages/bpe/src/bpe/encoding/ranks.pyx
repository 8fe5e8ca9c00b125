"""The merges of a vocabulary, and one pretoken merged by them: the pair of the lowest rank first, the leftmost of equals.

A pair of symbols and the merge that joins them are one word of 64 bits, so that the table of all of them stays in a near
cache; most pairs that are asked for do not merge, which a filter of one bit for each value of a hash says from a nearer one.

A pretoken of at most SEARCHED bytes is merged in a lane: bits say which symbols are still there, and beside each stands the rank of
joining it to the next, with its place in the low bits, so that the least of them is both. After a merge, its two new neighbours
are fetched rather than waited for: several lanes take steps in turn, and what one asked for is there when its turn comes again.
Where there is AVX-512, eight lanes of few symbols take each step together (steps.h). A longer pretoken is merged in windows
(windows.pxi), those of them that are too wide for a lane with a heap (heap.pxi), which makes the cost n log n,
whatever the text.

About half of all merges join two bytes, and need not wait for their turn. Let A, B be bytes side by side that merge with rank r,
where every merge whose right part is A and whose left part ends as the text does before A, and every merge whose left part is B
and whose right part begins as the text does after B, has a rank beyond r, and where every merge that AB takes part in has too.
Then nothing takes A or B before they join; and nothing that their joining makes possible comes before what is done until their
turn. So they are joined at once. (The last condition holds in every vocabulary that was trained, but not in any that is made up.)

Where only ranks are given (tiktoken), any two neighbours that join to a token merge. But while the bytes of a token are
merged, nothing outside takes part until the token is whole; so they merge as they would alone, and the pair that makes the
token in the end is always the same. One pair for each token is therefore all that the table needs, and a token that its own bytes
alone do not lead to is never made.
"""

from bpe.native.lazy_imports import numpy as np

from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from bpe.native.bytes cimport count_leading_zeros, count_trailing_zeros, hash_bytes, prefetch
from bpe.native.cpu cimport level_of
from bpe.native.hash_seed cimport hash_seed
from bpe.native.memory cimport checked_block, checked_malloc, checked_realloc, free_block

cdef extern from "encoding/lowest.h" nogil:
    lowest_function choose_lowest(int level)

cdef extern from "encoding/lanes.h" nogil:
    enum:
        BOUND_BITS
        AT_ONCE
        MERGE_AT
    const uint64_t UNBOUND
    const uint64_t NO_START
    const uint32_t NONE
    const uint64_t FREE
    const uint64_t HASH
    begin_function choose_begin(int level)

cdef extern from "encoding/steps.h" nogil:
    steps_function choose_steps(int level)

MOST_SYMBOLS = (1 << 21) - 1    # two symbols and a merge fit in 64 bits, a merge and a place in a lane in 32
MOST_MERGES = (1 << 22) - 2
MOST_BYTES = 0x7FFFFFFF         # of a pretoken


cdef class Ranks:
    """Symbols and the merges between them.

    symbols: the bytes of each. merges: None where any two neighbours that join to a symbol merge, by the order of the symbols;
    or (left, right, made) by number of symbol, an array of shape (merges, 3) in order of rank. whole_first: a pretoken that is a
    symbol is that symbol, whatever the merges say. level: the SIMD level, by default
    that of the process. ValueError for
    more symbols or merges than fit.
    """

    def __cinit__(self, *, symbols, merges, bint whole_first, level=None):
        cdef const uint32_t[:, ::1] listed
        cdef size_t i, slots = 64, count, lost_count = 0
        cdef uint32_t *lost
        cdef int number = level_of(level)
        self.begin_lanes, self.step_lanes, self.lowest = choose_begin(number), choose_steps(number), choose_lowest(number)
        self.kept = tuple(symbols)
        self.symbols = len(self.kept)
        if merges is not None:
            listed = np.ascontiguousarray(merges, dtype=np.uint32).reshape(-1, 3)
        count = self.symbols if merges is None else listed.shape[0]
        if self.symbols > <size_t> MOST_SYMBOLS or count > <size_t> MOST_MERGES:
            raise ValueError(
                f"a vocabulary of {self.symbols:,} tokens and {count:,} merges; the most are {MOST_SYMBOLS:,} and {MOST_MERGES:,}"
            )
        self.text = <const uint8_t **> checked_malloc(self.symbols * sizeof(uint8_t *))
        self.size = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
        memset(self.symbol_of_byte, 0xFF, sizeof(self.symbol_of_byte))
        for i in range(self.symbols):
            self.text[i] = <const uint8_t *> <const char *> (<bytes> self.kept[i])
            self.size[i] = len(<bytes> self.kept[i])
            if self.size[i] == 1:
                self.symbol_of_byte[self.text[i][0]] = i
        self.all_bytes = True
        for i in range(256):
            self.all_bytes = self.all_bytes and self.symbol_of_byte[i] != NONE
        self.symbol_bits = max(1, self.symbols.bit_length())        # so that no pair is all ones, as FREE is
        self.merge_bits = 64 - 2 * self.symbol_bits
        self.merge_mask = (<uint64_t> 1 << self.merge_bits) - 1
        while slots < count * 2:
            slots *= 2
        self.mask = slots - 1
        self.shift = 64 - count_trailing_zeros(slots)
        self.filter_shift = self.shift - 2
        self.filter = <uint64_t *> checked_block(slots // 2)
        self.pairs = <uint64_t *> checked_block((slots + 1) * sizeof(uint64_t))
        memset(self.pairs, 0xFF, (slots + 1) * sizeof(uint64_t))
        self.made = <uint32_t *> checked_malloc(count * sizeof(uint32_t))
        self.starts = <uint64_t *> checked_block(65536 * sizeof(uint64_t))
        lost = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
        try:
            if merges is None:
                self.add_canonical(lost, &lost_count)
                self.in_order = True
            else:
                self.in_order = True
                for i in range(count):
                    self.made[i] = listed[i, 2]
                    self.in_order = self.in_order and self.made[i] == self.made[0] + i
                    self.add_pair(listed[i, 0], listed[i, 1], i)
            self.first_made = self.made[0] if count else 0
            self.add_starts()
            if whole_first:
                if merges is not None:
                    self.find_lost(lost, &lost_count)
                self.add_whole(lost, lost_count)
        finally:
            free(lost)

    def __dealloc__(self):
        free(self.text)
        free(self.size)
        free_block(self.pairs, (self.mask + 2) * sizeof(uint64_t))
        free_block(self.filter, (self.mask + 1) // 2)
        free(self.made)
        free_block(self.starts, 65536 * sizeof(uint64_t))
        free(self.whole)

    # The table of pairs

    cdef void add_pair(self, uint64_t left, uint64_t right, uint32_t merge) noexcept nogil:
        cdef uint64_t pair = left << self.symbol_bits | right
        cdef size_t at = pair * HASH >> self.shift
        while self.pairs[at] != FREE:
            if self.pairs[at] >> self.merge_bits == pair:
                return                      # the first mention of a pair is the one that counts
            at = (at + 1) & self.mask
        self.pairs[at] = pair << self.merge_bits | merge
        at = pair * HASH >> self.filter_shift
        self.filter[at >> 6] |= <uint64_t> 1 << (at & 63)

    cdef int add_canonical(self, uint32_t *lost, size_t *lost_count) except -1:
        """Find, for each symbol that its own bytes lead to, the pair that makes it, and note the others as lost.

        Shorter ones first, as they make it; those of one length have no part in each other, and are merged side by side.
        """
        cdef const uint32_t[::1] order
        cdef uint32_t symbol
        cdef uint32_t in_lane[LANES]
        cdef Unmerged pieces[LANES]
        cdef Lane *lane
        cdef size_t i = 0, k, found, size
        cdef Work work
        memset(&work, 0, sizeof(Work))
        sizes = np.asarray(<uint32_t[:self.symbols]> self.size) if self.symbols else np.empty(0, dtype=np.uint32)
        order = np.argsort(sizes, kind="stable").astype(np.uint32)
        try:
            with nogil:
                need_lanes(&work)
                for i in range(self.symbols):
                    self.made[i] = <uint32_t> i             # a merge has the number of what it makes
                i = 0
                while i < self.symbols:
                    found, size = 0, self.size[order[i]]
                    while i < self.symbols and found < LANES and self.size[order[i]] == size:
                        symbol = order[i]
                        i += 1
                        if size <= 1:
                            continue
                        if self.spelled(self.text[symbol], size):
                            if size <= SEARCHED:
                                in_lane[found] = symbol
                                pieces[found].text, pieces[found].size = self.text[symbol], size
                                found += 1
                                continue
                            if self.by_merges(&work, self.text[symbol], size) == 2:
                                self.add_pair(work.found[0], work.found[1], symbol)
                                continue
                        lost[lost_count[0]] = symbol
                        lost_count[0] += 1
                    self.merge_together(work.lanes, pieces, found)
                    for k in range(found):
                        lane = &work.lanes[k]
                        if lane.count == 2:
                            self.add_pair(lane.symbols[0], lane.symbols[1], in_lane[k])
                        else:
                            lost[lost_count[0]] = in_lane[k]
                            lost_count[0] += 1
        finally:
            free_work(&work)
        return 0

    cdef int add_starts(self) except -1:
        """Note of all neighbouring bytes what begin() wants to know; until then it joins none at once."""
        cdef uint32_t *ending = <uint32_t *> checked_malloc(2 * 65536 * sizeof(uint32_t))
        cdef uint32_t *beginning = ending + 65536
        cdef uint32_t *within = NULL
        cdef uint32_t left, right, merge
        cdef size_t i, at
        try:
            within = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
            memset(ending, 0xFF, 2 * 65536 * sizeof(uint32_t))
            memset(within, 0xFF, self.symbols * sizeof(uint32_t))
            for i in range(self.mask + 1):
                if self.pairs[i] != FREE:
                    self.parts(self.pairs[i], &left, &right, &merge)
                    within[left], within[right] = min(within[left], merge), min(within[right], merge)
                    at = <size_t> self.text[right][0] << 8 | self.text[left][self.size[left] - 1]
                    if self.size[right] == 1:
                        ending[at] = min(ending[at], merge)
                    if self.size[left] == 1:
                        beginning[at] = min(beginning[at], merge)
            for at in range(65536):
                self.starts[at] = (<uint64_t> (ending[at] >> 2) & UNBOUND) << BOUND_BITS | (beginning[at] >> 2) & UNBOUND
            for i in range(self.mask + 1):
                if self.pairs[i] != FREE:
                    self.parts(self.pairs[i], &left, &right, &merge)
                    if self.size[left] == 1 and self.size[right] == 1 and within[made_by(self, merge)] > merge:
                        at = <size_t> self.text[right][0] << 8 | self.text[left][0]
                        self.starts[at] |= <uint64_t> merge << MERGE_AT | <uint64_t> 1 << AT_ONCE
        finally:
            free(ending)
            free(within)
        return 0

    cdef void parts(self, uint64_t entry, uint32_t *left, uint32_t *right, uint32_t *merge) noexcept nogil:
        """What an entry of the table of pairs says."""
        merge[0] = <uint32_t> (entry & self.merge_mask)
        entry >>= self.merge_bits
        left[0], right[0] = <uint32_t> (entry >> self.symbol_bits), <uint32_t> (entry & ((<uint64_t> 1 << self.symbol_bits) - 1))

    cdef bint spelled(self, const uint8_t *text, size_t size) noexcept nogil:
        """Whether each byte of a text is a symbol."""
        cdef size_t i
        if self.all_bytes:
            return True
        for i in range(size):
            if self.symbol_of_byte[text[i]] == NONE:
                return False
        return True

    # Symbols that are whole pretokens

    cdef int find_lost(self, uint32_t *lost, size_t *lost_count) except -1:
        """Note the symbols that merges do not lead to; several are merged side by side."""
        cdef uint32_t in_lane[LANES]
        cdef Unmerged pieces[LANES]
        cdef Lane *lane
        cdef size_t symbol = 0, size, found, k
        cdef Work work
        memset(&work, 0, sizeof(Work))
        try:
            with nogil:
                need_lanes(&work)
                while symbol < self.symbols:
                    found = 0
                    while symbol < self.symbols and found < LANES:
                        size = self.size[symbol]
                        if size > SEARCHED or not self.spelled(self.text[symbol], size):
                            if (
                                not self.spelled(self.text[symbol], size)
                                or self.by_merges(&work, self.text[symbol], size) > 1
                                or work.found[0] != symbol
                            ):
                                lost[lost_count[0]] = <uint32_t> symbol
                                lost_count[0] += 1
                        elif size > 1:
                            in_lane[found] = <uint32_t> symbol
                            pieces[found].text, pieces[found].size = self.text[symbol], size
                            found += 1
                        symbol += 1
                    self.merge_together(work.lanes, pieces, found)
                    for k in range(found):
                        lane = &work.lanes[k]
                        if lane.count > 1 or lane.symbols[0] != in_lane[k]:
                            lost[lost_count[0]] = in_lane[k]
                            lost_count[0] += 1
        finally:
            free_work(&work)
        return 0

    cdef int add_whole(self, const uint32_t *lost, size_t count) except -1:
        cdef size_t slots = 64, i, at
        while slots < count * 2:
            slots *= 2
        self.whole = <uint32_t *> checked_malloc(slots * sizeof(uint32_t))
        memset(self.whole, 0xFF, slots * sizeof(uint32_t))
        self.whole_mask = slots - 1
        for i in range(count):
            at = hash_bytes(self.text[lost[i]], self.size[lost[i]], hash_seed) & self.whole_mask
            while self.whole[at] != NONE:
                at = (at + 1) & self.whole_mask
            self.whole[at] = lost[i]
            self.longest_whole = max(self.longest_whole, <size_t> self.size[lost[i]])
        return 0

    cdef uint32_t find_whole(self, const uint8_t *text, size_t size) noexcept nogil:
        """The symbol that these bytes are as a whole though merges do not reach it, or NONE."""
        cdef size_t at = hash_bytes(text, size, hash_seed) & self.whole_mask
        cdef uint32_t symbol
        while self.whole[at] != NONE:
            symbol = self.whole[at]
            if self.size[symbol] == size and memcmp(self.text[symbol], text, size) == 0:
                return symbol
            at = (at + 1) & self.whole_mask
        return NONE

    # Merging one pretoken

    cdef size_t merge(self, Work *work, const uint8_t *text, size_t size) except 0 nogil:
        """The symbols of a pretoken of at least one byte, in work.found; returns how many."""
        if size <= self.longest_whole:
            need_lanes(work)
            work.lanes.symbols[0] = self.find_whole(text, size)
            if work.lanes.symbols[0] != NONE:
                work.found = work.lanes.symbols
                return 1
        return self.by_merges(work, text, size)

    cdef size_t by_merges(self, Work *work, const uint8_t *text, size_t size) except 0 nogil:
        cdef Unmerged piece
        cdef size_t i = 0
        if not self.spelled(text, size):
            while self.symbol_of_byte[text[i]] != NONE:
                i += 1
            with gil:
                raise KeyError(f"byte {text[i]:#04x} has no token in this vocabulary")
        need_lanes(work)
        if size > SEARCHED:
            return merge_in_windows(self, work, text, size)
        piece.text, piece.size = text, size
        self.merge_together(work.lanes, &piece, 1)
        work.found = work.lanes.symbols
        return work.lanes.count

    cdef void merge_together(self, Lane *lanes, const Unmerged *pieces, size_t count, bint placed=False) noexcept nogil:
        """Merge pieces, each in the lane of its number; each byte of them must be a symbol.

        placed: lane.here and lane.begins are to say where in the text each symbol of the result begins.
        """
        cdef Lane *busy[LANES]
        cdef MergeTables tables
        cdef size_t i
        self.begin(lanes, pieces, count)
        if self.step_lanes != NULL and not placed:
            tables = self.tables()
            count = self.step_lanes(&tables, lanes, count, busy)
        else:
            for i in range(count):
                busy[i] = &lanes[i]
        while count:
            i = 0
            while i < count:
                if self.step(busy[i]):
                    i += 1
                else:
                    count -= 1
                    busy[i] = busy[count]

    cdef void begin(self, Lane *lanes, const Unmerged *pieces, size_t count) noexcept nogil:
        """Put pieces into lanes, the bytes joined that are joined at once.

        Which bytes those are, and which neighbours may merge, nobody could foretell. So there are no branches for it: an answer
        is written where the next one goes, and that place moves on or does not.
        """
        cdef uint64_t pairs[LANES * SEARCHED]
        cdef size_t slots[LANES * SEARCHED]
        cdef uint32_t keys[LANES * SEARCHED]    # without the merge
        cdef uint32_t again[LANES * SEARCHED]
        cdef const uint64_t *table = self.starts
        cdef const uint64_t *entries = self.pairs
        cdef const uint8_t *text
        cdef uint64_t starts[SEARCHED + 4]      # number i: of the bytes at i - 1 and i
        cdef uint64_t joined[SEARCHED + 1]
        cdef uint64_t entry
        cdef const uint32_t *symbol_of_byte = self.symbol_of_byte
        cdef uint64_t merge_mask = self.merge_mask
        cdef uint32_t first_made = self.first_made
        cdef bint in_order = self.in_order
        cdef uint32_t symbol, chosen, taken, previous, merge, other
        cdef size_t i, at, size, symbols, asked = 0, questions = 0, repeated = 0
        cdef int symbol_bits = self.symbol_bits, merge_bits = self.merge_bits
        cdef Lane *lane
        cdef MergeTables tables
        if self.begin_lanes != NULL:
            tables = self.tables()
            self.begin_lanes(&tables, lanes, pieces, count)
            return
        for i in range(count):
            lane, text, size = &lanes[i], pieces[i].text, pieces[i].size
            starts[0] = NO_START
            for at in range(1, size):
                starts[at] = table[start_of(text + at - 1)]
            for at in range(size, size + 4):
                starts[at] = NO_START
            for at in range(0, size, 2):        # two at once, in one vector
                joined[at] = joins(starts[at], starts[at + 1], starts[at + 2])
                joined[at + 1] = joins(starts[at + 1], starts[at + 2], starts[at + 3])
            taken, previous, symbols = 0, 0, 0
            for at in range(size):
                chosen = 0 - <uint32_t> joined[at]
                merge = <uint32_t> (starts[at + 1] >> MERGE_AT) & chosen
                symbol = symbol_of_byte[text[at]]
                symbol ^= (symbol ^ (first_made + merge if in_order else self.made[merge])) & chosen
                lane.symbols[symbols] = symbol
                lane.begins[symbols] = <uint8_t> at
                pairs[asked] = <uint64_t> previous << symbol_bits | symbol
                keys[asked] = <uint32_t> (i * SEARCHED + symbols - 1)
                asked += (at > 0) & ~taken
                symbols += 1 & ~taken
                previous ^= (previous ^ symbol) & ~taken
                taken = chosen                  # two that are joined never overlap: each has the lower rank of the two
            lane.here = <uint64_t> -1 >> (SEARCHED - symbols)
            lane.searched = (symbols + 7) & ~<size_t> 7
            for at in range(0, lane.searched, 8):
                memset(&lane.keys[at], 0xFF, 8 * sizeof(uint32_t))
            lane.left.slot = lane.right.slot = self.mask + 1
            lane.left.at = lane.right.at = SEARCHED
        for at in range(asked):
            pairs[questions], keys[questions] = pairs[at], keys[at]
            questions += may_merge(self, pairs[questions], &slots[questions])
        for at in range(questions):
            entry = entries[slots[at]]
            other = entry >> merge_bits != pairs[at]
            lane = &lanes[keys[at] // SEARCHED]
            symbol = keys[at] & (SEARCHED - 1)
            lane.keys[symbol] = <uint32_t> (entry & merge_mask) * SEARCHED | symbol | (0 - other)
            again[repeated] = <uint32_t> at
            repeated += other & (entry != FREE)
        for i in range(repeated):
            at = again[i]
            merge = find(self, pairs[at], slots[at])
            symbol = keys[at] & (SEARCHED - 1)
            if merge != NONE:
                lanes[keys[at] // SEARCHED].keys[symbol] = merge * SEARCHED | symbol

    cdef MergeTables tables(self) noexcept nogil:
        cdef MergeTables found
        found.starts, found.pairs, found.filter, found.symbol_of_byte = self.starts, self.pairs, self.filter, self.symbol_of_byte
        found.made, found.first_made, found.mask = NULL if self.in_order else self.made, self.first_made, self.mask
        found.shift, found.filter_shift = self.shift, self.filter_shift
        found.symbol_bits, found.merge_bits = self.symbol_bits, self.merge_bits
        return found

    cdef bint step(self, Lane *lane) noexcept nogil:
        """One merge; returns whether there was one to do. If not, the symbols are moved together and counted."""
        cdef uint32_t best, symbol, at, other
        cdef uint64_t bits = lane.here, near
        cdef uint32_t right = arrived(self, &lane.right), left = arrived(self, &lane.left)
        best = min(self.lowest(lane.keys, lane.searched), min(right, left))  # before the two are stored, which loads would wait for
        if best == NONE:
            lane.count = 0
            while bits:
                lane.symbols[lane.count] = lane.symbols[count_trailing_zeros(bits)]
                lane.count += 1
                bits &= bits - 1
            return False
        lane.keys[lane.right.at], lane.keys[lane.left.at] = right, left
        at = best & (SEARCHED - 1)
        symbol = lane.symbols[at] = made_by(self, best // SEARCHED)
        near = bits & <uint64_t> -2 << at
        other = count_trailing_zeros(near)
        lane.keys[at] = lane.keys[other] = NONE
        near &= near - 1
        lane.here = bits & ~(<uint64_t> 1 << other)
        lane.right.slot = lane.left.slot = self.mask + 1
        lane.right.at = lane.left.at = SEARCHED
        if near:
            ask(self, &lane.right, at, symbol, lane.symbols[count_trailing_zeros(near)])
        near = bits & ~(<uint64_t> -1 << at)
        if near:
            other = 63 - count_leading_zeros(near)
            lane.keys[other] = NONE
            ask(self, &lane.left, other, lane.symbols[other], symbol)
        return True


cdef inline uint64_t joins(uint64_t before, uint64_t start, uint64_t after) noexcept nogil:
    """1 where two bytes may be joined at once, and neither rather merges with the one before them or after, else 0."""
    cdef uint64_t rank = start >> (MERGE_AT + 2)
    return ((rank - (before >> BOUND_BITS & UNBOUND)) & (rank - (after & UNBOUND)) & start << (63 - AT_ONCE)) >> 63


cdef inline size_t start_of(const uint8_t *text) noexcept nogil:
    """Where in Ranks.starts two bytes have their place."""
    return <size_t> text[1] << 8 | text[0]


cdef inline bint may_merge(Ranks ranks, uint64_t pair, size_t *slot) noexcept nogil:
    """False where two symbols surely do not merge; otherwise *slot is where their merge is looked for first."""
    cdef uint64_t hash = pair * HASH
    cdef size_t at = hash >> ranks.filter_shift
    slot[0] = hash >> ranks.shift
    return ranks.filter[at >> 6] >> (at & 63) & 1


cdef inline uint32_t find(Ranks ranks, uint64_t pair, size_t slot) noexcept nogil:
    """The merge of two symbols, or NONE."""
    cdef uint64_t entry
    while True:
        entry = ranks.pairs[slot]
        if entry >> ranks.merge_bits == pair:
            return <uint32_t> (entry & ranks.merge_mask)
        if entry == FREE:
            return NONE
        slot = (slot + 1) & ranks.mask


cdef inline void ask(Ranks ranks, Waiting *waiting, uint32_t at, uint64_t left, uint64_t right) noexcept nogil:
    """Send for the merge of two symbols, the left one at `at`. What the filter says is no branch: nobody could foretell it."""
    cdef size_t slot
    waiting.pair = left << ranks.symbol_bits | right
    waiting.at = at
    waiting.slot = slot if may_merge(ranks, waiting.pair, &slot) else ranks.mask + 1
    prefetch(&ranks.pairs[waiting.slot])


cdef inline uint32_t arrived(Ranks ranks, const Waiting *waiting) noexcept nogil:
    """The key of the pair that was sent for, or NONE where it does not merge."""
    cdef uint64_t entry = ranks.pairs[waiting.slot]
    cdef uint32_t merge = <uint32_t> (entry & ranks.merge_mask)
    if entry >> ranks.merge_bits != waiting.pair and entry != FREE:
        merge = find(ranks, waiting.pair, waiting.slot)
        return NONE if merge == NONE else merge * SEARCHED | waiting.at
    return merge * SEARCHED | waiting.at | (<uint32_t> 0 - <uint32_t> (entry == FREE))


cdef inline uint32_t made_by(Ranks ranks, uint32_t merge) noexcept nogil:
    """The symbol that a merge makes; in most vocabularies they are numbered alike, and no table need be read."""
    return ranks.first_made + merge if ranks.in_order else ranks.made[merge]


cdef int need_lanes(Work *work) except -1 nogil:
    if work.lanes == NULL:
        work.lanes = <Lane *> checked_malloc(LANES * sizeof(Lane))
        memset(work.lanes, 0, LANES * sizeof(Lane))     # so that what a lane has beyond its symbols is symbols too
    return 0


cdef void free_work(Work *work) noexcept nogil:
    free(work.lanes)
    free(work.symbols)
    free(work.begins)
    free(work.linked)
    free(work.heap)


include "heap.pxi"
include "windows.pxi"
