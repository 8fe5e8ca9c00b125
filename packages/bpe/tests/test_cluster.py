"""Counting, training and encoding on Ray: what one machine gives, byte for byte. Skipped where Ray is not installed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_node import QUIET, contents, one_node_of_ray, write_files
from strategies import corpus

import bpe
import bpe.cluster
from bpe.cluster.encoding import Manifest
from bpe.tokenizer import Tokenizer

ray = pytest.importorskip("ray")
pytestmark = QUIET


@pytest.fixture(scope="module", autouse=True)
def one_node() -> Iterator[None]:
    """A cluster that all tests of this file share."""
    with one_node_of_ray():
        yield


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_files(tmp_path)


@pytest.mark.parametrize("part_size", [None, 3_000, 50_000])
def test_counts_are_those_of_one_machine(files: list[Path], part_size: int | None, tmp_path: Path) -> None:
    messages: list[bpe.cluster.Summary] = []
    steps: list[tuple[str, int, int | None]] = []
    counts = bpe.cluster.count(
        files, part_size=part_size, progress=lambda *step: steps.append(step), summary=messages.append
    )
    alone = bpe.count(files)
    assert counts == alone
    counts.save(tmp_path / "cluster")
    alone.save(tmp_path / "alone")
    assert (tmp_path / "cluster").read_bytes() == (tmp_path / "alone").read_bytes()
    size = sum(file.stat().st_size for file in files)
    assert messages[0].bytes == sum(messages[0].nodes.values()) == size
    assert steps[-1] == ("counting bytes", size, size)
    assert "MB/s" in str(messages[0])


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


def test_nothing_is_counted_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert bpe.cluster.count([tmp_path / "empty"]) == bpe.count([])


@pytest.mark.parametrize("num_threads", [1, 2])
def test_files_are_encoded_as_by_one_machine(files: list[Path], tmp_path: Path, num_threads: int) -> None:
    tokenizer = bpe.train(files, 400)
    out = tmp_path / "tokens"
    manifest = bpe.cluster.encode(files, out, tokenizer, num_threads=num_threads)
    assert [file.input for file in manifest.files] == list(map(str, files))
    assert manifest == Manifest.load(out)
    assert manifest.tokenizer == tokenizer.fingerprint
    for number, file in enumerate(files):
        ids = np.load(out / manifest.files[number].output)
        assert manifest.files[number].tokens == len(ids)
        assert manifest.files[number].sha256 == hashlib.sha256(ids.tobytes()).hexdigest()
        tokenizer.encode_file(file, tmp_path / "one.npy")
        for suffix in (".npy", ".json"):
            result = out / f"{number:05}{suffix}"
            assert result.read_bytes() == (tmp_path / "one").with_suffix(suffix).read_bytes()


@pytest.mark.parametrize("format", ["npy", "megatron", "datatrove", "parquet"])
def test_a_large_file_is_encoded_in_parts(files: list[Path], tmp_path: Path, format: Any) -> None:
    """A text, JSON lines, an empty and a compressed file, and Parquet: bytes and descriptions of one machine."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.table({"text": [corpus(i, 60) if i % 9 else None for i in range(200)]})
    parquet.write_table(rows, tmp_path / "e.parquet", row_group_size=20)
    sources = [*files, tmp_path / "e.parquet"]
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    messages: list[bpe.cluster.Summary] = []
    options: dict[str, Any] = {"format": format, "end_of_text": "<|endoftext|>"}
    manifest = bpe.cluster.encode(
        sources, out, tokenizer, part_size=7_000, num_threads=2, summary=messages.append, **options
    )
    size = sum(path.stat().st_size for path in sources)
    assert messages[0].bytes == size
    assert messages[0].tasks > 2 * len(sources)
    alone = tmp_path / "alone"
    alone.mkdir()
    for encoded, path in zip(manifest.files, sources, strict=True):
        count = tokenizer.encode_file(path, alone / encoded.output, **options)
        assert encoded.tokens == count
    assert contents(alone) == {name: data for name, data in contents(out).items() if name != "manifest.json"}


def test_what_cannot_be_cut_is_encoded_whole(files: list[Path], tmp_path: Path) -> None:
    """A tokenizer that takes a text as a whole: white space before its special token belongs to it."""
    data = bpe.train(files, 400).data._replace(lstrip=frozenset({"<|endoftext|>"}))
    tokenizer, messages = Tokenizer.from_data(data), list[bpe.cluster.Summary]()
    out = tmp_path / "tokens"
    manifest = bpe.cluster.encode(files[:1], out, tokenizer, part_size=7_000, summary=messages.append)
    assert messages[0].tasks == 1
    assert manifest.tokens == tokenizer.encode_file(files[0], tmp_path / "one.npy")
    assert (out / manifest.files[0].output).read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_a_url_is_read_in_parts(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    urls = [bpe.corpus.sources.PlainText(f"file://{files[0]}"), bpe.corpus.sources.JsonLines(f"file://{files[1]}")]
    assert bpe.cluster.count(urls, part_size=20_000) == bpe.count(files[:2])
    tokenizer, out = bpe.train(files, 400), f"file://{tmp_path}/tokens"
    for _ in range(2):  # the second time nothing is left to do
        messages: list[bpe.cluster.Summary] = []
        manifest = bpe.cluster.encode(urls, out, tokenizer, summary=messages.append)
    assert str(messages[0]) == "nothing was left to do: all files were done"
    for file, encoded in zip(files, manifest.files, strict=False):
        tokenizer.encode_file(file, tmp_path / "one.npy")
        assert (tmp_path / "tokens" / encoded.output).read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_a_second_run_encodes_what_is_left(files: list[Path], tmp_path: Path) -> None:
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    first = bpe.cluster.encode(files, out, tokenizer)
    messages: list[bpe.cluster.Summary] = []

    def again() -> int:
        """The number of files that another run encodes; the result is always the same but for what changed."""
        bpe.cluster.encode(files, out, tokenizer, summary=messages.append)
        return messages.pop().tasks

    assert again() == 0
    (out / first.files[0].output).unlink()
    assert again() == 1
    files[1].write_text('{"text": "another"}\n')
    assert again() == 1
    assert Manifest.load(out).tokens < first.tokens
    with pytest.raises(ValueError, match="another run"):
        bpe.cluster.encode(files, out, bpe.train(files, 300))
    with pytest.raises(ValueError, match=r"other files, as .*a\.txt"):
        bpe.cluster.encode(files[1:], out, tokenizer)
    added = tmp_path / "added.txt"
    added.write_text("the cat")
    bpe.cluster.encode([added, *files], out, tokenizer, summary=messages.append)
    assert messages.pop().tasks == 1
    manifest = Manifest.load(out)
    assert [file.output for file in manifest.files] == [f"{number:05}.npy" for number in (4, 0, 1, 2, 3)]
    assert all(file.is_in(str(out)) for file in manifest.files)
    (out / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="manifest"):
        bpe.cluster.encode(files, out, tokenizer)


def test_a_file_that_was_wrong_is_encoded_when_it_is_mended(files: list[Path], tmp_path: Path) -> None:
    tokenizer, out = bpe.train(files, 400), tmp_path / "tokens"
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 1"):
        bpe.cluster.encode([*files, bad], out, tokenizer)
    assert [file.tokens is None for file in Manifest.load(out).files] == [False] * len(files) + [True]
    bad.write_text('{"text": "mended"}\n')
    manifest = bpe.cluster.encode([*files, bad], out, tokenizer)
    assert Manifest.load(out) == manifest
    assert all(file.is_in(str(out)) for file in manifest.files)


def test_users_mistakes(files: list[Path], tmp_path: Path) -> None:
    gone, tokenizer = tmp_path / "gone.txt", bpe.train(files, 300)
    for call in (bpe.cluster.count, lambda source: bpe.cluster.encode(source, tmp_path / "out", tokenizer)):
        with pytest.raises(FileNotFoundError, match=r"gone\.txt"):
            call([*files, gone])
        with pytest.raises(TypeError, match="Ray Dataset"):
            call(iter(["a text"]))
    for options in ({"num_threads": 0}, {"part_size": 0}, {"memory_limit": 0}):
        with pytest.raises(ValueError, match="0"):
            bpe.cluster.count(files, **options)


def test_the_commands_work_on_a_cluster(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bpe.commands.main import main

    names = list(map(str, files))
    out, tokens = tmp_path / "tokenizer.bpe", tmp_path / "tokens"
    train = ["train", *names, "--vocab-size", "400", "--out", str(out)]
    assert main([*train, "--cluster", "auto"]) == 0
    counts = tmp_path / "all.counts"
    assert main(["count", *names, "--out", str(counts), "--cluster", "auto"]) == 0
    assert bpe.Counts.load(counts) == bpe.count(files)
    assert bpe.load(out).fingerprint == bpe.train(files, 400).fingerprint
    assert main(["encode", str(out), *names, "--out", str(tokens), "--cluster", "auto"]) == 0
    assert "4 files" in (messages := capsys.readouterr()).out
    assert "tasks and" in messages.err
    marked = ["encode", str(out), *names, "--out", str(tmp_path / "marked"), "--cluster", "auto"]
    assert main([*marked, "--format", "megatron", "--end-of-text", "<|endoftext|>"]) == 0
    assert (tmp_path / "marked" / "00003.idx").exists()
    assert main([*marked, "--shard-tokens", "1000"]) != 0
    assert main([*train, "--on-error", "skip"]) != 0
    assert "--on-error is for --cluster" in capsys.readouterr().err
    assert main([*train, "--cluster", "auto", "--checkpoint", str(tmp_path / "run")]) != 0
    assert main(["encode", str(out), *names, "--out", str(tmp_path / "x.npy"), "--cluster", "auto"]) != 0
    messages = capsys.readouterr()
    assert "--checkpoint" in messages.err
    assert "x.npy" in messages.err
