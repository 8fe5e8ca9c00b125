# A pair replaced by a new symbol in all words that have it, and what that changes: the pairs of the new symbol's
# neighbours.
#
# Changes are summed for each neighbour before the table hears of them. A new symbol whose neighbour is another new one
# makes a pair of both, which is counted by itself.

ctypedef struct Neighbour:      # a word that has the new symbol beside this symbol
    uint32_t symbol, word

ctypedef union Places:
    size_t number               # how many postings a pair will have
    uint32_t *next              # then where its next one goes; NULL: the pair is left out

ctypedef struct Beside:         # what is known of a symbol as a neighbour; zero between merges
    int64_t change              # how often it stands there
    Places places               # in how many words, or places of long words

ctypedef struct Side:           # the left or the right side of the new symbol
    Beside *beside              # by symbol
    uint32_t *touched           # the symbols that stand there
    size_t touched_size
    Neighbour *neighbours       # all places, in the order of the words
    size_t neighbours_size

ctypedef struct Broken:         # a pair that was broken
    uint64_t key
    int64_t change              # how often
    uint32_t hash               # of the key

ctypedef struct Changes:
    Side left, right
    Broken *broken              # the pairs that were broken and that the table may have
    size_t broken_size
    int64_t doubles             # how often two new symbols stand side by side
    uint32_t *double_words      # and in which words
    size_t doubles_size
    size_t places_room          # how many neighbours of each side, and doubles, there is room for
    size_t room                 # how many symbols the arrays of the sides have room for
    size_t visited              # symbols that were looked at, in all

cdef enum:
    PREFETCH_DISTANCE = 16      # postings between the word that is rewritten and the one that is fetched


cdef int reserve_changes(Changes *changes, size_t room) except -1 nogil:
    """Room for this many symbols."""
    if room > changes.room:
        grow_side(&changes.left, changes.room, room)
        grow_side(&changes.right, changes.room, room)
        changes.broken = <Broken *> checked_realloc(changes.broken, (2 * room + 2) * sizeof(Broken))
        changes.room = room
    return 0


cdef int reserve_places(Changes *changes, size_t places) except -1 nogil:
    """Room for this many neighbours of each side, and doubles; what was there is forgotten."""
    if places > changes.places_room:
        free_places(changes)
        changes.places_room = places + places // 2 + 1024
        changes.left.neighbours = <Neighbour *> checked_block(changes.places_room * sizeof(Neighbour))
        changes.right.neighbours = <Neighbour *> checked_block(changes.places_room * sizeof(Neighbour))
        changes.double_words = <uint32_t *> checked_block(changes.places_room * sizeof(uint32_t))
    return 0


cdef void free_places(Changes *changes) noexcept nogil:
    free_block(changes.left.neighbours, changes.places_room * sizeof(Neighbour))
    free_block(changes.right.neighbours, changes.places_room * sizeof(Neighbour))
    free_block(changes.double_words, changes.places_room * sizeof(uint32_t))
    changes.left.neighbours = changes.right.neighbours = NULL
    changes.double_words = NULL


cdef int grow_side(Side *side, size_t old, size_t room) except -1 nogil:
    side.beside = <Beside *> checked_realloc(side.beside, room * sizeof(Beside))
    side.touched = <uint32_t *> checked_realloc(side.touched, room * sizeof(uint32_t))
    memset(side.beside + old, 0, (room - old) * sizeof(Beside))
    return 0


cdef void clear_changes(Changes *changes) noexcept nogil:
    changes.doubles = 0
    changes.doubles_size = 0
    clear_side(&changes.left)
    clear_side(&changes.right)


cdef void clear_side(Side *side) noexcept nogil:
    cdef size_t i
    for i in range(side.touched_size):
        memset(&side.beside[side.touched[i]], 0, sizeof(Beside))
    side.touched_size = side.neighbours_size = 0


cdef void free_changes(Changes *changes) noexcept nogil:
    free_side(&changes.left)
    free_side(&changes.right)
    free(changes.broken)
    free_places(changes)


cdef void free_side(Side *side) noexcept nogil:
    free(side.beside)
    free(side.touched)


cdef inline void note_neighbour(Side *side, uint32_t symbol, int64_t count, uint32_t place) noexcept nogil:
    cdef Beside *beside = &side.beside[symbol]
    if beside.places.number == 0:
        side.touched[side.touched_size] = symbol
        side.touched_size += 1
    beside.change += count
    beside.places.number += 1
    side.neighbours[side.neighbours_size].symbol = symbol
    side.neighbours[side.neighbours_size].word = place
    side.neighbours_size += 1


cdef inline void note_double(Changes *changes, int64_t count, uint32_t place) noexcept nogil:
    changes.doubles += count
    changes.double_words[changes.doubles_size] = place
    changes.doubles_size += 1


cdef void replace_in_words(
    const Words *words, Changes *changes, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made
) noexcept nogil:
    """Replace a, b by `made` in the words of these postings, and note what stands beside it."""
    if words.wide:
        replace_one_by_one(changes, <uint32_t *> words.cells, postings, size, a, b, made)
    elif words.rewrite_short == NULL:
        replace_one_by_one(changes, <uint16_t *> words.cells, postings, size, a, b, made)
    else:
        replace_in_batches(words, changes, <uint16_t *> words.cells, postings, size, a, b, made)


cdef void replace_one_by_one(
    Changes *changes, Cell *cells, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made
) noexcept nogil:
    cdef size_t i
    for i in range(size):
        if i + PREFETCH_DISTANCE < size:
            prefetch_word(cells, postings[i + PREFETCH_DISTANCE])
        replace_in_word(changes, cells, postings[i], a, b, made)


cdef inline void replace_in_word(
    Changes *changes, Cell *cells, uint32_t place, uint32_t a, uint32_t b, uint32_t made
) noexcept nogil:
    """Replace a, b by `made` in one word, from the left, and note what stands beside it."""
    cdef Cell *word = cells + place
    cdef Cell *symbols = word + header(cells)
    cdef size_t size = word[0], i = find_symbols(symbols, size, a, b), out = i, next_place
    cdef int64_t count
    cdef bint joined = False    # whether symbols[out - 1] is a `made` just made
    changes.visited += size
    if i == size:
        return
    memcpy(&count, word + 1, 8)
    while i < size:
        if joined:
            note_double(changes, count, place)
        elif out:
            note_neighbour(&changes.left, symbols[out - 1], count, place)
        symbols[out] = <Cell> made
        out += 1
        i += 2
        next_place = i + find_symbols(symbols + i, size - i, a, b)
        joined = next_place == i
        if i < next_place:
            note_neighbour(&changes.right, symbols[i], count, place)
            while i < next_place:
                symbols[out] = symbols[i]
                out += 1
                i += 1
    word[0] = <Cell> out
    for i in range(out, size):
        symbols[i] = <Cell> EMPTY


cdef inline size_t find_symbols(const Cell *symbols, size_t size, uint32_t a, uint32_t b) noexcept nogil:
    """The first place where b follows a; `size` if there is none."""
    if Cell is uint16_t:
        return find_narrow(symbols, size, a, b)
    else:
        return find_wide(symbols, size, a, b)


cdef void replace_in_batches(
    const Words *words, Changes *changes, uint16_t *cells, const uint32_t *postings, size_t size,
    uint32_t a, uint32_t b, uint32_t made,
) noexcept nogil:
    """The same with the processor's vectors where words are short: see rewrite.h."""
    cdef rewritten_batch batch
    cdef size_t begin = 0, count, i
    while begin < size:
        count = min(size - begin, <size_t> REWRITE_BATCH)
        for i in range(begin + count, min(begin + count + REWRITE_BATCH, size)):
            prefetch_word(cells, postings[i])
        words.rewrite_short(cells, postings + begin, count, a, b, made, &batch)
        for i in range(count):
            if batch.of[i].found:
                note_rewritten(changes, cells, postings[begin + i], &batch.of[i])
            elif batch.of[i].size > REWRITE_MOST:
                replace_in_word(changes, cells, postings[begin + i], a, b, made)
        begin += count


cdef inline void note_rewritten(
    Changes *changes, const uint16_t *cells, uint32_t place, const rewritten *word
) noexcept nogil:
    """Note what stands beside the new symbols of a word."""
    cdef uint32_t found = word.found, end = 0, i    # end: of the pair before, of none at first
    cdef int64_t count
    memcpy(&count, cells + place + 1, 8)
    while found:
        i = count_trailing_zeros(found)
        found &= found - 1
        if i == 0:
            pass
        elif i == end:
            note_double(changes, count, place)
        else:
            note_neighbour(&changes.left, word.before[i - 1], count, place)
        end = i + 2
        if end < word.size and (found == 0 or <uint32_t> count_trailing_zeros(found) != end):
            note_neighbour(&changes.right, word.before[end], count, place)


cdef void lower_counts(PairTable *table, Changes *changes, uint32_t a, uint32_t b) noexcept nogil:
    """Take from the counts of the pairs that replacing a, b has broken.

    They are (x, a) with each left neighbour x, (b, x) with each right one, and (b, a) in a b a b.
    """
    cdef Side *left = &changes.left
    cdef Side *right = &changes.right
    cdef Pair *pair
    cdef size_t i
    changes.broken_size = 0
    for i in range(left.touched_size):
        note_broken(table, changes, key_of(left.touched[i], a), left.beside[left.touched[i]].change)
    for i in range(right.touched_size):
        note_broken(table, changes, key_of(b, right.touched[i]), right.beside[right.touched[i]].change)
    note_broken(table, changes, key_of(b, a), changes.doubles)
    for i in range(changes.broken_size):
        prefetch_slot(table, changes.broken[i].hash)
    for i in range(changes.broken_size):
        prefetch_pair(table, changes.broken[i].hash)
    for i in range(changes.broken_size):
        pair = find_pair(table, changes.broken[i].key, changes.broken[i].hash)
        if pair != NULL and pair.count:
            pair.count -= changes.broken[i].change


cdef inline void note_broken(const PairTable *table, Changes *changes, uint64_t key, int64_t change) noexcept nogil:
    """Note that a pair was broken so often, if the table may have it: without a branch, for that is unpredictable."""
    cdef Broken *broken = &changes.broken[changes.broken_size]
    broken.key, broken.change, broken.hash = key, change, hash_of(key)
    changes.broken_size += (change != 0) & may_have(table, broken.hash)
