"""count() and train() on a Ray cluster: a task for each part of a file, and a tree of tasks that add up its counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import bpe
from bpe import patterns
from bpe.cluster.ranges import Part, listed, parts_of, source_of
from bpe.cluster.tasks import RETRIES, OnError, Summary, Task, connected, run_tasks, share_of, starter
from bpe.native.progress import Progress, reporter
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens

FAN_IN = 16  # counts that a task adds up
MOST_PART = 1 << 29  # bytes of text that a task counts


def count(
    source: Any,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    on_error: OnError = "raise",
    address: str | None = None,
    num_threads: int = 1,
    memory_limit: int | None = None,
    part_size: int | None = None,
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> bpe.Counts:
    """Count the pretokens of files on a Ray cluster: the counts that bpe.count() gives, whatever the cluster.

    Args:
        source, pattern, special_tokens: As for bpe.count(); files, which every node can read under the same paths.
        on_error: "raise" the error of a file that cannot be read when all others are counted, or "skip" it (or its
            part) and name it in the summary.
        address: The head of the cluster, as ray.init() takes it; by default the connection that there is, or what
            RAY_ADDRESS says, or this machine alone.
        num_threads: Threads of a task, which takes as many of the cluster's CPUs.
        memory_limit: Bytes that the counting of one task may hold; more goes to temporary files of its node.
        part_size: Bytes of a file that one task counts; by default a share of the whole, from 16 to 512 MiB.
        progress: True for bars, or a function of (phase, done, total).
        summary: Called at the end with a Summary of the work; `summary=print` prints it.

    Raises:
        TypeError: The source is no list of files.
        ValueError, OSError: As bpe.count() does; a file changed while it was counted; several files cannot be read.
        ImportError, ConnectionError, MemoryError, RuntimeError: No Ray, no cluster at the address, a node without
            memory, nodes that keep going down.

    Example:
        >>> counts = bpe.cluster.count(["a.txt", "b.jsonl"], address="10.0.0.1:6379", summary=print)  # doctest: +SKIP
    """
    settings: dict[str, Any] = {"pattern": pattern, "num_threads": num_threads, "memory_limit": memory_limit}
    nothing = bpe.count([], special_tokens=special_tokens, **settings)
    settings["special_tokens"] = nothing.special_tokens
    can_cut = patterns.scanner_of(nothing.pattern) >= 0
    inputs = listed(source)
    about = Summary(sum(entry.size for entry in inputs))
    with connected(address, num_threads) as ray, reporter(progress) as report:
        size = share_of(ray, about.total, num_threads, part_size, MOST_PART)
        start = starter(ray, num_threads, count_part, settings)
        tasks = (Task(part, start, (part,)) for entry in inputs for part in parts_of(entry, size, can_cut=can_cut))
        add = ray.remote(num_cpus=1, max_retries=RETRIES)(bpe.Counts.merge).remote
        sums = defaultdict[int, list[Any]](list)  # references, by the height of the tree that they are the root of
        for task, *_ in run_tasks(ray, tasks, num_threads, "counting bytes", report, about, on_error):
            counts, height = task.result, 0
            while len(sums[height]) == FAN_IN - 1:
                counts, height = add(counts, *sums.pop(height)), height + 1
            sums[height].append(counts)
        counted: bpe.Counts = ray.get(add(nothing, *chain.from_iterable(sums.values())))
    if summary is not None:
        summary(about)
    return counted


def train(
    source: Any,
    vocab_size: int,
    *,
    tie_break: Any = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    progress: Progress | bool | None = None,
    **counting: Any,
) -> bpe.Tokenizer:
    """Train on files that a Ray cluster counts: the tokenizer that bpe.train() gives. Merges are learned here.

    Args:
        source, counting: As for bpe.cluster.count(), which takes pattern, special_tokens, address …; the errors too.
        vocab_size, tie_break, min_count, max_token_bytes, progress: As for bpe.train().

    Example:
        >>> tokenizer = bpe.cluster.train("corpus.txt", 50_000, address="auto")  # doctest: +SKIP
    """
    learning = {"tie_break": tie_break, "min_count": min_count, "max_token_bytes": max_token_bytes}
    counts = count(source, progress=progress, **counting)
    return bpe.train_from_counts(counts, vocab_size, **learning, progress=progress)


def count_part(part: Part, settings: dict[str, Any]) -> bpe.Counts:
    """Count the texts of a part, on a node."""
    scanner = patterns.scanner_of(patterns.resolve(settings["pattern"]))
    special = SpecialTokens(settings["special_tokens"])
    source, _ = source_of(part, lambda text, at: safe_cut(text, at, scanner, special), special.longest)
    return bpe.count(source, **settings)
