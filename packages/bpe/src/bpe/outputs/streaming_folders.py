"""Folders that stream into training: litdata's and mosaicml-streaming's, each written by its own library."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe.native.atomic_file import temporary_name
from bpe.native.lazy_imports import numpy as np
from bpe.outputs.writer import Writer, described, description_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES = 1 << 26  # of a chunk of such a folder


class _Folder(Writer, ABC):
    """A folder that another library writes, a document at a time, beside its place; it is renamed when it is whole."""

    ending = ""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path, dtype)
        if path.exists():
            raise FileExistsError(f"{path} is there already: name another folder, or remove it")
        self.folder = path.with_name(temporary_name(path.name))
        self.rest: NDArray[Any] = np.empty(0, dtype=np.uint32)  # of a document that goes on

    def add(self, ids: NDArray[Any]) -> None:
        begin = 0
        for end in (self.ends[-1].astype(np.int64) - self.count).tolist():
            self.add_document(np.concatenate([self.rest, ids[begin:end]]))
            self.rest, begin = ids[:0], end
        self.rest = np.concatenate([self.rest, ids[begin:]])

    def finish(self, about: dict[str, Any]) -> list[Path]:
        if len(self.rest):
            self.add_document(self.rest)
        self.close()
        self.staged.open(description_of(self.path)).write(described(about))
        places = self.staged.commit()  # first, as a file's: nobody finds the folder without it
        try:
            os.replace(self.folder, self.path)
        except OSError:
            description_of(self.path).unlink()
            raise
        return [self.path, *map(Path, places)]

    def abandon(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        super().abandon()

    @abstractmethod
    def add_document(self, ids: NDArray[Any]) -> None:
        """Writes the ids of one document."""

    @abstractmethod
    def close(self) -> None:
        """Ends the folder."""


class LitdataWriter(_Folder):
    """litdata's chunks of int32, for its TokensLoader: StreamingDataset(X, item_loader=TokensLoader(size))."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path, dtype)
        try:
            from litdata.streaming.item_loader import TokensLoader
            from litdata.streaming.writer import BinaryWriter
        except ImportError as error:
            raise ImportError(f"litdata's format needs litdata: pip install groundup-bpe[litdata] ({error})") from None
        self.index = 0
        self.writer = BinaryWriter(str(self.folder), chunk_bytes=CHUNK_BYTES, item_loader=TokensLoader())

    def add_document(self, ids: NDArray[Any]) -> None:
        import torch

        self.writer.add_item(self.index, torch.from_numpy(ids.astype(np.int32)))
        self.index += 1

    def close(self) -> None:
        if not self.index:  # litdata would wait for an index for ever
            raise ValueError(f"{self.path}: litdata has no folder without documents, and the source has no text")
        self.writer.done()
        self.writer.merge()


class MdsWriter(_Folder):
    """mosaicml-streaming's shards: a sample for each document, its ids in the column tokens."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path, dtype)
        try:
            from streaming import MDSWriter
        except ImportError as error:
            raise ImportError(
                f"the format of mosaicml-streaming needs it: pip install groundup-bpe[mds] ({error})"
            ) from None
        columns = {"tokens": f"ndarray:{self.dtype.name}"}
        self.writer = MDSWriter(out=str(self.folder), columns=columns, size_limit=CHUNK_BYTES)

    def add_document(self, ids: NDArray[Any]) -> None:
        self.writer.write({"tokens": ids.astype(self.dtype)})

    def close(self) -> None:
        self.writer.finish()
