# The long words: those of more than LONG_WORD symbols, whose postings are places in them.
#
# A short word is rewritten whole for each of its postings, which takes the square of its length as it is merged from
# bytes to a few tokens. In a long word a posting names the place of a pair, and replacing the pair takes a few steps,
# so that the whole takes time in proportion to the length. A symbol has one cell when the word is loaded, and all the
# cells of its two halves when it is made by a merge:
#
#       loaded    t   h   e   r   e       merged    the, re
#       cells    the  .  E3  re  E2       E: the last cell of a symbol of so many cells; `.`: a cell inside one
#
# so that the symbol to the right begins where this one's cells end, and the symbol to the left is where E says, or one
# cell away. A border stands before, between and behind the words. Each time that all pairs are counted again, the words
# are closed up before: every symbol has one cell again, so that fewer cells take less time to go through and to fetch.
#
# The highest bit is set in every cell that no symbol begins in. Cells have 16 bits where that will do for the symbols,
# else 32. In postings they are numbered on from the end of the short words.

cdef enum:
    LONG_PREFETCH_DISTANCE = 64     # 0.50 s instead of 0.69 with 16, for 10 MB of English as one word, 32,000 tokens

ctypedef struct LongWord:
    size_t begin                # its first cell
    int64_t count

ctypedef struct LongWords:
    void *cells                 # of uint16_t, or of uint32_t where they are `wide`
    size_t cells_size           # 0: there are no long words
    size_t room                 # how many bytes the cells may take
    bint wide
    size_t widest               # cells that a symbol may have
    size_t first_place          # of the first cell in postings
    LongWord *words
    size_t count


cdef inline uint32_t border(Cell *cells) noexcept nogil:
    """A cell between two words: the highest bit alone."""
    if Cell is uint16_t:
        return <uint32_t> 1 << 15
    else:
        return <uint32_t> 1 << 31


cdef int load_long_words(
    LongWords *words, const uint8_t[::1] records, const uint8_t *symbol_of, size_t most_symbols, size_t longest_short,
    size_t count, size_t first_place,
) except -1:
    """The `count` words of more than `longest_short` symbols. symbol_of: as for load_words()."""
    cdef size_t at = 0, end = records.shape[0], total = 1
    cdef uint32_t size
    words.first_place, words.widest = first_place, <size_t> -1
    if count == 0:
        return 0
    with nogil:
        while at < end:
            memcpy(&size, &records[at + 8], 4)
            at += RECORD + size
            size = size if symbol_of != NULL else size // 4
            total += size + 1 if size > longest_short else 0
    check_cells(first_place + total)
    words.wide = most_symbols > <size_t> 1 << 15
    words.widest = (<size_t> 1 << (31 if words.wide else 15)) - 2
    words.room = total * (sizeof(uint32_t) if words.wide else sizeof(uint16_t))
    words.cells = checked_block(words.room)
    words.cells_size = total
    words.words = <LongWord *> checked_malloc(count * sizeof(LongWord))
    with nogil:
        if words.wide:
            fill_long_words(words, <uint32_t *> words.cells, records, symbol_of, longest_short)
        else:
            fill_long_words(words, <uint16_t *> words.cells, records, symbol_of, longest_short)
    return 0


cdef int fill_long_words(
    LongWords *words, Cell *cells, const uint8_t[::1] records, const uint8_t *symbol_of, size_t longest_short
) except -1 nogil:
    cdef size_t at = 0, end = records.shape[0], i, countdown = SIGNAL_INTERVAL
    cdef uint32_t size, symbol
    cdef Cell *cell = cells
    cdef const uint8_t *record
    cell[0] = <Cell> border(cells)
    cell += 1
    while at < end:
        record = &records[at]
        memcpy(&size, record + 8, 4)
        at += RECORD + size
        size = size if symbol_of != NULL else size // 4
        if size <= longest_short:
            continue
        words.words[words.count].begin = cell - cells
        memcpy(&words.words[words.count].count, record, 8)
        words.count += 1
        for i in range(size):
            if symbol_of != NULL:
                cell[i] = symbol_of[record[RECORD + i]]
            else:
                memcpy(&symbol, record + RECORD + 4 * i, 4)
                cell[i] = <Cell> symbol
            check_signals(&countdown)
        cell[size] = <Cell> border(cells)
        cell += size + 1
    return 0


cdef void close_up_long_words(LongWords *words, Cell *cells, SymbolTable *symbols) noexcept nogil:
    """Give every symbol one cell again, and leave out the words of one symbol."""
    cdef size_t word, kept = 0, begin, out = 1, i
    cdef const Cell *cell
    cdef uint32_t symbol
    for word in range(words.count):
        begin = out
        cell = cells + words.words[word].begin
        while cell[0] != border(cells):
            symbol = cell[0]
            cells[out] = <Cell> symbol
            out += 1
            cell += symbols.width[symbol]
        if out == begin + 1:
            out = begin
            continue
        words.words[kept].begin, words.words[kept].count = begin, words.words[word].count
        kept += 1
        cells[out] = <Cell> border(cells)
        out += 1
    words.count, words.cells_size = kept, out
    words.room = trim_block(words.cells, words.room, out * sizeof(Cell))
    for i in range(symbols.count):
        symbols.width[i] = 1
    symbols.widest = 1


cdef size_t first_long(const LongWords *words, const uint32_t *postings, size_t size) noexcept nogil:
    """How many postings are of short words: they stand before the others."""
    cdef size_t low = 0, high = size, middle
    if size == 0 or postings[size - 1] < words.first_place:
        return size
    while low < high:
        middle = (low + high) // 2
        if postings[middle] < words.first_place:
            low = middle + 1
        else:
            high = middle
    return low


cdef size_t word_of(const LongWords *words, size_t cell) noexcept nogil:
    """The long word that a cell belongs to."""
    cdef size_t low = 0, high = words.count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if words.words[middle].begin <= cell:
            low = middle
        else:
            high = middle
    return low


cdef inline void prefetch_long(Cell *cell) noexcept nogil:
    """Fetch what replacing a pair here looks at: one cache line, or two."""
    prefetch(cell - 8)
    prefetch(cell + 8)


cdef inline Cell *symbol_before(Cell *cell) noexcept nogil:
    """Where the symbol before this one begins; there must be one."""
    cdef uint32_t last = (cell - 1)[0]
    return cell - (last & ~border(cell) if last & border(cell) else 1)


cdef int replace_in_long_words(
    const LongWords *words, Cell *cells, Changes *changes, const SymbolTable *symbols, const uint32_t *postings,
    size_t size, uint32_t a, uint32_t b, uint32_t made,
) except -1 nogil:
    """Replace a, b by `made` at each posting, in order, where they still stand, and note what stands beside it."""
    cdef uint32_t a_width = symbols.width[a], b_width = symbols.width[b], first = <uint32_t> words.first_place
    cdef Cell *cell
    cdef Cell *right
    cdef Cell *left
    cdef int64_t count = 0
    cdef size_t i, at, word_end = 0, word, countdown = SIGNAL_INTERVAL
    for i in range(min(size, <size_t> LONG_PREFETCH_DISTANCE)):
        prefetch_long(cells + (postings[i] - first))
    for i in range(size):
        if i + LONG_PREFETCH_DISTANCE < size:
            prefetch_long(cells + (postings[i + LONG_PREFETCH_DISTANCE] - first))
        at = postings[i] - first
        cell = cells + at
        if cell[0] != a or cell[a_width] != b:
            continue
        if at >= word_end:
            word = word_of(words, at)
            count = words.words[word].count
            word_end = words.words[word + 1].begin if word + 1 < words.count else <size_t> -1
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
            note_neighbour(&changes.right, right[0], count, postings[i])
        check_signals(&countdown)
    return 0


cdef void free_long_words(LongWords *words) noexcept nogil:
    free_block(words.cells, words.room)
    free(words.words)
