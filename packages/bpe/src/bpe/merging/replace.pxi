# The changes that replacing a pair by a new symbol makes: the pairs of the new symbol's neighbours.
#
# Changes are summed for each neighbour before the table hears of them. A new symbol whose neighbour is another new one
# makes a pair of both, which is counted by itself.

ctypedef struct Neighbour:      # a position where the new symbol stands beside this symbol
    uint32_t symbol, posting

ctypedef union Occurrences:
    size_t number               # how many postings a pair will have
    uint32_t *next              # then where its next one goes; NULL: the pair is left out

ctypedef struct Beside:         # counts of a symbol as a neighbour; zero between merges
    int64_t change              # how often it stands there
    Occurrences postings        # and where

ctypedef struct Side:           # the left or the right side of the new symbol
    Beside *beside              # by symbol
    uint32_t *touched           # the symbols that stand there
    size_t touched_size
    Neighbour *neighbours       # all positions, in order
    size_t neighbours_size

ctypedef struct Broken:         # a pair that was broken
    uint64_t key
    int64_t change              # how often
    uint32_t hash               # of the key

ctypedef struct Changes:
    Side left, right
    Broken *broken              # the pairs that were broken
    size_t broken_size
    int64_t doubles             # how often two new symbols stand side by side
    uint32_t *double_postings   # and where
    size_t doubles_size
    size_t postings_room        # how many neighbours of each side, and doubles, there is room for
    size_t room                 # how many symbols the arrays of the sides have room for
    size_t visited              # symbols that were looked at, in all


cdef int reserve_changes(Changes *changes, size_t room) except -1 nogil:
    """Room for this many symbols."""
    if room > changes.room:
        grow_side(&changes.left, changes.room, room)
        grow_side(&changes.right, changes.room, room)
        changes.broken = <Broken *> checked_realloc(changes.broken, (2 * room + 2) * sizeof(Broken))
        changes.room = room
    return 0


cdef int reserve_postings(Changes *changes, size_t postings) except -1 nogil:
    """Room for this many neighbours of each side, and doubles; what was there is forgotten."""
    if postings > changes.postings_room:
        free_postings(changes)
        changes.postings_room = postings + postings // 2 + 1024
        changes.left.neighbours = <Neighbour *> checked_block(changes.postings_room * sizeof(Neighbour))
        changes.right.neighbours = <Neighbour *> checked_block(changes.postings_room * sizeof(Neighbour))
        changes.double_postings = <uint32_t *> checked_block(changes.postings_room * sizeof(uint32_t))
    return 0


cdef void free_postings(Changes *changes) noexcept nogil:
    free_block(changes.left.neighbours, changes.postings_room * sizeof(Neighbour))
    free_block(changes.right.neighbours, changes.postings_room * sizeof(Neighbour))
    free_block(changes.double_postings, changes.postings_room * sizeof(uint32_t))
    changes.left.neighbours = changes.right.neighbours = NULL
    changes.double_postings = NULL


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
    free_postings(changes)


cdef void free_side(Side *side) noexcept nogil:
    free(side.beside)
    free(side.touched)


cdef inline void note_neighbour(Side *side, uint32_t symbol, int64_t count, uint32_t posting) noexcept nogil:
    cdef Beside *beside = &side.beside[symbol]
    if beside.postings.number == 0:
        side.touched[side.touched_size] = symbol
        side.touched_size += 1
    beside.change += count
    beside.postings.number += 1
    side.neighbours[side.neighbours_size].symbol = symbol
    side.neighbours[side.neighbours_size].posting = posting
    side.neighbours_size += 1


cdef inline void note_double(Changes *changes, int64_t count, uint32_t posting) noexcept nogil:
    changes.doubles += count
    changes.double_postings[changes.doubles_size] = posting
    changes.doubles_size += 1


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
        prefetch_pair(table, changes.broken[i].hash)
    for i in range(changes.broken_size):
        pair = find_pair(table, changes.broken[i].key, changes.broken[i].hash)
        if pair != NULL and pair.count:
            pair.count -= changes.broken[i].change


cdef inline void note_broken(const PairTable *table, Changes *changes, uint64_t key, int64_t change) noexcept nogil:
    """Note that a pair was broken so often."""
    cdef Broken *broken = &changes.broken[changes.broken_size]
    broken.key, broken.change, broken.hash = key, change, hash_of(key)
    prefetch_slot(table, broken.hash)
    changes.broken_size += change != 0
