# All pairs counted from the words as they are: those that reach the floor, with their postings, into an empty table.
#
# A survey goes over all pairs of the words, twice, and over what it has listed:
#
#     BOUND   sums up the counts of all pairs that have the same hash, in 4,096 to 4,194,304 numbers: a pair does not
#             count more than that sum, its bound
#     TALLY   counts those pairs whose bound reaches the floor, in the table itself, and lists where they stand
#     then    the list becomes the postings of those that reach the floor themselves
#
# Where memory is bounded there is no list, which takes more than the words and the postings together: the floor rises
# until the postings of the pairs that reach it have room, and another step, POST, goes over the words for them.
#
# Each step reads memory at random. So pairs are taken in groups, a step for the whole group after the other, and what
# a step will need is fetched during the one before it.

ctypedef struct Seen:
    uint64_t key
    int64_t count
    uint32_t hash, posting

cdef enum:
    BOUND
    TALLY
    POST
    GROUP = 64                  # pairs
    POSTINGS_AHEAD = 16         # of the list, between two fetches for one
    LEAST_BOUNDS = 1 << 12
    MOST_BOUNDS = 1 << 22

cdef int64_t MOST_BOUND = <uint32_t> -1

ctypedef struct Survey:
    PairTable *table
    uint32_t *bounds            # sums, up to what 32 bits hold; NULL: there are none, every pair is counted
    size_t mask                 # how many bounds there are, a power of two, less one
    uint32_t least              # the bound that lets a pair pass
    int purpose
    Seen group[GROUP]
    size_t group_size
    uint64_t *listed            # the number of a pair << 32 | a posting of it; NULL where memory is bounded
    size_t listed_size


cdef int count_all_pairs(
    PairTable *table, const Words *words, const SymbolTable *symbols, int64_t weight
) except -1:
    """weight: about the sum of all counts. The words have been closed up.

    There are four times as many bounds as pairs may reach the floor at most, or as many as cells. With a quarter of
    those, nearly every bound reaches a floor of 4, and counting all pairs takes two to three times as long.
    """
    cdef size_t cells = words.size, slots = LEAST_BOUNDS
    cdef size_t most = min(cells, <size_t> MOST_BOUNDS, <size_t> (max(weight, <int64_t> 0) // table.floor) * 4)
    cdef Survey survey
    while slots < most:
        slots *= 2
    survey.table, survey.bounds, survey.mask = table, NULL, slots - 1
    survey.least = <uint32_t> min(table.floor, MOST_BOUND)
    survey.listed, survey.listed_size = NULL, 0
    try:
        if table.most_postings == 0:
            survey.listed = <uint64_t *> checked_block(cells * sizeof(uint64_t))
        if table.floor > 1:
            survey.bounds = <uint32_t *> checked_block(slots * sizeof(uint32_t))
        with nogil:
            if survey.bounds != NULL:
                go_over(&survey, BOUND, words)
            go_over(&survey, TALLY, words)
            drop_low(table, symbols)
            raise_floor(table)
            place_postings(table)
            if survey.listed != NULL:
                post_listed(&survey)
            else:
                survey.least = <uint32_t> min(table.floor, MOST_BOUND)
                go_over(&survey, POST, words)
            drop_unposted(table)
    finally:
        free_block(survey.bounds, slots * sizeof(uint32_t))
        free_block(survey.listed, cells * sizeof(uint64_t))
    return 0


cdef int go_over(Survey *survey, int purpose, const Words *words) except -1 nogil:
    survey.purpose, survey.group_size = purpose, 0
    if words.wide:
        see_words(survey, words, <uint32_t *> words.cells)
    else:
        see_words(survey, words, <uint16_t *> words.cells)
    take_group(survey)
    return 0


cdef int see_words(Survey *survey, const Words *words, Cell *cells) except -1 nogil:
    cdef const Cell *cell
    cdef const Cell *end
    cdef size_t group, countdown = SIGNAL_INTERVAL
    for group in range(words.groups_size):
        cell = cells + words.groups[group].begin
        end = cell + words.groups[group].size
        while cell < end:
            if cell[0] != border(cells) and cell[1] != border(cells):
                see_pair(
                    survey, key_of(cell[0], cell[1]), words.groups[group].count,
                    <uint32_t> (cell - cells),
                )
            cell += 1
            check_signals(&countdown)
    return 0


cdef inline int see_pair(Survey *survey, uint64_t key, int64_t count, uint32_t posting) except -1 nogil:
    cdef Seen *new = &survey.group[survey.group_size]
    new.key, new.hash, new.count, new.posting = key, hash_of(key), count, posting
    if survey.bounds != NULL:
        prefetch(&survey.bounds[new.hash & survey.mask])
    survey.group_size += 1
    if survey.group_size == GROUP:
        take_group(survey)
    return 0


cdef int take_group(Survey *survey) except -1 nogil:
    """Count the pairs of a group that pass the survey."""
    cdef PairTable *table = survey.table
    cdef Seen *group = survey.group
    cdef Pair *pair
    cdef uint32_t *bound
    cdef size_t i, size = 0     # of those whose bound reaches the floor
    if survey.purpose == BOUND:
        for i in range(survey.group_size):
            bound = &survey.bounds[group[i].hash & survey.mask]
            bound[0] = <uint32_t> min(group[i].count + bound[0], MOST_BOUND)
    else:
        for i in range(survey.group_size):
            if survey.bounds == NULL or survey.bounds[group[i].hash & survey.mask] >= survey.least:
                group[size] = group[i]
                prefetch(&table.slots[group[size].hash & table.mask])
                size += 1
        for i in range(size):
            prefetch_pair(table, group[i].hash)
        for i in range(size):
            pair = find_pair(table, group[i].key, group[i].hash)
            if survey.purpose == POST:
                if pair != NULL and pair.postings != NULL:
                    pair.postings[pair.postings_size] = group[i].posting
                    pair.postings_size += 1
                continue
            if pair == NULL:
                pair = add_pair(table, group[i].key)
            pair.count += group[i].count
            pair.postings_size += 1
            if survey.listed != NULL:
                survey.listed[survey.listed_size] = <uint64_t> (pair - table.pairs) << 32 | group[i].posting
                survey.listed_size += 1
    survey.group_size = 0
    return 0


cdef void drop_low(PairTable *table, const SymbolTable *symbols) noexcept nogil:
    """Leave no postings to the pairs that do not reach the floor or are too long."""
    cdef Pair *pair
    cdef size_t i
    for i in range(table.size):
        pair = &table.pairs[i]
        if pair.count < table.floor or not is_short(table, symbols, pair.key):
            pair.postings_size = 0


cdef int post_listed(Survey *survey) except -1 nogil:
    """Make the list the postings of the pairs that have room for them."""
    cdef PairTable *table = survey.table
    cdef const uint64_t *listed = survey.listed
    cdef Pair *pair
    cdef size_t i, countdown = SIGNAL_INTERVAL
    for i in range(survey.listed_size):
        if i + 2 * POSTINGS_AHEAD < survey.listed_size:
            prefetch(&table.pairs[listed[i + 2 * POSTINGS_AHEAD] >> 32])
            pair = &table.pairs[listed[i + POSTINGS_AHEAD] >> 32]
            if pair.postings != NULL:
                prefetch(pair.postings + pair.postings_size)
        pair = &table.pairs[listed[i] >> 32]
        if pair.postings != NULL:
            pair.postings[pair.postings_size] = <uint32_t> listed[i]
            pair.postings_size += 1
        check_signals(&countdown)
    return 0
