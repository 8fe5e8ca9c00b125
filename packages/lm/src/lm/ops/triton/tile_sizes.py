"""The tiles of each attention kernel, by the width that head dimensions are padded to.

Measured on an H100, causal, at 2,048 and at 8,192 or 16,384 positions; width 16 is taken to be like 32. Small tiles
won there. Other devices take tiles that fit 99 KiB of shared memory, the least since Ampere; they were not measured.
benchmarks/compile_attention.py compiles all of them, for sm80 to sm100.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from lm.ops.triton.problem import INTERPRETING, Problem, Tiles

WIDTHS = (16, 32, 64, 128, 256)
Table = dict[str, dict[int, Tiles]]  # by kernel and width


def table(**kernels: list[tuple[int, int, int, int]]) -> Table:
    """Queries, keys, warps and stages of each kernel's tiles, for each of WIDTHS."""
    return {
        kernel: {width: Tiles(*tile) for width, tile in zip(WIDTHS, tiles, strict=True)}
        for kernel, tiles in kernels.items()
    }


HOPPER = table(
    forward=[(64, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2)],
    keys=[(128, 64, 4, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 8, 2)],
    queries=[(64, 64, 4, 3), (64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2)],
    decode=[(16, 128, 4, 3), (16, 128, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 32, 4, 3)],
)
SMALL = table(
    forward=[(128, 64, 4, 3), (128, 64, 4, 3), (128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 8, 2)],
    keys=[(64, 128, 8, 2), (64, 128, 8, 2), (64, 128, 8, 2), (32, 64, 8, 2), (16, 64, 8, 2)],
    queries=[(128, 64, 8, 2), (128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2), (32, 32, 4, 2)],
    decode=[(16, 128, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 64, 4, 2), (16, 32, 4, 2)],
)
# On a B200 the four products of 64 keys would need more tensor memory than there is, and compile to a trap.
BLACKWELL = SMALL | {"keys": SMALL["keys"] | {256: Tiles(32, 32, 8, 2)}}
# float32 and float64 are multiplied by ordinary units, everywhere by the same tiles, which fit and compile fast.
WIDE = table(
    forward=[(32, 32, 4, 2), (32, 32, 4, 2), (64, 32, 8, 2), (32, 16, 8, 1), (32, 16, 8, 1)],
    keys=[(32, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 2), (16, 32, 8, 1), (16, 16, 8, 1)],
    queries=[(32, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 2), (32, 16, 8, 2), (16, 16, 8, 2)],
    decode=[(16, 32, 4, 2), (16, 32, 4, 2), (16, 32, 4, 2), (16, 16, 4, 2), (16, 16, 8, 1)],
)
# So small that short sequences have borders, corners and full tiles.
INTERPRETED = dict.fromkeys(HOPPER, Tiles(16, 16))


def tiles_for(kind: str, problem: Problem) -> Tiles:
    """The tiles of a kernel, "forward", "keys", "queries" or "decode", on the device of the problem."""
    if INTERPRETING:
        return INTERPRETED[kind]
    capability, capped = torch.cuda.get_device_capability(problem.q.device), problem.softcap is not None
    return tiles_on(capability, kind, problem.width, problem.q.dtype, capped)


def tiles_on(capability: tuple[int, int], kind: str, width: int, dtype: torch.dtype, capped: bool = False) -> Tiles:
    """The tiles of a kernel on devices of a compute capability, for heads padded to a width."""
    # The slope of a soft cap takes registers that the gradients have only in smaller tiles.
    if capped and (kind == "keys" or (kind == "queries" and width == 256)):
        tiles = tiles_on(capability, kind, width, dtype)
        if tiles.queries > 16:
            return replace(tiles, queries=tiles.queries // 2)
        return replace(tiles, keys=max(16, tiles.keys // 2))
    if dtype not in (torch.float16, torch.bfloat16):
        return WIDE[kind][width]
    if capability != (9, 0):
        return (BLACKWELL if capability[0] == 10 else SMALL)[kind][width]
    tiles = HOPPER[kind][width]
    # Descriptors were slower for queries at narrow heads; decoding reads no tile of queries by them.
    described = kind in ("forward", "keys") or (kind == "queries" and width >= 128)
    return replace(tiles, described=described)
