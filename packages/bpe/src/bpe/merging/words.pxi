# The short words: distinct pretokens, one after another in one array of cells, which have 16 bits where that will do,
# else 32. The long ones are elsewhere: see long_words.pxi.
#
#     | length | count, in eight bytes | symbols … |
#
# A word keeps its place, the number of its first cell, when it gets shorter; the cells that it leaves are EMPTY until
# the words are closed up, which is when all pairs are counted again.

ctypedef fused Cell:
    uint16_t
    uint32_t

ctypedef struct LongestShort:   # how many symbols a short word may have
    size_t common
    size_t rare                 # if it occurs at most RARE times

ctypedef struct Words:
    void *cells                 # of uint16_t, or of uint32_t where they are `wide`
    size_t size                 # how many cells there are
    size_t room                 # how many bytes they may take
    bint wide
    rewrite_function rewrite_short  # replaces a pair in many words by vectors; NULL: there is none, or it does not pay

cdef enum:
    NARROW_HEADER = REWRITE_HEADER  # cells before the symbols of a word
    WIDE_HEADER = 3
    RECORD = 12                 # bytes before a pretoken in its record (see bpe.counting.records)
    SIGNAL_INTERVAL = 1 << 16   # words, or symbols, between two looks for a pending Ctrl-C
    VECTORS_PAY = 1 << 24       # cells up to which vectors pay: with more, reading them waits for memory
    LONG_WORD = 64              # symbols that a short word has at most; with 24 to 512 prose takes the same time
    LONG_RARE_WORD = 1          # a short one that is rare; with 64, 40 MB of base64 take 1.7 times as long to merge
    RARE = 4                    # times that a rare word occurs at most

cdef uint32_t EMPTY = <uint32_t> -1     # cut to 16 bits in a narrow cell


cdef inline size_t header(Cell *cells) noexcept nogil:
    if Cell is uint16_t:
        return NARROW_HEADER
    else:
        return WIDE_HEADER


cdef inline size_t cell_size(const Words *words) noexcept nogil:
    return sizeof(uint32_t) if words.wide else sizeof(uint16_t)


cdef inline int64_t count_of(const uint8_t *record) noexcept nogil:
    """How often the pretoken of a record occurs."""
    cdef int64_t count
    memcpy(&count, record, 8)
    return count


cdef inline size_t bytes_in(const uint8_t *record) noexcept nogil:
    """How many bytes the pretoken of a record has."""
    cdef uint32_t size
    memcpy(&size, record + 8, 4)
    return size


cdef inline size_t symbols_in(const uint8_t *record, size_t symbol_size) noexcept nogil:
    """How many symbols it has, each of `symbol_size` bytes: 1, or those of a uint32."""
    return bytes_in(record) if symbol_size == 1 else bytes_in(record) // sizeof(uint32_t)


cdef inline bint is_long(const uint8_t *record, size_t size, const LongestShort *longest) noexcept nogil:
    """Whether the pretoken of a record, of `size` symbols, becomes a long word."""
    return size > (longest.rare if count_of(record) <= RARE else longest.common)


cdef int64_t load_words(
    Words *words, const uint8_t[::1] records, const uint8_t *symbol_of, size_t most_symbols,
    const LongestShort *longest, int level,
) except -1:
    """The short words; how many are long.

    symbol_of: the symbol of each byte, or NULL where pretokens are arrays of symbols (uint32) already. A pretoken of
    one symbol, in which nothing can be merged, is left out.
    """
    cdef size_t at = 0, end = records.shape[0], count = 0, total = 0, longer = 0
    cdef size_t size, goes_long, goes_short
    cdef size_t symbol_size = 1 if symbol_of != NULL else sizeof(uint32_t)
    cdef const uint8_t *record
    with nogil:
        while at < end:
            record = &records[at]
            size = symbols_in(record, symbol_size)
            at += RECORD + bytes_in(record)
            goes_long = is_long(record, size, longest)      # no branch: it would be mispredicted
            goes_short = (size > 1) & (goes_long ^ 1)
            longer += goes_long
            count += goes_short
            total += goes_short * size
    words.wide = max(longest.common, longest.rare) >= <uint16_t> EMPTY or most_symbols > <size_t> 1 << 16
    total += count * (WIDE_HEADER if words.wide else NARROW_HEADER)
    check_cells(total)
    words.room = (total + FIND_SLACK) * cell_size(words)
    words.cells = checked_block(words.room)
    words.size = total
    words.rewrite_short = choose_rewrite(level) if total <= VECTORS_PAY else NULL
    if words.wide:
        fill_words(<uint32_t *> words.cells, records, symbol_of, longest)
    else:
        fill_words(<uint16_t *> words.cells, records, symbol_of, longest)
    return longer


cdef int check_cells(size_t total) except -1:
    """Postings are numbers of cells, in 32 bits."""
    if total >= EMPTY:
        raise MemoryError(
            f"the distinct pretokens come to {total:,} symbols, more than the {EMPTY:,} that can be merged; "
            "choose a pattern that splits the text into shorter pieces"
        )
    return 0


cdef int fill_words(
    Cell *cells, const uint8_t[::1] records, const uint8_t *symbol_of, const LongestShort *longest
) except -1:
    cdef size_t at = 0, end = records.shape[0], size, i
    cdef size_t symbol_size = 1 if symbol_of != NULL else sizeof(uint32_t)
    cdef const uint8_t *record
    cdef uint32_t symbol
    cdef Cell *word = cells
    with nogil:
        while at < end:
            record = &records[at]
            size = symbols_in(record, symbol_size)
            at += RECORD + bytes_in(record)
            if size > 1 and not is_long(record, size, longest):
                word[0] = <Cell> size
                memcpy(word + 1, record, 8)
                word += header(cells)
                for i in range(size):
                    if symbol_of != NULL:
                        word[i] = symbol_of[record[RECORD + i]]
                    else:
                        memcpy(&symbol, record + RECORD + 4 * i, 4)
                        word[i] = <Cell> symbol
                word += size
    return 0


cdef void close_up_words(Words *words, Cell *cells) noexcept nogil:
    """Move the words together, without the empty cells between them and without the words of one symbol."""
    cdef Cell *end = cells + words.size
    cdef Cell *word = cells
    cdef Cell *out = cells
    cdef size_t size
    while word < end:
        size = header(cells) + word[0]
        if word[0] > 1:
            memmove(out, word, size * sizeof(Cell))
            out += size
        word += size
        while word < end and word[0] == <Cell> EMPTY:
            word += 1
    words.size = out - cells
    words.room = trim_block(words.cells, words.room, (words.size + FIND_SLACK) * sizeof(Cell))


cdef inline void prefetch_word(Cell *cells, uint32_t place) noexcept nogil:
    prefetch(cells + place)
    prefetch(cells + place + header(cells) + 8)     # it may lie across two cache lines


cdef inline int check_signals(size_t *countdown, size_t steps=1) except -1 nogil:
    """Raise KeyboardInterrupt for a pending Ctrl-C; looks for one every SIGNAL_INTERVAL steps."""
    if countdown[0] > steps:
        countdown[0] -= steps
    else:
        countdown[0] = SIGNAL_INTERVAL
        with gil:
            PyErr_CheckSignals()
    return 0


cdef void free_words(Words *words) noexcept nogil:
    free_block(words.cells, words.room)
