"""Bytes that PyTorch's caching allocator for CUDA adds to the tensors, by the rules of c10's CUDACachingAllocator.cpp.

Every tensor takes a block of a multiple of 512 bytes, and max_memory_allocated() counts blocks. Blocks are cut from
segments: 2 MiB ones for tensors up to 1 MiB, 20 MiB ones up to 10 MiB, above that one of a multiple of 2 MiB for each,
whose rest stays with its block unless it is more than 1 MiB (with expandable_segments:True nothing does). What tensors
in a shared segment waste depends on the order of all allocations and is not predicted.
"""

from __future__ import annotations

from collections.abc import Iterable

BLOCK = 512
OWN_SEGMENT = 10 << 20
SEGMENT_MULTIPLE = 2 << 20
KEPT_REMAINDER = 1 << 20


def block(size: int) -> int:
    """Bytes of the block that a tensor of `size` bytes takes."""
    rounded = -(-size // BLOCK) * BLOCK
    if rounded < OWN_SEGMENT:
        return rounded
    segment = -(-rounded // SEGMENT_MULTIPLE) * SEGMENT_MULTIPLE
    return segment if segment - rounded <= KEPT_REMAINDER else rounded


def waste(tensors: Iterable[tuple[int, int]]) -> int:
    """Bytes that rounding up to blocks adds to these tensors: (how many, bytes of one)."""
    return sum(int(count) * (block(int(size)) - int(size)) for count, size in tensors)
