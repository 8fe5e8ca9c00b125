"""encode_file(): files of ids, whole or not at all, in every format, read back by its reader or its specification."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import corpus

import bpe
from bpe.outputs import arrow_files, encode_source, shards, writer, writers
from bpe.tokenizer import Tokenizer

TOKENIZER = bpe.train([corpus(5)], 300)
END = "<|endoftext|>"
TEXTS = [corpus(1, words=300), "low", "", "é" * 50, corpus(2, words=40) + END + "lower" + END, "a last one"]
DOCUMENTS = [[*TOKENIZER.encode(text), 256] for whole in TEXTS for text in whole.split(END) if text]
LOCAL = ["npy", "bin", "megatron", "datatrove", "llmc", *(["parquet", "arrow"] if find_spec("pyarrow") else [])]


def read(path: Path, format: str) -> tuple[list[int], list[int] | None]:
    """(ids, where documents end) by the specification of each format."""
    dtype = "<u2" if json.loads(path.with_suffix(".json").read_text())["dtype"] == "uint16" else "<u4"
    if format == "npy":
        ids = np.load(path)
        assert ids.dtype == dtype
        return ids.tolist(), None
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
def test_every_format_holds_the_ids_and_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, dtype: Any
) -> None:
    dtype = "uint32" if format in ("parquet", "arrow") else dtype
    monkeypatch.setattr(encode_source, "CHUNK", 500)
    out = name_of(tmp_path, format)
    count = TOKENIZER.encode_file(TEXTS, out, dtype, format=format, end_of_text=END, num_threads=3)
    ids, ends = read(out, format)
    assert ids == [number for document in DOCUMENTS for number in document]
    assert len(ids) == count
    if ends is not None:
        assert ends == np.cumsum([len(document) for document in DOCUMENTS]).tolist()
    expected = {
        "count": count,
        "dtype": dtype,
        "bytes": sum(len(text.replace(END, "").encode()) for text in TEXTS),  # of the text alone
        "tokenizer": TOKENIZER.fingerprint,
        "end_of_text": 256,
        "sha256": hashlib.sha256(np.array(ids, dtype).tobytes()).hexdigest(),
    }
    if format == "megatron" and dtype == "uint32":
        expected["dtype"] = "int32"  # of the same bytes
    if format != "npy":
        expected |= {"format": format, "documents": len(DOCUMENTS)}
    assert json.loads(out.with_suffix(".json").read_text()) == expected
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("format", LOCAL)
def test_without_an_end_of_text_a_document_is_a_text(tmp_path: Path, format: Any) -> None:
    texts = ["low", "lower", "", "a"]
    TOKENIZER.encode_file(texts, name_of(tmp_path, format), format=format)
    ids, ends = read(name_of(tmp_path, format), format)
    assert ids == [number for text in texts for number in TOKENIZER.encode(text)]
    assert ends is None or ends == np.cumsum([len(TOKENIZER.encode(text)) for text in texts if text]).tolist()


@pytest.mark.parametrize("format", LOCAL)
def test_nothing_is_an_empty_file(tmp_path: Path, format: Any) -> None:
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


class Killed(BaseException):
    """An exception in place of kill -9: nothing is tidied up after it."""


@pytest.mark.parametrize("format", LOCAL)
@pytest.mark.parametrize("end", [Killed, KeyboardInterrupt])
def test_a_run_that_ends_early_goes_on_after_its_last_whole_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, end: type[BaseException]
) -> None:
    """Ended after one write, or file that has taken its place, after two, three, …: also before the record says so."""
    monkeypatch.setattr(encode_source, "CHUNK", 500)
    source = tmp_path / "text.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    steps = last = 0

    def encode(folder: str, shard_tokens: int = 500) -> int:
        nonlocal steps
        steps = 0
        (tmp_path / folder).mkdir(exist_ok=True)
        out = name_of(tmp_path / folder, format)
        return TOKENIZER.encode_file(source, out, format=format, shard_tokens=shard_tokens, end_of_text=END)

    def counted(work: Any) -> Any:
        def step(*arguments: Any) -> Any:
            nonlocal steps
            result = work(*arguments)
            steps += 1
            if steps == last:
                raise end
            return result

        return step

    monkeypatch.setattr(os, "replace", counted(os.replace))
    if end is Killed:
        monkeypatch.setattr(shards.Shards, "abandon", lambda self: None)
    else:
        monkeypatch.setattr(writer.Writer, "write", counted(writer.Writer.write))
    total, whole_steps = encode("whole"), steps
    for last in range(1, whole_steps):  # noqa: B007  (a run that began anew would not come to its end)
        try:
            assert encode("ended") == total
            break
        except end:
            assert end is Killed or not list((tmp_path / "ended").glob(".*.tmp"))
    assert last > 3
    whole = [path for path in sorted((tmp_path / "whole").rglob("*")) if path.is_file()]
    assert len(whole) > 6
    for path in whole:
        actual = tmp_path / "ended" / path.relative_to(tmp_path / "whole")
        assert actual.read_bytes() == path.read_bytes(), path.name
    assert (encode("ended"), steps) == (total, 0), "what is finished is left as it is"
    with pytest.raises(ValueError, match="was begun with shard_tokens = 500, and this call asks for 800"):
        encode("ended", 800)
    source.write_text(json.dumps({"text": "another"}))
    with pytest.raises(ValueError, match="was begun with source"):
        encode("ended")


@pytest.mark.parametrize("format", LOCAL)
@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, fails: str
) -> None:
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


# A file of ids and its description


def test_a_type_too_small_is_refused(tmp_path: Path) -> None:
    large = Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens={"<|far|>": 70_000})
    assert large.encode_file(["a"], tmp_path / "ids.npy") == 1
    assert np.load(tmp_path / "ids.npy").dtype == np.uint32
    with pytest.raises(ValueError, match="70000, which uint16 cannot hold"):
        large.encode_file(["a"], tmp_path / "ids.npy", np.uint16)


@pytest.mark.parametrize(
    "text", ['{"model": {}}', '{"text": "a document"}\n{"text": "another"}\n', "[1, 2]", "no JSON"]
)
def test_what_is_no_description_is_not_written_over(tmp_path: Path, text: str) -> None:
    """`bpe encode tok.json corpus.txt --out tok.npy` would take the tokenizer's place with the description."""
    other = tmp_path / "ids.json"
    other.write_text(text)
    with pytest.raises(FileExistsError, match=r"ids\.json is there and is no description of ids"):
        TOKENIZER.encode_file([b"cat"], tmp_path / "ids.npy")
    assert other.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["ids.json"]
    with pytest.raises(ValueError, match="would be both"):
        TOKENIZER.encode_file([b"cat"], other)


def test_what_is_there_and_no_file_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "ids.npy"
    out.mkdir()
    with pytest.raises(IsADirectoryError, match=r"ids\.npy"):
        TOKENIZER.encode_file(["cat"], out)
    assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"], "the JSON is not written without it"
    if hasattr(os, "mkfifo"):
        out.rmdir()
        os.mkfifo(out)
        with pytest.raises(ValueError, match=r"ids\.npy is there and is no file"):
            TOKENIZER.encode_file(["cat"], out)
        assert out.is_fifo()


def test_several_may_write_the_same_file(tmp_path: Path) -> None:
    def write(text: str) -> None:
        for _ in range(30):
            assert TOKENIZER.encode_file([text], tmp_path / "ids.npy", num_threads=1) == len(TOKENIZER.encode(text))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, ["the cat", "the mat", "a", "and so on"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.json", "ids.npy"]


def test_a_missing_source_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        TOKENIZER.encode_file(tmp_path / "nowhere.txt", tmp_path / "ids.npy")
    assert list(tmp_path.iterdir()) == []


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
