"""Shared prefixes: chunks of prompts that stay in the cache for sequences that begin alike."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from lm.generation.kv_cache import Cache

Key = tuple[int, tuple[int, ...]]  # the number of the chunk before it, and the ids of a chunk


@dataclass
class Chunk:
    """A chunk with its pages in the cache; followers: number of child chunks."""

    number: int
    pages: list[int]
    followers: int = 0


class Prefixes:
    """Whole chunks of prompts, as a tree: a chunk is known by its ids and by the chunk before it.

    The keys and values of a chunk depend on nothing else, to the bit, as a prompt is always read in the same chunks.
    They stay in the cache until memory runs out. Those used longest ago go first, ends before beginnings. size: tokens
    of a chunk, a multiple of the cache's page.
    """

    def __init__(self, cache: Cache, size: int) -> None:
        assert size % cache.page == 0
        self.cache, self.size = cache, size
        self.chunks = OrderedDict[Key, Chunk]()  # those used last at the end
        self.by_number = dict[int, Key]()
        self.numbers = itertools.count(1)

    def take(self, row: int, ids: Sequence[int], before: int) -> int:
        """Add the chunks of `ids` that are here to a row of whole chunks; at least one token is left to read.

        before: the number of the row's last chunk, 0 if it has none. Return that number after the call.
        """
        used = list[Key]()
        at = self.cache.lengths[row]
        while at + self.size < len(ids):
            key = before, tuple(ids[at : at + self.size])
            chunk = self.chunks.get(key)
            if chunk is None:
                break
            self.cache.share(row, chunk.pages)
            used.append(key)
            before, at = chunk.number, at + self.size
        self.cache.lengths[row] = at
        for key in reversed(used):  # a beginning is used later than what follows it, and so goes later
            self.chunks.move_to_end(key)
        return before

    def keep(self, row: int, ids: Sequence[int], begin: int, before: int) -> int:
        """Keep the chunk that a row has read at `begin`, unless another text read the same meanwhile; its number."""
        key, first = (before, tuple(ids[begin : begin + self.size])), begin // self.cache.page
        chunk = self.chunks.get(key)
        if chunk is None:
            pages = self.cache.pages_of(row)[first : first + self.size // self.cache.page]
            chunk = self.chunks[key] = Chunk(next(self.numbers), pages)
            self.by_number[chunk.number] = key
            for page in pages:
                self.cache.users[page] += 1
            if before:
                self.chunks[self.by_number[before]].followers += 1
        return chunk.number

    def evict(self) -> bool:
        """Forget the chunk used longest ago, of those that no sequence has. False: there is none."""
        for key, chunk in self.chunks.items():
            if not chunk.followers and all(self.cache.users[page] == 1 for page in chunk.pages):
                self.cache.release(chunk.pages)
                del self.chunks[key], self.by_number[chunk.number]
                if key[0]:
                    self.chunks[self.by_number[key[0]]].followers -= 1
                return True
        return False

    @property
    def evictable(self) -> int:
        """Number of pages that only forgotten chunks would free."""
        users = self.cache.users
        return sum(users[page] == 1 for chunk in self.chunks.values() for page in chunk.pages)
