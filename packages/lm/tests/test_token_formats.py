"""Token files without a header, other trainers' through the example, and preparations that are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import time

import convert_tokens
import numpy as np
import pytest
from corpora import END, as_json_lines, read_back, stories, tokenizer

from lm.commands.cli import main
from lm.data import describe, open_tokens

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

DOCUMENTS = stories(300)
EOT = 259


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a text as JSON lines, its tokenizer, and its ids in several shards; and the tokenizer."""
    folder = tmp_path_factory.mktemp("formats")
    tok = tokenizer()
    tok.save(folder / "tok.json")
    (folder / "text.jsonl").write_bytes(as_json_lines(DOCUMENTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm.data.prepare.GROUP", 4000)
        assert main(command(folder, folder / "npy")) == 0
    return folder, tok


def command(folder, out):
    return [
        *("data", "prepare", str(folder / "text.jsonl"), "--tokenizer", str(folder / "tok.json"), "--out", str(out)),
        *("--heldout", "0.1", "--shard-tokens", "8000", "--quiet"),
    ]


@pytest.mark.parametrize("format", ["bin", "llmc"])
def test_a_bin_file_is_learned_from_as_npy_is(prepared, tmp_path, format):
    _, tok = prepared
    paths = [tmp_path / "plain.npy", tmp_path / "other.bin"]
    for path, kind in zip(paths, ("npy", format), strict=True):
        tok.encode_file(DOCUMENTS, path, format=kind, end_of_text=END)
    plain, other = map(open_tokens, paths)
    assert read_back(tok, plain) == read_back(tok, other)
    assert plain.end_of_text == other.end_of_text == EOT
    paths[1].with_suffix(".json").unlink()
    bare = open_tokens(paths[1])
    assert read_back(tok, bare) == read_back(tok, other)
    assert bare.end_of_text is None


@pytest.mark.parametrize(
    ("format", "name"), [("megatron", "x.bin"), ("datatrove", "x.ds"), ("parquet", "x.parquet"), ("arrow", "x.arrow")]
)
def test_the_example_converts_other_formats(prepared, tmp_path, format, name, capsys):
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    _, tok = prepared
    tok.encode_file(DOCUMENTS, tmp_path / name, format=format, end_of_text=END)
    tok.encode_file(DOCUMENTS, tmp_path / "plain.npy", end_of_text=END)
    assert convert_tokens.main([str(tmp_path / name), str(tmp_path / "out.npy")]) == 0
    tokens = open_tokens(tmp_path / "out.npy")
    assert (tokens.ids[:] == open_tokens(tmp_path / "plain.npy").ids[:]).all()
    assert tokens.end_of_text == EOT
    assert f"end of text {EOT}" in capsys.readouterr().out


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
    tokens = convert_tokens.convert(tmp_path / "train.bin", tmp_path / "x.npy")
    assert (tokens.ids[:].tolist(), tokens.end_of_text) == (ids.tolist(), 9)
    (tmp_path / "train.idx").write_bytes(index[:-1])
    with pytest.raises(ValueError, match="cut short"):
        convert_tokens.convert(tmp_path / "train.bin", tmp_path / "x.npy")


def test_files_of_the_datasets_library(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [[1, 2, 9], [3, 9], [9], [4, 5, 6, 9]]
    dataset = datasets.Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]})
    dataset.save_to_disk(str(tmp_path / "saved"))
    dataset.to_parquet(str(tmp_path / "train.parquet"))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    for path in (arrow, tmp_path / "train.parquet"):
        tokens = convert_tokens.convert(path, tmp_path / "x.npy")
        assert (tokens.ids[:].tolist(), tokens.end_of_text) == ([i for row in rows for i in row], 9)


def test_wrong_files_are_refused_by_name(tmp_path):
    cases = {
        "odd.bin": (b"123", "odd.bin has 3 bytes of ids"),
        "empty.bin": (b"", "not empty"),
        "short.bin": (np.array([20240520, 1, 9], "<i4").tobytes() + bytes(1012) + b"12", "its header says 9"),
        "wide.bin": (np.arange(500, dtype="<u4").tobytes(), "looks like ids of 4 bytes"),
        "ids.tokens": (b"12", "is not a token file"),
        "ids.parquet": (b"12", "convert_tokens"),
    }
    for name, (data, sentence) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=sentence):
            open_tokens(tmp_path / name)
    assert describe(tmp_path / "wide.bin", dtype="uint32").ids[:].tolist() == list(range(500))
    assert open_tokens(tmp_path / "wide.bin").ids[499] == 499


def test_a_killed_preparation_goes_on(tmp_path, prepared):
    folder, _ = prepared
    (tmp_path / "text.jsonl").write_bytes(as_json_lines(stories(2000) * 20))
    (tmp_path / "tok.json").write_bytes((folder / "tok.json").read_bytes())
    arguments = [sys.executable, "-m", "lm", *command(tmp_path, tmp_path / "killed")]
    process = subprocess.Popen(arguments, start_new_session=True)
    while process.poll() is None and len(list((tmp_path / "killed").glob("train-*.json"))) < 3:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert main(command(tmp_path, tmp_path / "killed")) == 0
    assert main(command(tmp_path, tmp_path / "whole")) == 0
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file() and path.name not in (".lock", "prepared.json"):
            assert (tmp_path / "killed" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()
    assert json.loads((tmp_path / "killed" / "prepared.json").read_text())["finished"]


def test_shards_of_another_program_are_not_removed(tmp_path, prepared, capsys):
    folder, _ = prepared
    for name in ("text.jsonl", "tok.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    shard = tmp_path / "out" / "train-00000.bin"
    shard.parent.mkdir()
    shard.write_bytes(b"somebody's")
    assert main(command(tmp_path, tmp_path / "out")) != 0
    assert "choose another folder" in capsys.readouterr().err
    assert shard.read_bytes() == b"somebody's"
