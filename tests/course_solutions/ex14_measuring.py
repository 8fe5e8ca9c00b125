"""A solution of the exercises of chapter 14."""

import statistics
from collections.abc import Callable


def median_seconds(
    run: Callable[[], object],
    clock: Callable[[], float],
    synchronize: Callable[[], object],
    warmup: int = 2,
    repeats: int = 5,
) -> float:
    for _ in range(warmup):
        run()
    times = []
    for _ in range(repeats):
        synchronize()
        began = clock()
        run()
        synchronize()
        times.append(clock() - began)
    return statistics.median(times)


def ratio(
    first: Callable[[], object], second: Callable[[], object], clock: Callable[[], float], rounds: int = 7
) -> float:
    ratios = []
    for _ in range(rounds):
        began = clock()
        first()
        between = clock()
        second()
        ratios.append((clock() - between) / (between - began))
    return statistics.median(ratios)


def bound_by(flops: float, moved: float, peak_flops: float, bandwidth: float) -> tuple[str, float]:
    compute, memory = flops / peak_flops, moved / bandwidth
    return ("compute", compute) if compute > memory else ("memory", memory)


def self_seconds(events: list[tuple[str, float, float]]) -> dict[str, float]:
    result: dict[str, float] = {}
    outer: list[tuple[str, float]] = []  # names and ends of the events that the next one may lie in
    for name, begin, end in sorted(events, key=lambda event: (event[1], -event[2])):
        while outer and outer[-1][1] <= begin:
            outer.pop()
        if outer:
            result[outer[-1][0]] -= end - begin
        result[name] = result.get(name, 0.0) + end - begin
        outer.append((name, end))
    return result


def busy_share(kernels: list[tuple[float, float]], begin: float, end: float) -> float:
    busy, reached = 0.0, begin
    for start, stop in sorted(kernels):
        start, stop = max(start, reached), min(stop, end)
        busy, reached = busy + max(0.0, stop - start), max(reached, stop)
    return busy / (end - begin)
