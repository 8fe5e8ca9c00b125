"""Exercises of chapter 14: measuring. Fill in the bodies, then run `python grade.py 14`."""

from collections.abc import Callable


def median_seconds(
    run: Callable[[], object],
    clock: Callable[[], float],
    synchronize: Callable[[], object],
    warmup: int = 2,
    repeats: int = 5,
) -> float:
    """The median of the seconds of `repeats` calls of run(), each timed by itself, after `warmup` calls that are not.

    run() may return before its work is done: synchronize() waits until nothing is left to do. No work of one call, or
    of the warm-up, counts for another. clock() gives the time in seconds.
    """


def ratio(
    first: Callable[[], object], second: Callable[[], object], clock: Callable[[], float], rounds: int = 7
) -> float:
    """Ratio of the second's time to the first's: the median over rounds of seconds of second / seconds of first.

    Each round times first() and then second(), so that a machine that becomes slower is so for both. Both finish their
    work before they return.
    """


def bound_by(flops: float, moved: float, peak_flops: float, bandwidth: float) -> tuple[str, float]:
    """Return the bound of a kernel, and the least seconds that it can take.

    It computes `flops` operations and moves `moved` bytes, at the same time, on a device with `peak_flops` operations
    and `bandwidth` bytes a second. "compute" if arithmetic takes longer, else "memory".
    """


def self_seconds(events: list[tuple[str, float, float]]) -> dict[str, float]:
    """The seconds of each name without those of the events inside of its own, as a profiler lists them.

    Events are (name, begin, end), in any order; one lies within another or beside it, and no two are equal. A name may
    occur often, within itself too.
    """


def busy_share(kernels: list[tuple[float, float]], begin: float, end: float) -> float:
    """The share of the time from begin to end in which at least one kernel (begin, end) runs. Kernels may overlap."""
