"""Counts: saved, added up and trained from, they make the tokenizer that their text makes."""

from __future__ import annotations

import pickle
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


@pytest.mark.parametrize("protocol", [4, 5])
def test_counts_are_pickled(protocol: int, tmp_path: Path) -> None:
    """Those in memory, in a map of a temporary file, and in a map of a file of counts."""
    in_memory = bpe.count([corpus(1)], pattern="cl100k", special_tokens=["a"])
    spilled = bpe.count([corpus(1)], pattern="cl100k", special_tokens=["a"], memory_limit=1000)
    in_memory.save(tmp_path / "counts")
    for counts in (in_memory, spilled, Counts.load(tmp_path / "counts")):
        copy = pickle.loads(pickle.dumps(counts, protocol))
        assert copy == in_memory
        assert bpe.train_from_counts(copy, 300).merges == bpe.train_from_counts(in_memory, 300).merges


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_training_from_counts_is_training_on_the_text(tie_break: Any, tmp_path: Path) -> None:
    texts, special = [corpus(1), corpus(2)], ["<|endoftext|>", "a"]
    expected = bpe.train(texts, 500, tie_break=tie_break, special_tokens=special)
    parts = [bpe.count([text], special_tokens=special) for text in texts]
    whole = parts[0].merge(parts[1])
    assert whole == bpe.count(texts, special_tokens=special, num_threads=2, memory_limit=1000)
    whole.save(tmp_path / "counts")
    for counts in (whole, Counts.load(tmp_path / "counts")):
        actual = bpe.train_from_counts(counts, 500, tie_break=tie_break)
        assert (actual.vocab, actual.merges, actual.special_tokens) == (
            expected.vocab,
            expected.merges,
            expected.special_tokens,
        )
        assert actual.pattern == expected.pattern


def test_counts_stay_as_they_are_when_they_are_trained_from() -> None:
    counts = bpe.count([corpus(1)])
    before = dict(counts.items())
    assert bpe.train_from_counts(counts, 400).merges == bpe.train_from_counts(counts, 400).merges
    assert dict(counts.items()) == before


def test_equal_counts_make_equal_files(tmp_path: Path) -> None:
    bpe.count([corpus(1), corpus(2)]).save(tmp_path / "one")
    bpe.count([corpus(2), corpus(1)], num_threads=3, memory_limit=1000).save(tmp_path / "other")
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
    with pytest.raises(ValueError, match="names no pattern and special tokens"):
        Counts.load(path)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="num_threads is 0"):
        bpe.count(["a"], num_threads=0)
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
    for settings in ({"num_threads": 3}, {"memory_limit": 100_000}):
        parts = [text[at : at + 999] for at in range(0, len(text), 999)]
        tokenizer = bpe.train(parts, 700, tie_break=tie_break, **settings)
        digest.update(repr((sorted(tokenizer.vocab.items()), list(tokenizer.merges))).encode())
counts = bpe.count([text], num_threads=2)
print(hash_seed.seed(), digest.hexdigest(), list(counts.items()) == sorted(counts.items()))
counts.save(sys.argv[2])
"""


def test_nothing_depends_on_the_order_of_the_tables(tmp_path: Path) -> None:
    """The seed of the hashes, and with it the order, is another in each process."""
    text = tmp_path / "text"
    text.write_text(corpus(5, words=3000) + " aaaa bbbb abab baba" * 50, encoding="utf-8")
    actual = []
    for name in ("one", "other"):
        command = [sys.executable, "-W", "ignore", "-c", TWICE, str(text), str(tmp_path / name)]
        actual.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    (seed, result, in_order), (other_seed, other_result, _) = actual
    assert (seed, in_order) != (other_seed, "True"), "the order is the same, so that this test shows nothing"
    assert result == other_result
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


# Counts made elsewhere


@given(st.dictionaries(st.binary(min_size=1, max_size=40), st.integers(1, 1 << 40), max_size=30))
def test_a_table_of_arrow_holds_counts_and_gives_them_back(given: dict[bytes, int]) -> None:
    pytest.importorskip("pyarrow")
    counts = Counts.from_mapping(given, pattern="o200k", special_tokens=["<x>"])
    table = counts.to_arrow()
    assert table.column("word").to_pylist() == sorted(given)
    assert dict(zip(table.column("word").to_pylist(), table.column("count").to_pylist(), strict=True)) == given
    assert Counts.from_arrow(table, pattern="o200k", special_tokens=["<x>"]) == counts


def test_a_table_of_any_kind_of_text_is_counts() -> None:
    arrow = pytest.importorskip("pyarrow")
    expected = Counts.from_mapping({"low": 5, "é": 7})
    words, numbers = ["low", "é", "low"], [2, 7, 3]
    for kind in (arrow.string(), arrow.large_string(), arrow.string_view(), arrow.binary(), arrow.binary_view()):
        table = arrow.table(
            {"other": [1, 2, 3], "w": arrow.array(words, kind), "n": arrow.array(numbers, arrow.int8())}
        )
        assert Counts.from_arrow(table, word="w", count="n") == expected
        assert Counts.from_arrow(table.to_batches()[0], word="w", count="n") == expected
    encoded = arrow.array(words).dictionary_encode()
    assert Counts.from_arrow(arrow.table({"word": encoded, "count": numbers})) == expected

    class Exporting:  # a data frame of another library
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return arrow.table({"word": words, "count": numbers}).__arrow_c_stream__(requested_schema)

    assert Counts.from_arrow(Exporting()) == expected


def test_a_table_that_is_none_of_counts_is_refused() -> None:
    arrow = pytest.importorskip("pyarrow")
    for columns, says in (
        ({"word": ["a"], "n": [1]}, r"not one column 'count'; there are word, n"),
        ({"word": [1], "count": [1]}, r"'word' holds int64, not text"),
        ({"word": ["a"], "count": [1.5]}, r"'count' holds double, not integers"),
        ({"word": ["a", None], "count": [1, 2]}, r"1 of the 2 rows of the column 'word' are null"),
        ({"word": ["a", "b"], "count": [1, None]}, r"1 of the 2 rows of the column 'count' are null"),
        ({"word": ["a"], "count": [0]}, r"counts 0; a pretoken has a byte at least"),
        ({"word": [""], "count": [1]}, r"counts 1; a pretoken has a byte at least"),
    ):
        with pytest.raises(ValueError, match=says):
            Counts.from_arrow(arrow.table(columns))
    with pytest.raises(TypeError, match="from a table of Arrow, not from dict"):
        Counts.from_arrow({"a": 1})
