"""count() and train() on a Ray cluster.

    parts of files        one task each: bpe.count's own counting, within a memory limit
        |                 its records, split by a hash of the pretoken into `shares`
        v
    merging               a task for FAN_IN results of one share, which are added up as sorted streams; a tree of them
        |                 for each share, built as results come
        v
    Counts                the shares one after another: no pretoken is in two of them
        |
        v
    learning              on the calling machine, for its cost follows the distinct pretokens, not the text

A sum does not depend on the order of what is added, so that neither nodes nor sizes of parts nor tasks that are tried
again change the counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bpe import patterns
from bpe.cluster.datasets import is_dataset, texts_of
from bpe.cluster.ranges import Part, absolute, parts_of, share_of, source_of
from bpe.cluster.session import RETRIES, Summary, connected, remote, run_tasks, this_task
from bpe.corpus import sources
from bpe.counting.count import count_source
from bpe.counting.records import add_sorted, sorted_blocks, split
from bpe.counts import Counts, checked_names, checked_resources
from bpe.merging.conventions import TieBreak
from bpe.native.progress import Progress, reporter, silent
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer
from bpe.training import train_from_counts

FAN_IN = 16  # results of one share that a task adds up
MOST_SHARES = 64  # more are more objects for Ray to look after, and no more at a time
MOST_PART = 1 << 29  # bytes of text that a task counts


def count(
    source: Any,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    address: str | None = None,
    num_threads: int = 1,
    memory_limit: int | None = None,
    part_size: int | None = None,
    text_key: str = "text",
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> Counts:
    """Count the pretokens of a corpus on a Ray cluster: the counts that bpe.count() gives, whatever the cluster.

    Args:
        source: Files as bpe.count() takes them, which every node can read under the same paths, or a Ray Dataset with a
            column of texts.
        pattern, special_tokens: As for bpe.count().
        address: Of the cluster's head, as ray.init() takes it; by default the connection that there is, or what
            RAY_ADDRESS says, or this machine alone.
        num_threads: Threads of a task, which takes as many of the cluster's CPUs.
        memory_limit: Bytes that the counting of one task may hold; more goes to temporary files of its node.
        part_size: Bytes of a file that one task counts; by default a share of the whole, from 16 to 512 MiB.
        text_key: The column of a Ray Dataset that holds the texts.
        progress: True for bars, or a function of (phase, done, total).
        summary: Called at the end with a Summary, which says what each node did; `summary=print` prints it.

    Returns:
        The counts.

    Raises:
        TypeError: The source is an iterable of texts: those lie on this machine, where bpe.count() counts them.
        ValueError, OSError: As bpe.count() does; a file changed while it was counted.
        ImportError, ConnectionError, MemoryError, RuntimeError: No Ray, no cluster at the address, a node without
            memory, nodes that keep going down.

    Example:
        >>> counts = bpe.cluster.count(["a.txt", "b.jsonl"], address="10.0.0.1:6379", summary=print)  # doctest: +SKIP
    """
    resolved, names = patterns.resolve(pattern), checked_names(special_tokens)
    threads, limit = checked_resources(num_threads, memory_limit)
    if part_size is not None and part_size < 1:
        raise ValueError(f"part_size is {part_size}; it takes at least one byte")
    about = Summary("counted")
    begun = time.perf_counter()
    with connected(address, threads) as ray, reporter(progress) as report:
        cpus = int(ray.cluster_resources().get("CPU", 1))
        shares = min(MOST_SHARES, cpus)
        total, items = _items(source, patterns.scanner_of(resolved) >= 0, part_size, cpus)
        settings = (resolved, names, threads, limit, shares, text_key)
        counting = remote(ray, _count_item, cpus=threads, returns=1 + shares)
        tree = _Tree(ray, shares)
        results = run_tasks(
            ray,
            lambda item: counting(item, *settings),
            items,
            cpus=threads,
            total=total,
            phase="counting bytes",
            report=report,
            summary=about,
        )
        for result in results:
            tree.add(result)
        records = bytearray()
        for share in tree.sums():
            records += memoryview(ray.get(share))
    about.seconds = time.perf_counter() - begun
    if summary is not None:
        summary(about)
    return Counts(records, resolved, names)


def train(
    source: Any,
    vocab_size: int,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    tie_break: TieBreak = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    address: str | None = None,
    num_threads: int = 1,
    memory_limit: int | None = None,
    part_size: int | None = None,
    text_key: str = "text",
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> Tokenizer:
    """Train on a corpus that a Ray cluster counts: the tokenizer that bpe.train() gives, whatever the cluster.

    Args:
        source, address, num_threads, part_size, text_key, summary: As for bpe.cluster.count().
        vocab_size, pattern, special_tokens, tie_break, min_count, max_token_bytes, memory_limit, progress: As for
            bpe.train(). Merges are learnt on the calling machine.

    Returns:
        The tokenizer.

    Raises:
        ValueError, OSError, ImportError, ConnectionError, MemoryError, RuntimeError: As bpe.train() and
            bpe.cluster.count() do.

    Example:
        >>> tokenizer = bpe.cluster.train("corpus.txt", 50_000, address="auto")  # doctest: +SKIP
    """
    counts = count(
        source,
        pattern=pattern,
        special_tokens=special_tokens,
        address=address,
        num_threads=num_threads,
        memory_limit=memory_limit,
        part_size=part_size,
        text_key=text_key,
        progress=progress,
        summary=summary,
    )
    return train_from_counts(
        counts,
        vocab_size,
        tie_break=tie_break,
        min_count=min_count,
        max_token_bytes=max_token_bytes,
        progress=progress,
    )


def _items(source: Any, can_cut: bool, part_size: int | None, cpus: int) -> tuple[int | None, Iterator[Any]]:
    """The bytes of a source, if they are known, and what its tasks count: parts of files, or blocks of a dataset."""
    if is_dataset(source):
        return None, (block for bundle in source.iter_internal_ref_bundles() for block in bundle.block_refs)
    files = sources.files_of(source)
    if files is None:
        raise TypeError("a cluster counts files or a Ray Dataset; texts that are in memory are counted by bpe.count()")
    total = sources.size_of(source)
    if part_size is None:
        part_size = min(MOST_PART, share_of(total or 0, cpus))
    files = list(map(absolute, files))
    return total, (part for file in files for part in parts_of(file, part_size, can_cut=can_cut))


def _count_item(
    item: Any,
    pattern: patterns.Pattern,
    names: tuple[str, ...],
    threads: int,
    limit: int | None,
    shares: int,
    column: str,
) -> list[Any]:
    """The task that counts a Part, or a block of a Ray Dataset: its report, and the sorted records of each share."""
    import numpy as np

    begun = time.perf_counter()
    special, scanner = SpecialTokens(names), patterns.scanner_of(pattern)
    source: sources.Source
    if isinstance(item, Part):
        source, _ = source_of(item, lambda text, at: safe_cut(text, at, scanner, special), special.longest)
        size = item.size
    else:
        source, size = _texts(item, column)
    records = count_source(source, pattern, special, threads, silent, limit)
    # NumPy's arrays go to other processes of a node without a copy
    sorted_shares = [np.frombuffer(b"".join(sorted_blocks(share)), np.uint8) for share in split(records, shares)]
    return [this_task(size, begun), *sorted_shares]


def _texts(block: Any, column: str) -> tuple[Iterator[str], int]:
    """The texts of a block of a Ray Dataset, and its bytes."""
    from ray.data.block import BlockAccessor

    table = BlockAccessor.for_block(block).to_arrow()
    chunks = texts_of(table, column).chunks
    return (text for chunk in chunks for text in chunk.to_pylist() if text is not None), table.nbytes


def _add(*results: Any) -> Any:
    """The task that adds up results of one share."""
    import numpy as np

    return np.frombuffer(b"".join(add_sorted([_Reader(result) for result in results])), np.uint8)


class _Reader:
    """An array of bytes as add_sorted() reads files."""

    def __init__(self, data: Any) -> None:
        self._data, self._at = memoryview(data), 0

    def read(self, size: int) -> bytes:
        block = bytes(self._data[self._at : self._at + size])
        self._at += len(block)
        return block


class _Tree:
    """For each share the results that are not added up yet, by the height of the tree that they are the root of."""

    def __init__(self, ray: Any, shares: int) -> None:
        self._add = ray.remote(num_cpus=1, max_retries=RETRIES)(_add)
        self._levels: list[list[list[Any]]] = [[] for _ in range(shares)]

    def add(self, result: list[Any]) -> None:
        """Add a task's result, a reference for each share."""
        for levels, reference in zip(self._levels, result, strict=True):
            self._keep(levels, 0, reference)

    def _keep(self, levels: list[list[Any]], height: int, reference: Any) -> None:
        if len(levels) == height:
            levels.append([])
        levels[height].append(reference)
        if len(levels[height]) == FAN_IN:
            whole, levels[height] = levels[height], []
            self._keep(levels, height + 1, self._add.remote(*whole))

    def sums(self) -> list[Any]:
        """A reference to the sum of each share."""
        rest = [[reference for level in levels for reference in level] for levels in self._levels]
        return [
            self._add.remote(*references) if len(references) > 1 else references[0] for references in rest if references
        ]
