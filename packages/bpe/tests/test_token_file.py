"""encode_file(): a .npy and its JSON, whole or not at all."""

import errno
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import corpus

import bpe
from bpe.outputs import encode_source, writers
from bpe.tokenizer import Tokenizer

TEXT = corpus(5)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return bpe.train([TEXT], 280)


def test_the_ids_of_the_text_in_order(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_source, "CHUNK", 500)
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    expected = tokenizer.encode(TEXT, allowed_special="all")
    for num_threads in (1, 3):
        out = tmp_path / "ids.npy"
        assert tokenizer.encode_file(source, out, num_threads=num_threads) == len(expected)
        ids = np.load(out, mmap_mode="r")
        assert ids.dtype == np.uint16
        assert ids.tolist() == expected
        about = json.loads(out.with_suffix(".json").read_text())
        assert about == {
            "count": len(expected),
            "dtype": "uint16",
            "bytes": len(TEXT.replace("<|endoftext|>", "").encode()),  # of the text alone
            "tokenizer": tokenizer.fingerprint,
            "end_of_text": 256,
            "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
        }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.json", "ids.npy", "text.txt"]


def test_several_sources_and_no_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    out = tmp_path / "ids.npy"
    assert tokenizer.encode_file([b"cat", "", "mat"], out, np.uint32) == len(tokenizer.encode("cat")) * 2
    assert np.load(out).dtype == np.uint32
    assert tokenizer.encode_file([], out) == 0
    assert np.load(out).shape == (0,)
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert tokenizer.encode_file(empty, out) == 0


def test_a_type_too_small_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    large = Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens={"<|far|>": 70_000})
    assert large.encode_file(["a"], tmp_path / "ids.npy") == 1
    assert np.load(tmp_path / "ids.npy").dtype == np.uint32
    with pytest.raises(ValueError, match="70000, which uint16 cannot hold"):
        large.encode_file(["a"], tmp_path / "ids.npy", np.uint16)
    with pytest.raises(ValueError, match="uint16 or uint32, not float32"):
        tokenizer.encode_file(["a"], tmp_path / "ids.npy", np.float32)


@pytest.mark.parametrize(
    "text", ['{"model": {}}', '{"text": "a document"}\n{"text": "another"}\n', "[1, 2]", "no JSON"]
)
def test_what_is_no_description_is_not_written_over(tokenizer: Tokenizer, tmp_path: Path, text: str) -> None:
    """`bpe encode tok.json corpus.txt --out tok.npy` would take the tokenizer's place with the description."""
    other = tmp_path / "ids.json"
    other.write_text(text)
    with pytest.raises(FileExistsError, match=r"ids\.json is there and is no description of ids"):
        tokenizer.encode_file([b"cat"], tmp_path / "ids.npy")
    assert other.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["ids.json"]
    with pytest.raises(ValueError, match="would be both"):
        tokenizer.encode_file([b"cat"], other)


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    out = tmp_path / "ids.npy"
    tokenizer.encode_file(["cat"], out)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if fails == "write":
        monkeypatch.setattr(writers.NpyWriter, "complete", full)
    else:
        monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left") as error:
        tokenizer.encode_file(["mat"], out)
    assert error.value.filename == str(out)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_there_and_no_file_is_left_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    out = tmp_path / "ids.npy"
    out.mkdir()
    with pytest.raises(IsADirectoryError, match=r"ids\.npy"):
        tokenizer.encode_file(["cat"], out)
    assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"], "the JSON is not written without it"
    if hasattr(os, "mkfifo"):
        out.rmdir()
        os.mkfifo(out)
        with pytest.raises(ValueError, match=r"ids\.npy is there and is no file"):
            tokenizer.encode_file(["cat"], out)
        assert out.is_fifo()


def test_several_may_write_the_same_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def write(text: str) -> None:
        for _ in range(100):
            assert tokenizer.encode_file([text], tmp_path / "ids.npy", num_threads=1) == len(tokenizer.encode(text))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, ["the cat", "the mat", "a", "and so on"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.json", "ids.npy"]


def test_a_missing_source_leaves_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tokenizer.encode_file(tmp_path / "nowhere.txt", tmp_path / "ids.npy")
    assert list(tmp_path.iterdir()) == []
