"""What an allocator adds to the tensors: PyTorch's caching one for CUDA, by the rules of c10/cuda/CUDACachingAllocator.cpp.

Every tensor takes a block of a multiple of 512 bytes, and max_memory_allocated() counts blocks. Blocks are cut from segments:
2 MiB ones for tensors up to 1 MiB, 20 MiB ones up to 10 MiB, above that one of a multiple of 2 MiB for each; a block of a large
segment keeps a remainder of up to 1 MiB, which depends on the order of all that was freed before and is not predicted.
With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True there are no such remainders.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 512
ALLOCATORS = ("exact", "cuda")


def waste(tensors: Iterable[tuple[int, int]]) -> int:
    """Bytes that rounding up to blocks adds to these tensors: (how many, bytes of one)."""
    return sum(int(count) * (-int(size) % BLOCK) for count, size in tensors)
