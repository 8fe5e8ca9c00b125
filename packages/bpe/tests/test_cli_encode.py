"""The commands encode and decode, as filters and on files of every format."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from command_line import TEXT, pipe, refused, said

from bpe.commands.encode import FORMATS
from bpe.commands.main import main
from bpe.outputs import writers
from bpe.tokenizer import Tokenizer


def test_documents_in_ids_out_and_back(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tok = trained / "tok.json"
    documents = ["the cat\n", {"id": 7, "text": "naïve \u4e2d <|endoftext|>", "n": None}, "", "\x00\u2028"] * 3000
    (trained / "in.jsonl").write_text("\n".join(map(json.dumps, documents)) + "\n\n")
    assert main(["encode", str(tok), str(trained / "in.jsonl"), "--jsonl", "--out", str(trained / "ids.jsonl")]) == 0
    lines = [json.loads(line) for line in (trained / "ids.jsonl").read_text().splitlines()]
    tokenizer = Tokenizer.load(tok)
    assert lines[1] == {"id": 7, "ids": tokenizer.encode(documents[1]["text"], allowed_special="all"), "n": None}
    assert lines[0] == tokenizer.encode("the cat\n")
    out = said(capfdbinary, "decode", tok, trained / "ids.jsonl", "--jsonl")
    assert [json.loads(line) for line in out.splitlines()] == documents


def test_several_files_and_standard_input_among_them(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tok, text = trained / "tok.json", trained / "corpus.txt"
    (trained / "raw").write_bytes(b"\xff\x00 the \x80" * 130_000)  # no UTF-8, and longer than a block
    pipe(monkeypatch, b"a b")
    out = said(capfdbinary, "encode", tok, text, "-", trained / "raw")
    (trained / "ids.txt").write_bytes(out.replace(b" ", b"\n\t ", 100))
    assert len(out.splitlines()) == 3
    assert (
        said(capfdbinary, "decode", tok, trained / "ids.txt")
        == text.read_bytes() + b"a b" + (trained / "raw").read_bytes()
    )
    pipe(monkeypatch, text.read_bytes())
    out = said(capfdbinary, "encode", tok, "-", trained / "raw", "--out", trained / "ids.npy", "--num-threads", 2)
    assert f"{len(np.load(trained / 'ids.npy')):,} ids".encode() in out
    assert said(capfdbinary, "decode", tok, trained / "ids.npy", "--out", trained / "back") == b""
    assert (trained / "back").read_bytes() == text.read_bytes() + (trained / "raw").read_bytes()


def test_what_is_compressed_is_read_as_its_name_says(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tok, text = trained / "tok.json", trained / "corpus.txt"
    (trained / "corpus.txt.gz").write_bytes(gzip.compress(text.read_bytes()))
    (trained / "two.jsonl.xz").write_bytes(lzma.compress(b'"the cat"\n{"text": "and more"}\n'))
    (trained / "cut.gz").write_bytes(gzip.compress(text.read_bytes())[:-9])
    ids = said(capfdbinary, "encode", tok, text)
    assert said(capfdbinary, "encode", tok, trained / "corpus.txt.gz") == ids
    (trained / "ids.gz").write_bytes(gzip.compress(ids))
    assert said(capfdbinary, "decode", tok, trained / "ids.gz") == text.read_bytes()
    lines = said(capfdbinary, "encode", tok, trained / "two.jsonl.xz").splitlines()
    tokenizer = Tokenizer.load(tok)
    assert json.loads(lines[0]) == tokenizer.encode("the cat")
    assert json.loads(lines[1]) == {"ids": tokenizer.encode("and more")}
    said(capfdbinary, "view", tok, "--text", trained / "corpus.txt.gz", "--out", trained / "page.html")
    assert TEXT[:20] in (trained / "page.html").read_text()
    for arguments in (["encode", tok, trained / "cut.gz"], ["view", tok, "--text", trained / "cut.gz"]):
        expected = "cut.gz: the gzip data are cut short"
        assert expected in refused(capfdbinary, *arguments, "--out", trained / "nothing")
    assert "for --out X.npy only" in refused(capfdbinary, "encode", tok, trained / "rows.parquet")
    (trained / "ids.npy.gz").write_bytes(gzip.compress(b"\x93NUMPY"))
    assert "neither compressed nor" in refused(capfdbinary, "decode", tok, trained / "ids.npy.gz")
    assert not (trained / "nothing").exists()


def test_documents_go_into_one_array(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Whatever the file is called: what is in it is what --jsonl says."""
    lines = b'"the cat"\n\n{"body": "and more"}\n'
    (trained / "lines").write_bytes(lines)
    tokenizer = Tokenizer.load(trained / "tok.json")
    for inputs in ([trained / "lines"], ["-"], []):
        pipe(monkeypatch, lines)
        out = trained / "ids.npy"
        said(capfdbinary, "encode", trained / "tok.json", *inputs, "--jsonl", "--text-key", "body", "--out", out)
        assert np.load(out).tolist() == tokenizer.encode("the cat") + tokenizer.encode("and more")
    (trained / "lines").write_bytes(b'"the cat"\n3\n')
    wrong = refused(capfdbinary, "encode", trained / "tok.json", trained / "lines", "--jsonl", "--out", out)
    assert "lines, line 2: neither a text" in wrong


def test_special_tokens_are_recognised_ignored_or_refused(
    trained: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tok, tokenizer = trained / "tok.json", Tokenizer.load(trained / "tok.json")
    (trained / "t").write_text("a<|endoftext|>")
    (trained / "t.jsonl").write_text('"a<|endoftext|>"')
    for special, ids in (
        ("recognise", tokenizer.encode("a<|endoftext|>", allowed_special="all")),
        ("ignore", tokenizer.encode_ordinary("a<|endoftext|>")),
    ):
        assert said(capfdbinary, "encode", tok, trained / "t", "--special", special).split() == [b"%d" % i for i in ids]
        assert json.loads(said(capfdbinary, "encode", tok, trained / "t.jsonl", "--jsonl", "--special", special)) == ids
        said(capfdbinary, "encode", tok, trained / "t", "--special", special, "--out", trained / "t.npy")
        assert np.load(trained / "t.npy").tolist() == ids
    assert "special token" in refused(capfdbinary, "encode", tok, trained / "t", "--special", "refuse")
    assert "special token" in refused(capfdbinary, "encode", tok, trained / "t.jsonl", "--jsonl", "--special", "refuse")


def test_what_is_wrong_with_the_input_is_one_sentence(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tok = trained / "tok.json"
    np.save(trained / "floats.npy", np.ones(3))
    np.save(trained / "square.npy", np.ones((2, 2), np.int64))
    np.save(trained / "far.npy", np.array([1, 99999]))
    (trained / "cut.npy").write_bytes((trained / "far.npy").read_bytes()[:-3])
    (trained / "empty.npy").write_bytes(b"\x93NUMPY")
    for name, content in {
        "words": "1 2 three",
        "minus": "1 -2",
        "half": "1.5",
        "long": "9" * 30,
        "large": "9" * 19,
        "bad.jsonl": "[1]\n{",
        "number.jsonl": "[1]\n3",
        "key.jsonl": '{"id": 1}',
        "item.jsonl": '["a"]',
        "minus.jsonl": "[1]\n\n[2, -1]",
        "far.jsonl": "[1, 99999]",
        "deep.jsonl": "[" * 100_000,
    }.items():
        (trained / name).write_text(content)
    for name, expected in {
        "words": "words: 'three' is no id",
        "minus": "'-2' is no id",
        "half": "'1.5' is no id",
        "long": "is no id",
        "large": "large: an id is a number from 0",
        "floats.npy": "floats.npy: an array of float64",
        "square.npy": "2 axes",
        "far.npy": "far.npy: no token has the id 99999",
        "cut.npy": "cut.npy: not a whole .npy",
        "empty.npy": "empty.npy: not a whole .npy",
    }.items():
        assert expected in refused(capfdbinary, "decode", tok, trained / name, "--out", trained / "nothing")
    for name, expected in {
        "bad.jsonl": "line 2: not JSON",
        "number.jsonl": "line 2: neither ids",
        "key.jsonl": "line 1: neither ids",
        "item.jsonl": "item.jsonl, line 1: 'str'",
        "minus.jsonl": "minus.jsonl, line 3: an id is a number from 0",
        "far.jsonl": "far.jsonl, line 1: no token has the id 99999",
        "deep.jsonl": "line 1: JSON nested too deeply",
    }.items():
        assert expected in refused(capfdbinary, "decode", tok, trained / name, "--jsonl", "--out", trained / "nothing")
    assert "line 1: JSON nested" in refused(capfdbinary, "encode", tok, trained / "deep.jsonl", "--jsonl")
    assert "line 1: neither a text" in refused(capfdbinary, "encode", tok, trained / "number.jsonl", "--jsonl")
    assert "at least 1" in refused(capfdbinary, "encode", tok, trained / "words", "--num-threads", 0)
    assert not (trained / "nothing").exists()
    assert not list(trained.glob(".*")), "and nothing half-written is left"


def test_nothing_in_nothing_out(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tok, nothing = trained / "tok.json", trained / "nothing"
    nothing.touch()
    assert said(capfdbinary, "encode", tok, nothing) == b"\n"
    assert said(capfdbinary, "encode", tok, nothing, "--jsonl") == b""
    assert said(capfdbinary, "decode", tok, nothing) == b""
    assert said(capfdbinary, "decode", tok, nothing, "--jsonl") == b""
    said(capfdbinary, "encode", tok, nothing, "--out", trained / "none.npy")
    assert said(capfdbinary, "decode", tok, trained / "none.npy") == b""


def test_formats_are_written_in_shards(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert FORMATS == writers.FORMATS
    command = ("encode", trained / "tok.json", trained / "corpus.txt")
    assert "--format is for --out" in refused(capfdbinary, *command, "--format", "bin")
    wrong = refused(capfdbinary, *command, "--shard-tokens", 9, "--out", trained / "ids.txt")
    assert "--shard-tokens needs a --format" in wrong
    more = ("--format", "bin", "--shard-tokens", 1000, "--end-of-text", "<|endoftext|>")
    said(capfdbinary, *command, "--out", trained / "train.bin", *more)
    shards = [np.fromfile(path, dtype="<u2") for path in sorted(trained.glob("train-*.bin"))]
    assert max(map(len, shards)) <= 1000
    ids = Tokenizer.load(trained / "tok.json").encode(TEXT, allowed_special="all")
    assert np.concatenate(shards).tolist() == ids + [256] * (ids[-1] != 256)


@pytest.mark.parametrize(
    ("format", "files"), [("megatron", ["data.bin", "data.idx"]), ("bin", ["data.bin"]), ("datatrove", ["data.ds"])]
)
def test_token_files_have_the_names_that_trainers_look_for(
    trained: Path, capfdbinary: pytest.CaptureFixture[bytes], format: str, files: list[str]
) -> None:
    out = trained / "run" / "new" / "data"
    printed = said(
        capfdbinary, "encode", trained / "tok.json", trained / "corpus.txt", "--format", format, "--out", out
    )
    assert str(out.with_name(files[0])).encode() in printed
    assert all(out.with_name(name).exists() for name in files)
