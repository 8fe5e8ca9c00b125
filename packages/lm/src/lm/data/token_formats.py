"""Token files without NumPy's header, mapped as a flat array of ids; and masks.

X.bin       nanoGPT, OLMo-core, CS336, `bpe encode --format bin`: bare ids
X.bin       llm.c, modded-nanogpt: a header of 256 int32
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("uint16", "uint32")
ENDINGS = (".npy", ".bin")
LOOKED_AT = 1 << 22  # ids by which uint32 is told from uint16
LLMC_DTYPES = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # by the magic number and the version


def map_bin(path: Path, dtype: str | None) -> NDArray[Any]:
    """Map a .bin file (see token_file.map_tokens): llm.c's by its header, or bare ids."""
    with path.open("rb") as file:
        start = file.read(12)
    if len(start) == 12:
        magic, version, count = struct.unpack("<3i", start)
        if (magic, version) in LLMC_DTYPES:
            ids = bare(path, LLMC_DTYPES[magic, version], offset=1024)
            if len(ids) != count:
                raise ValueError(f"{path} holds {len(ids)} ids, and its header says {count}: it is cut or changed")
            return ids
    ids = bare(path, dtype or "uint16")
    pairs = ids[: LOOKED_AT & ~1]  # of the upper halves of uint32 nearly all are 0
    if dtype is None and len(pairs) >= 64 and int(pairs[1::2].max()) < 8:
        remedy = f'lm.data.describe("{path}", dtype="uint32")'
        raise ValueError(f"{path} looks like ids of 4 bytes, and nothing says so: write its description by {remedy}")
    return ids


def bare(path: Path, dtype: str, offset: int = 0) -> NDArray[Any]:
    """The numbers of a file from a byte on, mapped. ValueError: the last one is cut."""
    kind = np.dtype(dtype).newbyteorder("<")
    size = path.stat().st_size - offset
    if size % kind.itemsize:
        raise ValueError(f"{path} has {size} bytes of ids, which are no whole {kind.name}: it is cut short")
    return np.memmap(path, kind, "r", offset) if size > 0 else np.empty(0, kind)


def open_mask(path: Path, count: int) -> NDArray[Any]:
    """Open the mask beside a file of `count` ids. FileNotFoundError, ValueError: it is missing, or not a mask."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, which says which tokens are learned: prepare them again")
    try:
        mask = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a mask that can be read: {error}") from None
    if mask.dtype != np.uint8 or mask.shape != (count,):
        raise ValueError(f"{path} holds {mask.dtype} {mask.shape}, and there are {count} ids: prepare them again")
    return np.asarray(mask)
