"""Threads: their number, and the three ways to spread work over them."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bpe.native.checks import integer
from bpe.native.lazy_imports import queue

Item = TypeVar("Item")
Result = TypeVar("Result")

HEARD_WITHIN = 0.2  # seconds until a signal is handled that came just before a blocking wait
BEGINS_WITHIN = 1000  # milliseconds that a thread which a signal interrupted the start of is waited for


def available_cpus() -> int:
    """Number of processors that the process may use, by its affinity and the quota of its cgroup."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus()
    return cpus if quota is None else min(cpus, quota)


@functools.cache
def cgroup_cpus(proc: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> int | None:
    """Processors that the process's cgroup (version 2) and those above it may use, rounded up; None for no quota."""
    quotas: list[float] = []
    paths = [line.removeprefix("0::") for line in _read(proc).splitlines() if line.startswith("0::")]
    for names in ([name for name in path.split("/") if name] for path in paths):
        # In a container the path may be the host's: its own cgroup is then mounted at the top.
        for depth in range(len(names) + 1):
            fields = _read(mounted, *names[:depth], "cpu.max").split()  # quota, or "max", and period in microseconds
            if len(fields) == 2 and all(field.isdigit() and int(field) for field in fields):
                quotas.append(int(fields[0]) / int(fields[1]))
    return max(1, -int(-min(quotas) // 1)) if quotas else None


def _read(*path: str) -> str:
    try:
        with open(os.path.join(*path)) as file:
            return file.read()
    except OSError:
        return ""


def threads_for(num_threads: int | None) -> int:
    """Return the threads of a call: num_threads, at most one for each processor; all for None. Errors as integer()."""
    return available_cpus() if num_threads is None else min(integer("num_threads", num_threads), available_cpus())


def start(thread: threading.Thread) -> None:
    """Starts a thread. RuntimeError: the system has no more threads.

    A signal's handler may raise inside Thread.start(), although the thread has begun. Python then releases a lock that
    it does not have (RuntimeError), or removes the thread from a table that it has left (KeyError); the handler's
    exception is raised in place of these.
    """
    try:
        thread.start()
    except (KeyError, RuntimeError) as error:
        if thread.ident is not None and error.__context__ is not None:
            raise error.__context__ from None
        raise


def run_together(work: Callable[[], None], threads: int) -> None:
    """Call work() in `threads` threads, this one among them; back when all have returned. The first error is raised.

    For work that ends early in every thread once it has failed in one. An error of this thread, as Ctrl-C, comes first.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    started: list[threading.Thread] = []
    try:
        for _ in range(threads - 1):
            started.append(threading.Thread(target=run))
            try:
                start(started[-1])
            except RuntimeError:
                if started[-1].ident is None:  # the system has no more threads: this one never begins
                    started.pop()
                raise
        work()
    finally:
        for other in started:
            waited = 0
            while other.ident is None and waited < BEGINS_WITHIN:  # a signal came while it was started
                time.sleep(0.001)
                waited += 1
            while other.ident is not None and other.is_alive():
                other.join()
    if errors:
        raise errors[0]


def map_in_threads(work: Callable[[Item], Result], batch: Iterable[Item], num_threads: int | None) -> list[Result]:
    """work() of each item, in order, in threads_for(num_threads) threads, this one among them; an error ends it."""
    items = list(batch)
    threads = min(threads_for(num_threads), len(items))
    if threads <= 1:
        return [work(item) for item in items]
    share = -(-len(items) // (4 * threads))
    parts = [items[at : at + share] for at in range(0, len(items), share)]
    results: list[list[Result]] = [[] for _ in parts]
    waiting = list(reversed(range(len(parts))))  # shared by all threads: its pop() is one step, without a GIL too
    stopped = threading.Event()

    def work_through() -> None:
        try:
            while not stopped.is_set():
                try:
                    part = waiting.pop()
                except IndexError:
                    break
                results[part] = [work(item) for item in parts[part]]
        except BaseException:
            stopped.set()
            raise

    # concurrent.futures would do, but its import takes as long as training on a short text
    run_together(work_through, threads)
    return list(itertools.chain.from_iterable(results))


def stream(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, *, ordered: bool = True
) -> Iterator[Result]:
    """work() of each item in `threads` threads, while the calling thread asks for the next items.

    At most 2 * threads items are under way. ordered: results come in the order of the items, else as they are done. An
    error of work() or of items ends it and is raised when the threads have finished their items. Ctrl-C does not wait
    for them, for one item may take long: they end after it, or with the process.
    """
    jobs: queue.SimpleQueue[tuple[int, Item] | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def work_through() -> None:
        while (job := jobs.get()) is not None and not stopped.is_set():
            number, item = job
            try:
                done.put((number, work(item), None))
            except BaseException as error:
                done.put((number, None, error))

    workers = [threading.Thread(target=work_through, daemon=True) for _ in range(threads)]
    arrived: dict[int, Result] = {}
    begun = returned = 0  # items that were handed out; results that were handed in

    def next_result() -> Result:
        while (ordered and returned not in arrived) or not arrived:
            try:
                number, result, error = done.get(timeout=HEARD_WITHIN)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            arrived[number] = result  # type: ignore[assignment]  # None only with an error
        return arrived.pop(returned if ordered else next(iter(arrived)))

    try:
        for worker in workers:
            start(worker)
        for item in items:
            if begun - returned == 2 * threads:
                result = next_result()
                returned += 1
                yield result
            jobs.put((begun, item))
            begun += 1
        while returned < begun:
            result = next_result()
            returned += 1
            yield result
    except KeyboardInterrupt:
        workers.clear()
        raise
    finally:
        stopped.set()
        for _ in range(threads):
            jobs.put(None)
        for worker in workers:
            if worker.ident is not None:
                worker.join()
