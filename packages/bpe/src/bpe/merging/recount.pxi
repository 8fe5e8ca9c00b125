# All pairs counted from the words as they are: those that reach the floor, with their postings, into an empty table.
#
# A survey goes over all pairs, three times:
#
#     BOUND   sums up the counts of all pairs that have the same hash, in 4,096 to 4,194,304 numbers: a pair does not
#             count more than that sum, its bound
#     TALLY   counts those pairs whose bound reaches the floor, in the table itself
#     POST    writes the postings of those that reach the floor themselves
#
# Every step of these reads memory at random. So a pair waits behind the AHEAD others that were seen after it, and what
# it will need is fetched while it waits: its bound, then its slot, then what the table has of it.

ctypedef struct Seen:
    uint64_t key, hash
    int64_t count
    uint32_t place

cdef enum:
    BOUND
    TALLY
    POST
    AHEAD = 32                  # a power of two; 3 * WAIT fits in
    WAIT = 10                   # pairs between two fetches for one
    LEAST_BOUNDS = 1 << 12
    MOST_BOUNDS = 1 << 22

cdef int64_t MOST_BOUND = <uint32_t> -1

ctypedef struct Survey:
    PairTable *table
    uint32_t *bounds            # sums, up to what 32 bits hold; NULL: there are none, every pair is counted
    size_t mask                 # how many bounds there are, a power of two, less one
    uint32_t least              # the bound that lets a pair pass
    int purpose
    size_t seen                 # pairs so far
    Seen waiting[AHEAD]


cdef int count_all_pairs(
    PairTable *table, const Words *words, const LongWords *long_words, const SymbolTable *symbols, int64_t weight
) except -1:
    """weight: about the sum of all counts. There are four times as many bounds as pairs may reach the floor at most."""
    cdef size_t slots = LEAST_BOUNDS, most = (words.size + long_words.cells_size) // 4, kept = 0, i
    cdef Survey survey
    cdef Pair *pair
    most = min(most, <size_t> MOST_BOUNDS, <size_t> (max(weight, <int64_t> 0) // table.floor) * 4)
    while slots < most:
        slots *= 2
    survey.table, survey.bounds, survey.mask = table, NULL, slots - 1
    survey.least = <uint32_t> min(table.floor, MOST_BOUND)
    if table.floor > 1:
        survey.bounds = <uint32_t *> checked_block(slots * sizeof(uint32_t))
    try:
        with nogil:
            if survey.bounds != NULL:
                go_over(&survey, BOUND, words, long_words, symbols)
            go_over(&survey, TALLY, words, long_words, symbols)
            for i in range(table.size):
                pair = &table.pairs[i]
                if pair.count >= table.floor and is_short(table, symbols, pair.key):
                    table.pairs[kept] = pair[0]
                    kept += 1
            table.size = kept
            make_slots(table, kept)
            place_postings(table)
            for i in range(kept):
                table.pairs[i].postings_size = 0    # those that are written
            go_over(&survey, POST, words, long_words, symbols)
    finally:
        free_block(survey.bounds, slots * sizeof(uint32_t))
    return 0


cdef int go_over(
    Survey *survey, int purpose, const Words *words, const LongWords *long_words, const SymbolTable *symbols
) except -1 nogil:
    cdef size_t i
    survey.purpose, survey.seen = purpose, 0
    if words.wide:
        see_words(survey, words, <uint32_t *> words.cells)
    else:
        see_words(survey, words, <uint16_t *> words.cells)
    see_long_words(survey, long_words, symbols)
    for i in range(survey.seen - min(survey.seen, <size_t> AHEAD), survey.seen):
        take_pair(survey, &survey.waiting[i % AHEAD])
    return 0


cdef int see_words(Survey *survey, const Words *words, Cell *cells) except -1 nogil:
    cdef Cell *word = cells
    cdef Cell *symbols
    cdef int64_t count
    cdef size_t i, countdown = SIGNAL_INTERVAL
    while word < cells + words.size:
        memcpy(&count, word + 1, 8)
        symbols = word + header(cells)
        for i in range(<size_t> word[0] - 1):
            see_pair(survey, key_of(symbols[i], symbols[i + 1]), count, <uint32_t> (word - cells))
        word = next_word(words, cells, word)
        check_signals(&countdown)
    return 0


cdef int see_long_words(Survey *survey, const LongWords *words, const SymbolTable *symbols) except -1 nogil:
    cdef const uint32_t *cell
    cdef const uint32_t *right
    cdef size_t word, countdown = SIGNAL_INTERVAL
    for word in range(words.count):
        cell = words.cells + words.words[word].begin
        right = cell + symbols.size[cell[0]]
        while right[0] != BORDER:
            see_pair(
                survey, key_of(cell[0], right[0]), words.words[word].count,
                <uint32_t> (words.first_place + (cell - words.cells)),
            )
            cell, right = right, right + symbols.size[right[0]]
            check_signals(&countdown)
    return 0


cdef inline int see_pair(Survey *survey, uint64_t key, int64_t count, uint32_t place) except -1 nogil:
    """A pair of a word comes; the first of those that wait goes."""
    cdef PairTable *table = survey.table
    cdef Seen *new = &survey.waiting[survey.seen % AHEAD]
    cdef const Seen *old
    if survey.seen >= AHEAD:
        take_pair(survey, new)
    new.key, new.hash, new.count, new.place = key, hash_pair(key, 0, hash_seed), count, place
    if survey.bounds != NULL:
        prefetch(&survey.bounds[new.hash & survey.mask])
    if survey.purpose != BOUND and survey.seen >= 3 * WAIT:
        old = &survey.waiting[(survey.seen - WAIT) % AHEAD]
        if may_reach(survey, old):
            prefetch_slot(table, old.key)
        old = &survey.waiting[(survey.seen - 2 * WAIT) % AHEAD]
        if may_reach(survey, old):
            prefetch_pair(table, old.key)
        if survey.purpose == POST:
            old = &survey.waiting[(survey.seen - 3 * WAIT) % AHEAD]
            if may_reach(survey, old):
                prefetch_posting(table, old.key)
    survey.seen += 1
    return 0


cdef inline bint may_reach(const Survey *survey, const Seen *pair) noexcept nogil:
    """Whether the bound of a pair reaches the floor."""
    return survey.bounds == NULL or survey.bounds[pair.hash & survey.mask] >= survey.least


cdef inline int take_pair(Survey *survey, const Seen *seen) except -1 nogil:
    """What the survey is for, done for one pair."""
    cdef Pair *pair
    cdef uint32_t *bound
    if survey.purpose == BOUND:
        bound = &survey.bounds[seen.hash & survey.mask]
        bound[0] = <uint32_t> min(seen.count + bound[0], MOST_BOUND)
    elif may_reach(survey, seen):
        pair = find_pair(survey.table, seen.key)
        if survey.purpose == POST:
            if pair != NULL:
                pair.postings[pair.postings_size] = seen.place
                pair.postings_size += 1
        else:
            if pair == NULL:
                pair = add_pair(survey.table, seen.key)
            pair.count += seen.count
            pair.postings_size += 1
    return 0
