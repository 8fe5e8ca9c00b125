"""Checks of the exercises of chapter 14."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from grading import NOT_WRITTEN, Wrong, drawing, in_units, near, same


class Device:
    """A device whose kernels run behind the program, as a GPU's do, and the clock of the program.

    Args:
        costs: Seconds of each launch's work, one after another; the last one is that of all further launches.
        busy: Seconds of work that were launched before.
    """

    LAUNCH = 1e-5  # seconds that a launch takes the program

    def __init__(self, costs: Iterable[float], busy: float = 0.0) -> None:
        self.now, self.done = 100.0, 100.0 + busy
        self.costs, self.launches = list(costs), 0

    def clock(self) -> float:
        self.now += 1e-9
        return self.now

    def launch(self) -> None:
        self.now += self.LAUNCH
        self.done = max(self.done, self.now) + self.costs[min(self.launches, len(self.costs) - 1)]
        self.launches += 1

    def synchronize(self) -> None:
        self.now = max(self.now, self.done)


def median_seconds(yours: Callable[..., Any]) -> Callable[[], str]:
    numbers = drawing("median_seconds")
    for warmup, repeats, busy in ((2, 5, 0.0), (0, 4, 3.0), (3, 1, 0.0), (1, 7, 50.0)):
        work = [numbers.uniform(0.01, 0.02) for _ in range(repeats)]
        work[numbers.randrange(repeats)] *= 1 if repeats == 1 else 40  # another program took the device
        device = Device([numbers.uniform(5, 9) for _ in range(warmup)] + work, busy)
        right = statistics.median(each + Device.LAUNCH for each in work)
        got = yours(device.launch, device.clock, device.synchronize, warmup, repeats)
        call = f"median_seconds of {repeats} calls after {warmup}, on a device that runs behind the program"
        if got is not None and device.launches != warmup + repeats:
            raise Wrong(f"{call} calls run() {device.launches} times, and should {warmup + repeats} times.")
        hint = "Wait before the clock is read, at both ends; warm-up and what ran before are not yours to time."
        near(call, got, right, hint, 1e-4)
    device = Device([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 80.0])
    near("median_seconds with its defaults", yours(device.launch, device.clock, device.synchronize), 5.00001, "", 1e-4)

    def wait() -> None:
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass

    real = float(yours(wait, time.perf_counter, lambda: None))
    if not 0.9e-3 <= real < 1:
        raise Wrong(f"median_seconds of a function that waits for 1 ms on this computer gives {real:.6g}.")

    def speed() -> str:
        sizes = (1_000, 1_000_000)
        times = (float(yours(lambda n=n: sum(range(n)), time.perf_counter, lambda: None)) for n in sizes)
        each = ", ".join(f"{in_units(seconds)} for {size:,}" for size, seconds in zip(sizes, times, strict=True))
        return f"  sum(range(n)) on this computer, by your function: {each}"

    return speed


def ratio(yours: Callable[..., Any]) -> None:
    numbers = drawing("ratio")
    for factor, slower, rounds in ((3.0, 1.0, None), (0.5, 1.1, 7), (numbers.uniform(1, 4), 1.5, 5), (2.0, 1.0, 4)):
        now, speed, calls = [0.0], [1.0], list[str]()

        def work(name: str, cost: float, calls: Any = calls, now: Any = now, speed: Any = speed) -> None:
            calls.append(name)
            is_disturbed = (name, calls.count(name)) in (("second", 2), ("first", 3))  # by another program
            now[0] += cost * speed[0] * (30 if is_disturbed else 1)
            speed[0] *= slower if name == "second" else 1  # noqa: B023

        first, second = functools.partial(work, "first", 0.1), functools.partial(work, "second", 0.1 * factor)
        got = yours(first, second, lambda now=now: now[0], *([rounds] if rounds else []))
        if got is not None and calls != ["first", "second"] * (rounds or 7):
            raise Wrong(f"ratio calls {', '.join(calls[:6])} … ({len(calls)} calls), and should call both in turn.")
        hint = "In each round one ratio, and of these the median: not the ratio of sums, nor of minima."
        near(f"ratio of {rounds or 7} rounds on a machine that becomes slower", got, factor, hint)


def bound_by(yours: Callable[..., Any]) -> None:
    numbers = drawing("bound_by")
    cases: list[tuple[float, ...]] = [
        (2 * 4096**3, 3 * 2 * 4096**2, 1e15, 3e12),
        (2 * 4096**2, 2 * 4096**2, 1e15, 3e12),
        (6.0, 4.0, 3.0, 2.0),
    ]
    cases += [(*(numbers.uniform(1, 9) for _ in range(4)),) for _ in range(20)]
    for flops, moved, peak, bandwidth in cases:
        answer = yours(flops, moved, peak, bandwidth)
        call = f"bound_by({flops:.4g}, {moved:.4g}, {peak:.4g}, {bandwidth:.4g})"
        if answer is None:
            raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
        compute, memory = flops / peak, moved / bandwidth
        same(f"The bound of {call}", answer[0], "compute" if compute > memory else "memory", "Compare both times.")
        near(f"The seconds of {call}", answer[1], max(compute, memory), "Both go on at once: the longer one counts.")


def self_seconds(yours: Callable[..., Any]) -> None:
    numbers = drawing("self_seconds")

    def nest(begin: int, end: int, depth: int) -> list[tuple[str, float, float]]:
        events, place = list[tuple[str, float, float]](), begin
        while place < end and depth:
            stop = min(end, place + numbers.randint(1, max(1, (end - begin) // 2)))
            if (stop - place) < end - begin:
                events += [(numbers.choice("abc"), float(place), float(stop)), *nest(place, stop, depth - 1)]
            place = stop + numbers.randint(0, 1)
        return events

    for events in (
        [("step", 0.0, 10.0), ("forward", 1.0, 4.0), ("attention", 2.0, 3.0), ("backward", 4.0, 9.0)],
        [("attention", 2.0, 3.0), ("step", 0.0, 3.0), ("step", 3.0, 4.0), ("attention", 0.0, 1.0)],
        [("f", 0.0, 8.0), ("f", 0.0, 6.0), ("f", 0.0, 1.0), ("g", 1.0, 6.0)],
        [],
        *(numbers.sample(each, len(each)) for each in (nest(0, 40, 4) for _ in range(10))),
    ):
        inside = [[b for b in events if b != a and a[1] <= b[1] and b[2] <= a[2]] for a in events]
        right = dict.fromkeys((name for name, _, _ in events), 0.0)
        for (name, begin, end), within in zip(events, inside, strict=True):
            direct = [b for b in within if not any(b != c and c[1] <= b[1] and b[2] <= c[2] for c in within)]
            right[name] += end - begin - sum(b[2] - b[1] for b in direct)
        answer = yours(events)
        call = f"self_seconds({events})" if len(events) < 6 else f"self_seconds of {len(events)} events"
        if answer is None:
            raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
        rounded = {name: round(float(value), 6) for name, value in sorted(answer.items())}
        hint = "Take each event off the one that it lies in directly, and off no other."
        same(call, rounded, dict(sorted(right.items())), hint)


def busy_share(yours: Callable[..., Any]) -> None:
    numbers = drawing("busy_share")
    drawn = [(a, a + numbers.uniform(0, 3)) for a in (numbers.uniform(-2, 10) for _ in range(9))]
    for kernels, begin, end in (
        ([(1.0, 2.0), (4.0, 5.0)], 0.0, 10.0),
        ([(3.0, 4.0), (1.0, 6.0), (5.0, 7.0)], 0.0, 8.0),
        ([(-5.0, 1.0), (9.0, 20.0), (30.0, 31.0), (-9.0, -8.0)], 0.0, 10.0),
        ([], 2.0, 3.0),
        ([(-1.0, 30.0)], 2.0, 6.0),
        (drawn, 1.0, 9.0),
    ):
        places = sorted({begin, end, *(min(max(p, begin), end) for kernel in kernels for p in kernel)})
        busy = sum(b - a for a, b in pairwise(places) if any(k[0] <= a and b <= k[1] for k in kernels))
        hint = "What two kernels share counts once, and what lies outside does not count."
        call = f"busy_share({kernels if len(kernels) < 6 else 'of 9 kernels'}, {begin}, {end})"
        near(call, yours(kernels, begin, end), busy / (end - begin), hint)


CHAPTERS: dict[int, dict[str, Callable[..., Any]]] = {
    14: {
        "median_seconds": median_seconds,
        "ratio": ratio,
        "bound_by": bound_by,
        "self_seconds": self_seconds,
        "busy_share": busy_share,
    }
}
