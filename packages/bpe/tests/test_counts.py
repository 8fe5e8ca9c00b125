"""Counts: saved, added up and trained from, they make the tokenizer that their text makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe import reference
from bpe.counting import counts_file
from bpe.counts import Counts

SPECIAL = ["<|endoftext|>"]


@given(st.lists(DATA, max_size=6), st.sampled_from(["gpt2", "o200k", None]))
def test_counts_are_those_of_the_reference(texts: list[bytes], pattern: str | None) -> None:
    counts = bpe.count(texts, pattern=pattern)
    expected = reference.count_pretokens(texts, pattern, SPECIAL)
    assert dict(counts.items()) == expected
    assert len(counts) == len(expected)
    assert counts.total_bytes == sum(len(pretoken) * number for pretoken, number in expected.items())


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_training_from_counts_is_training_on_the_text(tie_break: Any, tmp_path: Path) -> None:
    texts, special = [corpus(1), corpus(2)], ["<|endoftext|>", "a"]
    expected = bpe.train(texts, 500, tie_break=tie_break, special_tokens=special)
    parts = [bpe.count([text], special_tokens=special) for text in texts]
    whole = parts[0].merge(parts[1])
    assert whole == bpe.count(texts, special_tokens=special, workers=2, memory_limit=1000)
    whole.save(tmp_path / "counts")
    for counts in (whole, Counts.load(tmp_path / "counts")):
        found = bpe.train_from_counts(counts, 500, tie_break=tie_break)
        assert (found.vocab, found.merges, found.special_tokens) == (
            expected.vocab,
            expected.merges,
            expected.special_tokens,
        )
        assert found.pattern == expected.pattern


def test_counts_stay_as_they_are_when_they_are_trained_from() -> None:
    counts = bpe.count([corpus(1)])
    before = dict(counts.items())
    assert bpe.train_from_counts(counts, 400).merges == bpe.train_from_counts(counts, 400).merges
    assert dict(counts.items()) == before


def test_equal_counts_make_equal_files(tmp_path: Path) -> None:
    bpe.count([corpus(1), corpus(2)]).save(tmp_path / "one")
    bpe.count([corpus(2), corpus(1)], workers=3, memory_limit=1000).save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_mapping_is_counts() -> None:
    counts = Counts.from_mapping({"low": 2**40, b"\xff": 1, "é": 3}, pattern=None, special_tokens=())
    assert dict(counts.items()) == {b"low": 2**40, b"\xff": 1, "é".encode(): 3}
    for wrong in ({"": 1}, {"a": 0}, {"a": -1}, {"a": 1 << 63}):
        with pytest.raises(ValueError, match=r"counts -?\d+; a pretoken has a byte at least"):
            Counts.from_mapping(wrong)
    with pytest.raises(ValueError, match="bytes of text"):
        Counts.from_mapping({"aa": 1 << 62, "bb": 1 << 62})


def test_counts_that_do_not_fit_are_not_added_up() -> None:
    counts = bpe.count(["a text"])
    for other in (bpe.count(["a text"], pattern="o200k"), bpe.count(["a text"], special_tokens=["<x>"])):
        assert counts != other
        with pytest.raises(ValueError, match="different patterns or special tokens"):
            counts.merge(other)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    bpe.count(["some text, some more text"]).save(path)
    whole = path.read_bytes()
    for at in (0, 17, 21, 30, 60, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"counts: (not a file of counts|written by|damaged)"):
            Counts.load(path)
    for end in (0, 10, 56, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"counts: (not a file of counts|damaged)"):
            Counts.load(path)


@pytest.mark.parametrize(
    "records",
    [
        b"\1",
        bytes(11),
        b"\1" + bytes(7) + b"\5\0\0\0abcd",
        b"\1" + bytes(7) + b"\xff\xff\xff\xff",
        bytes(8) + b"\1\0\0\0a",
        (1 << 62).to_bytes(8, sys.byteorder) + (2).to_bytes(4, sys.byteorder) + b"ab",
    ],
)
def test_records_that_are_none_are_refused_though_their_digest_is_right(tmp_path: Path, records: bytes) -> None:
    path = tmp_path / "counts"
    counts_file.write(path, {"pattern": [], "special_tokens": []}, [records])
    with pytest.raises(ValueError, match="not counts as this package writes them"):
        Counts.load(path)
    counts_file.write(path, None, [])
    with pytest.raises(ValueError, match="neither pattern nor special tokens"):
        Counts.load(path)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="workers is 0"):
        bpe.count(["a"], workers=0)
    with pytest.raises(ValueError, match="memory_limit is 0"):
        bpe.count(["a"], memory_limit=0)
    with pytest.raises(TypeError, match="the name of a special token is a str, not 5"):
        bpe.count(["a"], special_tokens=[5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="vocab_size is 100, but 256 bytes"):
        bpe.train_from_counts(bpe.count(["a"]), 100)


TWICE = """
import hashlib, sys
import bpe
from bpe.native import hash_seed
text = open(sys.argv[1], encoding="utf-8").read()
digest = hashlib.sha256()
for tie_break in ("bytes", "huggingface", "ids"):
    for settings in ({"workers": 3}, {"memory_limit": 100_000}):
        parts = [text[at : at + 999] for at in range(0, len(text), 999)]
        tokenizer = bpe.train(parts, 700, tie_break=tie_break, **settings)
        digest.update(repr((sorted(tokenizer.vocab.items()), list(tokenizer.merges))).encode())
counts = bpe.count([text], workers=2)
print(hash_seed.seed(), digest.hexdigest(), list(counts.items()) == sorted(counts.items()))
counts.save(sys.argv[2])
"""


def test_nothing_depends_on_the_order_of_the_tables(tmp_path: Path) -> None:
    """The seed of the hashes, and with it the order, is another in each process."""
    text = tmp_path / "text"
    text.write_text(corpus(5, words=3000) + " aaaa bbbb abab baba" * 50, encoding="utf-8")
    found = []
    for name in ("one", "other"):
        command = [sys.executable, "-W", "ignore", "-c", TWICE, str(text), str(tmp_path / name)]
        found.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    (seed, result, in_order), (other_seed, other_result, _) = found
    assert (seed, in_order) != (other_seed, "True"), "the order is the same, so that this test shows nothing"
    assert result == other_result
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
