"""The tiles of the attention kernels by family of devices: of sm90 measured, of the others reasoned.

benchmarks/compile_attention.py compiles every row. Where nothing was measured, those stand here whose registers do not
spill and whose shared memory fits; with windows or documents some spill 32 bytes at most, and the keys' kernel on sm100
at 64 and 128 up to 128. On sm90 the keys' kernel spills up to 224 bytes at 128 and 256, and is the fastest so.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from lm.ops.triton.problem import Tiles

WIDTHS = (16, 32, 64, 128, 256)  # that head dimensions are padded to
Kernels = dict[str, dict[int, Tiles]]  # by kernel and width


def rows(described: bool = False, **kernels: list[tuple[int, int, int, int]]) -> Kernels:
    """The tiles of each kernel: rows, columns, warps, stages for each of WIDTHS; read by tensor descriptors or not."""
    return {
        kernel: {width: Tiles(*tile, described=described) for width, tile in zip(WIDTHS, tiles, strict=True)}
        for kernel, tiles in kernels.items()
    }


# For dtypes of 16 bits.
_AMPERE = rows(
    forward=[(128, 64, 4, 3), (128, 64, 4, 3), (128, 64, 4, 3), (64, 64, 4, 2), (64, 32, 8, 2)],
    keys=[(64, 128, 8, 2), (64, 128, 8, 2), (64, 128, 8, 2), (32, 64, 8, 2), (16, 64, 8, 2)],
    queries=[(128, 64, 8, 2), (128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2), (64, 64, 8, 2)],
    decode=[(16, 128, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 64, 4, 2), (16, 32, 4, 2)],
)
# Measured on an H100, causal, at 2,048 and at 8,192 or 16,384 positions; 16 is taken to be like 32. Small tiles
# won: probably because programs then share a multiprocessor, and one's exponentials run beside another's products.
_HOPPER = rows(
    described=True,
    forward=[(64, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2)],
    keys=[(128, 64, 4, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 8, 2)],
    queries=[(64, 64, 4, 3), (64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2)],
) | rows(decode=[(16, 128, 4, 3), (16, 128, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 32, 4, 3)])
for _width in (16, 32, 64):
    _HOPPER["queries"][_width] = replace(_HOPPER["queries"][_width], described=False)
# 512 columns of tensor memory do not hold both sums of the keys' kernel at 256: there the older matrix instructions do.
_BLACKWELL = rows(
    described=True,
    forward=[(128, 128, 8, 3), (128, 128, 8, 3), (128, 128, 8, 3), (128, 128, 8, 2), (128, 64, 8, 2)],
    keys=[(64, 128, 8, 3), (64, 128, 8, 3), (64, 128, 8, 3), (32, 128, 8, 2), (32, 32, 8, 2)],
    queries=[(128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2)],
) | rows(decode=[(16, 128, 4, 3), (16, 128, 4, 3), (16, 128, 4, 3), (16, 64, 4, 3), (16, 32, 4, 3)])
_BLACKWELL["keys"][256] = replace(_BLACKWELL["keys"][256], described=False)
TABLE: dict[str, Kernels] = {
    "sm80": _AMPERE,
    "sm89": _AMPERE
    | {
        "forward": _AMPERE["forward"] | {64: Tiles(128, 64, 8, 2)},
        "queries": _AMPERE["queries"] | {256: Tiles(32, 32, 4, 2)},
    },
    "sm90": _HOPPER,
    "sm100": _BLACKWELL,
}

# What else is worth measuring where measuring is asked for.
MORE: dict[str, dict[int, list[Tiles]]] = {
    "forward": {
        64: [Tiles(128, 128, 8, 3, described=True), Tiles(128, 64, 4, 3, described=True)],
        128: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
    },
    "keys": {
        64: [Tiles(64, 64, 4, 3, described=True), Tiles(32, 128, 8, 3, described=True)],
        128: [Tiles(64, 128, 8, 2, described=True), Tiles(32, 64, 4, 3, described=True)],
    },
    "queries": {
        64: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
        128: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
    },
}

# float32 is multiplied in full precision by ordinary units: what counts is that the tiles fit, and that compiling is
# not long.
_WIDE = rows(
    forward=[(32, 32, 4, 2), (32, 32, 4, 2), (64, 32, 8, 2), (32, 16, 8, 2), (32, 16, 8, 1)],
    keys=[(32, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 2), (16, 32, 8, 1), (16, 16, 8, 1)],
    queries=[(32, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 2), (32, 16, 8, 2), (16, 16, 8, 2)],
    decode=[(16, 32, 4, 2), (16, 32, 4, 2), (16, 32, 4, 2), (16, 16, 4, 2), (16, 16, 8, 1)],
)
WIDE_TABLE: dict[str, Kernels] = {
    "sm80": _WIDE,
    "sm89": _WIDE | {"forward": _WIDE["forward"] | {128: Tiles(32, 16, 8, 1)}},
    "sm90": _WIDE,
    "sm100": _WIDE,
}

# Devices by compute capability. Those with 99 KiB of shared memory for a program take the tiles of the smallest among
# them.
FAMILIES = {
    (8, 0): "sm80",
    (8, 6): "sm89",
    (8, 9): "sm89",
    (9, 0): "sm90",
    (10, 0): "sm100",
    (10, 3): "sm100",
    (12, 0): "sm89",
}


def table(capability: tuple[int, int], kind: str, width: int, dtype: torch.dtype) -> Tiles:
    """What the table says, of an unknown device what it says of the smallest that is known."""
    tables = TABLE if dtype in (torch.float16, torch.bfloat16) else WIDE_TABLE
    return tables[FAMILIES.get(capability, "sm89")][kind][width]
