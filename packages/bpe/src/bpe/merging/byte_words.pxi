# Long words as bytes, a code for each symbol: before they are loaded, and while they are merged by passes.
#
# All that is done here is counting their pairs, and posting these when the words are loaded (long_words.pxi). With a
# byte to a symbol that takes little memory, and tables of all pairs stay in the cache.

ctypedef struct ByteWords:
    uint8_t *codes              # of all words, with borders as long words have them; NULL: there are none
    size_t room                 # how many bytes there is room for
    Group *groups               # places among the codes; there may be room between two groups
    size_t groups_size
    size_t size                 # codes in all groups, borders included
    uint8_t border              # a code that no symbol has
    int64_t symbol_of[256]      # of each code; -1 for one without a symbol
    PossiblePair *tally         # how often each pair occurs, by left code << 8 | right code
    uint32_t *numbers           # two for each pair: of places; then, as a pointer, where its next posting goes

cdef enum:
    CODE_PAIRS = 1 << 16
    POSTS_AHEAD = 24            # postings between the one that is written and the place of the one that is fetched
    FEW_LONG = 1 << 19          # symbols, or bytes of records, below which long words cost as much as they gain


cdef bint load_byte_words(
    ByteWords *words, const LongRecords *found, const uint8_t *symbol_of, size_t most_symbols
) except -1:
    """Whether the words could be loaded: not if they have all 256 bytes, so that none is left for borders."""
    cdef size_t i, size, out = 1
    cdef const uint8_t *record
    cdef int border = byte_that_is_not_in(found)
    if border < 0:
        return False
    words.border = <uint8_t> border
    words.room = max(found.cells * size_of_long_cell(most_symbols), found.cells + PASS_SLACK)
    words.codes = <uint8_t *> checked_block(words.room)
    words.groups = <Group *> checked_malloc(found.groups * sizeof(Group))
    words.tally = <PossiblePair *> checked_block(CODE_PAIRS * sizeof(PossiblePair))
    words.numbers = <uint32_t *> checked_block(2 * CODE_PAIRS * sizeof(uint32_t))
    words.size = found.cells - 1
    words.codes[0] = words.border
    for i in range(found.size):
        record = found.records[i]
        size = symbols_in(record, 1)
        group_to_extend(words.groups, &words.groups_size, out, count_of(record)).size += size + 1
        memcpy(words.codes + out, record + RECORD, size)
        out += size
        words.codes[out] = words.border
        out += 1
    for i in range(256):
        words.symbol_of[i] = symbol_of[i] if i != words.border else -1
    return True


cdef int byte_that_is_not_in(const LongRecords *found) noexcept nogil:
    """A byte that the records do not have, or -1. The last ones do not occur in UTF-8."""
    cdef int byte
    cdef size_t i
    for byte in range(255, -1, -1):
        i = 0
        while i < found.size and memchr(found.records[i] + RECORD, byte, symbols_in(found.records[i], 1)) == NULL:
            i += 1
        if i == found.size:
            return byte
    return -1


cdef inline size_t pair_at(const uint8_t *codes) noexcept nogil:
    return <size_t> codes[0] << 8 | codes[1]


cdef int tally_byte_words(ByteWords *words) except -1 nogil:
    """Count the pairs."""
    cdef size_t i, countdown = SIGNAL_INTERVAL
    memset(words.tally, 0, CODE_PAIRS * sizeof(PossiblePair))
    memset(words.numbers, 0, 2 * CODE_PAIRS * sizeof(uint32_t))
    for i in range(words.groups_size):
        count_code_pairs(words.codes + words.groups[i].begin, words.groups[i].size, words.numbers, &countdown)
        add_to_tally(words, words.groups[i].count)
    return 0


cdef int count_code_pairs(const uint8_t *codes, size_t size, uint32_t *numbers, size_t *countdown) except -1 nogil:
    """Borders count as well. Even and odd places have numbers of their own: adding twice to the same one is to wait."""
    cdef size_t at = 0, i, stop
    while at + 1 < size:
        stop = min(at + SIGNAL_INTERVAL, size - 1)
        for i in range(at, stop):
            numbers[(i & 1) * CODE_PAIRS + pair_at(codes + i)] += 1
        check_signals(countdown, stop - at)
        at = stop
    return 0


cdef void add_to_tally(ByteWords *words, int64_t count) noexcept nogil:
    """Add what was counted in words that occur `count` times, and count from zero again."""
    cdef uint32_t *numbers = words.numbers
    cdef size_t pair
    cdef uint32_t number
    for pair in range(CODE_PAIRS):
        number = numbers[pair] + numbers[CODE_PAIRS + pair]
        if number:
            numbers[pair] = numbers[CODE_PAIRS + pair] = 0
            if pair >> 8 != words.border and pair & 255 != words.border:
                words.tally[pair].count += count * number
                words.tally[pair].places.number += number


cdef inline PossiblePair *pair_of_codes(const ByteWords *words, PossiblePairs *found, size_t pair) noexcept nogil:
    return possible_pair(found, words.symbol_of[pair >> 8], words.symbol_of[pair & 255])


cdef void tally_byte_pairs(const ByteWords *words, PossiblePairs *found, bint posted) noexcept nogil:
    """posted: the pairs are going to be posted, too."""
    cdef size_t pair
    for pair in range(CODE_PAIRS):
        if words.tally[pair].count:
            found.is_left[words.symbol_of[pair >> 8]] = True
            pair_of_codes(words, found, pair).count += words.tally[pair].count
            pair_of_codes(words, found, pair).places.number += words.tally[pair].places.number if posted else 0


cdef int post_byte_pairs(const ByteWords *words, PossiblePairs *found, size_t place) except -1 nogil:
    """The postings of each pair that is not left out. `place`: of the first symbol, once the words are loaded."""
    cdef const uint8_t *codes
    cdef uint32_t **next_of = <uint32_t **> words.numbers
    cdef size_t pair, group, i, countdown = SIGNAL_INTERVAL
    for pair in range(CODE_PAIRS):
        next_of[pair] = pair_of_codes(words, found, pair).places.next if words.tally[pair].count else NULL
    for group in range(words.groups_size):
        codes = words.codes + words.groups[group].begin
        for i in range(words.groups[group].size - 1):
            prefetch(next_of[pair_at(codes + i + POSTS_AHEAD)])     # there is room beyond the last
            pair = pair_at(codes + i)
            if next_of[pair] != NULL:
                next_of[pair][0] = <uint32_t> (place + i)
                next_of[pair] += 1
            check_signals(&countdown)
        place += words.groups[group].size
    for pair in range(CODE_PAIRS):
        if next_of[pair] != NULL:
            pair_of_codes(words, found, pair).places.next = next_of[pair]
    return 0


cdef int load_from_bytes(LongWords *words, ByteWords *byte_words, size_t first_place, size_t most_symbols) except -1:
    """Load the words as long words, in the block of their codes."""
    make_room_for_long_words(
        words, byte_words.size + 1, byte_words.groups_size, first_place, most_symbols, byte_words.codes,
        byte_words.room,
    )
    byte_words.codes = NULL
    if words.wide:
        fill_from_codes(words, <uint32_t *> words.cells, byte_words)
    else:
        fill_from_codes(words, <uint16_t *> words.cells, byte_words)
    words.room = trim_block(words.cells, words.room, words.cells_size * size_of_long_cell(most_symbols))
    return 0


cdef void fill_from_codes(LongWords *words, Cell *cells, const ByteWords *byte_words) noexcept nogil:
    """The last cell first: a cell has two bytes or four, and is behind the codes that have not been read yet."""
    cdef uint8_t *codes = <uint8_t *> cells
    cdef Cell symbol_of[256]
    cdef size_t i, end = 1
    for i in range(256):
        symbol_of[i] = <Cell> byte_words.symbol_of[i]
    symbol_of[byte_words.border] = <Cell> border(cells)
    for i in range(byte_words.groups_size):
        words.groups[i] = byte_words.groups[i]
        words.groups[i].begin = end
        memmove(codes + end, codes + byte_words.groups[i].begin, byte_words.groups[i].size)
        end += byte_words.groups[i].size
    words.groups_size = byte_words.groups_size
    for i in range(end, 0, -1):
        cells[i - 1] = symbol_of[codes[i - 1]]


cdef void free_byte_words(ByteWords *words) noexcept nogil:
    free_block(words.codes, words.room)
    free(words.groups)
    free_block(words.tally, CODE_PAIRS * sizeof(PossiblePair))
    free_block(words.numbers, 2 * CODE_PAIRS * sizeof(uint32_t))
    memset(words, 0, sizeof(ByteWords))
