"""`bpe count` and `bpe train --counts`, from the outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import corpus

import bpe
from bpe.commands.main import main

TEXTS = [corpus(1), corpus(2), corpus(3)]


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """Files of text."""
    paths = [tmp_path / f"part-{number}.txt" for number in range(3)]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_text(text, encoding="utf-8")
    return [str(path) for path in paths]


def counted(parts: list[str], *options: str, ending: str = "counts") -> list[str]:
    out = [f"{part}.{ending}" for part in parts]
    for part, path in zip(parts, out, strict=True):
        assert main(["count", part, "--out", path, *options]) == 0
    return out


def trained(tmp_path: Path, *options: str) -> bytes:
    out = tmp_path / "tokenizer.json"
    assert main(["train", *options, "--vocab-size", "400", "--out", str(out)]) == 0
    return out.read_bytes()


def test_parts_that_are_counted_apart_train_what_the_text_trains(tmp_path: Path, parts: list[str]) -> None:
    expected = trained(tmp_path, *parts)
    counts = counted(parts)
    assert trained(tmp_path, "--counts", *counts) == expected
    whole = str(tmp_path / "whole.counts")
    assert main(["count", parts[2], "--counts", *counts[:2], "--out", whole]) == 0
    assert bpe.Counts.load(whole) == bpe.count(TEXTS)
    assert trained(tmp_path, "--counts", whole) == expected


def test_pattern_and_special_tokens_go_with_the_counts(tmp_path: Path, parts: list[str]) -> None:
    rule = ("--pattern", "o200k", "--special", "<a>", "--special", "<b>")
    expected = trained(tmp_path, *parts, *rule)
    counts = counted(parts, *rule)
    assert trained(tmp_path, "--counts", *counts) == expected
    assert trained(tmp_path, "--counts", *counts, *rule) == expected


def test_tables_are_counts(tmp_path: Path, parts: list[str]) -> None:
    pytest.importorskip("pyarrow")
    expected = trained(tmp_path, *parts, "--pattern", "o200k")
    tables = counted(parts, "--pattern", "o200k", ending="parquet")
    assert trained(tmp_path, "--counts", *tables, "--pattern", "o200k") == expected
    files = counted(parts[:1], "--pattern", "o200k")
    assert trained(tmp_path, "--counts", *tables[1:], *files) == expected, "tables are split as the file beside them"


def test_mistakes_are_one_sentence(tmp_path: Path, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    (counts,) = counted(parts[:1])
    (other,) = counted(parts[1:2], "--pattern", "o200k")
    (table,) = counted(parts[2:], ending="parquet")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    capsys.readouterr()
    out = ["--out", str(tmp_path / "new")]
    train = ["train", "--vocab-size", "300", *out]
    for arguments, says in (
        (["count", *out], "there is nothing to count"),
        (["count", parts[0], "--out", str(tmp_path / "nowhere" / "counts")], "no such folder to write the counts to"),
        (["count", parts[0], "--out", parts[0]], "would be written over"),
        (["count", "--counts", counts, "--out", counts], "would be written over"),
        (["count", "--counts", counts, other, *out], "different patterns or special tokens"),
        (["count", "--counts", counts, "--pattern", "o200k", *out], "different patterns or special tokens"),
        (["count", "--counts", parts[0], *out], "part-0.txt: not a file of counts"),
        (["count", "--counts", str(tmp_path / "none"), *out], "none: No such file"),
        (["count", "--counts", str(broken), *out], "broken.parquet: not a whole Parquet file"),
        (["count", "--counts", table, "--count-columns", "w", "n", *out], "no column 'w'; there are word, count"),
        (["count", "--counts", table, "--count-columns", "word", "word", *out], "not integers"),
        (train, "there is nothing to train on"),
        ([*train, parts[0], "--counts", counts], "--counts stand for the text"),
        ([*train, "--counts", counts, "--num-threads", "2"], "--num-threads is for text"),
        ([*train, "--counts", counts, "--extend", "gpt2"], "--extend is for text"),
    ):
        assert main(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert says in error, error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "new").exists()
