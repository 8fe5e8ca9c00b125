"""Counting, training and encoding on Ray: what one machine gives, byte for byte. Skipped where Ray is not installed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strategies import corpus

import bpe
import bpe.cluster
from bpe.cluster import session
from bpe.cluster.manifest import Manifest
from bpe.tokenizer import Tokenizer

ray = pytest.importorskip("ray")
pytestmark = [  # what Ray's own modules warn of
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def one_node() -> Iterator[None]:
    """A cluster of one node with two CPUs, which all tests of this file share."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80_000_000,
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:  # it says no more
        pytest.skip(f"Ray does not start here: {error}")
    yield
    ray.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A text of several parts, JSON lines, an empty file and a compressed one."""
    import gzip
    import json

    text = corpus(1, 20_000)
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": corpus(i, 50)}) + "\n" for i in range(60)))
    (tmp_path / "c.txt").touch()
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(corpus(2, 5_000).encode()))
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("part_size", [None, 3_000, 50_000])
def test_counts_are_those_of_one_machine(files: list[Path], part_size: int | None, tmp_path: Path) -> None:
    told: list[bpe.cluster.Summary] = []
    steps: list[tuple[str, int, int | None]] = []
    counts = bpe.cluster.count(
        files, part_size=part_size, progress=lambda *step: steps.append(step), summary=told.append
    )
    alone = bpe.count(files)
    assert counts == alone
    counts.save(tmp_path / "cluster")
    alone.save(tmp_path / "alone")
    assert (tmp_path / "cluster").read_bytes() == (tmp_path / "alone").read_bytes()
    size = sum(file.stat().st_size for file in files)
    assert told[0].bytes == sum(share.bytes for share in told[0].nodes.values()) == size
    assert steps[-1] == ("counting bytes", size, size)
    assert "MB/s" in str(told[0])


def test_a_memory_limit_changes_nothing(files: list[Path]) -> None:
    assert bpe.cluster.count(files, memory_limit=50_000, part_size=20_000) == bpe.count(files)


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_a_tokenizer_is_that_of_one_machine(files: list[Path], tie_break: Any) -> None:
    options: dict[str, Any] = {
        "pattern": "cl100k",
        "special_tokens": ["<|endoftext|>", "<|x|>"],
        "tie_break": tie_break,
    }
    trained = bpe.cluster.train(files, 400, part_size=9_000, **options)
    assert trained.fingerprint == bpe.train(files, 400, **options).fingerprint


def test_a_dataset_is_counted_by_its_column(files: list[Path]) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    texts = [corpus(i, 40) for i in range(50)]
    dataset = ray.data.from_items([{"body": text} for text in texts], override_num_blocks=7)
    assert bpe.cluster.count(dataset, text_key="body") == bpe.count(texts)
    with pytest.raises(ValueError, match="body"):
        bpe.cluster.count(dataset)


def test_nothing_is_counted_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert bpe.cluster.count([tmp_path / "empty"]) == bpe.count([])


@pytest.mark.parametrize("workers", [1, 2])
def test_files_are_encoded_as_by_one_machine(files: list[Path], tmp_path: Path, workers: int) -> None:
    tokenizer = bpe.train(files, 400)
    out = tmp_path / "tokens"
    manifest = bpe.cluster.encode(files, out, tokenizer, workers=workers)
    assert [file.input for file in manifest.files] == list(map(str, files))
    assert manifest == Manifest.load(out)
    for number, file in enumerate(files):
        tokenizer.encode_file(file, tmp_path / "one.npy")
        for suffix in (".npy", ".json"):
            made = out / f"{number:05}-of-{len(files):05}{suffix}"
            assert made.read_bytes() == (tmp_path / "one").with_suffix(suffix).read_bytes()
    assert bpe.cluster.merge(out) == manifest.tokens


@pytest.mark.parametrize("format", ["bin", "megatron", "parquet"])
def test_other_formats_are_written_as_by_one_machine(files: list[Path], tmp_path: Path, format: Any) -> None:
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    manifest = bpe.cluster.encode(files[:2], out, tokenizer, format=format, end_of_text="<|endoftext|>")
    for encoded, file in zip(manifest.files, files, strict=False):
        alone = tmp_path / encoded.output
        tokenizer.encode_file(file, alone, format=format, end_of_text="<|endoftext|>")
        for path in tmp_path.glob(f"{alone.stem}.*"):
            assert (out / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "format",
    [
        "npy",
        "bin",
        "megatron",
        "datatrove",
        "llmc",
        "parquet",
        "arrow",
        pytest.param("litdata", marks=pytest.mark.soak),
    ],
)
def test_a_large_file_is_encoded_in_parts(files: list[Path], tmp_path: Path, format: Any) -> None:
    """A text, JSON lines, an empty and a compressed file, and Parquet: bytes and descriptions of one machine."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if format == "litdata":
        pytest.importorskip("litdata")
        del files[2]  # the empty one, which litdata cannot hold
    rows = pyarrow.table({"text": [corpus(i, 60) if i % 9 else None for i in range(200)]})
    parquet.write_table(rows, tmp_path / "e.parquet", row_group_size=20)
    sources = [*files, tmp_path / "e.parquet"]
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    told: list[bpe.cluster.Summary] = []
    options: dict[str, Any] = {"format": format, "end_of_text": "<|endoftext|>"}
    manifest = bpe.cluster.encode(sources, out, tokenizer, part_size=7_000, workers=2, summary=told.append, **options)
    size = sum(path.stat().st_size for path in sources)
    assert told[0].bytes == size
    assert sum(share.tasks for share in told[0].nodes.values()) > 2 * len(sources)
    alone = tmp_path / "alone"
    alone.mkdir()
    for encoded, path in zip(manifest.files, sources, strict=True):
        count = tokenizer.encode_file(path, alone / encoded.output, **options)
        assert encoded.tokens == count
    assert contents(alone) == {name: data for name, data in contents(out).items() if name != "manifest.json"}


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder and of those in it; without the time in litdata's index."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: re.sub(rb'"updated_at": "[\d.]+"', b"", data) for name, data in found.items()}


def test_what_cannot_be_cut_is_encoded_whole(files: list[Path], tmp_path: Path) -> None:
    """A tokenizer that takes a text as a whole: white space before its special token belongs to it."""
    data = bpe.train(files, 400).data._replace(lstrip=frozenset({"<|endoftext|>"}))
    tokenizer, told = Tokenizer.from_data(data), list[bpe.cluster.Summary]()
    out = tmp_path / "tokens"
    manifest = bpe.cluster.encode(files[:1], out, tokenizer, part_size=7_000, summary=told.append)
    assert sum(share.tasks for share in told[0].nodes.values()) == 1
    assert manifest.tokens == tokenizer.encode_file(files[0], tmp_path / "one.npy")
    assert (out / manifest.files[0].output).read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_a_dataset_is_encoded_in_order(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer = bpe.train(files, 400)
    texts = [corpus(i, 30 + 40 * (i % 7)) for i in range(90)] + [""]
    items = [{"body": text, "number": i} for i, text in enumerate(texts)]
    options: dict[str, Any] = {"end_of_text": "<|endoftext|>", "text_key": "body"}
    for blocks, format in ((1, "npy"), (7, "parquet")):
        out, alone = tmp_path / f"{blocks}-{format}", tmp_path / f"{blocks}-{format}-alone"
        dataset = ray.data.from_items([*items, {"body": None, "number": -1}], override_num_blocks=blocks)
        told: list[bpe.cluster.Summary] = []
        manifest = bpe.cluster.encode(dataset, out, tokenizer, format=format, summary=told.append, **options)
        alone.mkdir()
        count = tokenizer.encode_file(
            iter(texts), alone / manifest.files[0].output, format=format, end_of_text="<|endoftext|>"
        )
        assert manifest.tokens == count == bpe.cluster.merge(out)
        assert manifest == Manifest.load(out)
        assert told[0].bytes == sum(len(text.encode()) for text in texts)
        made = contents(out)
        assert {name: made[name] for name in contents(alone)} == contents(alone)


@pytest.mark.parametrize("blocks", [2, 9])
def test_a_dataset_is_encoded_into_shards(files: list[Path], tmp_path: Path, blocks: int) -> None:
    """Which go on where a run was stopped: here after the first two."""
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer, out, alone = bpe.train(files, 400), tmp_path / "tokens", tmp_path / "alone"
    texts = [corpus(i, 100) for i in range(80)]
    dataset = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=blocks)
    alone.mkdir()
    count = tokenizer.encode_file(iter(texts), alone / "tokens.npy", shard_tokens=3000)

    def stopped(phase: str, done: int, total: int | None) -> None:
        if len(list(out.glob("tokens-*.npy"))) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=3000, progress=stopped)
    with pytest.raises(ValueError, match="not encoded yet"):
        bpe.cluster.merge(out)
    for _ in range(2):  # the second time nothing is left to do
        manifest = bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=3000)
        assert manifest.tokens == count == bpe.cluster.merge(out)
    made = contents(out)
    assert {name: made[name] for name in contents(alone)} == contents(alone)
    with pytest.raises(ValueError, match="another run"):
        bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=2000)


def test_mistakes_with_a_dataset(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer = bpe.train(files, 300)
    dataset = ray.data.from_items([{"body": "a"}])
    with pytest.raises(ValueError, match="body"):
        bpe.cluster.encode(dataset, tmp_path / "out", tokenizer)

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("never by nothing")

    with pytest.raises(RuntimeError, match="never by nothing") as raised:
        bpe.cluster.count(dataset.map(fails), text_key="body")
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "out").glob("*.npy"))


def test_a_url_is_read_in_parts(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    urls = [bpe.sources.PlainText(f"file://{files[0]}"), bpe.sources.JsonLines(f"file://{files[1]}")]
    assert bpe.cluster.count(urls, part_size=20_000) == bpe.count(files[:2])
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    manifest = bpe.cluster.encode(urls, out, tokenizer)
    assert manifest.tokens == sum(tokenizer.encode_file(file, tmp_path / "one.npy") for file in files[:2])


def test_a_second_run_encodes_what_is_left(files: list[Path], tmp_path: Path) -> None:
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    first = bpe.cluster.encode(files, out, tokenizer)
    told: list[bpe.cluster.Summary] = []

    def again() -> int:
        """How many files another run encodes; the result is always the same but for what changed."""
        bpe.cluster.encode(files, out, tokenizer, summary=told.append)
        return sum(share.tasks for share in told.pop().nodes.values())

    assert again() == 0
    (out / first.files[0].output).unlink()
    assert again() == 1
    files[1].write_text('{"text": "another"}\n')
    assert again() == 1
    assert bpe.cluster.merge(out) == Manifest.load(out).tokens < first.tokens
    with pytest.raises(ValueError, match="another run"):
        bpe.cluster.encode(files, out, bpe.train(files, 300))
    with pytest.raises(ValueError, match="other files"):
        bpe.cluster.encode(files[1:], out, tokenizer)
    (out / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="manifest"):
        bpe.cluster.encode(files, out, tokenizer)


def test_what_is_not_done_is_not_merged(files: list[Path], tmp_path: Path) -> None:
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 1"):
        bpe.cluster.encode([*files, bad], out, tokenizer)
    with pytest.raises(ValueError, match="not encoded yet"):
        bpe.cluster.merge(out)
    bad.write_text('{"text": "mended"}\n')
    bpe.cluster.encode([*files, bad], out, tokenizer)
    assert bpe.cluster.merge(out) == Manifest.load(out).tokens


def test_users_mistakes(files: list[Path], tmp_path: Path) -> None:
    gone, tokenizer = tmp_path / "gone.txt", bpe.train(files, 300)
    for call in (bpe.cluster.count, lambda source: bpe.cluster.encode(source, tmp_path / "out", tokenizer)):
        with pytest.raises(FileNotFoundError, match=r"gone\.txt"):
            call([*files, gone])
        with pytest.raises(TypeError, match=r"Ray Dataset|encode_file"):
            call(iter(["a text"]))
    for options in ({"workers": 0}, {"part_size": 0}, {"memory_limit": 0}):
        with pytest.raises(ValueError, match="0"):
            bpe.cluster.count(files, **options)
    with pytest.raises(FileNotFoundError):
        bpe.cluster.merge(tmp_path)


def test_a_file_that_vanishes_is_named(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan and the task that reads it."""
    from bpe.cluster import counting

    planned = counting._items

    def planned_then_gone(*arguments: Any) -> Any:
        total, parts = planned(*arguments)
        listed = list(parts)
        files[0].unlink()
        return total, iter(listed)

    monkeypatch.setattr(counting, "_items", planned_then_gone)
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        bpe.cluster.count(files)


@pytest.mark.parametrize("what", ["count", "encode"])
def test_a_process_that_is_killed_changes_nothing(files: list[Path], tmp_path: Path, what: str) -> None:
    """As the system kills a worker when memory runs out."""
    killed: list[int] = []

    def progress(phase: str, done: int, total: int | None) -> None:
        if len(killed) < 2:
            running = [process for process in workers() if process not in killed]
            for process in running[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    if what == "count":
        assert bpe.cluster.count(files, part_size=3_000, progress=progress) == bpe.count(files)
    else:
        tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
        manifest = bpe.cluster.encode(files, out, tokenizer, part_size=7_000, progress=progress)
        for encoded, file in zip(manifest.files, files, strict=True):
            tokenizer.encode_file(file, tmp_path / "one.npy")
            assert (out / encoded.output).read_bytes() == (tmp_path / "one.npy").read_bytes()
        assert not list(out.glob(".*.tmp"))
    assert killed


def workers() -> list[int]:
    """The processes of this test's node that run a task."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            above = Path("/proc", parent, "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if command.startswith(b"ray::_") and int(above) == os.getpid():
            found.append(int(folder.name))
    return found


def test_what_was_half_written_is_removed(files: list[Path], tmp_path: Path) -> None:
    """What a node that went down leaves beside its output; what others keep there stays."""
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    out.mkdir()
    (out / f".00001-of-00004.npy.{'0' * 16}.tmp").write_bytes(b"half")
    (out / f".another.{'0' * 16}.tmp").write_bytes(b"of others")
    bpe.cluster.encode(files, out, tokenizer)
    assert [path.name for path in out.glob(".*.tmp")] == [f".another.{'0' * 16}.tmp"]


def test_errors_of_ray_become_one_sentence() -> None:
    from ray import exceptions

    for error, kind in (
        (exceptions.OutOfMemoryError("Task was killed.\nmore"), MemoryError),
        (exceptions.ObjectStoreFullError("full"), OSError),
        (exceptions.OutOfDiskError("full"), OSError),
        (exceptions.WorkerCrashedError(), RuntimeError),
    ):
        with pytest.raises(kind) as raised, session.connected(None):
            raise error
        assert "\n" not in str(raised.value)
    assert ray.is_initialized()  # a connection that was there stays


def test_the_commands_work_on_a_cluster(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bpe.commands.main import main

    names = list(map(str, files))
    out, tokens = tmp_path / "tokenizer.bpe", tmp_path / "tokens"
    train = ["train", *names, "--vocab-size", "400", "--out", str(out)]
    assert main([*train, "--cluster", "auto"]) == 0
    assert bpe.load(out).fingerprint == bpe.train(files, 400).fingerprint
    assert main(["encode", str(out), *names, "--out", str(tokens), "--cluster", "auto"]) == 0
    assert "4 files" in (told := capsys.readouterr()).out
    assert "MB/s a task" in told.err
    assert (tokens / "index.json").exists()
    marked = ["encode", str(out), *names, "--out", str(tmp_path / "marked"), "--cluster", "auto"]
    assert main([*marked, "--format", "megatron", "--end-of-text", "<|endoftext|>"]) == 0
    assert (tmp_path / "marked" / "00003-of-00004.idx").exists()
    assert main([*marked, "--shard-tokens", "1000"]) != 0
    assert main([*train, "--cluster", "auto", "--checkpoint", str(tmp_path / "run")]) != 0
    assert main(["encode", str(out), *names, "--out", str(tmp_path / "x.npy"), "--cluster", "auto"]) != 0
    told = capsys.readouterr()
    assert "--checkpoint" in told.err
    assert "x.npy" in told.err
