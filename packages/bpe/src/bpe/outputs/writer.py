"""The base of all token files: ids are added, and the files appear whole, with a description beside them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe.corpus import remote
from bpe.native.atomic_file import Staged
from bpe.native.lazy_imports import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Writer(ABC):
    """One file of ids, uint16 or uint32, and what belongs to it, which appear whole or not at all."""

    ending: str  # of the names of such files

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = path, dtype
        self.staged = Staged()
        self.count = 0  # of the ids that were written
        self.ends: list[NDArray[np.uint64]] = []  # where documents end, counted in ids from the file's first on

    def write(self, ids: NDArray[np.uint32], ends: NDArray[np.int64]) -> memoryview:
        """Add ids, with the positions where documents end; returns the bytes that a digest is taken of."""
        data = ids.astype(self.dtype.newbyteorder("<"), copy=False)
        self.ends.append(ends.astype(np.uint64) + np.uint64(self.count))
        self.add(data)
        self.count += len(ids)
        return data.data.cast("B") if len(data) else memoryview(b"")

    @abstractmethod
    def add(self, ids: NDArray[Any]) -> None:
        """Add ids of the file's dtype; the ends of their documents are in `ends` already."""

    def complete(self) -> None:  # noqa: B027 (most formats have nothing to add)
        """Write what can be written only when all ids are known."""

    def document_ends(self) -> NDArray[np.uint64]:
        """Return the end of each document; the last where the file does, also if it goes on in the next file."""
        ends = np.concatenate([np.empty(0, dtype=np.uint64), *self.ends])
        return ends if self.count == (ends[-1] if len(ends) else 0) else np.append(ends, np.uint64(self.count))

    def finish(self, about: dict[str, Any]) -> list[Path]:
        """Put the files in their places, with a description; returns them."""
        self.complete()
        metadata = {key: value for key, value in about.items() if value is not None}
        self.staged.open(beside(os.fspath(self.path))).write(json.dumps(metadata, indent=1).encode() + b"\n")
        return list(map(Path, self.staged.commit()))

    def abandon(self) -> None:
        """Leave nothing of what was written."""
        self.staged.abandon()


def beside(out: str) -> str:
    """Return the path, or the URL, of the description of an output."""
    return os.path.splitext(out)[0] + ".json"


def read_description(out: str) -> dict[str, Any] | None:
    """Return the description beside an output, by path or URL; None where there is none of ids."""
    try:
        about = json.loads(remote.read_bytes(beside(out)))
    except (FileNotFoundError, ValueError):
        return None
    return about if isinstance(about, dict) and {"count", "dtype", "sha256"} <= about.keys() else None
