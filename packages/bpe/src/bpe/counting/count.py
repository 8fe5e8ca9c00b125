"""Counting: a source of text to the records of its pretokens and how often each occurs.

The calling thread reads the source in chunks, so that Ctrl-C is heard wherever it waits; threads count the chunks, each
into a table of its own, and the tables are added up. A short text is counted by the calling thread. A table that
outgrows its share of a memory limit is sorted and written to a temporary file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe import patterns
from bpe.corpus import sources
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import pack_into, pack_table, room_for
from bpe.counting.spill import Spill
from bpe.native.parallel import map_in_threads, stream
from bpe.native.progress import Progress, spend
from bpe.native.warn import warn_caller
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from bpe.counting.records import Records

THREAD_BYTES = 2 << 20  # of text for each thread: with less, adding up its table costs more than it saves
CHUNK = 1 << 18  # bytes of text, which stay in the L2 cache from reading to counting
SMALLEST_CHUNK = 4 << 10  # within a memory limit
MEMORY_PER_BYTE = 144  # peak bytes of a table per byte of text, growing, packing and sorting included
ADDING_UP = 3  # peak memory of adding up, in multiples of the tables
SHARES = 4  # ranges of hashes that each thread adds up, at least
SHARE = 1 << 15  # pretokens of a range, so that its table stays in the cache

Chunk = list[sources.Stretch]


class Plan(NamedTuple):
    """The plan by which a source is counted."""

    threads: int
    in_caller: bool  # by the calling thread alone
    chunk: int  # bytes of text that are counted between two looks at a table's memory
    share: int | None  # bytes of memory that each table may take


def plan(total: int | None, num_threads: int, memory_limit: int | None) -> Plan:
    """Plan the counting of a source.

    Every thread gets THREAD_BYTES of text at least, and each table an equal share of the memory limit. A table is
    looked at after each chunk, within which no table may grow by more than its share. total: bytes of the source, or
    None.
    """
    threads = num_threads if total is None else max(1, min(num_threads, total // THREAD_BYTES))
    share = None if memory_limit is None else memory_limit // threads
    chunk = CHUNK if share is None else min(CHUNK, max(SMALLEST_CHUNK, share // MEMORY_PER_BYTE))
    return Plan(threads, total is not None and total < 2 * THREAD_BYTES, chunk, share)


def count_source(
    source: sources.Source,
    pattern: patterns.Pattern,
    special: SpecialTokens,
    num_threads: int,
    report: Progress,
    memory_limit: int | None = None,
    new_table: Callable[[], PretokenCounts] = PretokenCounts,
) -> Records:
    """The records of the pretokens of a source (see bpe.counting.records); special tokens are not counted.

    Args:
        memory_limit: Bytes that the tables may take together. What exceeds them goes to temporary files, and the
            records are then sorted, in a map of such a file.
        new_table: Makes a table; it may count pretokens in another spelling.

    Raises:
        OSError: The disk is full; it names the folder of the temporary files.
    """
    scanner = patterns.scanner_of(pattern)
    if scanner < 0:
        num_threads = 1
        warn_caller(patterns.slow_warning(pattern))
    total = sources.size_of(source)
    threads, in_caller, chunk_bytes, share = plan(total, num_threads, memory_limit)
    tables = [new_table() for _ in range(threads)]
    idle = list(range(threads))
    busy = [0.0] * threads  # CPU seconds of counting into each table
    with Spill() as spill:

        def count_chunk(chunk: Chunk) -> None:
            number, begun = idle.pop(), time.thread_time()
            table = tables[number]
            for text, begin, end, *_ in chunk:
                with memoryview(text)[begin:end] as stretch:
                    if scanner >= 0:
                        table.count(stretch, scanner, special)
                    else:
                        _count_slowly(stretch, pattern, special, table)
            if share is not None and table.memory_to_grow > share:
                spill.add(table)
            busy[number] += time.thread_time() - begun
            idle.append(number)

        chunks = _reported(_chunks(source, scanner, special, chunk_bytes), report, total)
        for _ in map(count_chunk, chunks) if in_caller else stream(count_chunk, chunks, threads, ordered=False):
            pass
        splitting, adding = sum(table.splitting for table in tables), sum(table.adding for table in tables)
        share_of_splitting = splitting / max(1, splitting + adding)
        spend("splitting", share_of_splitting * sum(busy))
        spend("counting", (1 - share_of_splitting) * sum(busy))
        begun = time.process_time()
        memory = ADDING_UP * sum(table.memory for table in tables)
        if spill.used or (memory_limit is not None and memory > memory_limit):
            for _ in stream(spill.add, tables, threads, ordered=False):
                pass
            records = spill.sum()
        else:
            records = _add_up(tables)
        spend("counting", time.process_time() - begun)
        return records


def _chunks(source: sources.Source, scanner: int, special: SpecialTokens, size: int) -> Iterator[Chunk]:
    """Yield the source in chunks of about `size` bytes: a large text in stretches, small ones together."""
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
    """Yield the same chunks, and report each when the next is requested."""
    done = 0
    begun = time.thread_time()
    for chunk in chunks:
        spend("reading", time.thread_time() - begun)
        yield chunk
        done += sum(stretch.read for stretch in chunk)
        report("counting bytes", done, total)
        begun = time.thread_time()


def _count_slowly(text: memoryview, pattern: patterns.Pattern, special: SpecialTokens, table: PretokenCounts) -> None:
    """Count a text by a pattern that only `regex` serves."""
    for piece, index in special.partition(text):
        if index < 0:
            table.count_pieces(patterns.split(piece, pattern))


def _add_up(tables: list[PretokenCounts]) -> Records:
    """The records of all tables, which are left empty. Each thread adds up a share of the hashes at a time."""
    tables = [table for table in tables if len(table)]
    if len(tables) <= 1:
        return pack_table(tables[0]) if tables else bytearray()
    shares = max(SHARES * len(tables), sum(map(len, tables)) // SHARE)
    records, lock, end = room_for(tables), threading.Lock(), 0

    def add_share(share: int) -> None:
        nonlocal end
        table = PretokenCounts(max(map(len, tables)) // shares)
        table.add_share(tables, share, shares)
        size = table.packed
        with lock:
            at = end
            end += size
        pack_into(table, records, at, at + size)

    map_in_threads(add_share, range(shares), len(tables))
    for table in tables:
        table.clear()
    del records[end:]
    return records
