"""Supermerges (BoundlessBPE): merges of two words, each a single token, into a superword.

The words of a run are merged as those of any tokenizer. Then the neighbours of lowest rank which are whole words or
superwords are joined, the leftmost first, until none are. Pairs wait in a heap by rank and place.
"""

from array import array

from libc.stdlib cimport free
from libc.string cimport memset

from bpe.native.bytes cimport hash_pair
from bpe.native.hash_seed cimport hash_seed
from bpe.native.heap cimport pop, push
from bpe.native.memory cimport checked_malloc

cdef uint32_t NONE = <uint32_t> -1
cdef uint64_t NO_PAIR = <uint64_t> -1


cdef class Supermerges:
    """The supermerges of a tokenizer.

    Args:
        rows: (left id, right id, the id that they make) of each, in the order of their ranks.
        scanner: The scanner_of() the pattern that splits a run into words.
    """

    def __cinit__(self, rows, int scanner):
        cdef size_t room = 16, at
        cdef uint64_t pair
        self.scanner = scanner
        while room < 2 * <size_t> len(rows):
            room *= 2
        self.mask = room - 1
        self.pairs = <uint64_t *> checked_malloc(room * sizeof(uint64_t))
        self.ranks = <uint32_t *> checked_malloc(room * sizeof(uint32_t))
        self.made = <uint32_t *> checked_malloc((len(rows) + 1) * sizeof(uint32_t))
        memset(self.pairs, 0xFF, room * sizeof(uint64_t))
        for rank, (left, right, made) in enumerate(rows):
            pair = <uint64_t> left << 32 | <uint32_t> right
            at = hash_pair(pair, 0, hash_seed) & self.mask
            while self.pairs[at] != NO_PAIR and self.pairs[at] != pair:
                at = (at + 1) & self.mask
            if self.pairs[at] == NO_PAIR:   # of two equal pairs the first counts
                self.pairs[at], self.ranks[at] = pair, rank
            self.made[rank] = made

    def __dealloc__(self):
        free(self.pairs)
        free(self.ranks)
        free(self.made)

    def merged(self, list ids):
        """The ids of one word, whose symbols are those of a list, after all merges."""
        cdef uint32_t[::1] symbols = array("I", ids)
        cdef uint8_t[::1] all_merge = bytearray(b"\x01") * len(ids)
        if not ids:
            return []
        return list(symbols[:self.merge(&symbols[0], &all_merge[0], len(ids))])

    cdef uint32_t rank_of(self, uint32_t left, uint32_t right) noexcept nogil:
        """The rank of a pair, or NONE."""
        cdef uint64_t pair = <uint64_t> left << 32 | right
        cdef size_t at = hash_pair(pair, 0, hash_seed) & self.mask
        while self.pairs[at] != pair:
            if self.pairs[at] == NO_PAIR:
                return NONE
            at = (at + 1) & self.mask
        return self.ranks[at]

    cdef size_t merge(self, uint32_t *ids, uint8_t *is_word, size_t count) except? 0 nogil:
        """Merge the ids of a run in place; return how many are left. is_word: by id, whether it is a whole word."""
        cdef uint64_t *heap = NULL
        cdef uint64_t entry
        cdef uint32_t *next = NULL
        cdef uint32_t *before
        cdef size_t size = 0, i, left, right, kept = 0
        cdef uint32_t rank
        for i in range(1, count):
            if is_word[i - 1] and is_word[i] and self.rank_of(ids[i - 1], ids[i]) != NONE:
                break
        else:
            return count
        next = <uint32_t *> checked_malloc(2 * (count + 1) * sizeof(uint32_t))
        before = next + count + 1
        heap = <uint64_t *> checked_malloc(3 * count * sizeof(uint64_t))
        for i in range(count):
            next[i], before[i] = <uint32_t> i + 1, <uint32_t> i - 1
            if i and is_word[i - 1] and is_word[i]:
                rank = self.rank_of(ids[i - 1], ids[i])
                if rank != NONE:
                    push(heap, &size, <uint64_t> rank << 32 | (i - 1))
        while size:
            entry = pop(heap, &size)
            rank, left = <uint32_t> (entry >> 32), <uint32_t> entry
            right = next[left]
            # it is void where either of the two has been merged since
            if ids[left] == NONE or right >= count or self.rank_of(ids[left], ids[right]) != rank:
                continue
            if not (is_word[left] and is_word[right]):
                continue
            ids[left], ids[right], next[left] = self.made[rank], NONE, next[right]
            if next[left] < count:
                before[next[left]] = <uint32_t> left
                if is_word[next[left]]:
                    rank = self.rank_of(ids[left], ids[next[left]])
                    if rank != NONE:
                        push(heap, &size, <uint64_t> rank << 32 | left)
            if left > 0 and is_word[before[left]]:
                rank = self.rank_of(ids[before[left]], ids[left])
                if rank != NONE:
                    push(heap, &size, <uint64_t> rank << 32 | before[left])
        for i in range(count):
            ids[kept] = ids[i]
            kept += ids[i] != NONE
        free(next)
        free(heap)
        return kept
