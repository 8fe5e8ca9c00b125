"""The figures of a tokenizer."""

import pytest

import bpe
from bpe import report
from bpe.tokenizer import Tokenizer

BYTES = {i: bytes([i]) for i in range(256)}


def test_compression_counts() -> None:
    tokenizer = Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")])
    found = report.compression(tokenizer, b"ab ab\ncc", name="mine", text_name="text")
    assert (found.bytes, found.tokens) == (8, 6)
    assert found.bytes_per_token == pytest.approx(8 / 6)
    assert found.tokens_per_word == pytest.approx(2)
    assert found.used == pytest.approx(4 / 257)
    with pytest.raises(ValueError, match="empty"):
        report.compression(tokenizer, b"")


def test_longest_and_broken() -> None:
    vocab = BYTES | {256: b"ab", 257: "中".encode()[:2], 258: b"abab"}
    tokenizer = Tokenizer(
        vocab, [(b"a", b"b"), (vocab[257][:1], vocab[257][1:]), (b"ab", b"ab")], special_tokens=["<|end|>"]
    )
    assert report.longest_tokens(tokenizer, 2) == [(258, b"abab"), (256, b"ab")]
    assert report.broken_tokens(tokenizer) == [257]


def test_merges_in_common() -> None:
    texts = ["abab", "abab cdcd"]
    a, b = (bpe.train([text], 258 + i, special_tokens=[]) for i, text in enumerate(texts))
    assert report.common_merges(a, a) == 1
    assert 0 < report.common_merges(a, b) < 1


def test_the_table_has_a_line_each() -> None:
    tokenizer = Tokenizer(BYTES, [])
    lines = report.table({"a": tokenizer, "b": tokenizer}, {"x": b"text", "y": b"more text"}).splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1
