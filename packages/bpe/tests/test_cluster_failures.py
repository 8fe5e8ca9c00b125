"""Failures of a cluster change no result, or are one sentence. Skipped where Ray is not installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_node import QUIET, one_node_of_ray, write_files

import bpe
import bpe.cluster
from bpe.cluster import counting, encoding, ranges, tasks
from bpe.cluster.encoding import EncodedFile, Manifest

ray = pytest.importorskip("ray")
pytestmark = QUIET
SIZE = 7_000  # bytes of a part
TASKS = {"count": ["count_part"], "encode": ["encode_part", "write_file"]}


@pytest.fixture(scope="module", autouse=True)
def one_node() -> Iterator[None]:
    """A cluster that all tests of this file share."""
    with one_node_of_ray():
        yield


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_files(tmp_path)


def test_a_file_that_vanishes_is_named(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and the task that reads it."""
    planned = counting.listed

    def planned_then_gone(named: Any) -> Any:
        inputs = planned(named)
        files[0].unlink()
        return inputs

    monkeypatch.setattr(counting, "listed", planned_then_gone)
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        bpe.cluster.count(files)


@pytest.mark.parametrize("part_size", [None, 7_000])
def test_a_file_that_vanishes_leaves_nothing_half_encoded(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_size: int | None
) -> None:
    """As a whole before its task, and in parts after the first of them."""
    tokenizer, out, connected = bpe.train(files, 300), tmp_path / "tokens", encoding.connected

    def gone(*arguments: Any) -> Any:
        if part_size is None:
            files[0].unlink()
        return connected(*arguments)

    monkeypatch.setattr(encoding, "connected", gone)
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        bpe.cluster.encode(files, out, tokenizer, part_size=part_size, progress=lambda *_: files[0].unlink(True))
    manifest = Manifest.load(out)
    assert manifest.files[0].tokens is None
    assert not list(out.glob("00000*"))
    assert all(file.is_in(str(out)) for file in manifest.files[1:])


def same_with(wrapped: Callable[..., Any], files: list[Path], folder: Path, what: str, progress: Any = None) -> None:
    """Count or encode with wrapped(task) in place of every task, in parts of SIZE: the result of one machine."""
    with pytest.MonkeyPatch.context() as patch:
        module = counting if what == "count" else encoding
        for name in TASKS[what]:
            patch.setattr(module, name, wrapped(getattr(module, name)))
        if what == "count":
            assert bpe.cluster.count(files, part_size=SIZE, progress=progress) == bpe.count(files)
            return
        tokenizer, out = bpe.train(files, 400), folder / "tokens"
        manifest = bpe.cluster.encode(files, out, tokenizer, part_size=SIZE, progress=progress)
    for encoded, file in zip(manifest.files, files, strict=True):
        tokenizer.encode_file(file, folder / "one.npy")
        assert (out / encoded.output).read_bytes() == (folder / "one.npy").read_bytes()
    assert not list(out.glob(".*.tmp"))


@pytest.mark.parametrize("what", ["count", "encode"])
def test_a_task_that_is_last_changes_nothing(files: list[Path], tmp_path: Path, what: str) -> None:
    """The first part of the first file, which waits until every other part of every file is done."""
    go, order = str(tmp_path / "go"), list[int]()

    def wrapped(task: Callable[..., Any]) -> Callable[..., Any]:
        def late(item: Any, *arguments: Any) -> Any:
            import os
            import time

            if getattr(item, "begin", None) == 0 and item.end is not None and "a.txt" in item.input.name:
                while not os.path.exists(go):
                    time.sleep(0.01)
            return task(item, *arguments)

        return late

    def progress(phase: str, done: int, total: int | None) -> None:
        order.append(done)
        if total is not None and done >= total - SIZE:
            Path(go).touch()

    same_with(wrapped, files, tmp_path, what, progress)
    assert sum(path.stat().st_size for path in files) - SIZE in order


@pytest.mark.parametrize("what", ["count", "encode"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_changes_nothing(files: list[Path], tmp_path: Path, what: str, when: str) -> None:
    """As the system kills a worker when memory runs out: before its task has done anything, and when all is written."""
    killed = tmp_path / "killed"
    killed.mkdir()

    def wrapped(task: Callable[..., Any]) -> Callable[..., Any]:
        def dies(*arguments: Any) -> Any:
            import contextlib
            import os
            import signal
            from pathlib import Path

            done = task(*arguments) if when == "after" else None
            with contextlib.suppress(FileExistsError):  # one task of each kind
                Path(killed, task.__name__).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            return task(*arguments) if done is None else done

        return dies

    same_with(wrapped, files, tmp_path, what)
    assert {path.name for path in killed.iterdir()} == set(TASKS[what])


def test_what_was_half_written_is_removed(files: list[Path], tmp_path: Path) -> None:
    """The temporary files of a node that went down are removed; files of others stay."""
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    out.mkdir()
    (out / f".00001.npy.{'0' * 16}.tmp").write_bytes(b"half")
    (out / f".another.{'0' * 16}.tmp").write_bytes(b"of others")
    bpe.cluster.encode(files, out, tokenizer)
    assert [path.name for path in out.glob(".*.tmp")] == [f".another.{'0' * 16}.tmp"]


def test_errors_of_ray_become_one_sentence() -> None:
    from ray import exceptions

    for error, kind in (
        (exceptions.OutOfMemoryError("Task was killed.\nmore"), MemoryError),
        (exceptions.ObjectStoreFullError("full"), OSError),
        (exceptions.OutOfDiskError("full"), OSError),
        (exceptions.RayTaskError("f", "ray.exceptions.OutOfDiskError: full", OSError()), OSError),
        (exceptions.WorkerCrashedError(), RuntimeError),
    ):
        with pytest.raises(kind) as raised, tasks.connected(None, 1):
            raise error
        assert "\n" not in str(raised.value)
    assert ray.is_initialized()  # a connection that was there stays


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_an_address_at_which_nothing_listens(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Is told at once: Ray would try it for minutes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was asked"))
        with pytest.raises(
            ConnectionError, match=f"cannot connect to a Ray cluster at '{address}': .*refused"
        ) as raised:
            bpe.cluster.count(__file__, address=address if how == "argument" else None)
    assert "\n" not in str(raised.value)


@pytest.fixture
def unshared(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """(a path that is one folder here and another one to the tasks, the folder that it is to the tasks)."""
    there = Path(ray.get(ray.remote(lambda: os.getcwd()).remote())) / f"{tmp_path.name}-tokens"
    monkeypatch.chdir(tmp_path)
    yield Path("/proc/self/cwd", there.name), there
    shutil.rmtree(there, ignore_errors=True)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc makes one path two folders")
@pytest.mark.parametrize("part_size", [None, 7_000])
def test_outputs_that_are_not_seen_here_are_an_error(
    files: list[Path], unshared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, part_size: int | None
) -> None:
    monkeypatch.setattr(encoding, "SEEN_WITHIN", 0.3)
    tokenizer = bpe.train(["the cat"], 260)
    out, there = unshared
    with pytest.raises(FileNotFoundError, match="does not see it: out has to be a folder that all nodes share"):
        bpe.cluster.encode(files, out, tokenizer, part_size=part_size)
    there.mkdir()
    with pytest.raises(FileNotFoundError, match="not seen here: out has to be a folder that all nodes share"):
        bpe.cluster.encode(files, out, tokenizer, part_size=part_size)
    assert list(there.glob("*.npy"))
    assert all(file.tokens is None for file in Manifest.load(out).files)


def test_an_output_that_is_seen_late_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"count": 3, "sha256": "00", "dtype": "uint16"}))
    timer = threading.Timer(0.3, (tmp_path / "a.npy").touch)
    timer.start()
    encoding._wait_for(EncodedFile("a", [], "a.npy", 3, "00"), str(tmp_path), "192.0.2.2")
    assert (tmp_path / "a.npy").exists()


def test_threads_that_no_node_has_are_refused(files: list[Path], tmp_path: Path) -> None:
    tokenizer = bpe.train(["the cat"], 260)
    calls = [
        lambda: bpe.cluster.count(files, num_threads=3),
        lambda: bpe.cluster.train(files, 300, num_threads=3),
        lambda: bpe.cluster.encode(files, tmp_path / "out", tokenizer, num_threads=3),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="num_threads is 3, and no node of the cluster has more than 2 CPUs"):
            call()


@pytest.mark.parametrize("part_size", [None, 7_000])
def test_broken_files_do_not_keep_others_from_being_encoded(tmp_path: Path, part_size: int | None) -> None:
    files = write_files(tmp_path)
    good = [*files, tmp_path / "z.txt"]
    good[-1].write_text("the cat")
    broken = tmp_path / "m.jsonl"
    # one broken line: where there are several, the error names the one whose part was read first
    broken.write_text('{"text": "low"}\n{"other": 1}\n' + '{"text": "low"}\n' * 3000)
    tokenizer = bpe.train(["the cat"], 260)
    out = tmp_path / "tokens"
    with pytest.raises(ValueError, match=r"m\.jsonl, line 2: no key 'text'"):
        bpe.cluster.encode([broken, *good], out, tokenizer, part_size=part_size)
    manifest = Manifest.load(out)
    assert [file.tokens is None for file in manifest.files] == [True] + [False] * len(good)
    cut = tmp_path / "n.txt.gz"
    cut.write_bytes((tmp_path / "d.txt.gz").read_bytes()[:-9])
    more = [broken, cut, *good]
    with pytest.raises(ValueError, match=r"2 files cannot be read(.|\n)*m\.jsonl(.|\n)*n\.txt\.gz"):
        bpe.cluster.encode(more, tmp_path / "more", tokenizer, part_size=part_size)
    messages: list[bpe.cluster.Summary] = []
    skipping: dict[str, Any] = {"on_error": "skip", "part_size": part_size, "summary": messages.append}
    manifest = bpe.cluster.encode(more, tmp_path / "more", tokenizer, **skipping)
    assert [file.error is None for file in manifest.files] == [False, False] + [True] * len(good)
    assert [Path(name).name for name in messages.pop().skipped] == ["m.jsonl", "n.txt.gz"]
    with pytest.raises(ValueError, match=r"2 files cannot be read(.|\n)*m\.jsonl(.|\n)*n\.txt\.gz"):
        bpe.cluster.count(more, part_size=part_size)
    counts = bpe.cluster.count(more, **skipping | {"part_size": None})
    assert counts == bpe.count(good)
    assert "left out: " in str(messages[0])


def test_outputs_are_believed_after_the_death_of_the_driver(files: list[Path], tmp_path: Path) -> None:
    """The manifest was saved last when nothing was done; what has changed since is encoded again."""
    tokenizer, out = bpe.train(files, 300), tmp_path / "tokens"
    begun = bpe.cluster.encode(files, out, tokenizer)
    for file in begun.files:
        file.tokens = file.sha256 = None
    begun.save(str(out))
    (out / begun.files[3].output).unlink()
    files[1].write_text('{"text": "another"}\n')
    messages: list[bpe.cluster.Summary] = []
    manifest = bpe.cluster.encode(files, out, tokenizer, summary=messages.append)
    assert messages[0].tasks == 2
    assert sum(tokenizer.encode_file(file, tmp_path / "one.npy") for file in files) == manifest.tokens
    # A driver that dies once more, before the changed file is encoded: its old output is not believed.
    files[1].write_text('{"text": "a third"}\n')
    Manifest.planned(str(out), manifest.tokenizer, manifest.settings, ranges.listed(files), ".npy")
    again = bpe.cluster.encode(files, out, tokenizer)
    assert again.files[1].tokens == tokenizer.encode_file(files[1], tmp_path / "one.npy")
