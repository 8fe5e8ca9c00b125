"""encode_file() in the formats of other trainers, read back by their readers or by their specifications."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import corpus

import bpe
from bpe.outputs import arrow_files, encode_source, shards, writers
from bpe.tokenizer import Tokenizer

TOKENIZER = bpe.train([corpus(5)], 300)
END = "<|endoftext|>"
TEXTS = [corpus(1, words=300), "low", "", "é" * 50, corpus(2, words=40) + END + "lower" + END, "a last one"]
DOCUMENTS = [[*TOKENIZER.encode(text), 256] for whole in TEXTS for text in whole.split(END) if text]
LOCAL = ("npy", "bin", "megatron", "datatrove", "llmc", "parquet", "arrow")


def read(path: Path, format: str) -> tuple[list[int], list[int] | None]:
    """(ids, where documents end) by the specification of each format."""
    dtype = "<u2" if json.loads(path.with_suffix(".json").read_text())["dtype"] == "uint16" else "<u4"
    if format == "npy":
        return np.load(path).tolist(), None
    if format in ("bin", "datatrove"):
        ends = np.fromfile(f"{path}.index", dtype="<u8")
        return np.fromfile(path, dtype=dtype).tolist(), ends.tolist()
    if format == "llmc":
        header = np.fromfile(path, dtype="<i4", count=256)
        assert header[:2].tolist() == [20240520, 1] if dtype == "<u2" else [20240801, 7]
        ids = np.fromfile(path, dtype=dtype, offset=1024)
        assert len(ids) == header[2]
        assert not header[3:].any()
        return ids.tolist(), None
    if format == "megatron":
        return read_megatron(path)
    from pyarrow import ipc, parquet

    table = parquet.read_table(path) if format == "parquet" else ipc.open_stream(path.read_bytes()).read_all()
    assert str(table.schema.field("input_ids").type) in ("list<item: uint32>", "list<element: uint32>")
    rows = table.column("input_ids").to_pylist()
    return [number for row in rows for number in row], np.cumsum([len(row) for row in rows]).tolist()


def read_megatron(path: Path) -> tuple[list[int], list[int]]:
    """As Megatron-LM's IndexedDataset reads them."""
    index = path.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack("<QBQQ", index[9:34])
    dtype = {8: np.uint16, 4: np.int32}[code]
    lengths = np.frombuffer(index, dtype=np.int32, count=sequences, offset=34)
    pointers = np.frombuffer(index, dtype=np.int64, count=sequences, offset=34 + lengths.nbytes)
    starts = np.frombuffer(index, dtype=np.int64, count=documents, offset=34 + lengths.nbytes + pointers.nbytes)
    assert len(index) == 34 + lengths.nbytes + pointers.nbytes + starts.nbytes
    assert version == 1
    assert starts.tolist() == list(range(sequences + 1))
    data = path.read_bytes()
    actual = [
        np.frombuffer(data, dtype=dtype, count=length, offset=pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    assert sum(lengths) * np.dtype(dtype).itemsize == len(data)
    return [number for row in actual for number in row], np.cumsum(lengths).tolist()


def name_of(folder: Path, format: str) -> Path:
    return folder / f"train{writers.writer_of(format).ending}"


def shards_in(folder: Path, format: str) -> list[Path]:
    return sorted(folder.glob(f"train-*{writers.writer_of(format).ending}"))


@pytest.mark.parametrize("format", LOCAL)
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_every_format_holds_the_ids_and_the_documents(tmp_path: Path, format: Any, dtype: Any) -> None:
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
        dtype = "uint32"
    out = name_of(tmp_path, format)
    count = TOKENIZER.encode_file(TEXTS, out, dtype, format=format, end_of_text=END)
    ids, ends = read(out, format)
    assert ids == [number for document in DOCUMENTS for number in document]
    assert len(ids) == count
    if ends is not None:
        assert ends == np.cumsum([len(document) for document in DOCUMENTS]).tolist()
    about = json.loads(out.with_suffix(".json").read_text())
    assert about["count"] == count
    assert about["bytes"] == sum(len(text.replace(END, "").encode()) for text in TEXTS)  # of the text alone
    assert about["tokenizer"] == TOKENIZER.fingerprint
    assert about.get("documents", len(DOCUMENTS)) == len(DOCUMENTS)
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("format", LOCAL)
def test_without_an_end_of_text_a_document_is_a_text(tmp_path: Path, format: Any) -> None:
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    texts = ["low", "lower", "", "a"]
    TOKENIZER.encode_file(texts, name_of(tmp_path, format), format=format)
    ids, ends = read(name_of(tmp_path, format), format)
    assert ids == [number for text in texts for number in TOKENIZER.encode(text)]
    assert ends is None or ends == np.cumsum([len(TOKENIZER.encode(text)) for text in texts if text]).tolist()


@pytest.mark.parametrize("format", LOCAL)
def test_nothing_is_an_empty_file(tmp_path: Path, format: Any) -> None:
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    for options in ({}, {"shard_tokens": 10}):
        assert TOKENIZER.encode_file([], name_of(tmp_path, format), format=format, **options) == 0
        path = name_of(tmp_path, format) if not options else shards_in(tmp_path, format)[0]
        assert read(path, format) in (([], None), ([], []))


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 40).map(lambda size: "ab" * size), max_size=12),
    st.integers(1, 60),
    st.integers(1, 60),
    st.booleans(),
)
def test_shards_are_bounded_and_cut_no_document_that_fits(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, chunk: int, separate: bool
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_source, "CHUNK", chunk)
        out, end = folder / "train.bin", END if separate else None
        total = TOKENIZER.encode_file(texts, out, format="bin", shard_tokens=size, end_of_text=end, num_threads=2)
    actual = [read(path, "bin") for path in shards_in(folder, "bin")]
    expected = [TOKENIZER.encode(text) + ([256] if separate and text else []) for text in texts if text]
    assert [number for ids, _ in actual for number in ids] == [number for ids in expected for number in ids]
    assert total == sum(map(len, expected))
    assert all(len(ids) <= size and (ends or [0])[-1] == len(ids) for ids, ends in actual)
    if chunk == 60:  # whole texts
        assert sum(len(ends or []) for _, ends in actual) == sum(-(-len(ids) // size) for ids in expected)
    record = json.loads((folder / "train.shards.json").read_text())
    assert record["finished"]
    assert record["done"]["ids"] == total


def test_a_stopped_run_goes_on_after_its_last_whole_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after every shard, and within one: the files are those of a run that was never stopped."""
    monkeypatch.setattr(encode_source, "CHUNK", 500)
    source = tmp_path / "text.jsonl"
    choice = random.Random(1)
    texts = [corpus(choice.randrange(99), words=choice.randrange(200)) for _ in range(20)]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def encode(folder: str) -> int:
        out = tmp_path / folder / "train.ds"
        out.parent.mkdir(exist_ok=True)
        return TOKENIZER.encode_file(source, out, format="datatrove", shard_tokens=700, end_of_text=END)

    total = encode("whole")
    kind = writers.DatatroveWriter
    finish, write = kind.finish, kind.write
    written = 0

    def stopping(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    for place in range(4):
        monkeypatch.setattr(kind, "finish" if place % 2 else "write", stopping)
        with pytest.raises(KeyboardInterrupt):
            encode("stopped")
        made = 0

        def one_more(self: writers.DatatroveWriter, about: dict[str, Any]) -> list[Path]:
            nonlocal made
            made += 1
            if made == 3:
                raise KeyboardInterrupt
            return finish(self, about)

        monkeypatch.setattr(kind, "write", write)
        monkeypatch.setattr(kind, "finish", one_more)
        with pytest.raises(KeyboardInterrupt):
            encode("stopped")
        monkeypatch.undo()
        monkeypatch.setattr(encode_source, "CHUNK", 500)
        record = json.loads((tmp_path / "stopped" / "train.shards.json").read_text())
        assert not record["finished"]
        assert record["done"]["shards"] == written + 2
        written += 2
        assert not list((tmp_path / "stopped").glob(".*.tmp"))
    assert encode("stopped") == total
    for path in sorted((tmp_path / "whole").iterdir()):
        assert (tmp_path / "stopped" / path.name).read_bytes() == path.read_bytes(), path.name
    assert encode("stopped") == total, "what is finished is left as it is"
    with pytest.raises(ValueError, match="was begun with shard_tokens = 700, and this call asks for 800"):
        TOKENIZER.encode_file(
            source, tmp_path / "whole" / "train.ds", format="datatrove", shard_tokens=800, end_of_text=END
        )
    source.write_text(json.dumps({"text": "another"}))
    with pytest.raises(ValueError, match="was begun with source"):
        encode("stopped")


class Killed(BaseException):
    """An exception in place of kill -9: nothing is tidied up after it."""


@pytest.mark.parametrize("format", LOCAL)
def test_a_run_that_is_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any) -> None:
    """Killed after one file has taken its place, after two, after three, …: also before the record says so."""
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(encode_source, "CHUNK", 500)
    replace = os.replace

    def encode(folder: str) -> int:
        (tmp_path / folder).mkdir(exist_ok=True)
        source, out = TEXTS, name_of(tmp_path / folder, format)
        return TOKENIZER.encode_file(source, out, format=format, shard_tokens=500, end_of_text=END)

    total = encode("whole")
    monkeypatch.setattr(shards.Shards, "abandon", lambda self: None)
    for lives in range(1, 100):
        left = lives

        def once_less(source: Any, place: Any) -> None:
            nonlocal left
            replace(source, place)
            left -= 1
            if not left:
                raise Killed

        monkeypatch.setattr(os, "replace", once_less)
        try:
            assert encode("killed") == total
            break
        except Killed:
            continue
    assert lives > 3
    monkeypatch.setattr(os, "replace", replace)
    whole = [path for path in sorted((tmp_path / "whole").rglob("*")) if path.is_file()]
    assert len(whole) > 6
    for path in whole:
        actual = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert actual.read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("format", LOCAL)
@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, fails: str
) -> None:
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    out = name_of(tmp_path, format)
    TOKENIZER.encode_file(["cat"], out, format=format)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if fails == "write":
        monkeypatch.setattr(writers.writer_of(format), "complete", full)
    else:
        monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left") as error:
        TOKENIZER.encode_file(["mat"], out, format=format)
    assert error.value.filename == str(out)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_large_documents_are_rows_whatever_comes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(arrow_files, "GROUP", 50)
    monkeypatch.setattr(encode_source, "CHUNK", 100)
    for format in ("parquet", "arrow"):
        name = name_of(tmp_path, format)
        TOKENIZER.encode_file(TEXTS, name, format=format, end_of_text=END)  # type: ignore[arg-type]
        _, ends = read(name, format)
        assert ends == np.cumsum([len(document) for document in DOCUMENTS]).tolist()


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no format is named 'tfrecord'; there are npy, bin"):
        TOKENIZER.encode_file(["a"], tmp_path / "x", format="tfrecord")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shard_tokens is 0"):
        TOKENIZER.encode_file(["a"], tmp_path / "x.bin", format="bin", shard_tokens=0)
    with pytest.raises(ValueError, match=r"no special token; there are <\|endoftext\|>"):
        TOKENIZER.encode_file(["a"], tmp_path / "x.bin", format="bin", end_of_text="</s>")
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="Parquet and Arrow are uint32, not uint16"):
        TOKENIZER.encode_file(["a"], tmp_path / "x.parquet", "uint16", format="parquet")
    assert list(tmp_path.iterdir()) == []


def test_megatrons_type_for_large_vocabularies_is_signed(tmp_path: Path) -> None:
    large = Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens={"<|far|>": 70_000})
    large.encode_file(["a<|far|>"], tmp_path / "x.bin", format="megatron")
    assert read_megatron(tmp_path / "x.bin") == ([97, 70_000], [2])


# By the readers themselves, where they are installed


def test_datatrove_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    dataset = pytest.importorskip("datatrove.utils.dataset")
    TOKENIZER.encode_file(TEXTS, tmp_path / "train.ds", format="datatrove", end_of_text=END)
    ids = [number for document in DOCUMENTS for number in document]
    windows = dataset.DatatroveFileDataset(str(tmp_path / "train.ds"), 9, token_size=2, return_positions=True)
    whole = [windows[number] for number in range(len(windows))]  # by itself it begins anew at its end
    assert [window["input_ids"].tolist() for window in whole] == [
        ids[begin : begin + 10] for begin in range(0, len(ids) - 9, 10)
    ]
    positions = [place for document in DOCUMENTS for place in range(len(document))]
    for number, window in enumerate(whole):
        actual, expected = window["positions"].tolist(), positions[10 * number : 10 * number + 10]
        first = expected.index(0) if 0 in expected else 10  # a window's beginning counts from the window
        assert actual == [*range(first), *expected[first:]]


def test_datasets_reads_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    TOKENIZER.encode_file(TEXTS, tmp_path / "train.arrow", format="arrow", end_of_text=END)
    TOKENIZER.encode_file(TEXTS, tmp_path / "train.parquet", format="parquet", end_of_text=END)
    assert list(datasets.Dataset.from_file(str(tmp_path / "train.arrow"))["input_ids"]) == DOCUMENTS
    cache = str(tmp_path / "cache")
    actual = datasets.Dataset.from_parquet(str(tmp_path / "train.parquet"), cache_dir=cache)
    assert list(actual["input_ids"]) == DOCUMENTS
