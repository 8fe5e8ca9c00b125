# The words: the distinct pretokens of two symbols or more, in one array of cells. A posting of a pair is the cell of
# its first symbol, so replacing a pair takes a few steps, and all merges together take time in proportion to the
# length.
#
# Words that occur equally often are a group, which has their count once. A symbol has one cell when the word is loaded,
# and all cells of its two halves when a merge makes it:
#
#       loaded    t   h   e   r   e       merged    the, re
#       cells    the  .  E3  re  E2       E: the last cell of a symbol of this many cells; `.`: a cell inside a symbol
#
# The symbol to the right begins where this one's cells end; the symbol to the left is one cell away, or where E says. A
# border stands before the first word and behind each. Before all pairs are counted again the words are closed up: every
# symbol has one cell again, and fewer cells take less time to scan and to fetch.
#
# The highest bit is set in every cell that no symbol begins in. Cells have 16 bits if that is enough for the symbols,
# else 32.

ctypedef fused Cell:
    uint16_t
    uint32_t

ctypedef struct Group:          # all words that occur `count` times, side by side, with a border behind each
    size_t begin, size
    int64_t count

ctypedef struct Words:
    void *cells                 # of uint16_t, or of uint32_t if the words are `wide`
    size_t size                 # number of cells
    size_t room                 # bytes of the block of the cells
    bint wide
    size_t widest               # most cells that a symbol may have
    Group *groups
    size_t groups_size

ctypedef struct WordRecords:    # the records of the words, those of equal count together
    const uint8_t **records
    size_t size
    size_t symbol_size          # bytes of a symbol: 1, or 4 for a uint32
    size_t groups               # number of different counts
    size_t cells                # cells of all words, borders included

cdef enum:
    SIGNAL_INTERVAL = 1 << 16   # words, or symbols, between two checks for a pending Ctrl-C
    WORD_BATCH = 64             # postings that are processed together while the next batch is prefetched

cdef size_t MOST_CELLS = <uint32_t> -1


cdef inline uint32_t border(Cell *cells) noexcept nogil:
    """A cell between two words: the highest bit alone."""
    if Cell is uint16_t:
        return <uint32_t> 1 << 15
    else:
        return <uint32_t> 1 << 31


cdef int load_words(
    Words *words, const uint8_t[::1] records, const uint8_t *symbol_of, size_t most_symbols
) except -1:
    """Load the pretokens of two symbols or more.

    symbol_of: the symbol of each byte, or NULL if pretokens are arrays of symbols (uint32) already.
    """
    cdef WordRecords sorted
    cdef size_t cell_size = sizeof(uint32_t) if most_symbols > <size_t> 1 << 15 else sizeof(uint16_t)
    sorted.records = NULL
    try:
        sort_records(&sorted, records, 1 if symbol_of != NULL else sizeof(uint32_t))
        if sorted.cells >= MOST_CELLS:      # postings have 32 bits
            raise MemoryError(
                f"the distinct pretokens have {sorted.cells:,} symbols, more than the {MOST_CELLS:,} that can be "
                "merged: choose a pattern that splits the text into shorter pieces"
            )
        words.wide, words.widest = cell_size == sizeof(uint32_t), (<size_t> 1 << (8 * cell_size - 1)) - 2
        words.groups = <Group *> checked_malloc(sorted.groups * sizeof(Group))
        words.room = sorted.cells * cell_size
        words.cells = checked_block(words.room)
        words.size = sorted.cells
        with nogil:
            if words.wide:
                fill_words(words, <uint32_t *> words.cells, &sorted, symbol_of)
            else:
                fill_words(words, <uint16_t *> words.cells, &sorted, symbol_of)
    finally:
        free(sorted.records)
    return 0


cdef int sort_records(WordRecords *sorted, const uint8_t[::1] records, size_t symbol_size) except -1:
    """List the records of two symbols or more by count."""
    cdef size_t at = 0, end = records.shape[0], once = 0, last = 0, size
    cdef const uint8_t *record
    sorted.size, sorted.symbol_size, sorted.groups, sorted.cells = 0, symbol_size, 0, 1
    with nogil:
        while at < end:
            size = size_of(&records[at])
            at += HEADER + size
            sorted.size += size > symbol_size
    sorted.records = <const uint8_t **> checked_malloc(sorted.size * sizeof(uint8_t *))
    with nogil:
        at, last = 0, sorted.size
        while at < end:
            record = &records[at]
            size = size_of(record)
            at += HEADER + size
            if size <= symbol_size:
                continue
            sorted.cells += size // symbol_size + 1
            if count_of(record) == 1:       # most words, which need no sorting
                sorted.records[once] = record
                once += 1
            else:
                last -= 1
                sorted.records[last] = record
        qsort(sorted.records + once, sorted.size - once, sizeof(uint8_t *), by_count)
        sorted.groups = once > 0
        for at in range(once, sorted.size):
            sorted.groups += at == 0 or count_of(sorted.records[at]) != count_of(sorted.records[at - 1])
    return 0


cdef int by_count(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = count_of((<const uint8_t **> a)[0]), right = count_of((<const uint8_t **> b)[0])
    return (left > right) - (left < right)


cdef int fill_words(
    Words *words, Cell *cells, const WordRecords *sorted, const uint8_t *symbol_of
) except -1 nogil:
    cdef size_t word, size, i, out = 1, countdown = SIGNAL_INTERVAL
    cdef uint32_t symbol
    cdef const uint8_t *record
    cdef Group *group = NULL
    cells[0] = <Cell> border(cells)
    for word in range(sorted.size):
        record = sorted.records[word]
        size = size_of(record) // sorted.symbol_size
        if group == NULL or group.count != count_of(record):
            group = &words.groups[words.groups_size]
            group.begin, group.size, group.count = out, 0, count_of(record)
            words.groups_size += 1
        group.size += size + 1
        for i in range(size):
            if symbol_of != NULL:
                cells[out] = symbol_of[record[HEADER + i]]
            else:
                memcpy(&symbol, record + HEADER + 4 * i, 4)
                cells[out] = <Cell> symbol
            out += 1
        cells[out] = <Cell> border(cells)
        out += 1
        check_signals(&countdown, size)
    return 0


cdef void close_up_words(Words *words, Cell *cells, SymbolTable *symbols) noexcept nogil:
    """Give every symbol one cell again, and leave out the words of one symbol."""
    cdef size_t i, groups = 0, at, end, begin, out = 1
    cdef Group *group
    cdef uint32_t symbol
    for i in range(words.groups_size):
        at, end = words.groups[i].begin, words.groups[i].begin + words.groups[i].size
        group = &words.groups[groups]
        group.begin, group.count = out, words.groups[i].count
        begin = out
        while at < end:
            symbol = cells[at]
            cells[out] = <Cell> symbol
            if symbol != border(cells):
                out += 1
                at += symbols.width[symbol]
            else:
                out = out + 1 if out > begin + 1 else begin
                begin = out
                at += 1
        group.size = out - group.begin
        groups += group.size > 0
    words.groups_size, words.size = groups, out
    words.room = trim_block(words.cells, words.room, out * sizeof(Cell))
    for i in range(symbols.count):
        symbols.width[i] = 1
    symbols.widest = 1


cdef const Group *group_of(const Words *words, size_t cell) noexcept nogil:
    """Return the group that a cell belongs to."""
    cdef size_t low = 0, high = words.groups_size, middle
    while high - low > 1:
        middle = (low + high) // 2
        if words.groups[middle].begin <= cell:
            low = middle
        else:
            high = middle
    return &words.groups[low]


cdef inline void prefetch_word(Cell *cell, size_t width) noexcept nogil:
    """Fetch the cells around a pair of this width: one cache line, or two."""
    prefetch_far(cell - 2)
    prefetch_far(cell + width)


cdef inline Cell *symbol_before(Cell *cell) noexcept nogil:
    """Return the first cell of the symbol before this one; there must be one."""
    cdef uint32_t last = (cell - 1)[0]
    cdef size_t is_last = last // border(cell)      # 0 or 1, since a branch would be mispredicted
    return cell - (1 + is_last * ((last & ~border(cell)) - 1))


cdef int replace_in_words(
    const Words *words, Cell *cells, Changes *changes, const SymbolTable *symbols, const uint32_t *postings,
    size_t size, uint32_t a, uint32_t b, uint32_t new_symbol,
) except -1 nogil:
    """Replace a, b by new_symbol at each posting, in order, if they still stand there, and note the neighbours."""
    cdef uint32_t a_width = symbols.width[a], b_width = symbols.width[b]
    cdef uint32_t standing[WORD_BATCH]
    cdef Cell *cell
    cdef Cell *right
    cdef Cell *left
    cdef const Group *group
    cdef int64_t count = 0
    cdef size_t begin = 0, batch, i, at, group_end = 0, countdown = SIGNAL_INTERVAL
    for i in range(min(size, <size_t> WORD_BATCH)):
        prefetch_word(cells + postings[i], a_width + b_width)
    while begin < size:
        for i in range(begin + WORD_BATCH, min(begin + 2 * WORD_BATCH, size)):
            prefetch_word(cells + postings[i], a_width + b_width)
        batch = min(size - begin, <size_t> WORD_BATCH)
        batch = list_standing(cells, postings + begin, batch, a, a_width, b, standing)
        begin += WORD_BATCH
        for i in range(batch):
            at = standing[i]
            cell = cells + at
            if cell[0] != a:    # a is b, and this one was the second half of the pair before
                continue
            if at >= group_end:
                group = group_of(words, at)
                count, group_end = group.count, group.begin + group.size
            if (cell - 1)[0] != border(cells):
                left = symbol_before(cell)
                if left[0] == new_symbol:
                    note_double(changes, count, <uint32_t> (left - cells))
                else:
                    note_neighbour(&changes.left, left[0], count, <uint32_t> (left - cells))
            right = cell + a_width + b_width
            cell[0] = <Cell> new_symbol
            cell[a_width] = <Cell> -1
            (right - 1)[0] = <Cell> (border(cells) | (a_width + b_width))
            # a pair that follows at once is replaced next, and notes this symbol as its neighbour
            if right[0] != border(cells) and not (right[0] == a and right[a_width] == b):
                note_neighbour(&changes.right, right[0], count, standing[i])
            check_signals(&countdown)
    return 0


cdef inline size_t list_standing(
    const Cell *cells, const uint32_t *postings, size_t size, uint32_t a, uint32_t a_width, uint32_t b,
    uint32_t *standing,
) noexcept nogil:
    """List the postings where a, b still stand; return their number. A branch would often be mispredicted."""
    cdef size_t i, listed = 0
    cdef const Cell *cell
    for i in range(size):
        cell = cells + postings[i]
        standing[listed] = postings[i]
        listed += (cell[0] == a) & (cell[a_width] == b)
    return listed


cdef inline int check_signals(size_t *countdown, size_t steps=1) except -1 nogil:
    """Raise KeyboardInterrupt for a pending Ctrl-C, which is checked every SIGNAL_INTERVAL steps."""
    if countdown[0] > steps:
        countdown[0] -= steps
    else:
        countdown[0] = SIGNAL_INTERVAL
        with gil:
            PyErr_CheckSignals()
    return 0


cdef void free_words(Words *words) noexcept nogil:
    free_block(words.cells, words.room)
    free(words.groups)
