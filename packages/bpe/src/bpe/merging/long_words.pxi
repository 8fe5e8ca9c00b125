# The long words: those of more than LONG_WORD symbols, whose postings are places in them.
#
# A short word is rewritten whole for each of its postings, which takes the square of its length as it is merged from
# bytes to a few tokens. In a long word a posting names the place of a pair, and replacing the pair takes a few steps,
# so that the whole takes time in proportion to the length. A cell stands for each byte of a long word:
#
#       bytes     t   h   e   r   e       symbols   the, re
#       cells    the  .  E3  re  E2       E: the last byte of a symbol of so many bytes; `.`: a byte inside one
#
# so that the symbol to the right begins where the token ends, and the symbol to the left is where E says, or one cell
# away if it is a single byte. A cell BORDER stands before, between and behind the words. In postings the cells are
# numbered on from the end of the short words.

cdef enum:
    LONG_PREFETCH_DISTANCE = 64     # 0.50 s instead of 0.69 with 16, for 10 MB of English as one word, 32,000 tokens

ctypedef struct LongWord:
    size_t begin                # its first cell
    int64_t count

ctypedef struct LongWords:
    uint32_t *cells
    size_t cells_size           # 0: there are no long words
    size_t first_place          # of the first cell in postings
    LongWord *words
    size_t count

cdef uint32_t NO_SYMBOL = <uint32_t> 1 << 31    # set in every cell that no symbol begins in; at its end with its length
cdef uint32_t BORDER = <uint32_t> 1 << 31
cdef uint32_t INSIDE = <uint32_t> -1


cdef int load_long_words(
    LongWords *words, const uint8_t[::1] records, const uint8_t *symbol_of, const SymbolTable *symbols,
    size_t longest_short, size_t count, size_t first_place,
) except -1:
    """The `count` words of more than `longest_short` symbols. symbol_of: as for load_words()."""
    cdef size_t at = 0, end = records.shape[0], total = 1
    cdef uint32_t size, i, symbol
    words.first_place = first_place
    if count == 0:
        return 0
    with nogil:
        while at < end:
            memcpy(&size, &records[at + 8], 4)
            if symbol_of != NULL:
                total += size + 1 if size > longest_short else 0
            elif size // 4 > longest_short:
                for i in range(size // 4):
                    memcpy(&symbol, &records[at + RECORD + 4 * i], 4)
                    total += symbols.size[symbol]
                total += 1
            at += RECORD + size
    check_cells(first_place + total)
    words.cells = <uint32_t *> checked_block(total * sizeof(uint32_t))
    words.cells_size = total
    words.words = <LongWord *> checked_malloc(count * sizeof(LongWord))
    with nogil:
        fill_long_words(words, records, symbol_of, symbols, longest_short)
    return 0


cdef void fill_long_words(
    LongWords *words, const uint8_t[::1] records, const uint8_t *symbol_of, const SymbolTable *symbols,
    size_t longest_short,
) noexcept nogil:
    cdef size_t at = 0, end = records.shape[0], i
    cdef uint32_t size, symbol
    cdef uint32_t *cell = words.cells
    cdef const uint8_t *record
    cell[0] = BORDER
    cell += 1
    while at < end:
        record = &records[at]
        memcpy(&size, record + 8, 4)
        at += RECORD + size
        size = size if symbol_of != NULL else size // 4
        if size <= longest_short:
            continue
        words.words[words.count].begin = cell - words.cells
        memcpy(&words.words[words.count].count, record, 8)
        words.count += 1
        for i in range(size):
            if symbol_of != NULL:
                symbol = symbol_of[record[RECORD + i]]
            else:
                memcpy(&symbol, record + RECORD + 4 * i, 4)
            cell = put_symbol(cell, symbol, symbols.size[symbol])
        cell[0] = BORDER
        cell += 1


cdef inline uint32_t *put_symbol(uint32_t *cell, uint32_t symbol, size_t size) noexcept nogil:
    """Fill the cells of a symbol of `size` bytes; the cell behind it."""
    cdef size_t i
    cell[0] = symbol
    for i in range(1, size):
        cell[i] = INSIDE
    if size > 1:
        cell[size - 1] = NO_SYMBOL | <uint32_t> size
    return cell + size


cdef inline const uint32_t *symbol_before(const uint32_t *cell) noexcept nogil:
    """Where the symbol before this one begins; there must be one."""
    return cell - ((cell - 1)[0] & ~NO_SYMBOL if (cell - 1)[0] & NO_SYMBOL else 1)


cdef int tally_long_byte_pairs(const LongWords *words, BytePair *found, uint8_t *is_left) except -1 nogil:
    """As tally_byte_pairs()."""
    cdef const uint32_t *cell
    cdef BytePair *pair
    cdef size_t word, countdown = SIGNAL_INTERVAL
    for word in range(words.count):
        cell = words.cells + words.words[word].begin
        while cell[1] != BORDER:
            pair = &found[<size_t> cell[0] << 8 | cell[1]]
            pair.count += words.words[word].count
            pair.places.number += 1
            is_left[cell[0]] = True
            cell += 1
            check_signals(&countdown)
    return 0


cdef int post_long_byte_pairs(const LongWords *words, BytePair *found) except -1 nogil:
    """As post_byte_pairs()."""
    cdef const uint32_t *cell
    cdef BytePair *pair
    cdef size_t word, countdown = SIGNAL_INTERVAL
    for word in range(words.count):
        cell = words.cells + words.words[word].begin
        while cell[1] != BORDER:
            pair = &found[<size_t> cell[0] << 8 | cell[1]]
            if pair.places.next != NULL:
                pair.places.next[0] = <uint32_t> (words.first_place + (cell - words.cells))
                pair.places.next += 1
            cell += 1
            check_signals(&countdown)
    return 0


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


cdef inline void prefetch_long(const LongWords *words, uint32_t place) noexcept nogil:
    """Fetch what replacing a pair at this place looks at: one cache line, or two."""
    cdef const uint32_t *cell = words.cells + (place - words.first_place)
    prefetch(cell - 8)
    prefetch(cell + 8)


cdef int replace_in_long_words(
    LongWords *words, Changes *changes, const SymbolTable *symbols, const uint32_t *postings, size_t size,
    uint32_t a, uint32_t b, uint32_t made,
) except -1 nogil:
    """Replace a, b by `made` at each posting, in order, where they still stand, and note what stands beside it."""
    cdef uint32_t a_size = symbols.size[a], b_size = symbols.size[b], first = <uint32_t> words.first_place
    cdef uint32_t *cell
    cdef uint32_t *right
    cdef const uint32_t *left
    cdef int64_t count = 0
    cdef size_t i, at, word_end = 0, word, countdown = SIGNAL_INTERVAL
    for i in range(min(size, <size_t> LONG_PREFETCH_DISTANCE)):
        prefetch_long(words, postings[i])
    for i in range(size):
        if i + LONG_PREFETCH_DISTANCE < size:
            prefetch_long(words, postings[i + LONG_PREFETCH_DISTANCE])
        at = postings[i] - first
        cell = words.cells + at
        if cell[0] != a or cell[a_size] != b:
            continue
        if at >= word_end:
            word = word_of(words, at)
            count = words.words[word].count
            word_end = words.words[word + 1].begin if word + 1 < words.count else <size_t> -1
        if (cell - 1)[0] != BORDER:
            left = symbol_before(cell)
            if left[0] == made:
                note_double(changes, count, <uint32_t> (first + (left - words.cells)))
            else:
                note_neighbour(&changes.left, left[0], count, <uint32_t> (first + (left - words.cells)))
        right = cell + a_size + b_size
        cell[0] = made
        cell[a_size] = INSIDE
        (right - 1)[0] = NO_SYMBOL | (a_size + b_size)
        # a pair that follows at once is replaced next, and notes this symbol as its neighbour
        if right[0] != BORDER and not (right[0] == a and right[a_size] == b):
            note_neighbour(&changes.right, right[0], count, postings[i])
        check_signals(&countdown)
    return 0


cdef void free_long_words(LongWords *words) noexcept nogil:
    free_block(words.cells, words.cells_size * sizeof(uint32_t))
    free(words.words)
