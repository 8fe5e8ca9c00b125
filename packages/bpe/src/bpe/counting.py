"""Counting: a source of text to the records of its pretokens and how often each occurs.

The calling thread reads (so that Ctrl-C is heard wherever it waits), threads count what it hands them, each into a table of
its own. Tables that outgrow their share of a memory limit are sorted and written to temporary files without a name, which
go with the process however it ends; sorted files are added up in one pass.
"""

from __future__ import annotations

import mmap
import queue
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe import _records, patterns, sources
from bpe._intern import PretokenCounts, safe_cut
from bpe._scan import scanner_of
from bpe._special import SpecialTokens
from bpe.progress import Progress

if TYPE_CHECKING:
    from bpe._records import Records

CHUNK = 4 << 20  # bytes: large enough that handing chunks out costs nothing, small enough that Ctrl-C is heard at once
SMALLEST_CHUNK = 4 << 10
FAN_IN = 16  # temporary files that are added up at a time

Chunk = list[sources.Stretch]


def count(
    source: sources.Source,
    pattern: patterns.Pattern,
    special: SpecialTokens,
    workers: int,
    report: Progress,
    memory_limit: int | None = None,
) -> Records:
    """The records of the pretokens of a source: see bpe._records.

    memory_limit: the bytes that the tables may take together; what does not fit goes to temporary files, and the result,
    sorted then, is a map of one. OSError names their folder where the disk is full.
    """
    scanner = scanner_of(pattern)
    if scanner < 0:
        warnings.warn(
            f"no compiled scanner serves the pattern {' then '.join(pattern.expressions)!r}: splitting goes through `regex`, "
            "in one thread, some thirty times slower",
            stacklevel=4,
        )
        workers = 1
    share = None if memory_limit is None else memory_limit // workers
    # Between two looks at a table it grows by no more than a small part of its share.
    size = CHUNK if share is None else min(CHUNK, max(SMALLEST_CHUNK, share // 144))
    tables = [PretokenCounts() for _ in range(workers)]
    chunks = _chunks(source, scanner, special, size)
    total = sources.size_of(source)
    with _Spill() as spill:
        if scanner < 0:
            _count_slowly(chunks, pattern, special, tables[0], share, spill, report, total)
        else:
            _count_in_threads(chunks, scanner, special, tables, share, spill, report, total)
        if spill.used or (memory_limit is not None and 3 * sum(table.memory for table in tables) > memory_limit):
            for table in tables:
                spill.add(table)
            return spill.sum()
    counts = _added_up(tables)
    records = _records.pack(counts)
    counts.clear()
    return records


def _chunks(source: sources.Source, scanner: int, special: SpecialTokens, size: int) -> Iterator[Chunk]:
    """The source in chunks of about `size` bytes: a large text in stretches, small ones together."""
    chunk: Chunk = []
    gathered = 0

    def cut(text: Any, at: int) -> int:
        return safe_cut(text, at, scanner, special)

    for stretch in sources.stretches(source, cut, special.longest, size):
        chunk.append(stretch)
        gathered += stretch.end - stretch.begin
        if gathered >= size:
            yield chunk
            chunk, gathered = [], 0
    if chunk:
        yield chunk


def _count_in_threads(
    chunks: Iterator[Chunk],
    scanner: int,
    special: SpecialTokens,
    tables: list[PretokenCounts],
    share: int | None,
    spill: _Spill,
    report: Progress,
    total: int | None,
) -> None:
    free: queue.SimpleQueue[PretokenCounts] = queue.SimpleQueue()
    for table in tables:
        free.put(table)
    failed: list[BaseException] = []

    def work(table: PretokenCounts, chunk: Chunk) -> None:
        try:
            for text, begin, end, _ in chunk:
                with memoryview(text)[begin:end] as stretch:
                    table.count(stretch, scanner, special)
                sources.release(text, begin, end)
            if share is not None and table.memory_to_grow > share:
                spill.add(table)
        except BaseException as error:
            failed.append(error)
        finally:
            free.put(table)

    done = 0
    with ThreadPoolExecutor(len(tables)) as pool:
        for chunk in chunks:
            table = free.get()
            if failed:
                raise failed[0]
            pool.submit(work, table, chunk)
            done += sum(stretch.read for stretch in chunk)
            report("counting bytes", done, total)
    if failed:
        raise failed[0]


def _count_slowly(
    chunks: Iterator[Chunk],
    pattern: patterns.Pattern,
    special: SpecialTokens,
    table: PretokenCounts,
    share: int | None,
    spill: _Spill,
    report: Progress,
    total: int | None,
) -> None:
    """The same for a pattern that only `regex` serves, in the calling thread, which hears Ctrl-C at any match."""
    done = 0
    for chunk in chunks:
        for text, begin, end, _ in chunk:
            for piece, index in special.split(memoryview(text)[begin:end]):
                if index < 0:
                    table.count_pieces(patterns.split(piece, pattern))
            sources.release(text, begin, end)
        if share is not None and table.memory_to_grow > share:
            spill.add(table)
        done += sum(stretch.read for stretch in chunk)
        report("counting bytes", done, total)


def _added_up(tables: list[PretokenCounts]) -> PretokenCounts:
    """All tables in one: two and two in parallel, the smaller into the larger, until one is left."""

    def add(a: PretokenCounts, b: PretokenCounts) -> PretokenCounts:
        large, small = (a, b) if len(a) >= len(b) else (b, a)
        large.merge(small)
        return large

    with ThreadPoolExecutor(len(tables)) as pool:
        while len(tables) > 1:
            odd = tables[len(tables) // 2 * 2 :]
            tables = list(pool.map(add, tables[0::2], tables[1::2])) + odd
    return tables[0]


class _Spill:
    """Temporary files of sorted records, FAN_IN of them becoming one of the next level."""

    def __init__(self) -> None:
        self._levels: list[list[BinaryIO]] = []
        self._turn = threading.Lock()

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *_: object) -> None:
        for level in self._levels:
            for file in level:
                file.close()

    @property
    def used(self) -> bool:
        return any(self._levels)

    def add(self, table: PretokenCounts) -> None:
        """Write a table's records, and empty it. May be called by several threads at once."""
        if len(table):
            records = _records.pack(table)
            table.clear()
            file = _written(_records.in_order(records))
            with self._turn:
                self._keep(file, 0)

    def _keep(self, file: BinaryIO, level: int) -> None:
        while len(self._levels) <= level:
            self._levels.append([])
        files = self._levels[level]
        files.append(file)
        if len(files) >= FAN_IN:
            self._levels[level] = []
            self._keep(_sum(files), level + 1)

    def sum(self) -> Records:
        """All records, those of one pretoken added up, as the map of a file."""
        files = [file for level in self._levels for file in level]
        self._levels = []
        if not files:
            return b""
        file = files[0] if len(files) == 1 else _sum(files)
        with file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _sum(files: list[BinaryIO]) -> BinaryIO:
    try:
        return _written(_records.merged(files))
    finally:
        for file in files:
            file.close()


def _written(blocks: Iterator[Any]) -> BinaryIO:
    """A temporary file of these blocks, open at its begin."""
    import tempfile  # with shutil, bz2, random…: only a memory_limit needs it

    file = tempfile.TemporaryFile()  # noqa: SIM115 (its owner closes it)
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
