"""Work spread over threads."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def threads_for(num_threads: int | None) -> int:
    """How many threads serve a call that allows this many: no more than there are processors. ValueError below 1."""
    processors = os.cpu_count() or 1
    if num_threads is not None and num_threads <= 0:
        raise ValueError(f"num_threads is {num_threads}; it takes at least 1")
    return processors if num_threads is None else min(num_threads, processors)


def side_by_side(work: Callable[[], None], threads: int) -> None:
    """Call work() in so many threads at once, this one among them; back when all have returned.

    For work that ends early in every thread once it has failed in one. The first error is raised; that of this thread, Ctrl-C
    before all, comes first.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=run) for _ in range(threads - 1)]
    try:
        for other in others:
            other.start()
        work()
    finally:
        for other in others:
            while other.ident is not None and other.is_alive():
                other.join()
    if errors:
        raise errors[0]


def in_threads(work: Callable[[Item], Result], batch: Iterable[Item], num_threads: int | None) -> list[Result]:
    """work() of each item, in order, in as many threads as there are processors and num_threads allows.

    None: as many as there are processors. An error ends it, and is raised. ValueError for num_threads below 1.
    """
    items = list(batch)
    threads = min(threads_for(num_threads), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    share = -(-len(items) // (4 * threads))
    parts = [items[at : at + share] for at in range(0, len(items), share)]
    results: list[list[Result]] = [[] for _ in parts]
    waiting = iter(range(len(parts)))  # one for all threads: its next step is a single one for the interpreter
    stopped = threading.Event()

    def work_through() -> None:
        try:
            for part in waiting:
                if stopped.is_set():
                    break
                results[part] = [work(item) for item in parts[part]]
        except BaseException:
            stopped.set()
            raise

    # concurrent.futures would do, but comes with logging and more: as long to import as to train on a short text
    side_by_side(work_through, threads)
    return list(itertools.chain.from_iterable(results))
