# The table of pairs: adjacent symbols, how often they occur, and in which words.
#
# Only pairs that reach the floor are in it, and that make a token which is not too long. The postings of a pair are the
# positions of the words that it occurs in, in order, once for each occurrence; a word may have lost the pair since.
# They are parts of large blocks, which are freed when all pairs are counted again. What a pair of LONG_POSTINGS or more
# leaves when it is merged is used for the postings of others, as is memory that is not needed any more. The pages of a
# block have the ordinary size, for postings are read in order: huge ones gain nothing, and where memory has to be found
# first, they take several times as long.

ctypedef struct Pair:
    uint64_t key                # left << 32 | right
    int64_t count               # 0 when it is merged, or has fallen below the floor
    uint32_t *postings
    uint32_t postings_size
    uint32_t next               # the number of another pair in the same bucket of the queue, or NO_PAIR

ctypedef struct Block:
    uint32_t *postings
    size_t size

ctypedef struct FreeRange:      # lies in the room that is free
    FreeRange *next
    size_t size                 # how many postings fit there

ctypedef struct PairTable:
    Pair *pairs                 # by number
    size_t size, room
    uint64_t *slots             # open addressing, linear probing: a pair's hash << 32 | its number, or NO_PAIR
    size_t mask                 # how many slots there are, a power of two, less one
    Block *blocks               # of postings
    size_t blocks_size, blocks_room
    size_t blocks_total         # postings that they have room for
    uint32_t *spare             # memory of others, for postings as well
    size_t spare_size           # how many fit there
    uint32_t *free              # where the next postings go
    size_t free_size            # how many fit there
    FreeRange *left[32]         # what long postings left, by the power of two that its size reaches
    int64_t floor
    size_t most_postings        # that the pairs may have when all are counted; the floor rises to that. 0: no bound
    size_t longest              # bytes that a token may have
    size_t most_words           # words that a token may have (see superwords.pxi); 0: no rule for superwords

cdef enum:
    LONG_POSTINGS = 1 << 7
    POSTINGS_BLOCK = 1 << 14
    PAIRS_PER_SYMBOL = 16       # for which there is room at first: memory that is not written is not taken

cdef uint32_t NO_PAIR = <uint32_t> -1


cdef inline uint64_t key_of(uint32_t left, uint32_t right) noexcept nogil:
    return <uint64_t> left << 32 | right


cdef inline uint32_t left_of(uint64_t key) noexcept nogil:
    return <uint32_t> (key >> 32)


cdef inline uint32_t right_of(uint64_t key) noexcept nogil:
    return <uint32_t> key


cdef inline uint32_t hash_of(uint64_t key) noexcept nogil:
    return <uint32_t> hash_pair(key, 0, hash_seed)


cdef inline bint is_short(const PairTable *table, const SymbolTable *symbols, uint64_t key) noexcept nogil:
    """True if the token of a pair is not too long, in bytes and in words."""
    if <size_t> symbols.size[left_of(key)] + symbols.size[right_of(key)] > table.longest:
        return False
    return table.most_words == 0 or may_be_superword(symbols, left_of(key), right_of(key), table.most_words)


cdef inline void prefetch_slot(const PairTable *table, uint32_t hash) noexcept nogil:
    prefetch_far(&table.slots[hash & table.mask])


cdef inline void prefetch_pair(const PairTable *table, uint32_t hash) noexcept nogil:
    """Fetch the first pair of this hash, if there is one; its slot should have been fetched."""
    cdef size_t at = hash & table.mask
    while <uint32_t> table.slots[at] != NO_PAIR:
        if table.slots[at] >> 32 == hash:
            prefetch_far(&table.pairs[<uint32_t> table.slots[at]])
            return
        at = (at + 1) & table.mask


cdef inline Pair *find_pair(const PairTable *table, uint64_t key, uint32_t hash) noexcept nogil:
    """The pair of this key, whose hash is given, or NULL."""
    cdef uint32_t number
    cdef size_t at = hash & table.mask
    while True:
        number = <uint32_t> table.slots[at]
        if number == NO_PAIR:
            return NULL
        if table.slots[at] >> 32 == hash and table.pairs[number].key == key:
            return &table.pairs[number]
        at = (at + 1) & table.mask


cdef int reserve_pairs(PairTable *table, size_t room) except -1 nogil:
    """Reserve room for this many pairs, or some more."""
    room = min(room + 1024, <size_t> NO_PAIR)
    table.pairs = <Pair *> checked_realloc(table.pairs, room * sizeof(Pair))
    table.room = room
    return 0


cdef Pair *add_pair(PairTable *table, uint64_t key) except NULL nogil:
    """A pair that is not there yet, the last by number; the others may move."""
    cdef Pair *pair
    if table.size == table.room:
        if table.size == NO_PAIR:
            with gil:
                raise MemoryError(
                    f"there are more than {NO_PAIR:,} pairs of symbols; choose a larger min_count or less text"
                )
        reserve_pairs(table, table.room + table.room // 2)
    if (table.size + 1) * 8 > (table.mask + 1) * 5:
        make_slots(table, table.size * 2)
    pair = &table.pairs[table.size]
    memset(pair, 0, sizeof(Pair))
    pair.key = key
    link_pair(table, <uint32_t> table.size)
    table.size += 1
    return pair


cdef inline void link_pair(PairTable *table, uint32_t number) noexcept nogil:
    cdef uint32_t hash = hash_of(table.pairs[number].key)
    cdef size_t at = hash & table.mask
    while <uint32_t> table.slots[at] != NO_PAIR:
        at = (at + 1) & table.mask
    table.slots[at] = <uint64_t> hash << 32 | number


cdef int make_slots(PairTable *table, size_t pairs) except -1 nogil:
    """Make slots for this many pairs, and link the present ones."""
    cdef size_t slots = 1024, i
    while slots * 5 < pairs * 8 + 8:
        slots *= 2
    free(table.slots)
    table.slots = NULL
    table.slots = <uint64_t *> checked_malloc(slots * sizeof(uint64_t))
    table.mask = slots - 1
    memset(table.slots, 0xFF, slots * sizeof(uint64_t))
    for i in range(table.size):
        link_pair(table, <uint32_t> i)
    return 0


cdef uint32_t *new_postings(PairTable *table, size_t size, size_t in_all=0) except NULL nogil:
    """Room for `size` postings, of one pair or of several, which stays until all pairs are counted again.

    in_all: number of postings that the caller will reserve, these included.
    """
    cdef uint32_t *postings
    if size > table.free_size or table.free == NULL:
        leave_postings(table, table.free, table.free_size)
        take_room(table, size, in_all)
    postings = table.free
    table.free += size
    table.free_size -= size
    return postings


cdef int take_room(PairTable *table, size_t size, size_t in_all) except -1 nogil:
    """Let the next `size` postings go where others were, or else all of them into a new block."""
    cdef FreeRange *hole = NULL
    cdef Block *block
    cdef int power
    for power in range(power_of_two(size), 32):
        hole = table.left[power]
        if hole != NULL and hole.size >= size:
            table.left[power] = hole.next
            table.free, table.free_size = <uint32_t *> hole, hole.size
            return 0
    if table.blocks_size == table.blocks_room:
        table.blocks = <Block *> checked_realloc(table.blocks, (table.blocks_room * 2 + 16) * sizeof(Block))
        table.blocks_room = table.blocks_room * 2 + 16
    block = &table.blocks[table.blocks_size]
    block.size = max(size, in_all, <size_t> POSTINGS_BLOCK, table.blocks_total // 8)
    block.postings = <uint32_t *> checked_malloc(block.size * sizeof(uint32_t))
    table.blocks_size += 1
    table.blocks_total += block.size
    table.free, table.free_size = block.postings, block.size
    return 0


cdef inline int power_of_two(size_t size) noexcept nogil:
    """The greatest power of two that is not above `size`: its exponent; 31 for what 32 bits do not hold."""
    return min(31, 63 - count_leading_zeros(<uint64_t> size | 1))


cdef void leave_postings(PairTable *table, uint32_t *postings, size_t size) noexcept nogil:
    """Let other postings go where these are, if there are many."""
    cdef FreeRange *hole
    cdef size_t odd = <size_t> postings // sizeof(uint32_t) % 2     # a range begins at a multiple of eight bytes
    if size < LONG_POSTINGS:
        return
    hole = <FreeRange *> (postings + odd)
    hole.size = size - odd
    hole.next = table.left[power_of_two(hole.size)]
    table.left[power_of_two(hole.size)] = hole


cdef void raise_floor(PairTable *table) noexcept nogil:
    """Let the floor rise, but not above every pair, until the pairs that reach it have most_postings at most.

    That is exact, as any floor is: the pairs below it are counted again when those above it are merged.
    """
    cdef int64_t most = 0
    cdef size_t i, postings = table.most_postings + 1
    if table.most_postings == 0:
        return
    for i in range(table.size):
        most = max(most, table.pairs[i].count * (table.pairs[i].postings_size > 0))
    while True:
        postings = 0
        for i in range(table.size):
            if table.pairs[i].count >= table.floor:
                postings += table.pairs[i].postings_size
            else:
                table.pairs[i].postings_size = 0
        if postings <= table.most_postings or table.floor > most // 2:
            break
        table.floor *= 2


cdef int drop_unposted(PairTable *table) except -1 nogil:
    """Leave only the pairs that have postings in the table."""
    cdef size_t i, posted = 0
    for i in range(table.size):
        if table.pairs[i].postings != NULL:
            table.pairs[posted] = table.pairs[i]
            posted += 1
    table.size = posted
    make_slots(table, posted)
    return 0


cdef int place_postings(PairTable *table) except -1 nogil:
    """Allocate each pair's postings (postings_size of them) and reset the size to 0."""
    cdef size_t left = 0, i
    cdef Pair *pair
    for i in range(table.size):
        left += table.pairs[i].postings_size
    for i in range(table.size):
        pair = &table.pairs[i]
        pair.postings = NULL
        if pair.postings_size:
            pair.postings = new_postings(table, pair.postings_size, left)
            left -= pair.postings_size
            pair.postings_size = 0
    return 0


cdef void drop_postings(PairTable *table, Pair *pair) noexcept nogil:
    leave_postings(table, pair.postings, pair.postings_size)
    pair.postings, pair.postings_size = NULL, 0


cdef void clear_pairs(PairTable *table) noexcept nogil:
    """Forget every pair, and give back what they take. The next postings go into the spare memory."""
    cdef size_t i
    for i in range(table.blocks_size):
        free(table.blocks[i].postings)
    free(table.pairs)
    free(table.slots)
    table.pairs, table.slots = NULL, NULL
    table.size = table.room = table.blocks_size = table.blocks_total = 0
    table.free, table.free_size = table.spare, table.spare_size
    memset(table.left, 0, sizeof(table.left))


cdef void free_pairs(PairTable *table) noexcept nogil:
    clear_pairs(table)
    free(table.blocks)
