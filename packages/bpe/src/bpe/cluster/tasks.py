"""A Ray cluster to run tasks on: connecting, a bounded number of tasks at a time, errors in one sentence, a summary."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from bpe.cluster.ranges import Part
from bpe.native.checks import integer
from bpe.native.progress import Progress

RETRIES = 3  # of a task whose process or node went down
TASKS_PER_SLOT = 2  # one runs and one waits, so that no CPU does
LEAST_SHARE, SHARES = 1 << 24, 4  # bytes of a part, and parts of the whole for each task that runs at a time
FULL = OSError, "a node's object store, which keeps the ids of large files, and its disk are full: free space there"
LITTLE_MEMORY = MemoryError, "a node has too little memory for its tasks: give memory_limit, or fewer CPUs a node"
LOST = RuntimeError, "the cluster lost a task and gave up trying again"
SENTENCES = {"OutOfMemoryError": LITTLE_MEMORY, "ObjectStoreFullError": FULL, "OutOfDiskError": FULL}
OnError = Literal["raise", "skip"]


@dataclass(eq=False)
class Task:
    """A call of what `start` starts, for a part of a file; `result` refers to what it returns."""

    part: Part
    start: Callable[..., Any]
    arguments: tuple[Any, ...]
    result: Any = None


@dataclass
class Summary:
    """The work of a call."""

    total: int  # bytes of the source
    bytes: int = 0  # that are done
    tasks: int = 0
    seconds: float = 0.0
    nodes: Counter[str] = field(default_factory=Counter)  # the bytes that each node did
    skipped: dict[str, str] = field(default_factory=dict)  # the error of each file that was left out, by its name

    def __str__(self) -> str:
        if not self.tasks and not self.skipped:
            return "nothing was left to do: all files were done"
        rate = f"{self.seconds:.1f} s, {self.bytes / max(self.seconds, 1e-9) / 1e6:,.1f} MB/s"
        lines = [f"{self.bytes / 1e6:,.1f} MB in {self.tasks} tasks and {rate}"]
        lines += [f"  {node}: {size / 1e6:,.1f} MB" for node, size in sorted(self.nodes.items())]
        return "\n".join([*lines, *(f"  left out: {error}" for error in self.skipped.values())])


def this_node() -> str:
    """Return the address of the node of the calling task, and the first characters of the node's id."""
    import ray

    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:6]})"


@contextmanager
def connected(address: str | None, num_threads: int) -> Iterator[Any]:
    """Ray, connected to a cluster for tasks of num_threads CPUs each; its errors become Python's, a sentence each."""
    # Tasks without memory would else be tried again for ever; Ray reads this when it is imported.
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    try:
        import ray
    except ImportError:
        raise ImportError("bpe.cluster needs Ray: pip install groundup-bpe[ray]") from None
    integer("num_threads", num_threads)
    started = not ray.is_initialized()
    if started:
        named = os.environ.get("RAY_ADDRESS") if address is None else address
        try:
            if (match := re.fullmatch(r"\[?([^/]+?)\]?:(\d+)", named or "")) is not None:  # Ray would try for minutes
                socket.create_connection((match[1], int(match[2])), timeout=10).close()
            ray.init(address=address, logging_level="WARNING", configure_logging=False)
        except (ImportError, OSError, ValueError) as error:
            raise ConnectionError(f"cannot connect to a Ray cluster at {named!r}: {_cause(error)}") from None
    try:
        most = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        if 0 < most < num_threads:  # Ray would let the tasks wait for ever; without any CPU its autoscaler adds nodes
            raise ValueError(
                f"num_threads is {num_threads}, and no node of the cluster has more than {most} CPUs: a task runs on "
                f"one node; take at most {most}"
            )
        yield ray
    except ray.exceptions.RayError as error:
        kind, sentence = next((one for name, one in SENTENCES.items() if name in f"{type(error)} {error}"), LOST)
        raise kind(f"{sentence} ({_cause(error)})") from None
    finally:
        if started:
            ray.shutdown()


def slots_of(ray: Any, cpus: int) -> int:
    """Return how many tasks of `cpus` CPUs run at a time; at least 1, for which an autoscaler starts a node."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)


def share_of(ray: Any, total: int, cpus: int, part_size: int | None, most: int = 1 << 62) -> int:
    """Return the bytes of a part: `part_size`, or at most `most` and such that all tasks end at about the same time."""
    if part_size is not None:
        return integer("part_size", part_size)
    return min(most, max(LEAST_SHARE, total // (SHARES * slots_of(ray, cpus))))


def _cause(error: BaseException) -> str:
    """Return the error that Ray's long message names first, or else its first line; without the codes of colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error).strip() or type(error).__name__).splitlines()
    return next((line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)), lines[0])


def starter(ray: Any, cpus: int, run: Callable[..., Any], *settings: Any) -> Callable[..., Any]:
    """Return a function that starts run(*arguments, *settings) as a task of `cpus` CPUs.

    The driver's time is Ray's, for each argument: these are passed as one, and the settings with the function, once. A
    result that is a tuple comes with the name of the node; others stay in Ray's object store.
    """

    def reported(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        try:
            result = run(*arguments, *settings)
        except Exception as error:
            return error, error  # Ray would print it for each
        return ((this_node(), result), None) if isinstance(result, tuple) else ((this_node(), None), result)

    start: Callable[..., Any] = ray.remote(num_cpus=cpus, num_returns=2, max_retries=RETRIES)(reported).remote
    return start


def run_tasks(
    ray: Any, tasks: Iterable[Task], cpus: int, phase: str, report: Progress, summary: Summary, on_error: OnError
) -> Iterator[tuple[Task, str, Any]]:
    """Run tasks of `cpus` CPUs each, a bounded number at a time; yield (task, node, tuple or None) as each is done.

    The error of a file that cannot be read is raised when the others are done, unless it is to be skipped. After Ctrl-C
    the tasks that were handed out run to their end: a result that meets its cancellation ends this process (Ray 2.60).
    """
    waiting: dict[Any, Task] = {}
    errors: dict[str, Exception] = {}
    begun, looked, room = time.perf_counter(), 0.0, 1
    rest = iter(tasks)
    while True:
        if (now := time.monotonic()) - looked >= 1.0:  # a request to the head; nodes come and go
            looked, room = now, TASKS_PER_SLOT * slots_of(ray, cpus)
        for task in islice(rest, max(0, room - len(waiting))):
            reference, task.result = task.start(task.arguments)
            waiting[reference] = task
        if not waiting:
            break
        # several at a time where many are waiting: each call looks at all of them
        ready = ray.wait(list(waiting), num_returns=1 + len(waiting) // 16, timeout=1.0)[0]
        for reference, outcome in zip(ready, ray.get(ready), strict=True):
            part = (task := waiting.pop(reference)).part
            if isinstance(outcome, tuple):
                summary.tasks += 1
                summary.bytes += part.size
                summary.nodes[outcome[0]] += part.size
                summary.seconds = time.perf_counter() - begun
                report(phase, summary.bytes, summary.total)
                yield task, *outcome
            elif isinstance(outcome, ValueError) or getattr(outcome, "filename", None) == part.input.name:
                errors.setdefault(part.input.name, outcome)
            else:
                raise outcome
    by_name = sorted(errors.items())
    if on_error == "skip":
        summary.skipped = {name: str(error) for name, error in by_name}
    elif len(by_name) > 1:
        lines = "".join(f"\n  {error}" for _, error in by_name)
        raise ValueError(f"{len(by_name)} files cannot be read, and all others are done:{lines}")
    elif by_name:
        raise by_name[0][1]
