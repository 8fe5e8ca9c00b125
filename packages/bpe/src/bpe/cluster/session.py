"""A Ray cluster to run tasks on: connecting, a bounded number of tasks at a time, errors in one sentence, a summary."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from bpe.native.progress import Progress
from bpe.native.warn import warn_caller

Item = TypeVar("Item")

RETRIES = 3  # of a task whose process or node went down
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TASKS_PER_CPU = 2  # that are handed out: one runs, and one waits so that no CPU does
WARNED_AFTER = 30.0  # seconds in which no task could begin


class TaskReport(NamedTuple):
    """A task's report."""

    node: str  # the address of its node, and the first characters of the node's id
    bytes: int  # of the source
    seconds: float


@dataclass
class NodeShare:
    """The share of one node: `bytes` of the source in `tasks` tasks, which took `seconds` together."""

    tasks: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Summary:
    """The work of a call: `bytes` of the source in `seconds` of wall-clock, and the share of each node."""

    what: str
    bytes: int = 0
    seconds: float = 0.0
    nodes: dict[str, NodeShare] = field(default_factory=dict)

    def add(self, report: TaskReport) -> None:
        share = self.nodes.setdefault(report.node, NodeShare())
        share.tasks += 1
        share.bytes += report.bytes
        share.seconds += report.seconds
        self.bytes += report.bytes

    def __str__(self) -> str:
        rate = self.bytes / self.seconds / 1e6 if self.seconds else 0.0
        lines = [f"{self.what} {self.bytes / 1e6:,.1f} MB in {self.seconds:.1f} s, {rate:,.1f} MB/s"]
        for node, share in sorted(self.nodes.items()):
            of_task = share.bytes / share.seconds / 1e6 if share.seconds else 0.0
            lines.append(f"  {node}: {share.bytes / 1e6:,.1f} MB in {share.tasks} tasks, {of_task:,.1f} MB/s a task")
        return "\n".join(lines)


def this_node() -> str:
    """The address of the node that the calling task runs on, and the first characters of the node's id."""
    import ray

    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:6]})"


def this_task(size: int, begun: float) -> TaskReport:
    """The report of the task that calls this, which began at `begun` by time.perf_counter()."""
    return TaskReport(this_node(), size, time.perf_counter() - begun)


@contextmanager
def connected(address: str | None, num_threads: int) -> Iterator[Any]:
    """Ray, connected to a cluster; its errors become Python's own, a sentence each.

    Args:
        address: Of the head, as `ray.init` takes it: "HOST:PORT", "auto", "local". None: the connection that this
            process has, or what RAY_ADDRESS says, or a cluster of this machine alone, which ends with the call.
        num_threads: CPUs that each task will take.

    Raises:
        ValueError: No node has that many CPUs: Ray would let the tasks wait for ever, without a word.
        ImportError: Ray is not installed.
        ConnectionError: No cluster answers at the address.
        MemoryError: Tasks were ended since their node had no memory left.
        OSError: The object store, or the disk that it spills to, is full.
        RuntimeError: A task's node or process went down more often than tasks are tried again.
    """
    # Tasks without memory would else be tried again for ever; Ray reads this when it is imported.
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    try:
        import ray
    except ImportError:
        raise ImportError("bpe.cluster needs Ray: pip install groundup-bpe[ray]") from None
    started = not ray.is_initialized()
    if started:
        named = os.environ.get("RAY_ADDRESS") if address is None else address
        try:
            _check_port(named)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no Ray cluster answers at {named!r}: {_first_line(error)}") from None
    try:
        most = most_cpus(ray)
        if 0 < most < num_threads:  # a cluster without any CPU waits for its autoscaler
            raise ValueError(
                f"num_threads is {num_threads}, and no node of the cluster has more than {most} CPUs: a task runs on "
                f"one node; take at most {most}"
            )
        yield ray
    except ray.exceptions.OutOfMemoryError as error:
        raise MemoryError(
            "a node has too little memory for its tasks: give memory_limit, or fewer CPUs a node "
            f"({_first_line(error)})"
        ) from None
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise OSError(
            "a node's object store and the disk that it spills to are full: free space there, or split large files, "
            f"whose ids are kept there until they are written ({_cause(error)})"
        ) from None
    except ray.exceptions.RayTaskError as error:
        raise RuntimeError(f"the Ray Dataset cannot be read: {_cause(error)}") from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"the cluster lost a task and gave up trying again: {_first_line(error)}") from None
    finally:
        if started:
            ray.shutdown()


def most_cpus(ray: Any) -> int:
    """CPUs of the node that has the most."""
    return max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)


def _check_port(address: str | None) -> None:
    """OSError where nothing listens at a HOST:PORT: Ray would try it for minutes."""
    if (match := re.fullmatch(r"\[?([^/]+?)\]?:(\d+)", address or "")) is not None:
        socket.create_connection((match[1], int(match[2])), timeout=10).close()


def _cause(error: BaseException) -> str:
    """Return the error of a failed task: the first in Ray's long message."""
    lines = COLOUR.sub("", str(error)).splitlines()
    return next((line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)), _first_line(error))


def _first_line(error: BaseException) -> str:
    return COLOUR.sub("", str(error).strip() or type(error).__name__).splitlines()[0]


def remote(ray: Any, task: Callable[..., list[Any]], *, cpus: int, returns: int) -> Callable[..., list[Any]]:
    """A function that starts a task and gives the references of what it returns, of which the first is a TaskReport.

    The exception of a task comes in place of its report: Ray would print it once for every reference.
    """
    started = ray.remote(num_cpus=cpus, num_returns=returns, max_retries=RETRIES)(_guarded)
    return lambda *arguments: started.remote(task, returns, *arguments)


def _guarded(task: Callable[..., list[Any]], returns: int, *arguments: Any) -> list[Any]:
    try:
        return task(*arguments)
    except Exception as error:
        return [error, *[None] * (returns - 1)]


def run_tasks(
    ray: Any,
    submit: Callable[[Item], list[Any]],
    items: Iterable[Item],
    *,
    cpus: int,
    total: int | None,
    phase: str,
    report: Progress,
    summary: Summary,
    urgent: deque[Item] | None = None,
    refused: Callable[[Item, Exception], bool] = lambda item, error: False,
) -> Iterator[list[Any]]:
    """Run a task for each item, a bounded number at a time, and yield what each returned as it is done.

    After an error, or Ctrl-C, the few tasks that were handed out run to their end, and their results are dropped. They
    are not cancelled, for a result that meets its cancellation ends the calling process (Ray 2.60).

    Args:
        ray: The module.
        submit: Starts the task of an item; gives the references of what it returns, of which the first is a TaskReport.
        items: The items, asked for as tasks are handed out.
        cpus: That each task takes.
        total: Bytes of all items, for progress.
        phase: Its name, for progress.
        report: Told of the bytes that are done.
        summary: Gets the reports of the tasks.
        urgent: More items, which the caller adds as results come, and which go first.
        refused: Called with the item and the error of a task that failed; True if the other items go on.

    Yields:
        The other references of a task that is done.
    """
    waiting: dict[Any, tuple[Item, list[Any]]] = {}
    rest = iter(items)
    begun = time.monotonic()
    is_warned = False
    while True:
        room = max(1, TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)) // cpus)
        while len(waiting) < room and (item := urgent.popleft() if urgent else next(rest, None)) is not None:
            first, *others = submit(item)
            waiting[first] = item, others
        if not waiting:
            break
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
        if not is_warned and time.monotonic() - begun >= WARNED_AFTER:
            is_warned = True
            if most_cpus(ray) < cpus:
                warn_caller(
                    f"no task could begin in {WARNED_AFTER:.0f} s: each takes {cpus} CPUs of a node, and no node has "
                    "as many yet"
                )
        for first in done:
            result = ray.get(first)
            item, others = waiting.pop(first)
            if isinstance(result, Exception):
                if not refused(item, result):
                    raise result
                continue
            summary.add(result)
            report(phase, summary.bytes, total)
            yield others
