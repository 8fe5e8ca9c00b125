from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from bpe.scanning.scanner cimport cut_table

cdef extern from "encoding/merge_tables.h" nogil:
    const uint32_t NONE

    ctypedef struct MergeTables:
        uint64_t *pairs
        uint64_t *filter
        uint64_t *byte_pairs
        uint32_t *made
        uint32_t symbol_of_byte[256]
        uint32_t first_made
        size_t mask
        int shift, filter_shift, symbol_bits, merge_bits

cdef extern from "encoding/lanes.h" nogil:
    enum:
        LANE_BYTES
        LANES

    ctypedef struct Piece:
        const uint8_t *text
        size_t size

    ctypedef struct Lane:
        uint32_t keys[65]
        uint32_t symbols[65]
        uint8_t begins[64]
        uint64_t alive
        size_t count

cdef extern from "encoding/steps.h" nogil:
    ctypedef uint32_t (*lowest_function)(const uint32_t *keys, size_t count) noexcept nogil
    lowest_function choose_lowest(int level)
    void merge_lanes(
        const MergeTables *tables, lowest_function lowest, Lane *lanes, const Piece *pieces, size_t count
    )

ctypedef struct Linked:         # a symbol of a window that is merged with a heap
    uint32_t symbol             # NONE once it was merged into the one before it
    uint32_t next, previous

ctypedef struct Work:           # room for merging, kept from one pretoken to the next; all zeros to begin with
    Lane *lanes
    uint32_t *symbols           # of the merged part of a long pretoken
    uint32_t *begins            # of each in the text, and after them where the last one ends
    Linked *linked
    uint64_t *heap              # see heap.pxi
    size_t room, count, linked_room, heap_room, heap_size
    const uint32_t *found       # the symbols of the pretoken merged last

cdef void free_work(Work *work) noexcept nogil
cdef enum:
    WIDE_OVERLAP = 28           # bytes that neighbours of join_windows() have in common, nearly always with a symbol
    WINDOW_STEP = LANE_BYTES - WIDE_OVERLAP     # from where one of them begins to the next

cdef int need_lanes(Work *work) except -1 nogil
cdef size_t join_windows(Work *work, size_t first, size_t count, size_t size) except? 0 nogil
cdef cut_table *make_cuts(Ranks ranks) except NULL

cdef class Ranks:
    cdef bytes joined                   # the symbols, one after another
    cdef readonly size_t symbols
    cdef size_t merges                  # of `tables.made`
    cdef const uint8_t **text           # by symbol, in `joined`
    cdef uint32_t *size
    cdef readonly bint all_bytes        # each byte is a symbol
    cdef bint drops_bytes               # those that are none are left out
    cdef MergeTables tables
    cdef lowest_function lowest         # for the process's SIMD level
    cdef uint32_t *whole                # symbols that stand for a whole pretoken though merges do not reach them
    cdef size_t whole_mask
    cdef size_t longest_whole           # 0: there are none
    cdef int hold_symbols(self, bytes joined, const uint32_t[::1] sizes) except -1
    cdef size_t merge(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil
    cdef size_t merge_bytes(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil
    cdef size_t merge_without_others(self, Work *work, const uint8_t *text, size_t size) except? 0 nogil
    cdef void merge_pieces(self, Lane *lanes, const Piece *pieces, size_t count) noexcept nogil
    cdef bint spelled(self, const uint8_t *text, size_t size) noexcept nogil
    cdef uint32_t find_whole(self, const uint8_t *text, size_t size) noexcept nogil
