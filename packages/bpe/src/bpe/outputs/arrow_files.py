"""Token files of Arrow: a row for each document, with its ids. Needs pyarrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe.native.arrow import pyarrow
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.outputs.writer import Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMN = "input_ids"  # what transformers and datasets call them
GROUP = 1 << 22  # ids that are written as rows together, and the rest of the last document


class _Rows(Writer, ABC):
    """Ids gathered into rows."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        if dtype != np.dtype(np.uint32):
            raise ValueError(f"{path}: ids in Parquet and Arrow are uint32, not {dtype}")
        super().__init__(path, dtype)
        self.schema = pyarrow().schema([(COLUMN, pyarrow().list_(pyarrow().uint32()))])
        self.pending: list[NDArray[Any]] = []
        self.size = self.ids_written = 0  # ids that are pending; and that were written
        self.rows = 0  # documents that were written
        self.writer = self.open(self.staged.open(path))

    def add(self, ids: NDArray[Any]) -> None:
        self.pending.append(ids)
        self.size += len(ids)
        if self.size >= GROUP:  # rows end where documents do, whatever came with a call
            ends = np.concatenate([np.empty(0, dtype=np.uint64), *self.ends])
            while (full := int(np.searchsorted(ends, self.ids_written + GROUP))) < len(ends):
                self.write_rows(ends[: full + 1])

    def complete(self) -> None:
        self.write_rows(self.document_ends())
        self.writer.close()

    def write_rows(self, ends: NDArray[np.uint64]) -> None:
        """Write the documents that have ended; `ends`: of all documents."""
        new = ends[self.rows :].astype(np.int64) - self.ids_written
        if not len(new):
            return
        ids = np.concatenate(self.pending)
        complete = int(new[-1])
        offsets = np.concatenate([[0], new]).astype(np.int32)
        arrow = pyarrow()
        lists = arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(ids[:complete]))
        self.writer.write_batch(arrow.record_batch([lists], schema=self.schema))
        self.rows += len(new)
        self.ids_written += complete
        self.pending, self.size = [ids[complete:]], len(ids) - complete

    def abandon(self) -> None:
        with suppress(Exception):  # what writes would else write more when it is collected
            self.writer.close()
        super().abandon()

    @abstractmethod
    def open(self, file: BinaryIO) -> Any:
        """Return pyarrow's writer of rows to a file."""


class ParquetWriter(_Rows):
    """Parquet, compressed by Zstandard."""

    ending = ".parquet"

    def open(self, file: BinaryIO) -> Any:
        with import_lock:
            from pyarrow import parquet

        return parquet.ParquetWriter(file, self.schema, compression="zstd")


class ArrowWriter(_Rows):
    """An Arrow stream, not compressed, which can be mapped."""

    ending = ".arrow"

    def open(self, file: BinaryIO) -> Any:
        with import_lock:
            from pyarrow import ipc

        return ipc.new_stream(file, self.schema)
