"""The pairs of symbols that merge: looked up from a merge list, or found in the tokens where any two that join may.

A token of n bytes can be cut in n - 1 places, and both sides of each have to be looked up. Their hashes come from the
token's own: a polynomial's value on a part follows from its values on what begins and what ends there (Karp and Rabin
1987), so a place costs two look-ups and no reading of bytes unless something is found.
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from bpe._memory cimport checked_malloc, checked_realloc

cdef extern from *:
    """
    #define BASE 0x9E3779B97F4A7C15ULL
    """
    const uint64_t BASE

cdef uint32_t NONE = <uint32_t> -1
cdef uint64_t EMPTY = <uint64_t> -1   # no symbol is numbered NONE

ctypedef struct Symbol:
    const uint8_t *text
    uint64_t hash
    uint32_t size

ctypedef struct Rows:
    uint32_t *all               # left, right, made, rank; and again
    size_t size, room           # in rows


cdef class Symbols:
    """Byte strings, each once, that are found by their hash."""

    cdef Symbol *symbols
    cdef size_t count, mask
    cdef uint64_t *table        # the high half of the hash, then the symbol; EMPTY where there is none
    cdef uint64_t *powers       # of BASE
    cdef size_t longest
    cdef list kept              # keeps the bytes alive

    def __cinit__(self, list symbols):
        cdef size_t i, at
        cdef bytes token
        self.kept = symbols
        self.count = len(symbols)
        if self.count >= NONE:
            raise ValueError(f"{self.count:,} symbols; the most is {NONE - 1:,}")
        self.symbols = <Symbol *> checked_malloc(self.count * sizeof(Symbol))
        for i in range(self.count):
            token = symbols[i]
            self.symbols[i].text = <const uint8_t *> PyBytes_AS_STRING(token)
            self.symbols[i].size = <uint32_t> len(token)
            self.longest = max(self.longest, <size_t> len(token))
        self.powers = <uint64_t *> checked_malloc((self.longest + 1) * sizeof(uint64_t))
        self.powers[0] = 1
        for i in range(self.longest):
            self.powers[i + 1] = self.powers[i] * BASE
        self.mask = 63
        while self.mask < self.count * 2:
            self.mask = self.mask * 2 + 1
        self.table = <uint64_t *> checked_malloc((self.mask + 1) * sizeof(uint64_t))
        memset(self.table, 0xFF, (self.mask + 1) * sizeof(uint64_t))
        for i in range(self.count):
            self.symbols[i].hash = hash_of(self.symbols[i].text, self.symbols[i].size)
            at = slot(self.symbols[i].hash) & self.mask
            while self.table[at] != EMPTY:
                at = (at + 1) & self.mask
            self.table[at] = self.symbols[i].hash >> 32 << 32 | i

    def __dealloc__(self):
        free(self.symbols)
        free(self.powers)
        free(self.table)

    cdef inline uint32_t find(
        self, uint64_t hash, const uint8_t *left, size_t left_size, const uint8_t *right, size_t right_size
    ) noexcept nogil:
        """The symbol that is left and right joined, or NONE."""
        cdef size_t at = slot(hash) & self.mask
        cdef const Symbol *symbol
        while self.table[at] != EMPTY:
            if self.table[at] >> 32 == hash >> 32:
                symbol = &self.symbols[<uint32_t> self.table[at]]
                if (
                    symbol.hash == hash
                    and symbol.size == left_size + right_size
                    and memcmp(symbol.text, left, left_size) == 0
                    and memcmp(symbol.text + left_size, right, right_size) == 0
                ):
                    return <uint32_t> self.table[at]
            at = (at + 1) & self.mask
        return NONE

    cdef inline uint32_t find_bytes(self, bytes token):
        cdef const uint8_t *text = <const uint8_t *> PyBytes_AS_STRING(token)
        return self.find(hash_of(text, len(token)), text, len(token), text, 0)


def pairs_of_ranks(list symbols not None, const uint32_t[::1] ranks not None):
    """Every two symbols that join to a third, as rows (left, right, made, rank of made) of an array of uint32.

    symbols: bytes, each once. ranks: of each symbol.
    """
    cdef Symbols table = Symbols(symbols)
    cdef Rows rows
    cdef const Symbol *symbol
    cdef size_t i, cut
    cdef uint64_t before, after
    cdef uint32_t left, right
    if ranks.shape[0] != <Py_ssize_t> table.count:
        raise ValueError(f"{table.count} symbols with {ranks.shape[0]} ranks")
    rows.all, rows.size, rows.room = NULL, 0, 0
    try:
        with nogil:
            for i in range(table.count):
                symbol = &table.symbols[i]
                before = 0
                for cut in range(1, symbol.size):
                    before = before * BASE + symbol.text[cut - 1] + 1
                    left = table.find(before, symbol.text, cut, symbol.text, 0)
                    if left == NONE:
                        continue
                    after = symbol.hash - before * table.powers[symbol.size - cut]
                    right = table.find(after, symbol.text + cut, symbol.size - cut, symbol.text, 0)
                    if right != NONE:
                        add(&rows, left, right, <uint32_t> i, ranks[i])
        return to_array(&rows)
    finally:
        free(rows.all)


def pairs_of_merges(list symbols not None, list merges not None):
    """The merges [(left bytes, right bytes)] as rows (left, right, made, place in the list) of an array of uint32.

    ValueError names a merge whose halves or whole are no symbols, or one that stands twice.
    """
    cdef Symbols table = Symbols(symbols)
    cdef Rows rows
    cdef const Symbol *a
    cdef const Symbol *b
    cdef uint32_t left, right, made, rank
    cdef tuple merge
    rows.all, rows.size, rows.room = NULL, 0, 0
    try:
        for rank in range(<uint32_t> len(merges)):
            merge = merges[rank]
            left, right, made = table.find_bytes(merge[0]), table.find_bytes(merge[1]), NONE
            if left != NONE and right != NONE:
                a, b = &table.symbols[left], &table.symbols[right]
                if a.size + b.size <= table.longest:
                    made = table.find(a.hash * table.powers[b.size] + b.hash, a.text, a.size, b.text, b.size)
            if made == NONE:
                missing = merge[0] if left == NONE else merge[1] if right == NONE else merge[0] + merge[1]
                raise ValueError(
                    f"merge {rank}, {merge[0]!r} + {merge[1]!r}: the vocabulary has no token {missing!r}"
                )
            add(&rows, left, right, made, rank)
        found = to_array(&rows)
    finally:
        free(rows.all)
    pairs = found[:, 0].astype(np.uint64) << np.uint64(32) | found[:, 1]
    if len(np.unique(pairs)) < len(pairs):
        raise ValueError("a merge stands twice in the list; leave the second one out, it can never apply")
    return found


cdef inline uint64_t hash_of(const uint8_t *text, size_t size) noexcept nogil:
    cdef uint64_t hash = 0
    cdef size_t i
    for i in range(size):
        hash = hash * BASE + text[i] + 1
    return hash


cdef inline size_t slot(uint64_t hash) noexcept nogil:
    """Where to look first: the low bits of a polynomial are those of the low bits of its bytes, so mix the high ones in."""
    hash ^= hash >> 32
    hash *= 0xD6E8FEB86659FD93ULL
    return hash ^ (hash >> 32)


cdef inline int add(Rows *rows, uint32_t left, uint32_t right, uint32_t made, uint32_t rank) except -1 nogil:
    cdef uint32_t *row
    if rows.size == rows.room:
        rows.room = rows.room * 2 + 1024
        rows.all = <uint32_t *> checked_realloc(rows.all, rows.room * 4 * sizeof(uint32_t))
    row = rows.all + 4 * rows.size
    row[0], row[1] = left, right
    row[2], row[3] = made, rank
    rows.size += 1
    return 0


cdef to_array(const Rows *rows):
    array = np.empty((rows.size, 4), dtype=np.uint32)
    cdef uint32_t[:, ::1] out = array
    if rows.size:
        memcpy(&out[0, 0], rows.all, rows.size * 4 * sizeof(uint32_t))
    return array
