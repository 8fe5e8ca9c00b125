"""A batch spread over threads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], batch: Iterable[Item], num_threads: int | None) -> list[Result]:
    """work() of each item, in order, in as many threads as there are processors and num_threads allows.

    None: as many as there are processors. An error ends it, and is raised. ValueError for num_threads below 1.
    """
    items = list(batch)
    if num_threads is None:
        num_threads = len(items)
    elif num_threads <= 0:
        raise ValueError(f"num_threads is {num_threads}; it takes at least 1")

    def work_through(part: Sequence[Item]) -> list[Result]:
        return [work(item) for item in part]

    threads = min(num_threads, os.cpu_count() or 1, len(items))
    if threads <= 1:
        return work_through(items)
    share = -(-len(items) // (4 * threads))
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(work_through, [items[at : at + share] for at in range(0, len(items), share)])
        return list(itertools.chain.from_iterable(parts))
