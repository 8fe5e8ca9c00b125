# The merges of a vocabulary, and a pretoken merged by them: the pair of the lowest rank first, of equals the leftmost.
#
#     merge_tables.h    the tables: which pairs of symbols merge, which bytes join at once
#     lanes.h           up to 32 pretokens side by side: bytes to symbols, then one merge at a time in each
#     windows.pxi       pretokens of more than 64 bytes, in windows that overlap
#     heap.pxi          windows too wide for a lane, with a heap: n log n, whatever the text
#     tables.pxi        the tables made from a vocabulary
#
# While the bytes of a token are merged, nothing outside takes part until the token is whole; so they merge as they
# would alone, and the pair that makes the token in the end is always the same. One pair for each token is therefore
# all that the table needs, of the merges that a file lists or, where only ranks are given (tiktoken) and any two
# neighbours that join to a token merge, of those. A token that its own bytes alone do not lead to is never made.

cdef extern from "encoding/merge_tables.h" nogil:
    const uint32_t NONE
    const uint64_t FREE
    enum:
        BYTE_PAIRS
        JOINS_AT

    ctypedef struct MergeTables:
        uint64_t *pairs
        uint64_t *filter
        uint64_t *byte_pairs
        uint32_t *made
        uint32_t symbol_of_byte[256]
        uint32_t first_made
        size_t mask
        int shift, filter_shift, symbol_bits, merge_bits
    uint32_t joining_merge(uint64_t word)
    uint32_t made_by(const MergeTables *tables, uint32_t merge)
    uint64_t pair_of(const MergeTables *tables, uint64_t left, uint64_t right)
    uint32_t left_of_entry(const MergeTables *tables, uint64_t entry)
    uint32_t right_of_entry(const MergeTables *tables, uint64_t entry)
    uint32_t merge_of_entry(const MergeTables *tables, uint64_t entry)
    bint may_merge(const MergeTables *tables, uint64_t pair, size_t *slot)
    uint32_t find_merge(const MergeTables *tables, uint64_t pair, size_t slot)
    void add_merge(MergeTables *tables, uint64_t left, uint64_t right, uint32_t merge)
    size_t byte_pair_at(uint8_t first, uint8_t second)
    uint64_t byte_pair_entry(uint32_t takes_first, uint32_t takes_second)
    uint64_t with_joining(uint64_t word, uint32_t merge)

cdef extern from "encoding/lanes.h" nogil:
    enum:
        LANE_BYTES
        LANES

    ctypedef struct Piece:
        const uint8_t *text
        size_t size

    ctypedef struct Lane:
        uint32_t keys[65]
        uint32_t symbols[65]
        uint8_t begins[64]
        uint64_t alive
        size_t count

    ctypedef uint32_t (*lowest_function)(const uint32_t *keys, size_t count) noexcept nogil
    lowest_function choose_lowest(int level)
    void merge_lanes(
        const MergeTables *tables, lowest_function lowest, Lane *lanes, const Piece *pieces, size_t count
    )

ctypedef struct Linked:         # a symbol of a window that is merged with a heap
    uint32_t symbol             # NONE once it was merged into the one before it
    uint32_t next, previous

ctypedef struct Work:           # room for merging, kept from one pretoken to the next; all zeros to begin with
    Lane *lanes
    uint32_t *symbols           # of the merged part of a long pretoken
    uint32_t *begins            # of each in the text, and after them where the last one ends
    Linked *linked
    uint64_t *heap              # see heap.pxi
    size_t room, count, linked_room, heap_room, heap_size
    const uint32_t *found       # the symbols of the pretoken merged last

cdef enum:
    MOST_SYMBOLS = (1 << 21) - 1    # two symbols and a merge fit in 64 bits
    MOST_MERGES = (1 << 22) - 2     # a merge and a position in a lane fit in 32 bits
    MOST_BYTES = 0x7FFFFFFF         # bytes of the longest pretoken
    WIDE_OVERLAP = 28           # bytes that neighbours of join_windows() have in common, nearly always with a symbol
    WINDOW_STEP = LANE_BYTES - WIDE_OVERLAP     # from where one of them begins to the next


cdef class Ranks:
    """Symbols and the merges between them.

    Args:
        symbols: The bytes of each.
        merges: (left, right, made) by number of symbol, an array of shape (merges, 3) in order of rank. None where any
            two neighbours that join to a symbol merge, by the order of the symbols.
        ignore_merges: A pretoken that is a symbol is that symbol, whatever the merges say.
        aliases: {symbol: symbol of one byte}: a merge that makes the one makes the other instead.
        parts: None, or what parts() of other ranks gave: these are then the same, and the arguments before are unused.
        drops_bytes: Bytes of a pretoken that are no symbol are left out; otherwise they are refused.

    Raises:
        ValueError: There are more symbols or merges than fit, or the parts do not fit together.
    """

    cdef bytes joined                   # the symbols, one after another
    cdef readonly size_t symbols
    cdef size_t merges                  # of `tables.made`
    cdef const uint8_t **text           # by symbol, in `joined`
    cdef uint32_t *size
    cdef readonly bint all_bytes        # each byte is a symbol
    cdef bint drops_bytes               # those that are none are left out
    cdef MergeTables tables
    cdef lowest_function lowest         # for the process's SIMD level
    cdef uint32_t *pretokens            # symbols that stand for a whole pretoken though merges do not reach them
    cdef size_t pretokens_mask
    cdef size_t longest_whole           # 0: there are none

    def __cinit__(
        self, *, symbols=(), merges=None, bint ignore_merges=False, aliases=None, parts=None,
        bint drops_bytes=False,
    ):
        cdef const uint32_t[:, ::1] listed = None
        cdef size_t count
        self.drops_bytes = drops_bytes
        self.lowest = choose_lowest(level_of(None))
        memset(self.tables.symbol_of_byte, 0xFF, sizeof(self.tables.symbol_of_byte))
        if parts is not None:
            self.hold_symbols(bytes(parts["text"]), memoryview(parts["sizes"]).cast("I"))
            take_parts(self, parts)
            return
        symbols = list(symbols)
        self.symbols = len(symbols)
        if merges is not None:
            listed = np.ascontiguousarray(merges, dtype=np.uint32).reshape(-1, 3)
        count = self.symbols if merges is None else listed.shape[0]
        if self.symbols > MOST_SYMBOLS or count > MOST_MERGES:
            raise ValueError(
                f"a vocabulary of {self.symbols:,} tokens and {count:,} merges; "
                f"the most are {MOST_SYMBOLS:,} and {MOST_MERGES:,}"
            )
        self.hold_symbols(b"".join(symbols), np.fromiter(map(len, symbols), dtype=np.uint32, count=len(symbols)))
        fill_tables(self, listed, merges is None, ignore_merges, aliases or {})

    cdef int hold_symbols(self, bytes joined, const uint32_t[::1] sizes) except -1:
        """Note where the bytes of each symbol are, of symbols that are joined."""
        cdef const uint8_t *text = <const uint8_t *> <const char *> joined
        cdef size_t i, end = 0
        self.joined, self.symbols = joined, sizes.shape[0]
        self.text = <const uint8_t **> checked_malloc(self.symbols * sizeof(uint8_t *))
        self.size = <uint32_t *> checked_malloc(self.symbols * sizeof(uint32_t))
        for i in range(self.symbols):
            self.text[i], self.size[i] = text + end, sizes[i]
            end += sizes[i]
        if end != <size_t> len(joined):
            raise ValueError(f"symbols of {end:,} bytes in {len(joined):,}")
        for i in range(self.symbols):
            if self.size[i] == 1:
                self.tables.symbol_of_byte[self.text[i][0]] = <uint32_t> i
        self.all_bytes = True
        for i in range(256):
            self.all_bytes = self.all_bytes and self.tables.symbol_of_byte[i] != NONE
        return 0

    def parts(self):
        """All that these ranks are, as {name: bytes}: Ranks(parts=…) makes the same without merging a symbol."""
        return copy_parts(self)

    def __dealloc__(self):
        free(self.text)
        free(self.size)
        free_tables(&self.tables)
        free(self.pretokens)

    cdef size_t merge(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil:
        """The symbols of a pretoken of at least one byte, in work.found; returns how many."""
        if size <= self.longest_whole:
            need_lanes(work)
            work.lanes.symbols[0] = self.find_whole(text, size)
            if work.lanes.symbols[0] != NONE:
                work.found = work.lanes.symbols
                return 1
        return self.merge_bytes(work, text, size)

    cdef size_t merge_bytes(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil:
        """merge() by merges alone. KeyError for a byte that is no symbol, unless such bytes are left out."""
        cdef Piece piece
        cdef size_t i = 0
        if not self.spelled(text, size):
            if self.drops_bytes:
                return self.merge_without_others(work, text, size)
            while self.tables.symbol_of_byte[text[i]] != NONE:
                i += 1
            with gil:
                raise KeyError(f"byte {text[i]:#04x} has no token in this vocabulary")
        need_lanes(work)
        if size > LANE_BYTES:
            return merge_in_windows(self, work, text, size)
        piece.text, piece.size = text, size
        self.merge_pieces(work.lanes, &piece, 1)
        work.found = work.lanes.symbols
        return work.lanes.count

    cdef size_t merge_without_others(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil:
        """merge_bytes() of those bytes of a text that are symbols; there may be none."""
        cdef uint8_t *spelled = <uint8_t *> checked_malloc(size)
        cdef size_t i, count = 0
        for i in range(size):
            spelled[count] = text[i]
            count += self.tables.symbol_of_byte[text[i]] != NONE
        try:
            return self.merge_bytes(work, spelled, count) if count else 0
        finally:
            free(spelled)

    cdef void merge_pieces(self, Lane *lanes, const Piece *pieces, size_t count) noexcept nogil:
        """Merge pieces of at most LANE_BYTES bytes, each in the lane of its number; each byte must be a symbol."""
        merge_lanes(&self.tables, self.lowest, lanes, pieces, count)

    cdef bint spelled(self, const uint8_t *text, size_t size) noexcept nogil:
        """True if each byte of a text is a symbol."""
        cdef size_t i
        if self.all_bytes:
            return True
        for i in range(size):
            if self.tables.symbol_of_byte[text[i]] == NONE:
                return False
        return True

    cdef uint32_t find_whole(self, const uint8_t *text, size_t size) noexcept nogil:
        """The symbol that these bytes are as a whole though merges do not reach it, or NONE."""
        cdef size_t at = hash_bytes(text, size, hash_seed) & self.pretokens_mask
        cdef uint32_t symbol
        while self.pretokens[at] != NONE:
            symbol = self.pretokens[at]
            if self.size[symbol] == size and memcmp(self.text[symbol], text, size) == 0:
                return symbol
            at = (at + 1) & self.pretokens_mask
        return NONE


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
