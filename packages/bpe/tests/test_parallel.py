"""Work in threads: in order, and over at the first error."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bpe.native.parallel import available_cpus, cgroup_cpus, map_in_threads, run_together, stream


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100])
def test_results_are_in_the_order_of_the_items(threads: int | None, items: int) -> None:
    assert map_in_threads(lambda item: item * item, range(items), threads) == [item * item for item in range(items)]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_and_what_waits_is_left(threads: int) -> None:
    done = []

    def work(item: int) -> None:
        if item == 0:
            raise KeyError("the first")
        done.append(item)

    before = threading.active_count()
    with pytest.raises(KeyError, match="the first"):
        map_in_threads(work, range(10_000), threads)
    assert len(done) < 9_999
    assert threading.active_count() == before


def test_a_signal_while_a_thread_is_started_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = threading.Thread.start
    late: list[threading.Timer] = []

    def interrupted(thread: threading.Thread) -> None:
        late.append(threading.Timer(0.05, begins, [thread]))
        begins(late[0])
        raise KeyboardInterrupt

    before = threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_together(lambda: time.sleep(0.2), 2)
    late[0].join()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "use", [lambda: run_together(lambda: time.sleep(0.1), 3), lambda: list(stream(abs, iter(range(9)), 3))]
)
# as the end of Condition.wait() does: a RuntimeError; and as start() does with its own table: a KeyError
@pytest.mark.parametrize("cleanup", [lambda: threading.Lock().release(), lambda: {}.pop("thread")])
def test_a_signal_inside_start_is_raised_as_itself(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], object], cleanup: Callable[[], object]
) -> None:
    begins = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        begins(thread)
        try:
            raise KeyboardInterrupt
        finally:
            cleanup()

    before = set(threading.enumerate())
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        use()
    for thread in set(threading.enumerate()) - before:
        thread.join()  # stream() does not wait for those that it interrupts, but they end


def test_ctrl_c_in_the_caller_leaves_what_waits_and_no_thread() -> None:
    caller = threading.get_ident()
    stopped = threading.Event()
    done = []

    def work(item: int) -> None:
        if threading.get_ident() == caller:
            stopped.set()
            raise KeyboardInterrupt
        stopped.wait()
        done.append(item)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        map_in_threads(work, range(10_000), 2)
    assert len(done) < 10_000
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("items", [0, 1, 2, 100])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_stream_has_every_result(threads: int, items: int, ordered: bool) -> None:
    def square(item: int) -> int:
        time.sleep(0.001 if item % 5 == 0 else 0)
        return item * item

    actual = list(stream(square, iter(range(items)), threads, ordered=ordered))
    assert (actual if ordered else sorted(actual)) == [item * item for item in range(items)]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_stream_takes_items_as_they_are_wanted_and_ends_with_an_error(ordered: bool) -> None:
    consumed: list[int] = []

    def items() -> object:
        for item in range(10_000):
            consumed.append(item)
            yield item

    def work(item: int) -> int:
        if item == 20:
            raise KeyError("the twentieth")
        return item

    before = threading.active_count()
    with pytest.raises(KeyError, match="the twentieth"):
        list(stream(work, items(), 3, ordered=ordered))
    assert len(consumed) <= 20 + 1 + 2 * 3
    assert threading.active_count() == before
    results = stream(work, items(), 3, ordered=ordered)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_processors_follow_the_affinity() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cpus() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/", {}, None),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/", {"cpu.max": "150000 100000\n"}, 2),  # as a container sees its own
        ("0::/a/b", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "max 100000\n"}, 4),  # of the group above
        ("0::/a/b", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n0::/b", {"a/cpu.max": "100000 100000\n", "b/cpu.max": "250000 100000\n"}, 3),
        ("no such line", {}, None),
    ],
)
def test_processors_follow_the_quota_of_the_cgroup(
    tmp_path: Path, group: str, files: dict[str, str], expected: int | None
) -> None:
    write(tmp_path / "cgroup", group + "\n")
    for name, text in files.items():
        write(tmp_path / "fs" / name, text)
    assert cgroup_cpus(str(tmp_path / "cgroup"), str(tmp_path / "fs")) == expected
