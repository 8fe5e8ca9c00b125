"""Headers of safetensors files: names, formats and shapes of the tensors in a folder, without their numbers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod

MOST = 100_000_000  # bytes of a header, as the safetensors library has it


@dataclass(frozen=True)
class Stored:
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)


def stored(folder: str) -> list[Stored]:
    """The tensors of all safetensors files of a folder, by name; FileNotFoundError, ValueError for broken ones."""
    files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no file that ends in .safetensors: give the folder of a model")
    tensors: dict[str, Stored] = {}
    for file in files:
        for one in _header(os.path.join(folder, file)):
            if one.name in tensors:
                raise ValueError(f"{file} has a tensor {one.name} that an earlier file has too: remove one of them")
            tensors[one.name] = one
    return [tensors[name] for name in sorted(tensors)]


def _header(path: str) -> list[Stored]:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        whole = os.fstat(file.fileno()).st_size
        if not 2 <= size <= min(MOST, whole - 8):
            raise ValueError(f"{path} is no safetensors file: its header would be {size:,} bytes of {whole:,}")
        try:
            entries = json.loads(file.read(size))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is no safetensors file: {error}") from None
    result = []
    for name, entry in (entries if isinstance(entries, dict) else {}).items():
        if name == "__metadata__":
            continue
        try:
            first, after = map(int, entry["data_offsets"])
            result.append(Stored(name, str(entry["dtype"]), tuple(map(int, entry["shape"])), after - first))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{path} has a broken entry for {name!r:.80}: load the file anew") from None
        if not 0 <= first <= after <= whole - 8 - size:
            raise ValueError(f"{path} ends before its tensor {name!r:.80}: load the file anew")
    return result
