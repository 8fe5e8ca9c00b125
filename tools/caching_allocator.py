"""PyTorch's caching allocator for CUDA, replayed: what max_memory_allocated() would say of a program that ran without a
GPU.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings and one stream: sizes are rounded up
to 512 bytes; up to 1 MiB blocks are cut from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, above that from
one of a multiple of 2 MiB; the smallest free block that is large enough is taken, of equals the one with the lowest
address; what is left of it is split off if it is 512 bytes of a small segment, or more than 1 MiB of a large one; a
freed block grows together with free neighbours. `allocated` counts whole blocks, as the real one does.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

MIB = 1 << 20
BLOCK, SMALL = 512, MIB
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_FROM, MULTIPLE = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB


@dataclass
class Block:
    address: int
    size: int
    small: bool
    before: Block | None = None
    after: Block | None = None
    free: bool = True

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


class Pool:
    """Free blocks by size, then by address."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[tuple[int, int], Block] = {}

    def put(self, block: Block) -> None:
        bisect.insort(self.keys, block.key)
        self.blocks[block.key] = block

    def drop(self, block: Block) -> None:
        del self.keys[bisect.bisect_left(self.keys, block.key)]
        del self.blocks[block.key]

    def smallest(self, size: int) -> Block | None:
        at = bisect.bisect_left(self.keys, (size, 0))
        return self.blocks[self.keys[at]] if at < len(self.keys) else None


class CachingAllocator:
    """allocate() and free() as the program did; then allocated, reserved, and the most of each."""

    def __init__(self) -> None:
        self.pools = {True: Pool(), False: Pool()}
        self.end = 0
        self.allocated = self.reserved = self.most_allocated = self.most_reserved = 0

    def allocate(self, size: int) -> Block:
        rounded = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = rounded <= SMALL
        block = self.pools[small].smallest(rounded)
        if block is None:
            block = self.segment(rounded, small)
        else:
            self.pools[small].drop(block)
        left = block.size - rounded
        if left >= BLOCK if small else left > SMALL:
            rest = Block(block.address + rounded, left, small, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, rounded
            self.pools[small].put(rest)
        block.free = False
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def segment(self, rounded: int, small: bool) -> Block:
        if small:
            size = SMALL_SEGMENT
        else:
            size = LARGE_SEGMENT if rounded < LARGE_FROM else -(-rounded // MULTIPLE) * MULTIPLE
        block = Block(self.end, size, small)
        self.end += size + MULTIPLE  # segments never touch
        self.reserved += size
        self.most_reserved = max(self.most_reserved, self.reserved)
        return block

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        block.free = True
        pool = self.pools[block.small]
        if block.before is not None and block.before.free:
            before = block.before
            pool.drop(before)
            before.size += block.size
            before.after = block.after
            if block.after is not None:
                block.after.before = before
            block = before
        if block.after is not None and block.after.free:
            after = block.after
            pool.drop(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        pool.put(block)
