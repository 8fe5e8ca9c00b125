# All pairs counted while there are few symbols, as before the first merge: in an array of every pair that there can be.
# Those that reach the floor go into an empty table, with their postings. The words, which have been closed up, are gone
# through twice: once for the counts and how many postings there will be, once for these.

cdef enum:
    FEW_SYMBOLS = 1 << 10       # whose pairs take 16 MiB at most, of which what occurs is touched

ctypedef struct PossiblePair:
    int64_t count
    Places places

ctypedef struct PossiblePairs:
    PossiblePair *pairs         # by the left symbol, then by the right one
    size_t symbols
    uint8_t is_left[FEW_SYMBOLS]    # whether a pair begins with a symbol: the others are not looked at


cdef int count_pairs_of_few(
    PairTable *table, const Words *words, const LongWords *long_words, const ByteWords *byte_words, bint by_passes,
    const SymbolTable *symbols,
) except -1:
    """by_passes: the byte words are not going to be loaded as long words now, and their pairs get no postings."""
    cdef PossiblePairs found
    cdef PossiblePair *here
    cdef Pair *pair
    cdef uint64_t key
    cdef size_t left, right, i, size = symbols.count * symbols.count * sizeof(PossiblePair)
    memset(found.is_left, 0, sizeof(found.is_left))
    found.symbols = symbols.count
    found.pairs = <PossiblePair *> checked_block(size)
    try:
        with nogil:
            if words.wide:
                tally_pairs(words, <uint32_t *> words.cells, &found)
            else:
                tally_pairs(words, <uint16_t *> words.cells, &found)
            if long_words.wide:
                tally_long_pairs(long_words, <uint32_t *> long_words.cells, &found)
            else:
                tally_long_pairs(long_words, <uint16_t *> long_words.cells, &found)
            if byte_words.codes != NULL:
                tally_byte_pairs(byte_words, &found, not by_passes)
            for left in range(symbols.count):
                for right in range(symbols.count if found.is_left[left] else 0):
                    here = possible_pair(&found, left, right)
                    key = key_of(<uint32_t> left, <uint32_t> right)
                    if here.count >= table.floor and is_short(table, symbols, key):
                        pair = add_pair(table, key)
                        pair.count, pair.postings_size = here.count, <uint32_t> here.places.number
                    here.places.next = NULL
            place_postings(table)
            for i in range(table.size):
                pair = &table.pairs[i]
                possible_pair(&found, left_of(pair.key), right_of(pair.key)).places.next = pair.postings
            if words.wide:
                post_pairs(words, <uint32_t *> words.cells, &found)
            else:
                post_pairs(words, <uint16_t *> words.cells, &found)
            if long_words.wide:
                post_long_pairs(long_words, <uint32_t *> long_words.cells, &found)
            else:
                post_long_pairs(long_words, <uint16_t *> long_words.cells, &found)
            if byte_words.codes != NULL and not by_passes:
                post_byte_pairs(byte_words, &found, words.size + 1)
            for i in range(table.size):
                pair = &table.pairs[i]
                here = possible_pair(&found, left_of(pair.key), right_of(pair.key))
                pair.postings_size = <uint32_t> (here.places.next - pair.postings)
    finally:
        free_block(found.pairs, size)
    return 0


cdef inline PossiblePair *possible_pair(const PossiblePairs *found, size_t left, size_t right) noexcept nogil:
    return &found.pairs[left * found.symbols + right]


cdef int tally_pairs(const Words *words, Cell *cells, PossiblePairs *found) except -1 nogil:
    """How often each pair occurs, and in how many places; which symbols begin one."""
    cdef const Cell *word = cells
    cdef const Cell *symbols
    cdef PossiblePair *pair
    cdef int64_t count
    cdef size_t i, countdown = SIGNAL_INTERVAL
    while word < cells + words.size:
        memcpy(&count, word + 1, 8)
        symbols = word + header(cells)
        for i in range(<size_t> word[0] - 1):
            pair = possible_pair(found, symbols[i], symbols[i + 1])
            pair.count += count
            pair.places.number += 1
            found.is_left[symbols[i]] = True
        word = symbols + word[0]
        check_signals(&countdown)
    return 0


cdef int tally_long_pairs(const LongWords *words, Cell *cells, PossiblePairs *found) except -1 nogil:
    cdef const Cell *cell
    cdef const Cell *end
    cdef PossiblePair *pair
    cdef size_t group, countdown = SIGNAL_INTERVAL
    for group in range(words.groups_size):
        cell = cells + words.groups[group].begin
        end = cell + words.groups[group].size
        while cell < end:
            if cell[0] != border(cells) and cell[1] != border(cells):
                pair = possible_pair(found, cell[0], cell[1])
                pair.count += words.groups[group].count
                pair.places.number += 1
                found.is_left[cell[0]] = True
            cell += 1
            check_signals(&countdown)
    return 0


cdef int post_pairs(const Words *words, Cell *cells, PossiblePairs *found) except -1 nogil:
    """The postings of each pair that is not left out."""
    cdef const Cell *word = cells
    cdef const Cell *symbols
    cdef PossiblePair *pair
    cdef size_t i, countdown = SIGNAL_INTERVAL
    while word < cells + words.size:
        symbols = word + header(cells)
        for i in range(<size_t> word[0] - 1):
            pair = possible_pair(found, symbols[i], symbols[i + 1])
            if pair.places.next != NULL:
                pair.places.next[0] = <uint32_t> (word - cells)
                pair.places.next += 1
        word = symbols + word[0]
        check_signals(&countdown)
    return 0


cdef int post_long_pairs(const LongWords *words, Cell *cells, PossiblePairs *found) except -1 nogil:
    cdef const Cell *cell = cells + 1
    cdef PossiblePair *pair
    cdef size_t countdown = SIGNAL_INTERVAL
    while cell + 1 < cells + words.cells_size:
        if cell[0] != border(cells) and cell[1] != border(cells):
            pair = possible_pair(found, cell[0], cell[1])
            if pair.places.next != NULL:
                pair.places.next[0] = <uint32_t> (words.first_place + (cell - cells))
                pair.places.next += 1
        cell += 1
        check_signals(&countdown)
    return 0
