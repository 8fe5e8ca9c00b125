# All pairs counted while there are few symbols, as before the first merge: in an array of every pair that there can be.
# Those that reach the floor go into an empty table, with their postings. The words, which have been closed up, are gone
# through twice: once for the counts and how many postings there will be, once for these.

cdef enum:
    FEW_SYMBOLS = 1 << 10       # pairs of this many take 16 MiB at most; only pages of pairs that occur are touched

ctypedef struct PossiblePair:
    int64_t count
    Occurrences postings

ctypedef struct PossiblePairs:
    PossiblePair *pairs         # by the left symbol, then by the right one
    size_t symbols
    uint8_t is_left[FEW_SYMBOLS]    # whether a pair begins with a symbol: the others are not looked at


cdef int count_pairs_of_few(
    PairTable *table, const Words *words, const SymbolTable *symbols
) except -1:
    cdef PossiblePairs possible
    cdef PossiblePair *here
    cdef Pair *pair
    cdef uint64_t key
    cdef size_t left, right, i, size = symbols.count * symbols.count * sizeof(PossiblePair)
    memset(possible.is_left, 0, sizeof(possible.is_left))
    possible.symbols = symbols.count
    possible.pairs = <PossiblePair *> checked_block(size)
    try:
        with nogil:
            if words.wide:
                tally_pairs(words, <uint32_t *> words.cells, &possible)
            else:
                tally_pairs(words, <uint16_t *> words.cells, &possible)
            for left in range(symbols.count):
                for right in range(symbols.count if possible.is_left[left] else 0):
                    here = possible_pair(&possible, left, right)
                    key = key_of(<uint32_t> left, <uint32_t> right)
                    if here.count >= table.floor and is_short(table, symbols, key):
                        pair = add_pair(table, key)
                        pair.count, pair.postings_size = here.count, <uint32_t> here.postings.number
                    here.postings.next = NULL
            raise_floor(table)
            place_postings(table)
            drop_unposted(table)
            for i in range(table.size):
                pair = &table.pairs[i]
                possible_pair(&possible, left_of(pair.key), right_of(pair.key)).postings.next = pair.postings
            if words.wide:
                post_pairs(words, <uint32_t *> words.cells, &possible)
            else:
                post_pairs(words, <uint16_t *> words.cells, &possible)
            for i in range(table.size):
                pair = &table.pairs[i]
                here = possible_pair(&possible, left_of(pair.key), right_of(pair.key))
                pair.postings_size = <uint32_t> (here.postings.next - pair.postings)
    finally:
        free_block(possible.pairs, size)
    return 0


cdef inline PossiblePair *possible_pair(const PossiblePairs *possible, size_t left, size_t right) noexcept nogil:
    return &possible.pairs[left * possible.symbols + right]


cdef int tally_pairs(const Words *words, Cell *cells, PossiblePairs *possible) except -1 nogil:
    cdef const Cell *cell
    cdef const Cell *end
    cdef PossiblePair *pair
    cdef size_t group, countdown = SIGNAL_INTERVAL
    for group in range(words.groups_size):
        cell = cells + words.groups[group].begin
        end = cell + words.groups[group].size
        while cell < end:
            if cell[0] != border(cells) and cell[1] != border(cells):
                pair = possible_pair(possible, cell[0], cell[1])
                pair.count += words.groups[group].count
                pair.postings.number += 1
                possible.is_left[cell[0]] = True
            cell += 1
            check_signals(&countdown)
    return 0


cdef int post_pairs(const Words *words, Cell *cells, PossiblePairs *possible) except -1 nogil:
    cdef const Cell *cell = cells + 1
    cdef PossiblePair *pair
    cdef size_t countdown = SIGNAL_INTERVAL
    while cell + 1 < cells + words.size:
        if cell[0] != border(cells) and cell[1] != border(cells):
            pair = possible_pair(possible, cell[0], cell[1])
            if pair.postings.next != NULL:
                pair.postings.next[0] = <uint32_t> (cell - cells)
                pair.postings.next += 1
        cell += 1
        check_signals(&countdown)
    return 0
