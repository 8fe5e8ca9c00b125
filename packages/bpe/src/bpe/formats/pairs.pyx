"""The pairs of a merge list by number of symbol.

Symbols are found by a hash that is a polynomial of their bytes. So the hash of two that are joined follows from the
hashes of the two (Karp and Rabin 1987), and what a merge makes is looked up without joining its bytes.

For the merges of Llama 3's tokenizer.json that takes 23 ms, by dictionaries in Python 239, beside 391 ms for all else
that reading the file takes (`python benchmarks/parts.py merges TOKENIZER.json`, on a Zen 5).
"""

from bpe.native.lazy_imports import numpy as np

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from bpe.native.memory cimport checked_block, checked_malloc, free_block

cdef extern from *:
    """
    #define BASE 0x9E3779B97F4A7C15ULL
    """
    const uint64_t BASE

cdef enum:
    MAX_ID = 0x7FFFFFFF         # as bpe.formats has it

cdef uint32_t NONE = <uint32_t> -1
cdef uint64_t EMPTY = <uint64_t> -1   # no symbol is numbered NONE

ctypedef struct Symbol:
    const uint8_t *text
    uint64_t hash, power        # BASE to the power of the size
    uint32_t size


class WrongMerge(ValueError):
    """A merge that stands twice, or whose halves or whole are no symbols: its index in the list, and the reason."""

    def __init__(self, index, reason):
        super().__init__(f"merge {index}: {reason}")
        self.index, self.reason = int(index), reason


cdef class Symbols:
    """Byte strings, each once, that are found by their hash."""

    cdef Symbol *symbols
    cdef size_t count, mask
    cdef uint64_t *table        # the high half of the hash, then the symbol; EMPTY where there is none
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
        self.mask = 63
        while self.mask < self.count * 2:
            self.mask = self.mask * 2 + 1
        self.table = <uint64_t *> checked_malloc((self.mask + 1) * sizeof(uint64_t))
        memset(self.table, 0xFF, (self.mask + 1) * sizeof(uint64_t))
        for i in range(self.count):
            self.symbols[i].hash = hash_of(self.symbols[i].text, self.symbols[i].size, &self.symbols[i].power)
            at = slot(self.symbols[i].hash) & self.mask
            while self.table[at] != EMPTY:
                at = (at + 1) & self.mask
            self.table[at] = self.symbols[i].hash >> 32 << 32 | i

    def __dealloc__(self):
        free(self.symbols)
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
        cdef uint64_t power
        return self.find(hash_of(text, len(token), &power), text, len(token), text, 0)


def check_numbers(const uint32_t[::1] ids, const uint32_t[::1] used, others, const uint32_t[::1] halves, size_t count):
    """Refuse numbers in a file of tables that point at nothing. ValueError for any of these.

    Args:
        ids: the ids of a vocabulary; each once, none above MAX_ID.
        used: ids that encoding gives; each is one of these, or of `others`.
        others: a set of ids.
        halves: the numbers of tokens, each below `count`.
    """
    cdef size_t i
    cdef uint32_t highest = 0
    cdef uint8_t *is_id
    cdef bint fits = True
    for i in range(<size_t> ids.shape[0]):
        highest = max(highest, ids[i])
    if highest > MAX_ID:
        raise ValueError(f"an id of {highest}")
    is_id = <uint8_t *> checked_block(<size_t> highest + 1)     # of zeros, whose pages are there when written to
    try:
        for i in range(<size_t> ids.shape[0]):
            fits = fits and not is_id[ids[i]]
            is_id[ids[i]] = 1
        for i in range(<size_t> used.shape[0]):
            fits = fits and ((used[i] <= highest and is_id[used[i]]) or used[i] in others)
        for i in range(<size_t> halves.shape[0]):
            fits = fits and halves[i] < count
    finally:
        free_block(is_id, <size_t> highest + 1)
    if not fits:
        raise ValueError("an id that stands twice, or a number of no token")


def halves_of(list merges not None, dict number_of not None):
    """The halves of merges in a bytearray of uint32, left, right, left…; WrongMerge for one that is not two tokens.

    merges: "left right" or [left, right], spelled as a file does. number_of: the number of each token, by its spelling.
    """
    cdef bytearray halves = bytearray(2 * len(merges) * sizeof(uint32_t))
    cdef uint32_t *out = <uint32_t *> PyByteArray_AS_STRING(halves)
    cdef list pair
    for merge in merges:
        pair = (<str> merge).split(" ") if type(merge) is str else merge if type(merge) is list else []
        if len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str or not pair[0] or not pair[1]:
            raise WrongMerge(merges.index(merge), f"not two tokens with a space between: {str(merge)[:80]!r}")
        left, right = number_of.get(pair[0]), number_of.get(pair[1])
        if left is None or right is None:
            missing = pair[0] if left is None else pair[1]
            raise WrongMerge(merges.index(merge), f"{missing!r} is not in the vocabulary")
        out[0], out[1] = left, right
        out += 2
    return halves


def pairs_of_numbers(list symbols not None, list tokens not None, const uint32_t[::1] halves not None):
    """Merges, given by the numbers of their halves in `tokens`, as rows (left, right, made) of an array of uint32.

    WrongMerge for a merge whose halves or whole are no symbols, or that stands twice.
    """
    cdef Symbols table = Symbols(symbols)
    cdef const Symbol *a
    cdef const Symbol *b
    cdef size_t i, merges = halves.shape[0] // 2
    numbers = np.empty(len(tokens), dtype=np.uint32)
    rows = np.empty((merges, 3), dtype=np.uint32)
    cdef uint32_t[::1] number = numbers
    cdef uint32_t[:, ::1] out = rows
    for i in range(<size_t> len(tokens)):
        if i < table.count and tokens[i] is symbols[i]:     # as in most files, which list tokens by their ids
            number[i] = <uint32_t> i
        else:
            number[i] = table.find_bytes(tokens[i])
    rows[:, :2] = numbers[np.asarray(halves)].reshape(merges, 2)
    for i in range(merges):
        out[i, 2] = NONE
        if out[i, 0] != NONE and out[i, 1] != NONE:
            a, b = &table.symbols[out[i, 0]], &table.symbols[out[i, 1]]
            out[i, 2] = table.find(a.hash * b.power + b.hash, a.text, a.size, b.text, b.size)
        if out[i, 2] == NONE:
            left, right = tokens[halves[2 * i]], tokens[halves[2 * i + 1]]
            missing = next(token for token in (left, right, left + right) if token not in symbols)
            raise WrongMerge(i, f"{missing!r} is not in the vocabulary")
    pairs = rows[:, 0].astype(np.uint64) << np.uint64(32) | rows[:, 1]
    ordered = np.sort(pairs)
    if (ordered[1:] == ordered[:-1]).any():
        i = np.setdiff1d(np.arange(merges), np.unique(pairs, return_index=True)[1])[0]
        raise WrongMerge(i, f"{tokens[halves[2 * i]]!r} and {tokens[halves[2 * i + 1]]!r} are merged twice")
    return rows


cdef inline uint64_t hash_of(const uint8_t *text, size_t size, uint64_t *power) noexcept nogil:
    cdef uint64_t hash = 0
    cdef size_t i
    power[0] = 1
    for i in range(size):
        hash = hash * BASE + text[i] + 1
        power[0] *= BASE
    return hash


cdef inline size_t slot(uint64_t hash) noexcept nogil:
    """The first index. The low bits of a polynomial depend on the low bits of its bytes alone: mix high ones in."""
    hash ^= hash >> 32
    hash *= 0xD6E8FEB86659FD93ULL
    return hash ^ (hash >> 32)
