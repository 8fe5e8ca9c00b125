# The long words: those of more than LONG_WORD symbols, or LONG_RARE_WORD if they are rare, whose postings are places in
# them.
#
# A short word is rewritten whole for each of its postings, which takes the square of its length as it is merged from
# bytes to a few tokens. In a long word a posting names the place of a pair, and replacing the pair takes a few steps,
# so that the whole takes time in proportion to the length. Rare words are held as long ones because they are many where
# they matter, and take less memory so: how often a word occurs is noted once for all words that occur equally often,
# its group. A symbol has one cell when the word is loaded, and all the cells of its two halves when a merge makes it:
#
#       loaded    t   h   e   r   e       merged    the, re
#       cells    the  .  E3  re  E2       E: the last cell of a symbol of so many cells; `.`: a cell inside one
#
# so that the symbol to the right begins where this one's cells end, and the symbol to the left is where E says, or one
# cell away. A border stands before the first word and behind each. Each time that all pairs are counted again, the
# words are closed up before: every symbol has one cell again, so that fewer cells take less time to go through and to
# fetch.
#
# The highest bit is set in every cell that no symbol begins in. Cells have 16 bits where that will do for the symbols,
# else 32. In postings they are numbered on from the end of the short words.

cdef enum:
    LONG_BATCH = 64     # postings that are looked at together; those of the next batch are prefetched meanwhile

ctypedef struct LongRecords:    # the records of the long words
    const uint8_t **records     # by count
    size_t size
    size_t symbol_size          # bytes: 1, or those of a uint32
    size_t groups               # how many different counts there are
    size_t cells                # that all words take, with their borders

ctypedef struct Group:          # all words that occur `count` times, side by side, with a border behind each
    size_t begin, size
    int64_t count

ctypedef struct LongWords:
    void *cells                 # of uint16_t, or of uint32_t where they are `wide`
    size_t cells_size           # 0: there are no long words
    size_t room                 # how many bytes the cells may take
    bint wide
    size_t widest               # cells that a symbol may have
    size_t first_place          # of the first cell in postings
    Group *groups
    size_t groups_size


cdef inline uint32_t border(Cell *cells) noexcept nogil:
    """A cell between two words: the highest bit alone."""
    if Cell is uint16_t:
        return <uint32_t> 1 << 15
    else:
        return <uint32_t> 1 << 31


cdef int find_long_records(
    LongRecords *found, const uint8_t[::1] records, size_t symbol_size, const LongestShort *longest, size_t count
) except -1:
    """The `count` records of long words. A symbol takes `symbol_size` bytes."""
    cdef size_t at = 0, end = records.shape[0], once = 0, last = count, size
    cdef const uint8_t *record
    found.records = <const uint8_t **> checked_malloc(count * sizeof(uint8_t *))
    found.size, found.symbol_size, found.groups, found.cells = count, symbol_size, 0, 1
    with nogil:
        while at < end:
            record = &records[at]
            size = symbols_in(record, symbol_size)
            at += RECORD + bytes_in(record)
            if not is_long(record, size, longest):
                continue
            found.cells += size + 1
            if count_of(record) == 1:       # most of them, which need no sorting
                found.records[once] = record
                once += 1
            else:
                last -= 1
                found.records[last] = record
        qsort(found.records + once, count - once, sizeof(uint8_t *), by_count)
        found.groups = once > 0
        for at in range(once, count):
            found.groups += at == 0 or count_of(found.records[at]) != count_of(found.records[at - 1])
    return 0


cdef int by_count(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = count_of((<const uint8_t **> a)[0]), right = count_of((<const uint8_t **> b)[0])
    return (left > right) - (left < right)


cdef Group *group_to_extend(Group *groups, size_t *size, size_t begin, int64_t count) noexcept nogil:
    """The group that a word which begins here belongs to: the last one, or a new one."""
    if size[0] == 0 or groups[size[0] - 1].count != count:
        groups[size[0]].begin, groups[size[0]].size, groups[size[0]].count = begin, 0, count
        size[0] += 1
    return &groups[size[0] - 1]


cdef int load_long_words(
    LongWords *words, const LongRecords *found, const uint8_t *symbol_of, size_t first_place, size_t most_symbols
) except -1:
    """symbol_of: as for load_words()."""
    make_room_for_long_words(words, found.cells, found.groups, first_place, most_symbols, NULL, 0)
    with nogil:
        if words.wide:
            fill_long_words(words, <uint32_t *> words.cells, found, symbol_of)
        else:
            fill_long_words(words, <uint16_t *> words.cells, found, symbol_of)
    return 0


cdef inline size_t size_of_long_cell(size_t most_symbols) noexcept nogil:
    return sizeof(uint32_t) if most_symbols > <size_t> 1 << 15 else sizeof(uint16_t)


cdef int make_room_for_long_words(
    LongWords *words, size_t cells, size_t groups, size_t first_place, size_t most_symbols, void *block, size_t room
) except -1:
    """Room for so many cells and groups: in a block of `room` bytes, if there is one."""
    cdef size_t size = size_of_long_cell(most_symbols)
    check_cells(first_place + cells)
    words.first_place, words.cells_size = first_place, cells
    words.wide, words.widest = size == sizeof(uint32_t), (<size_t> 1 << (8 * size - 1)) - 2
    words.groups = <Group *> checked_malloc(groups * sizeof(Group))
    if block == NULL:
        block, room = checked_block(cells * size), cells * size
    words.cells, words.room = block, room
    return 0


cdef int fill_long_words(
    LongWords *words, Cell *cells, const LongRecords *found, const uint8_t *symbol_of
) except -1 nogil:
    cdef size_t word, size, i, out = 1, countdown = SIGNAL_INTERVAL
    cdef uint32_t symbol
    cdef const uint8_t *record
    cells[0] = <Cell> border(cells)
    for word in range(found.size):
        record = found.records[word]
        size = symbols_in(record, found.symbol_size)
        group_to_extend(words.groups, &words.groups_size, out, count_of(record)).size += size + 1
        for i in range(size):
            if symbol_of != NULL:
                cells[out] = symbol_of[record[RECORD + i]]
            else:
                memcpy(&symbol, record + RECORD + 4 * i, 4)
                cells[out] = <Cell> symbol
            out += 1
        cells[out] = <Cell> border(cells)
        out += 1
        check_signals(&countdown, size)
    return 0


cdef void close_up_long_words(LongWords *words, Cell *cells, SymbolTable *symbols) noexcept nogil:
    """Give every symbol one cell again, and leave out the words of one symbol."""
    cdef size_t i, kept = 0, at, end, begin, out = 1
    cdef Group *group
    cdef uint32_t symbol
    for i in range(words.groups_size):
        at, end = words.groups[i].begin, words.groups[i].begin + words.groups[i].size
        group = &words.groups[kept]
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
        kept += group.size > 0
    words.groups_size, words.cells_size = kept, out
    words.room = trim_block(words.cells, words.room, out * sizeof(Cell))
    for i in range(symbols.count):
        symbols.width[i] = 1
    symbols.widest = 1


cdef size_t first_long(const LongWords *words, const uint32_t *postings, size_t size) noexcept nogil:
    """How many postings are of short words: they stand before the others."""
    cdef size_t low = 0, high = size, middle
    if words.groups_size == 0 or size == 0 or postings[size - 1] < words.first_place:
        return size
    while low < high:
        middle = (low + high) // 2
        if postings[middle] < words.first_place:
            low = middle + 1
        else:
            high = middle
    return low


cdef const Group *group_of(const LongWords *words, size_t cell) noexcept nogil:
    """The group that a cell belongs to."""
    cdef size_t low = 0, high = words.groups_size, middle
    while high - low > 1:
        middle = (low + high) // 2
        if words.groups[middle].begin <= cell:
            low = middle
        else:
            high = middle
    return &words.groups[low]


cdef inline void prefetch_long(Cell *cell, size_t width) noexcept nogil:
    """Fetch what replacing a pair of this width will look at, a batch later: one cache line, or two."""
    prefetch_far(cell - 2)
    prefetch_far(cell + width)


cdef inline Cell *symbol_before(Cell *cell) noexcept nogil:
    """Where the symbol before this one begins; there must be one."""
    cdef uint32_t last = (cell - 1)[0]
    cdef size_t is_last = last // border(cell)      # 0 or 1: there is no branch, which would be mispredicted
    return cell - (1 + is_last * ((last & ~border(cell)) - 1))


cdef int replace_in_long_words(
    const LongWords *words, Cell *cells, Changes *changes, const SymbolTable *symbols, const uint32_t *postings,
    size_t size, uint32_t a, uint32_t b, uint32_t made,
) except -1 nogil:
    """Replace a, b by `made` at each posting, in order, where they still stand, and note what stands beside it."""
    cdef uint32_t a_width = symbols.width[a], b_width = symbols.width[b], first = <uint32_t> words.first_place
    cdef uint32_t standing[LONG_BATCH]
    cdef Cell *cell
    cdef Cell *right
    cdef Cell *left
    cdef const Group *group
    cdef int64_t count = 0
    cdef size_t begin = 0, kept, i, at, group_end = 0, countdown = SIGNAL_INTERVAL
    for i in range(min(size, <size_t> LONG_BATCH)):
        prefetch_long(cells + (postings[i] - first), a_width + b_width)
    while begin < size:
        for i in range(begin + LONG_BATCH, min(begin + 2 * LONG_BATCH, size)):
            prefetch_long(cells + (postings[i] - first), a_width + b_width)
        kept = min(size - begin, <size_t> LONG_BATCH)
        kept = list_standing(cells - first, postings + begin, kept, a, a_width, b, standing)
        begin += LONG_BATCH
        for i in range(kept):
            at = standing[i] - first
            cell = cells + at
            if cell[0] != a:    # a is b, and this one was the second half of the pair before
                continue
            if at >= group_end:
                group = group_of(words, at)
                count, group_end = group.count, group.begin + group.size
            if (cell - 1)[0] != border(cells):
                left = symbol_before(cell)
                if left[0] == made:
                    note_double(changes, count, <uint32_t> (first + (left - cells)))
                else:
                    note_neighbour(&changes.left, left[0], count, <uint32_t> (first + (left - cells)))
            right = cell + a_width + b_width
            cell[0] = <Cell> made
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
    """List the postings where a, b still stand; how many. It is as often gone as not: a branch would be mispredicted.

    cells: where cell 0 would be, if postings were numbered from there.
    """
    cdef size_t i, kept = 0
    cdef const Cell *cell
    for i in range(size):
        cell = cells + postings[i]
        standing[kept] = postings[i]
        kept += (cell[0] == a) & (cell[a_width] == b)
    return kept


cdef void free_long_words(LongWords *words) noexcept nogil:
    free_block(words.cells, words.room)
    free(words.groups)
