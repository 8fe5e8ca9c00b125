# All pairs counted from the words as they are: those that reach the floor, with their postings, into an empty table.
#
# Each way goes through the words twice: once for the counts and how many postings there will be, once for the postings.

cdef enum:
    BYTE_PAIRS = 1 << 16
    LEAST_BOUNDS = 1 << 12
    MOST_BOUNDS = 1 << 22

ctypedef struct BytePair:
    int64_t count
    Places places


cdef int count_byte_pairs(
    PairTable *table, const Words *words, const LongWords *long_words, const SymbolTable *symbols
) except -1:
    """While the symbols are the 256 bytes: counted in an array of all pairs."""
    cdef BytePair *found = <BytePair *> checked_block(BYTE_PAIRS * sizeof(BytePair))    # a page for each left byte
    cdef BytePair *here
    cdef uint8_t is_left[256]       # whether a pair begins with a byte: the pages of others are not looked at
    cdef Pair *pair
    cdef uint64_t key
    cdef size_t i
    memset(is_left, 0, sizeof(is_left))
    try:
        if words.wide:
            tally_byte_pairs(words, <uint32_t *> words.cells, found, is_left)
        else:
            tally_byte_pairs(words, <uint16_t *> words.cells, found, is_left)
        with nogil:
            tally_long_byte_pairs(long_words, found, is_left)
            for i in range(BYTE_PAIRS):
                if not is_left[i >> 8]:
                    continue
                here = &found[i]
                key = key_of(<uint32_t> (i >> 8), i & 255)
                if here.count >= table.floor and is_short(table, symbols, key):
                    pair = add_pair(table, key)
                    pair.count, pair.postings_size = here.count, <uint32_t> here.places.number
                here.places.next = NULL
            place_postings(table)
            for i in range(table.size):
                pair = &table.pairs[i]
                found[left_of(pair.key) << 8 | right_of(pair.key)].places.next = pair.postings
        if words.wide:
            post_byte_pairs(words, <uint32_t *> words.cells, found)
        else:
            post_byte_pairs(words, <uint16_t *> words.cells, found)
        with nogil:
            post_long_byte_pairs(long_words, found)
    finally:
        free_block(found, BYTE_PAIRS * sizeof(BytePair))
    return 0


cdef int tally_byte_pairs(const Words *words, Cell *cells, BytePair *found, uint8_t *is_left) except -1:
    """How often each pair of bytes occurs, and in how many places; which bytes begin one."""
    cdef Cell *word = cells
    cdef Cell *symbols
    cdef BytePair *pair
    cdef int64_t count
    cdef size_t i, countdown = SIGNAL_INTERVAL
    with nogil:
        while word < cells + words.size:
            memcpy(&count, word + 1, 8)
            symbols = word + header(cells)
            for i in range(<size_t> word[0] - 1):
                pair = &found[<size_t> symbols[i] << 8 | symbols[i + 1]]
                pair.count += count
                pair.places.number += 1
                is_left[symbols[i]] = True
            word = symbols + word[0]    # none has got shorter yet
            check_signals(&countdown)
    return 0


cdef int post_byte_pairs(const Words *words, Cell *cells, BytePair *found) except -1:
    """The postings of each pair of bytes that is not left out."""
    cdef Cell *word = cells
    cdef Cell *symbols
    cdef BytePair *pair
    cdef size_t i, countdown = SIGNAL_INTERVAL
    with nogil:
        while word < cells + words.size:
            symbols = word + header(cells)
            for i in range(<size_t> word[0] - 1):
                pair = &found[<size_t> symbols[i] << 8 | symbols[i + 1]]
                if pair.places.next != NULL:
                    pair.places.next[0] = <uint32_t> (word - cells)
                    pair.places.next += 1
            word = symbols + word[0]
            check_signals(&countdown)
    return 0


cdef int count_all_pairs(
    PairTable *table, const Words *words, const LongWords *long_words, const SymbolTable *symbols
) except -1:
    """Counted in the table itself, into which pairs do not get that cannot reach the floor.

    Those are found by a pass over the words before, which sums up the counts of all pairs that have the same hash, in
    4,096 to 4,194,304 numbers: a pair does not count more than that sum, its bound.
    """
    cdef size_t slots = LEAST_BOUNDS, kept = 0, i, bounding
    cdef int64_t *bounds = NULL
    cdef uint32_t *filled           # by pair: how many postings it has so far
    cdef Pair *pair
    while slots < (words.size + long_words.cells_size) // 8 and slots < MOST_BOUNDS:
        slots *= 2
    if table.floor > 1:
        bounds = <int64_t *> checked_block(slots * sizeof(int64_t))
    try:
        for bounding in reversed(range(2 if bounds else 1)):
            if words.wide:
                tally_pairs(table, words, <uint32_t *> words.cells, bounds, slots - 1, bounding)
            else:
                tally_pairs(table, words, <uint16_t *> words.cells, bounds, slots - 1, bounding)
            with nogil:
                tally_long_pairs(table, long_words, symbols, bounds, slots - 1, bounding)
    finally:
        free_block(bounds, slots * sizeof(int64_t))
    with nogil:
        for i in range(table.size):
            pair = &table.pairs[i]
            if pair.count >= table.floor and is_short(table, symbols, pair.key):
                table.pairs[kept] = pair[0]
                kept += 1
        table.size = kept
        make_slots(table, kept)
        place_postings(table)
    filled = <uint32_t *> checked_block(kept * sizeof(uint32_t))
    try:
        if words.wide:
            post_pairs(table, words, <uint32_t *> words.cells, filled)
        else:
            post_pairs(table, words, <uint16_t *> words.cells, filled)
        with nogil:
            post_long_pairs(table, long_words, symbols, filled)
    finally:
        free_block(filled, kept * sizeof(uint32_t))
    return 0


cdef int tally_pairs(
    PairTable *table, const Words *words, Cell *cells, int64_t *bounds, size_t mask, bint bounding
) except -1:
    """How often each pair occurs, and in how many places. bounding: into the bounds, else into the table."""
    cdef Cell *word = cells
    cdef Cell *symbols
    cdef int64_t count
    cdef size_t i, countdown = SIGNAL_INTERVAL
    with nogil:
        while word < cells + words.size:
            memcpy(&count, word + 1, 8)
            symbols = word + header(cells)
            for i in range(<size_t> word[0] - 1):
                tally_pair(table, key_of(symbols[i], symbols[i + 1]), count, bounds, mask, bounding)
            word = next_word(words, cells, word)
            check_signals(&countdown)
    return 0


cdef inline int tally_pair(
    PairTable *table, uint64_t key, int64_t count, int64_t *bounds, size_t mask, bint bounding
) except -1 nogil:
    cdef Pair *pair
    if bounding:
        bounds[hash_pair(key, 0, hash_seed) & mask] += count
    elif bounds == NULL or bounds[hash_pair(key, 0, hash_seed) & mask] >= table.floor:
        pair = find_pair(table, key)
        if pair == NULL:
            pair = add_pair(table, key)
        pair.count += count
        pair.postings_size += 1
    return 0


cdef int post_pairs(const PairTable *table, const Words *words, Cell *cells, uint32_t *filled) except -1:
    """The postings of each pair that the table has."""
    cdef Cell *word = cells
    cdef Cell *symbols
    cdef Pair *pair
    cdef size_t i, number, countdown = SIGNAL_INTERVAL
    with nogil:
        while word < cells + words.size:
            symbols = word + header(cells)
            for i in range(<size_t> word[0] - 1):
                pair = find_pair(table, key_of(symbols[i], symbols[i + 1]))
                if pair != NULL:
                    number = pair - table.pairs
                    pair.postings[filled[number]] = <uint32_t> (word - cells)
                    filled[number] += 1
            word = next_word(words, cells, word)
            check_signals(&countdown)
    return 0
