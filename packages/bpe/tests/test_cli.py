"""The command, from the outside."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from strategies import corpus

from bpe.cli import main

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
    assert "the longest" in printed
    assert main(["report", tok, "--on", text, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["bytes"] == len(TEXT.encode())
    assert row["bytes_per_token"] == pytest.approx(len(TEXT.encode()) / row["tokens"])
    assert main(["view", tok, "--text", text, "--out", str(trained / "page.html")]) == 0
    assert "<html" in (trained / "page.html").read_text()


def test_mistakes_are_one_sentence_and_status_two(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, out = str(trained / "corpus.txt"), str(trained / "new.json")
    for arguments, said in [
        (["train", corpus, "--vocab-size", "100", "--out", out], "256 bytes"),
        (["train", corpus, "--vocab-size", "9999", "--out", out], "too small"),
        (["train", "nowhere.txt", "--vocab-size", "300", "--out", out], "nowhere.txt: No such file"),
        (["encode", corpus], "JSON"),
        (["decode", "nowhere.json"], "nowhere.json: No such file"),
        (["report", str(trained / "tok.json"), "--on", "nowhere.txt"], "nowhere.txt: No such file"),
    ]:
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
    assert not Path(out).exists()
