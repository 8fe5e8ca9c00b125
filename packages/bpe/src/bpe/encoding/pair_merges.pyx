"""Merges by ids, for vocabularies of words (bpe.encoding.words), whose symbols are no bytes.

The neighbours of lowest rank are joined, the leftmost first, until none are left. Pairs wait in a heap by rank and
place.
"""

from array import array

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from bpe.native.bytes cimport hash_pair
from bpe.native.hash_seed cimport hash_seed
from bpe.native.heap cimport pop, push
from bpe.native.memory cimport checked_malloc

cdef uint32_t NONE = <uint32_t> -1
cdef uint64_t NO_PAIR = <uint64_t> -1


cdef class PairMerges:
    """Merges of pairs of ids.

    Args:
        rows: (left id, right id, the id that they make) of each, in the order of their ranks.
    """

    cdef uint64_t *pairs            # by hash, linear probing: left id << 32 | right id, or NO_PAIR
    cdef uint32_t *ranks            # of each of them
    cdef uint32_t *joined           # the id that each makes, by rank
    cdef size_t mask

    def __cinit__(self, rows):
        cdef size_t room = 16, at
        cdef uint64_t pair
        while room < 2 * <size_t> len(rows):
            room *= 2
        self.mask = room - 1
        self.pairs = <uint64_t *> checked_malloc(room * sizeof(uint64_t))
        self.ranks = <uint32_t *> checked_malloc(room * sizeof(uint32_t))
        self.joined = <uint32_t *> checked_malloc((len(rows) + 1) * sizeof(uint32_t))
        memset(self.pairs, 0xFF, room * sizeof(uint64_t))
        for rank, (left, right, joined) in enumerate(rows):
            pair = <uint64_t> left << 32 | <uint32_t> right
            at = hash_pair(pair, 0, hash_seed) & self.mask
            while self.pairs[at] != NO_PAIR and self.pairs[at] != pair:
                at = (at + 1) & self.mask
            if self.pairs[at] == NO_PAIR:   # of two equal pairs the first counts
                self.pairs[at], self.ranks[at] = pair, rank
            self.joined[rank] = joined

    def __dealloc__(self):
        free(self.pairs)
        free(self.ranks)
        free(self.joined)

    def merged(self, list ids):
        """The ids of one word, given as a list of symbols, after all merges."""
        cdef uint32_t[::1] symbols = array("I", ids)
        return list(symbols[:self.merge(&symbols[0], len(ids))]) if ids else []

    cdef uint32_t rank_of(self, uint32_t left, uint32_t right) noexcept nogil:
        """The rank of a pair, or NONE."""
        cdef uint64_t pair = <uint64_t> left << 32 | right
        cdef size_t at = hash_pair(pair, 0, hash_seed) & self.mask
        while self.pairs[at] != pair:
            if self.pairs[at] == NO_PAIR:
                return NONE
            at = (at + 1) & self.mask
        return self.ranks[at]

    cdef size_t merge(self, uint32_t *ids, size_t count) except? 0:
        """Merge the ids of a word in place; return how many are left."""
        cdef uint32_t *next = <uint32_t *> checked_malloc(2 * (count + 1) * sizeof(uint32_t))
        cdef uint32_t *before = next + count + 1
        cdef uint64_t *heap = NULL
        cdef uint64_t entry
        cdef size_t size = 0, i, left, right, end = 0
        cdef uint32_t rank
        try:
            heap = <uint64_t *> checked_malloc(3 * count * sizeof(uint64_t))
            for i in range(count):
                next[i], before[i] = <uint32_t> i + 1, <uint32_t> i - 1
                if i:
                    self.push_pair(heap, &size, ids, i - 1, i)
            while size:
                entry = pop(heap, &size)
                rank, left = <uint32_t> (entry >> 32), <uint32_t> entry
                right = next[left]
                # it is void where either of the two has been merged since
                if ids[left] == NONE or right >= count or self.rank_of(ids[left], ids[right]) != rank:
                    continue
                ids[left], ids[right], next[left] = self.joined[rank], NONE, next[right]
                if next[left] < count:
                    before[next[left]] = <uint32_t> left
                    self.push_pair(heap, &size, ids, left, next[left])
                if left > 0:
                    self.push_pair(heap, &size, ids, before[left], left)
        finally:
            free(next)
            free(heap)
        for i in range(count):
            ids[end] = ids[i]
            end += ids[i] != NONE
        return end

    cdef void push_pair(
        self, uint64_t *heap, size_t *size, const uint32_t *ids, size_t left, size_t right
    ) noexcept nogil:
        """Push a pair of neighbours, by rank and place, if it is a merge."""
        cdef uint32_t rank = self.rank_of(ids[left], ids[right])
        if rank != NONE:
            push(heap, size, <uint64_t> rank << 32 | left)
