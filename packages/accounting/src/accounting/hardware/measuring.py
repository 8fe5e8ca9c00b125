"""This machine as a device: the rates of a large matmul and a long copy, by torch or numpy, whichever is installed."""

from __future__ import annotations

import importlib
import os
import time

from accounting.hardware.devices import Device, measured_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WIDTH = 2048
COPIED = 64 << 20  # elements of 4 bytes, far more than a cache
SECONDS = 1.0


def this_machine(seconds: float = SECONDS) -> Device:
    """The CPU's best FLOP/s of fp32 matmuls and bytes/s of copies, each tried for `seconds`, and its memory.

    Raises:
        ValueError: neither torch nor numpy is installed.
    """
    library = _library()
    if library.__name__ == "torch":
        left, right = (library.ones(WIDTH, WIDTH) for _ in range(2))
        source = library.ones(COPIED)
        target = library.empty(COPIED)
        copy: Callable[[], Any] = lambda: target.copy_(source)  # noqa: E731
    else:
        left, right = (library.ones((WIDTH, WIDTH), dtype="float32") for _ in range(2))
        source = library.ones(COPIED, dtype="float32")
        target = library.empty_like(source)
        copy = lambda: library.copyto(target, source)  # noqa: E731
    product = 2 * WIDTH**3 / _fastest(lambda: left @ right, seconds)
    moved = 2 * 4 * COPIED / _fastest(copy, seconds)  # read and written
    return measured_device("this machine", product, memory=_memory(), bandwidth=moved)


def _library() -> Any:
    for name in ("torch", "numpy"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ValueError("measuring takes torch or numpy, and neither is installed: install one, or give --measured a rate")


def _fastest(work: Callable[[], Any], seconds: float) -> float:
    """The shortest of all runs that fit into `seconds`, at least two."""
    best, until = float("inf"), time.perf_counter() + seconds
    runs = 0
    while runs < 2 or time.perf_counter() < until:
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
        runs += 1
    return best


def _memory() -> int:
    """Bytes of memory, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
