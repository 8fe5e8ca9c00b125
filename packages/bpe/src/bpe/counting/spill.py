"""Counts that exceed a memory limit: sorted records in temporary files, added up a few files at a time.

The files have no name, so that they go with the process however it ends.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import add_sorted, pack_table, sorted_blocks
from bpe.native.lazy_imports import tempfile  # with shutil, bz2, random…: only a memory limit needs it

if TYPE_CHECKING:
    from bpe.counting.records import Records

FAN_IN = 16  # files that are added up at a time


class Spill:
    """Temporary files of sorted records, FAN_IN of them becoming one of the next tier. A context manager."""

    def __init__(self) -> None:
        self._tiers: list[list[BinaryIO]] = []
        self._lock = threading.Lock()
        self._ended = False

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._close()

    def _close(self) -> None:
        for tier in self._tiers:
            for file in tier:
                file.close()

    @property
    def used(self) -> bool:
        return any(self._tiers)

    def add(self, table: PretokenCounts) -> None:
        """Write a table's records, and empty it. May be called by several threads at once."""
        if len(table):
            records = pack_table(table)
            table.clear()
            file = _write(sorted_blocks(records))
            with self._lock:
                self._keep(file, 0)
                if self._ended:  # by Ctrl-C, which did not wait for this
                    self._close()

    def _keep(self, file: BinaryIO, tier: int) -> None:
        while len(self._tiers) <= tier:
            self._tiers.append([])
        files = self._tiers[tier]
        files.append(file)
        if len(files) >= FAN_IN and not self._ended:
            self._tiers[tier] = []
            self._keep(_add_files(files), tier + 1)

    def sum(self) -> Records:
        """All records, added up by pretoken, as the map of a file."""
        files = [file for tier in self._tiers for file in tier]
        self._tiers = []
        if not files:
            return b""
        file = files[0] if len(files) == 1 else _add_files(files)
        with file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _add_files(files: list[BinaryIO]) -> BinaryIO:
    try:
        return _write(add_sorted(files))
    finally:
        for file in files:
            file.close()


def _write(blocks: Iterator[Any]) -> BinaryIO:
    """A temporary file of these blocks, open at its beginning."""
    file = tempfile.TemporaryFile()  # its owner closes it
    try:
        for block in blocks:
            file.write(block)
        file.seek(0)
    except OSError as error:
        file.close()
        reason = f"{error.strerror}: no room for the counts that memory_limit puts on disk"
        raise OSError(error.errno, reason, tempfile.gettempdir()) from None
    except BaseException:
        file.close()
        raise
    return file
