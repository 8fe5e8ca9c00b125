"""The command, from the outside."""

import argparse
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from strategies import corpus

from bpe import training
from bpe.commands.corpus import size
from bpe.commands.main import main
from bpe.tokenizer import Tokenizer

TEXT = corpus(4)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text(TEXT)
    assert (
        main(["train", str(tmp_path / "corpus.txt"), "--vocab-size", "280", "--out", str(tmp_path / "tok.json")]) == 0
    )
    return tmp_path


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_encode_and_decode_are_filters(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pipe(monkeypatch, TEXT.encode())
    assert main(["encode", str(trained / "tok.json")]) == 0
    ids = capfdbinary.readouterr().out
    pipe(monkeypatch, ids)
    assert main(["decode", str(trained / "tok.json")]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == TEXT.encode()


def test_files(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    out = trained / "ids.npy"
    assert main(["encode", str(trained / "tok.json"), str(trained / "corpus.txt"), "--out", str(out)]) == 0
    count = len(np.load(out))
    assert f"{count:,} ids".encode() in capfdbinary.readouterr().out
    assert main(["decode", str(trained / "tok.json"), str(out)]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == TEXT.encode()


@pytest.mark.parametrize(
    ("format", "out", "written"),
    [
        ("native", "copy.json", "copy.json"),
        ("huggingface", "tokenizer.json", "tokenizer.json"),
        ("gpt2", "gpt2", "gpt2/merges.txt"),
        ("tiktoken", "tok.tiktoken", "tok.tiktoken"),
    ],
)
def test_convert(trained: Path, format: str, out: str, written: str) -> None:
    assert main(["convert", str(trained / "tok.json"), "--to", format, "--out", str(trained / out)]) == 0
    assert (trained / written).stat().st_size > 100


def test_report_and_view(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tok, text = str(trained / "tok.json"), str(trained / "corpus.txt")
    assert main(["report", tok, "--on", text]) == 0
    printed = capsys.readouterr().out
    assert "bytes/token" in printed
    assert "unreachable" in printed
    assert main(["report", tok, tok, "--on", text, "--html", str(trained / "report.html")]) == 0
    assert "bytes/token" in (trained / "report.html").read_text()
    capsys.readouterr()
    assert main(["report", tok, "--on", text, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["texts"]
    assert row["bytes"] == len(TEXT.encode())
    assert row["bytes_per_token"] == pytest.approx(len(TEXT.encode()) / row["tokens"])
    assert main(["view", tok, "--text", text, "--out", str(trained / "page.html")]) == 0
    assert "<html" in (trained / "page.html").read_text()
    (trained / "other").mkdir()
    other = shutil.copy(tok, trained / "other")  # of the same name: still two side by side
    assert main(["view", tok, str(other), "--out", str(trained / "page.html")]) == 0
    assert all(json.dumps(str(name)) in (trained / "page.html").read_text() for name in (tok, other))


def test_training_from_anywhere(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = (trained / "tok.json").read_bytes()
    out = trained / "new.json"
    settings = ["--vocab-size", "280", "--out", str(out)]
    folder = trained / "folder" / "inner"
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(json.dumps({"content": TEXT}).encode()))
    (folder / ".hidden").write_text("nothing")
    for corpus_arguments in (
        [str(trained / "folder"), "--text-key", "content"],
        [str(trained / "corp*.txt"), "--memory-limit", "1GiB"],
        [str(trained / "corpus.txt"), "--checkpoint", str(trained / "run")],
        [str(trained / "corpus.txt"), "--checkpoint", str(trained / "run")],
        ["-"],
    ):
        pipe(monkeypatch, TEXT.encode())
        out.unlink(missing_ok=True)
        assert main(["train", *corpus_arguments, *settings]) == 0
        assert out.read_bytes() == expected
    assert main(["train", str(trained / "corpus.txt"), "--extend", str(trained / "tok.json"), *settings]) == 0
    assert out.read_bytes() == expected
    assert main(["train", str(trained / "corpus.txt"), "--memory-limit", "1kB", *settings]) == 0
    assert "more than the memory_limit" in capsys.readouterr().err


@pytest.mark.parametrize(("stopped", "at"), [(training, "count_source"), (Tokenizer, "save")])
def test_a_run_that_is_stopped_says_how_to_go_on(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stopped: object, at: str
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, at, stop)
    command = ["train", str(trained / "corpus.txt"), "--vocab-size", "280", "--out", str(trained / "new.json")]
    assert main(command) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert main([*command, "--checkpoint", str(trained / "run")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


def test_sizes() -> None:
    assert [size(text) for text in ("1000", "500MB", "2GiB", "1.5 k", "3g")] == [
        1000,
        5 * 10**8,
        2**31,
        1500,
        3 * 10**9,
    ]
    for text in ("", "MB", "-1", "5 fathoms"):
        with pytest.raises(argparse.ArgumentTypeError, match="a size is a number of bytes"):
            size(text)


def test_mistakes_are_one_sentence_and_status_two(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, out = str(trained / "corpus.txt"), str(trained / "new.json")
    (trained / "empty").mkdir()
    (trained / "short.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    for arguments, said in [
        (["train", corpus, "--vocab-size", "100", "--out", out], "256 bytes"),
        (["train", corpus, "--vocab-size", "9999", "--out", out], "too small"),
        (["train", "nowhere.txt", "--vocab-size", "300", "--out", out], "nowhere.txt: No such file"),
        (["train", str(trained / "*.doc"), "--vocab-size", "300", "--out", out], "no file has such a name"),
        (["train", str(trained / "empty"), "--vocab-size", "300", "--out", out], "no file in this folder"),
        (
            ["train", str(trained / "short.gz"), "--vocab-size", "300", "--out", out],
            "short.gz: the gzip data are cut short",
        ),
        (["train", corpus, "--vocab-size", "300", "--out", str(trained / "nowhere" / "tok.json")], "no such folder"),
        (["train", corpus, "--vocab-size", "300", "--out", str(trained / "empty")], "empty: a folder"),
        (["train", corpus, "--vocab-size", "9" * 20, "--out", out], "ids go up to 2,147,483,647"),
        (["train", corpus, "--vocab-size", "300", "--min-count", "9" * 20, "--out", out], "min_count is 999"),
        (["train", corpus, "--vocab-size", "300", "--max-token-bytes", "-1", "--out", out], "max_token_bytes is -1"),
        (["train", corpus, "--vocab-size", "300", "--out", out, "--pattern", "[a-z]*"], "can match the empty string"),
        (["train", corpus, "--vocab-size", "300", "--out", out, "--special", ""], "a special token is empty"),
        (
            [
                "train",
                corpus,
                "--vocab-size",
                "300",
                "--out",
                out,
                "--extend",
                str(trained / "tok.json"),
                "--special",
                "x",
            ],
            "leave out --pattern and --special",
        ),
        (["train", corpus, "--vocab-size", "300", "--out", corpus], "would be written over"),
        (["train", str(trained), "--vocab-size", "300", "--out", str(trained / "short.gz")], "would be written over"),
        (["encode", str(trained / "tok.json"), corpus, "--out", corpus], "would be written over"),
        (["decode", str(trained / "tok.json"), corpus, "--out", corpus], "would be written over"),
        (["encode", corpus], "not a tokenizer"),
        (["decode", "nowhere.json"], "nowhere.json: no such file"),
        (["report", str(trained / "tok.json"), "--on", "nowhere.txt"], "nowhere.txt: No such file"),
    ]:
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    assert not Path(out).exists()
    assert Path(corpus).read_text() == TEXT


# encode and decode, as filters and on files


def said(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> bytes:
    assert main([str(argument) for argument in arguments]) == 0
    return capfdbinary.readouterr().out


def refused(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    error = capfdbinary.readouterr().err.decode()
    assert len(error.splitlines()) == 1, error
    return error


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
    (trained / "raw").write_bytes(b"\xff\x00 the \x80" * 300_000)  # no UTF-8, and longer than a block
    pipe(monkeypatch, b"a b")
    out = said(capfdbinary, "encode", tok, text, "-", trained / "raw")
    (trained / "ids.txt").write_bytes(out.replace(b" ", b"\n\t ", 100))
    assert len(out.splitlines()) == 3
    assert (
        said(capfdbinary, "decode", tok, trained / "ids.txt")
        == text.read_bytes() + b"a b" + (trained / "raw").read_bytes()
    )
    pipe(monkeypatch, text.read_bytes())
    said(capfdbinary, "encode", tok, "-", trained / "raw", "--out", trained / "ids.npy", "--workers", 2)
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
    lines = said(capfdbinary, "encode", tok, trained / "two.jsonl.xz", "--jsonl").splitlines()
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
    for given in ([trained / "lines"], ["-"], []):
        pipe(monkeypatch, lines)
        out = trained / "ids.npy"
        said(capfdbinary, "encode", trained / "tok.json", *given, "--jsonl", "--text-key", "body", "--out", out)
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
    assert "holds the special token" in refused(capfdbinary, "encode", tok, trained / "t", "--special", "refuse")
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
    assert "at least 1" in refused(capfdbinary, "encode", tok, trained / "words", "--workers", 0)
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


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bpe", *map(str, arguments)]


@pytest.mark.skipif(sys.platform == "win32", reason="closes descriptors by the shell")
@pytest.mark.parametrize(
    ("redirection", "arguments", "status", "expected"),
    [
        ("<&-", ["encode", "tok.json"], 2, b"bpe encode: standard input: closed"),
        ("<&-", ["decode", "tok.json"], 2, b"bpe decode: standard input: closed"),
        ("<&-", ["train", "-", "--vocab-size", "280", "--out", "new.json"], 2, b"bpe train: standard input: closed"),
        (">&-", ["encode", "tok.json", "corpus.txt"], 2, b"bpe encode: standard output: closed"),
        (">&-", ["train", "corpus.txt", "--vocab-size", "280", "--out", "new.json"], 0, b""),
        ("2>&-", ["encode", "nowhere.json"], 2, b""),
    ],
)
def test_a_stream_that_is_closed(
    trained: Path, redirection: str, arguments: list[str], status: int, expected: bytes
) -> None:
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    paths = [trained / one if one.endswith((".json", ".txt")) else one for one in arguments]
    done = subprocess.run([*shell, *command(*paths)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.startswith(expected)
    assert len(done.stderr.splitlines()) == (1 if expected else 0)


def test_a_reader_that_leaves_is_no_error(trained: Path) -> None:
    (trained / "long").write_bytes(b"the cat " * 300_000)
    running = subprocess.Popen(
        command("encode", trained / "tok.json", trained / "long"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.read(10)
    running.stdout.close()
    error = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), error) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_is_one_sentence(trained: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("encode", trained / "tok.json", trained / "corpus.txt"),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["bpe encode: standard output: No space left on device"]


def test_ctrl_c_leaves_nothing_half_written(trained: Path) -> None:
    running = subprocess.Popen(
        command("encode", trained / "tok.json", "--jsonl", "--out", trained / "ids.jsonl"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    running.stdin.write(b'"the cat"\n' * 50_000)
    running.stdin.flush()
    while not list(trained.glob(".ids.jsonl*")):
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    error = running.stderr.read()
    running.stdin.close()
    running.stderr.close()
    assert running.wait() == 130
    assert error.decode().splitlines() == ["stopped; nothing was written"]
    assert sorted(path.name for path in trained.iterdir()) == ["corpus.txt", "tok.json"]


# convert, and what a tokenizer may be called


def test_any_format_is_read_and_every_one_written(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = trained / "corpus.txt"
    expected = said(capfdbinary, "encode", trained / "tok.json", text)
    for format, out in (("huggingface", "tokenizer.json"), ("gpt2", "gpt2"), ("native", "copy")):
        said(capfdbinary, "convert", trained / "tok.json", "--to", format, "--out", trained / out)
        assert said(capfdbinary, "encode", trained / out, text) == expected
        said(capfdbinary, "convert", trained / out, "--to", "native", "--out", trained / "again")
        assert said(capfdbinary, "encode", trained / "again", text) == expected
    assert said(capfdbinary, "encode", trained / "gpt2" / "merges.txt", text) == expected
    assert said(capfdbinary, "encode", trained, text) == expected, "a folder that holds a tokenizer.json"
    said(capfdbinary, "convert", trained / "tok.json", "--to", "tiktoken", "--out", trained / "t.tiktoken")
    assert "neither split pattern" in refused(capfdbinary, "encode", trained / "t.tiktoken", text)
    special = f"<|endoftext|>={Tokenizer.load(trained / 'tok.json').eot_token}"
    arguments = ("--pattern", "gpt2", "--special", special, "--to", "native", "--out", trained / "back")
    said(capfdbinary, "convert", trained / "t.tiktoken", *arguments)
    assert said(capfdbinary, "encode", trained / "back", text) == expected
    assert "its own split pattern" in refused(capfdbinary, "convert", trained / "tok.json", *arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="file names that are no text")
def test_names_and_terminals_that_are_no_utf8(trained: Path) -> None:
    odd = trained / os.fsdecode(b"\xff.txt")
    odd.write_text("caf\u00e9 " * 9)
    tok, page = trained / "tok.json", trained / os.fsdecode(b"\xfe.html")
    for encoding in ("ascii", "utf-8"):
        for arguments in (
            ["report", tok, "--on", odd, "--html", page],
            ["report", tok, "--on", odd],
            ["report", tok, "--on", odd, "--json"],
            ["view", tok, "--text", odd, "--out", page],
            ["train", odd, "--vocab-size", "260", "--special", "\u00e9", "--out", trained / os.fsdecode(b"\xfd.json")],
        ):
            environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
            done = subprocess.run(command(*arguments), capture_output=True, check=False, env=environment)
            assert (done.returncode, done.stderr) == (0, b"")
    done = subprocess.run(
        command("train", odd, "--vocab-size", "260", "--special", os.fsdecode(b"\xff"), "--out", trained / "new.json"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"surrogates not allowed" in done.stderr


def test_names_that_are_nearly_right(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = trained / "corpus.txt"
    assert "did you mean o200k_base" in refused(capfdbinary, "encode", "o200k_bas", text)
    assert "cl100k_base" in refused(capfdbinary, "encode", "nothing-like-it", text)
    assert "not a tokenizer of any format" in refused(capfdbinary, "encode", text, text)
    arguments = ("--vocab-size", 300, "--out", trained / "new", "--pattern", "gtp2")
    assert "did you mean 'gpt2'" in refused(capfdbinary, "train", text, *arguments)


def test_training_by_command_makes_no_tables_for_other_commands(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT)
    arguments = ["train", str(tmp_path / "corpus.txt"), "--vocab-size", "280", "--out", str(tmp_path / "tok.json")]
    program = f"""if True:
        import sys
        from bpe.commands.main import main
        assert main({arguments!r}) == 0
        from bpe.reporting import javascript
        print(javascript._every.cache_info().currsize, "regex" in sys.modules)
    """
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.splitlines()[-1] == "0 False", "they would be most of the memory that training takes"
