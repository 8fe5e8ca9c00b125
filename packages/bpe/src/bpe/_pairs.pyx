"""The pairs of a merge list by number of symbol.

Symbols are found by a hash that is a polynomial of their bytes, so that of two joined follows from those of its halves (Karp
and Rabin 1987) and what a merge makes is looked up without joining it.
"""

from bpe.later import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from bpe._memory cimport checked_malloc

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)

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


def all_within(numbers, int64_t most):
    """Whether all are ints, no bools, from 0 to `most`."""
    cdef int overflow
    cdef int64_t value
    for number in numbers:
        if type(number) is not int:
            return False
        value = PyLong_AsLongLongAndOverflow(number, &overflow)
        if overflow or value < 0 or value > most:
            return False
    return True


def merges_of_numbers(list tokens not None, const uint32_t[::1] halves not None):
    """The merges [(left bytes, right bytes)], of which the halves are given by their numbers in `tokens`, left, right, left…"""
    cdef size_t merges = halves.shape[0] // 2, i
    cdef list made = [None] * merges
    cdef tuple merge
    for i in range(merges):
        merge = (tokens[halves[2 * i]], tokens[halves[2 * i + 1]])
        PyObject_GC_UnTrack(merge)      # of bytes, which the collector would find out by looking at each
        made[i] = merge
    return made


def pairs_of_merges(list symbols not None, list merges not None):
    """The merges [(left bytes, right bytes)] as rows (left, right, made) of an array of uint32.

    ValueError names a merge whose halves or whole are no symbols, or says that one stands twice.
    """
    cdef Symbols table = Symbols(symbols)
    rows = np.empty((len(merges), 3), dtype=np.uint32)
    cdef uint32_t[:, ::1] out = rows
    cdef const Symbol *a
    cdef const Symbol *b
    cdef uint32_t left, right, made
    cdef size_t rank
    cdef tuple merge
    for rank in range(<size_t> len(merges)):
        merge = merges[rank]
        left, right, made = table.find_bytes(merge[0]), table.find_bytes(merge[1]), NONE
        if left != NONE and right != NONE:
            a, b = &table.symbols[left], &table.symbols[right]
            if a.size + b.size <= table.longest:
                made = table.find(a.hash * table.powers[b.size] + b.hash, a.text, a.size, b.text, b.size)
        if made == NONE:
            missing = merge[0] if left == NONE else merge[1] if right == NONE else merge[0] + merge[1]
            raise ValueError(f"merge {rank}, {merge[0]!r} + {merge[1]!r}: the vocabulary has no token {missing!r}")
        out[rank, 0], out[rank, 1], out[rank, 2] = left, right, made
    if len(merges) and not differ(&out[0, 0], len(merges)):
        raise ValueError("a merge stands twice in the list; leave the second one out, it can never apply")
    return rows


cdef bint differ(const uint32_t *rows, size_t count) except -1:
    """Whether no two rows begin with the same pair."""
    cdef size_t mask = 63, i, at
    cdef uint64_t pair
    cdef uint64_t *seen
    while mask < count * 2:
        mask = mask * 2 + 1
    seen = <uint64_t *> checked_malloc((mask + 1) * sizeof(uint64_t))
    memset(seen, 0xFF, (mask + 1) * sizeof(uint64_t))
    try:
        for i in range(count):
            pair = <uint64_t> rows[3 * i] << 32 | rows[3 * i + 1]
            at = slot(pair * BASE) & mask
            while seen[at] != EMPTY:
                if seen[at] == pair:
                    return False
                at = (at + 1) & mask
            seen[at] = pair
    finally:
        free(seen)
    return True


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
