# The table of pairs: adjacent symbols, how often they occur, and in which words.
#
# Only pairs that reach the floor are in it, and that make a token which is not too long. The postings of a pair are the
# places of the words that it occurs in, in order, once for each occurrence; a word may have lost the pair since. Short
# postings lie together in blocks, which are freed when all pairs are counted again; from LONG_POSTINGS on they are a
# block of their own, which is freed as soon as the pair is merged.

ctypedef struct Pair:
    uint64_t key                # left << 32 | right
    int64_t count               # 0 when it is merged, or has fallen below the floor
    uint32_t *postings
    uint32_t postings_size
    uint32_t next               # the number of another pair in the same bucket of the queue, or NO_PAIR

ctypedef struct PairTable:
    Pair *pairs                 # by number
    size_t size, room
    uint64_t *slots             # open addressing, linear probing: a pair's hash << 32 | its number, or NO_PAIR
    size_t mask                 # how many slots there are, a power of two, less one
    void **blocks               # of short postings
    size_t blocks_size, blocks_room
    uint32_t *block             # what is free of the last block of POSTINGS_BLOCK
    size_t block_room
    int64_t floor
    size_t longest              # bytes that a token may have

cdef enum:
    LONG_POSTINGS = 1 << 10
    POSTINGS_BLOCK = 1 << 14

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
    """Whether the token of a pair is not too long."""
    return <size_t> symbols.size[left_of(key)] + symbols.size[right_of(key)] <= table.longest


cdef inline void prefetch_slot(const PairTable *table, uint64_t key) noexcept nogil:
    prefetch(&table.slots[hash_of(key) & table.mask])


cdef inline void prefetch_pair(const PairTable *table, uint64_t key) noexcept nogil:
    """Fetch the pair of this key, if there is one; its slot should have been fetched."""
    cdef uint32_t number = find_hash(table, hash_of(key))
    if number != NO_PAIR:
        prefetch(&table.pairs[number])


cdef inline void prefetch_posting(const PairTable *table, uint64_t key) noexcept nogil:
    """Fetch where the next posting of the pair goes; the pair should have been fetched."""
    cdef uint32_t number = find_hash(table, hash_of(key))
    if number != NO_PAIR:
        prefetch(table.pairs[number].postings + table.pairs[number].postings_size)


cdef inline uint32_t find_hash(const PairTable *table, uint32_t hash) noexcept nogil:
    """The number of the first pair with this hash, or NO_PAIR."""
    cdef size_t at = hash & table.mask
    while <uint32_t> table.slots[at] != NO_PAIR and table.slots[at] >> 32 != hash:
        at = (at + 1) & table.mask
    return <uint32_t> table.slots[at]


cdef inline Pair *find_pair(const PairTable *table, uint64_t key) noexcept nogil:
    """The pair, or NULL."""
    cdef uint32_t hash = hash_of(key), number
    cdef size_t at = hash & table.mask
    while True:
        number = <uint32_t> table.slots[at]
        if number == NO_PAIR:
            return NULL
        if table.slots[at] >> 32 == hash and table.pairs[number].key == key:
            return &table.pairs[number]
        at = (at + 1) & table.mask


cdef Pair *add_pair(PairTable *table, uint64_t key) except NULL nogil:
    """A pair that is not there yet, the last by number; the others may move."""
    cdef Pair *pair
    cdef size_t room
    if table.size == table.room:
        if table.size == NO_PAIR:
            with gil:
                raise MemoryError(
                    f"there are more than {NO_PAIR:,} pairs of symbols; choose a larger min_count or less text"
                )
        room = min(table.room + table.room // 2 + 1024, <size_t> NO_PAIR)
        table.pairs = <Pair *> checked_realloc(table.pairs, room * sizeof(Pair))
        table.room = room
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


cdef int make_slots(PairTable *table, size_t wanted) except -1 nogil:
    """Slots for `wanted` pairs, and those that there are in them."""
    cdef size_t slots = 1024, i
    while slots * 5 < wanted * 8 + 8:
        slots *= 2
    free(table.slots)
    table.slots = NULL
    table.slots = <uint64_t *> checked_malloc(slots * sizeof(uint64_t))
    table.mask = slots - 1
    memset(table.slots, 0xFF, slots * sizeof(uint64_t))
    for i in range(table.size):
        link_pair(table, <uint32_t> i)
    return 0


cdef uint32_t *new_postings(PairTable *table, size_t size) except NULL nogil:
    """Room for `size` short postings, of one pair or of several, which stays until all pairs are counted again."""
    cdef uint32_t *postings
    if size > POSTINGS_BLOCK // 8:
        return new_block(table, size)
    if size > table.block_room or table.block == NULL:
        table.block = new_block(table, POSTINGS_BLOCK)
        table.block_room = POSTINGS_BLOCK
    postings = table.block
    table.block += size
    table.block_room -= size
    return postings


cdef uint32_t *new_block(PairTable *table, size_t size) except NULL nogil:
    if table.blocks_size == table.blocks_room:
        table.blocks = <void **> checked_realloc(table.blocks, (table.blocks_room * 2 + 64) * sizeof(void *))
        table.blocks_room = table.blocks_room * 2 + 64
    table.blocks[table.blocks_size] = checked_malloc(size * sizeof(uint32_t))
    table.blocks_size += 1
    return <uint32_t *> table.blocks[table.blocks_size - 1]


cdef int place_postings(PairTable *table) except -1 nogil:
    """Room for the postings of all pairs, each of which says in `postings_size` how many it will have."""
    cdef size_t total = 0, i
    cdef uint32_t *block
    cdef Pair *pair
    for i in range(table.size):
        table.pairs[i].postings = NULL
        if table.pairs[i].postings_size < LONG_POSTINGS:
            total += table.pairs[i].postings_size
    block = new_postings(table, total)
    for i in range(table.size):
        pair = &table.pairs[i]
        if pair.postings_size < LONG_POSTINGS:
            pair.postings = block
            block += pair.postings_size
        else:
            pair.postings = <uint32_t *> checked_malloc(pair.postings_size * sizeof(uint32_t))
    return 0


cdef void drop_postings(Pair *pair) noexcept nogil:
    if pair.postings_size >= LONG_POSTINGS:
        free(pair.postings)
    pair.postings, pair.postings_size = NULL, 0


cdef void clear_pairs(PairTable *table) noexcept nogil:
    """Forget every pair, and give back what they take."""
    cdef size_t i
    for i in range(table.size):
        drop_postings(&table.pairs[i])
    for i in range(table.blocks_size):
        free(table.blocks[i])
    free(table.pairs)
    free(table.slots)
    table.pairs, table.slots, table.block = NULL, NULL, NULL
    table.size = table.room = table.blocks_size = table.block_room = 0


cdef void free_pairs(PairTable *table) noexcept nogil:
    clear_pairs(table)
    free(table.blocks)
