# All pairs of bytes counted, before the first merge: those that reach the floor, with their postings, into an empty
# table. The words are gone through twice: once for the counts and how many postings there will be, once for these.

cdef enum:
    BYTE_PAIRS = 1 << 16

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
