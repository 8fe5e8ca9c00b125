from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "encoding/lanes.h" nogil:
    enum:
        SEARCHED
        LANES

    ctypedef struct Waiting:
        uint64_t pair
        size_t slot
        uint32_t at

    ctypedef struct Unmerged:
        const uint8_t *text
        size_t size

    ctypedef struct Lane:
        uint32_t keys[65]
        uint32_t symbols[65]
        uint8_t begins[64]
        uint64_t here
        Waiting left, right
        size_t searched, count

    ctypedef struct MergeTables:
        const uint64_t *starts
        const uint64_t *pairs
        const uint64_t *filter
        const uint32_t *symbol_of_byte
        const uint32_t *made
        uint32_t first_made
        size_t mask
        int shift, filter_shift, symbol_bits, merge_bits

    ctypedef void (*begin_function)(const MergeTables *tables, Lane *lanes, const Unmerged *pieces, size_t count) noexcept nogil

cdef extern from "encoding/steps.h" nogil:
    ctypedef size_t (*steps_function)(const MergeTables *tables, Lane *lanes, size_t count, Lane **busy) noexcept nogil

cdef extern from "encoding/lowest.h" nogil:
    ctypedef uint32_t (*lowest_function)(const uint32_t *keys, size_t count) noexcept nogil

ctypedef struct Linked:         # a symbol of a window that is merged with a heap
    uint32_t symbol             # NONE once it was merged into the one before it
    uint32_t next, previous

ctypedef struct Candidate:      # of that heap
    uint32_t merge, left, right # the symbols it would join; others there by now: it is void
    uint32_t at

ctypedef struct Work:           # room for merging, kept from one pretoken to the next; all zeros to begin with
    Lane *lanes
    uint32_t *symbols           # of a long pretoken, as far as it is merged
    uint32_t *begins            # of each in the text, and after them where the last one ends
    Linked *linked
    Candidate *heap
    size_t room, count, linked_room, heap_room, heap_size
    const uint32_t *found       # the symbols of the pretoken merged last

cdef void free_work(Work *work) noexcept nogil
cdef int need_lanes(Work *work) except -1 nogil

cdef class Ranks:
    cdef tuple kept                     # the symbols; keeps `text` alive
    cdef readonly size_t symbols
    cdef const uint8_t **text           # by symbol
    cdef uint32_t *size
    cdef uint32_t[256] symbol_of_byte
    cdef bint all_bytes                 # have one
    cdef uint64_t *pairs                # of two symbols, above, their merge, below: open addressing, and one slot more that is always free
    cdef size_t mask
    cdef uint64_t *filter               # a bit for each value of filter_shift's hash that some pair has
    cdef int shift, filter_shift, symbol_bits, merge_bits
    cdef uint64_t merge_mask
    cdef uint32_t *made                 # by merge
    cdef bint in_order                  # made[i] is made[0] + i
    cdef uint32_t first_made
    cdef uint64_t *starts               # 65,536: of two neighbouring bytes, what begin() wants to know; see lanes.h
    cdef begin_function begin_lanes     # or NULL: without vectors
    cdef steps_function step_lanes      # as well
    cdef lowest_function lowest
    cdef uint32_t *whole                # symbols that stand for a whole pretoken though merges do not reach them
    cdef size_t whole_mask
    cdef size_t longest_whole           # 0: there are none
    cdef size_t merge(self, Work *work, const uint8_t *text, size_t size) except 0 nogil
    cdef size_t by_merges(self, Work *work, const uint8_t *text, size_t size) except 0 nogil
    cdef void merge_together(self, Lane *lanes, const Unmerged *pieces, size_t count, bint placed=*) noexcept nogil
    cdef void begin(self, Lane *lanes, const Unmerged *pieces, size_t count) noexcept nogil
    cdef MergeTables tables(self) noexcept nogil
    cdef bint step(self, Lane *lane) noexcept nogil
    cdef void add_pair(self, uint64_t left, uint64_t right, uint32_t merge) noexcept nogil
    cdef int add_canonical(self, uint32_t *lost, size_t *lost_count) except -1
    cdef int add_starts(self) except -1
    cdef void parts(self, uint64_t entry, uint32_t *left, uint32_t *right, uint32_t *merge) noexcept nogil
    cdef bint spelled(self, const uint8_t *text, size_t size) noexcept nogil
    cdef int find_lost(self, uint32_t *lost, size_t *lost_count) except -1
    cdef int add_whole(self, const uint32_t *lost, size_t count) except -1
    cdef uint32_t find_whole(self, const uint8_t *text, size_t size) noexcept nogil
