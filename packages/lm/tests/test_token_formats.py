"""Token files in every format: written by `lm data prepare`, learned from alike, and read by their own readers."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from corpora import END, as_json_lines, read_back, stories, tokenizer

from lm.commands.cli import main
from lm.data import describe, open_data, open_tokens, token_files
from lm.data.token_formats import ENDINGS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

FORMATS = ("npy", "bin", "megatron", "datatrove", "llmc", "parquet", "arrow")
DOCUMENTS = stories(300)
EOT = 259


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with the same text in every format, each in several shards; and the tokenizer."""
    folder = tmp_path_factory.mktemp("formats")
    made = tokenizer()
    made.save(folder / "tok.json")
    (folder / "text.jsonl").write_bytes(as_json_lines(DOCUMENTS))
    for format in FORMATS:
        if format in ("parquet", "arrow") and importlib.util.find_spec("pyarrow") is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lm.data.prepare.GROUP", 4000)
            assert main(command(folder, folder / format, format)) == 0
    return folder, made


def command(folder, out, format):
    return [
        *("data", "prepare", str(folder / "text.jsonl"), "--tokenizer", str(folder / "tok.json"), "--out", str(out)),
        *("--format", format, "--heldout", "0.1", "--shard-tokens", "8000", "--quiet"),
    ]


@pytest.mark.parametrize("format", FORMATS[1:])
def test_every_format_is_learned_from_alike(prepared, format):
    folder, made = prepared
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    plain, other = open_data(folder / "npy"), open_data(folder / format)
    assert len(token_files(folder / format)[0]) == len(token_files(folder / "npy")[0]) > 1
    for part, same in ((plain.parts[0].tokens, other.parts[0].tokens), (plain.heldout[""], other.heldout[""])):
        assert read_back(made, part) == read_back(made, same)
        assert (same.end_of_text, same.tokenizer, same.bytes) == (EOT, made.fingerprint, part.bytes)
        assert same.highest == part.highest
    for mixture in (plain, other):
        assert mixture.end_of_text == EOT
    expected, found = (mixture.batch(0, 5, 0, 1, 4, 32) for mixture in (plain, other))
    assert all((one == two).all() for one, two in zip(expected, found, strict=True))
    assert main(["data", "verify", str(folder / format)]) == 0


@pytest.mark.parametrize("format", FORMATS[1:])
def test_without_a_description_the_documents_are_known_by_the_index(prepared, tmp_path, format):
    folder, made = prepared
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    for path in (folder / format).iterdir():
        if path.suffix != ".json" and not path.name.startswith("."):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    tokens = open_data(tmp_path).parts[0].tokens
    assert read_back(made, tokens) == read_back(made, open_data(folder / "npy").parts[0].tokens)
    assert tokens.end_of_text == (None if format == "llmc" else EOT)  # llm.c's has no index


def test_documents_that_end_in_no_mark_are_not_guessed(tmp_path):
    import bpe

    made = tokenizer()
    for texts in (["one.", "two.", "three. four."], ["one", "two", "three"]):
        made.encode_file(texts, tmp_path / "x.bin", format="bin")
        assert open_tokens(tmp_path / "x.bin").end_of_text is None, bpe.__version__
        (tmp_path / "x.json").unlink()
        assert open_tokens(tmp_path / "x.bin").end_of_text is None


def test_a_run_learns_from_another_trainers_file(prepared, tmp_path):
    """As nanoGPT leaves it: train.bin and val.bin, bare uint16."""
    folder, _ = prepared
    data = tmp_path / "data"
    data.mkdir()
    for split, name in (("train", "train.bin"), ("heldout", "val.bin")):
        ids = np.concatenate([np.load(path) for path in sorted((folder / "npy").glob(f"{split}-*.npy"))])
        ids.astype(np.uint16).tofile(data / name)
    (tmp_path / "config.toml").write_text(
        "[model]\nvocab_size = 263\ncontext_length = 16\nnum_layers = 1\nd_model = 16\nnum_heads = 2\nd_ff = 32\n"
        "[train]\nsteps = 2\nbatch_size = 2\nwarmup_steps = 1\ndocument_masking = false\n"
    )
    run = ["train", str(tmp_path / "config.toml"), "--data", str(data), "--out", str(tmp_path / "run"), "--quiet"]
    assert main(run) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("val_loss" in line for line in lines)


def test_megatrons_documents_may_be_several_sequences(tmp_path):
    ids = np.array([5, 6, 9, 7, 8, 9, 4, 9], dtype="<i4")
    ids.tofile(tmp_path / "train.bin")
    lengths, documents = [2, 1, 3, 2], [0, 2, 3, 4]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 4, 4)
    index += np.array(lengths, "<i4").tobytes()
    index += (4 * np.array([0, 2, 3, 6], "<i8")).tobytes() + np.array(documents, "<i8").tobytes()
    (tmp_path / "train.idx").write_bytes(index)
    tokens = open_tokens(tmp_path / "train.bin")
    assert (tokens.ids[:].tolist(), tokens.end_of_text) == (ids.tolist(), 9)
    (tmp_path / "train.idx").write_bytes(index[:-1])
    with pytest.raises(ValueError, match="cut short"):
        open_tokens(tmp_path / "train.bin")


def test_files_of_the_datasets_library(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [[1, 2, 9], [3, 9], [9], [4, 5, 6, 9]]
    made = datasets.Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]})
    made.save_to_disk(str(tmp_path / "saved"))
    made.to_parquet(str(tmp_path / "train.parquet"))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    for path in (arrow, tmp_path / "train.parquet"):
        tokens = open_tokens(path)
        assert (tokens.ids[:].tolist(), tokens.end_of_text) == ([i for row in rows for i in row], 9)


def test_wrong_files_are_refused_by_name(tmp_path):
    cases = {
        "odd.bin": (b"123", "odd.bin has 3 bytes of ids"),
        "empty.bin": (b"", "not empty"),
        "short.bin": (np.array([20240520, 1, 9], "<i4").tobytes() + bytes(1012) + b"12", "its header says 9"),
        "wide.bin": (np.arange(500, dtype="<u4").tobytes(), "looks like ids of 4 bytes"),
        "text.parquet": (b"PAR1 no table", "no whole file"),
        "text.arrow": (b"no stream", "no whole file"),
        "ids.tokens": (b"12", "ends in one of"),
    }
    for name, (data, sentence) in cases.items():
        if name.startswith("text"):
            pytest.importorskip("pyarrow")
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=sentence):
            open_tokens(tmp_path / name)
    assert describe(tmp_path / "wide.bin", dtype="uint32").ids[:].tolist() == list(range(500))
    assert open_tokens(tmp_path / "wide.bin").ids[499] == 499


@pytest.mark.parametrize(
    "format", ["bin", *(pytest.param(name, marks=pytest.mark.soak) for name in ("parquet", "litdata"))]
)
def test_a_killed_preparation_goes_on(tmp_path, prepared, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    if format == "litdata":
        pytest.importorskip("litdata")
    folder, _ = prepared
    (tmp_path / "text.jsonl").write_bytes(as_json_lines(stories(2000) * 20))
    (tmp_path / "tok.json").write_bytes((folder / "tok.json").read_bytes())
    arguments = [sys.executable, "-m", "lm", *command(tmp_path, tmp_path / "killed", format)]
    process = subprocess.Popen(arguments, start_new_session=True)
    while process.poll() is None and len(list((tmp_path / "killed").glob("train-*.json"))) < 3:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert main(command(tmp_path, tmp_path / "killed", format)) == 0
    assert main(command(tmp_path, tmp_path / "whole", format)) == 0
    for path in sorted((tmp_path / "whole").rglob("*")):
        # litdata's index says when it was made
        if path.is_file() and path.name not in (".lock", "prepared.json", "index.json"):
            assert (tmp_path / "killed" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()
    assert json.loads((tmp_path / "killed" / "prepared.json").read_text())["finished"]


@pytest.mark.parametrize("format", ["bin", "litdata"])  # which is refused before litdata is asked for
def test_shards_of_another_program_are_not_removed(tmp_path, prepared, capsys, format):
    folder, _ = prepared
    for name in ("text.jsonl", "tok.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    shard = tmp_path / "out" / "train-00000"  # a folder, as litdata's and MDS's are
    shard.mkdir(parents=True)
    (shard / "chunk-0-0.bin").write_bytes(b"somebody's")
    assert main(command(tmp_path, tmp_path / "out", format)) != 0
    assert "choose another folder" in capsys.readouterr().err
    assert (shard / "chunk-0-0.bin").read_bytes() == b"somebody's"


def test_the_formats_are_those_of_bpe():
    from bpe.outputs import writers
    from lm.commands.data import FORMATS

    assert FORMATS == writers.FORMATS


def test_endings_are_those_that_are_written(prepared):
    folder, _ = prepared
    for format in FORMATS:
        if (folder / format).exists():
            assert all(path.suffix in ENDINGS for path in token_files(folder / format)[0]), format
    assert END
