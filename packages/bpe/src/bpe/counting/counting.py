"""Counting: a source of text to the records of its pretokens and how often each occurs.

The calling thread reads (so that Ctrl-C is heard wherever it waits), threads count what it hands them, each into a table of
its own; a short text it counts itself. Tables that outgrow their share of a memory limit are sorted and written to temporary
files without a name, which go with the process however it ends; sorted files are added up in one pass.
"""

from __future__ import annotations

import mmap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from bpe import patterns, sources
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import in_order, merged, pack
from bpe.native.parallel import in_threads
from bpe.progress import Progress
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.scanner import scanner_of
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from bpe.counting.records import Records

THREAD_BYTES = 2 << 20  # of text for each thread: with less, adding up what it counted costs more than it saves
PRETOKEN_BYTES = 192  # of text for each pretoken that a lone table begins with room for: a short text has one in 120
LEAST_ROOM, MOST_ROOM = 1 << 12, 1 << 14  # of them: a long text soon makes more
CHUNK = 1 << 20  # bytes: large enough that handing chunks out costs nothing, small enough that Ctrl-C is heard at once
SMALL_CHUNK = 1 << 16  # of a text that is short for its threads
SMALLEST_CHUNK = 4 << 10  # within a memory_limit
SHARES = 4  # of the hashes that each thread adds up
FAN_IN = 16  # temporary files that are added up at a time

Chunk = list[sources.Stretch]
Item = TypeVar("Item")


def count(
    source: sources.Source,
    pattern: patterns.Pattern,
    special: SpecialTokens,
    workers: int,
    report: Progress,
    memory_limit: int | None = None,
) -> Records:
    """The records of the pretokens of a source: see bpe.counting.records.

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
    total = sources.size_of(source)
    if total is not None:
        workers = max(1, min(workers, total // THREAD_BYTES))
    share = None if memory_limit is None else memory_limit // workers
    # Between two looks at a table it grows by no more than a small part of its share.
    size = CHUNK if share is None else min(CHUNK, max(SMALLEST_CHUNK, share // 144))
    if total is not None:
        size = min(size, max(SMALL_CHUNK, total // (8 * workers)))
    room = min(total // PRETOKEN_BYTES, MOST_ROOM) if workers == 1 and total is not None and share is None else 0
    tables = [PretokenCounts(max(room, LEAST_ROOM)) for _ in range(workers)]
    chunks = _chunks(source, scanner, special, size)
    with _Spill() as spill:

        def work(chunk: Chunk, table: PretokenCounts) -> None:
            for text, begin, end, _ in chunk:
                with memoryview(text)[begin:end] as stretch:
                    if scanner >= 0:
                        table.count(stretch, scanner, special)
                    else:
                        _count_slowly(stretch, pattern, special, table)
                sources.release(text, begin, end)
            if share is not None and table.memory_to_grow > share:
                spill.add(table)

        reported = _reported(chunks, report, total)
        if total is not None and total < 2 * THREAD_BYTES:
            for chunk in reported:
                work(chunk, tables[0])
        else:
            _in_threads(reported, work, tables)
        if spill.used or (memory_limit is not None and 3 * sum(table.memory for table in tables) > memory_limit):
            _in_threads(tables, lambda table, _: spill.add(table), tables)
            return spill.sum()
    return _added_up(tables)


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


def _reported(chunks: Iterator[Chunk], report: Progress, total: int | None) -> Iterator[Chunk]:
    """The same chunks; tells of each when the next is asked for."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += sum(stretch.read for stretch in chunk)
        report("counting bytes", done, total)


def _in_threads(
    items: Iterable[Item], work: Callable[[Item, PretokenCounts], None], tables: list[PretokenCounts]
) -> None:
    """work(item, table) for each item, in a thread for each table, while the calling one asks for the next.

    Ctrl-C is not kept waiting for what the threads are at, which may be a large table that is sorted and written: they end
    after it, or with the process.
    """
    import queue

    jobs: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stopped = threading.Event()

    def work_through(table: PretokenCounts) -> None:
        while (item := jobs.get()) is not None and not stopped.is_set():
            failure = None
            try:
                work(item, table)
            except BaseException as error:
                failure = error
            done.put(failure)

    def wait() -> None:
        failure = done.get()
        if failure is not None:
            raise failure

    threads = [threading.Thread(target=work_through, args=(table,), daemon=True) for table in tables]
    under_way = 0
    try:
        for thread in threads:
            thread.start()
        for item in items:
            if under_way == 2 * len(threads):
                wait()
                under_way -= 1
            jobs.put(item)
            under_way += 1
        for _ in range(under_way):
            wait()
    except KeyboardInterrupt:
        threads.clear()
        raise
    finally:
        stopped.set()
        for _ in tables:
            jobs.put(None)
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _count_slowly(text: memoryview, pattern: patterns.Pattern, special: SpecialTokens, table: PretokenCounts) -> None:
    """Count a text by a pattern that only `regex` serves."""
    for piece, index in special.split(text):
        if index < 0:
            table.count_pieces(patterns.split(piece, pattern))


def _added_up(tables: list[PretokenCounts]) -> Records:
    """The records of all tables, which are left empty: in threads, each of which adds up some of the hashes at a time."""
    tables = [table for table in tables if len(table)]
    if len(tables) <= 1:
        return pack(tables[0]) if tables else b""
    shares = SHARES * len(tables)

    def pack_share(share: int) -> Records:
        table = PretokenCounts(max(map(len, tables)) // shares)
        table.add_share(tables, share, shares)
        return pack(table)

    parts = in_threads(pack_share, range(shares), len(tables))
    for table in tables:
        table.clear()
    return b"".join(parts)


class _Spill:
    """Temporary files of sorted records, FAN_IN of them becoming one of the next level."""

    def __init__(self) -> None:
        self._levels: list[list[BinaryIO]] = []
        self._turn = threading.Lock()
        self._ended = False

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._close()

    def _close(self) -> None:
        for level in self._levels:
            for file in level:
                file.close()

    @property
    def used(self) -> bool:
        return any(self._levels)

    def add(self, table: PretokenCounts) -> None:
        """Write a table's records, and empty it. May be called by several threads at once."""
        if len(table):
            records = pack(table)
            table.clear()
            file = _written(in_order(records))
            with self._turn:
                self._keep(file, 0)
                if self._ended:  # by Ctrl-C, which did not wait for this
                    self._close()

    def _keep(self, file: BinaryIO, level: int) -> None:
        while len(self._levels) <= level:
            self._levels.append([])
        files = self._levels[level]
        files.append(file)
        if len(files) >= FAN_IN and not self._ended:
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
        return _written(merged(files))
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
