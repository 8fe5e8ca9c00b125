"""The figures of a tokenizer."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import TEXTS, corpus

import bpe
from bpe.reporting import report
from bpe.tokenizer import Tokenizer

BYTES = {i: bytes([i]) for i in range(256)}


def test_compression_counts() -> None:
    tokenizer = Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")])
    actual, used = report.compression(tokenizer, [b"ab ab\n", b"cc"], name="mine", text_name="text")
    assert (actual.bytes, actual.tokens) == (8, 6)
    assert actual.bytes_per_token == pytest.approx(8 / 6)
    assert actual.tokens_per_word == pytest.approx(2)
    assert actual.used == pytest.approx(4 / 257)
    assert used == {256, 32, 10, 99}
    assert actual.megabytes_per_second is actual.pile_hours is None  # so short a text says nothing about speed
    long, _ = report.compression(tokenizer, [b"ab cd\n" * (report.TIMED_BYTES // 12 + 1)] * 2)
    assert long.megabytes_per_second
    assert long.pile_hours == pytest.approx(825e9 / (long.megabytes_per_second * 1e6) / 3600)
    with pytest.raises(ValueError, match="empty"):
        report.compression(tokenizer, [b""])


def test_longest_and_broken() -> None:
    vocab = BYTES | {256: b"ab", 257: "中".encode()[:2], 258: b"abab"}
    tokenizer = Tokenizer(
        vocab, [(b"a", b"b"), (vocab[257][:1], vocab[257][1:]), (b"ab", b"ab")], special_tokens=["<|end|>"]
    )
    assert report.longest_tokens(tokenizer, 2) == [(258, b"abab"), (256, b"ab")]
    assert report.broken_tokens(tokenizer) == [257]


def test_tokens_that_no_text_gives() -> None:
    vocab = BYTES | {256: b"bc", 257: b"ab", 258: b"abc", 259: b"a b", 260: b"\n\n", 261: b"zz"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c"), (b"a", b" b"), (b"\n", b"\n"), (b"z", b"z")]
    merged = Tokenizer(vocab | {262: b" b"}, [*merges[:3], (b" ", b"b"), *merges[3:]])
    # "abc" is a, bc: never ab, c. The pattern always cuts "a b".
    assert report.unreachable_tokens(merged) == [258, 259]
    whole = Tokenizer.from_ranks({token: number for number, token in vocab.items()}, pattern="gpt2")
    assert whole.encode("abc") == [258]
    assert report.unreachable_tokens(whole) == [259]
    assert report.unreachable_tokens(Tokenizer(vocab | {262: b" b"}, merged.merges, pattern=None)) == [258]


@given(st.lists(TEXTS, min_size=1, max_size=5), st.sampled_from(["gpt2", "cl100k", "o200k", "qwen3.5", "deepseek-v3"]))
def test_what_a_text_gives_is_never_called_unreachable(texts: list[str], pattern: str) -> None:
    tokenizer = bpe.train([corpus(1), *texts], 400, pattern=pattern, special_tokens=[])
    given_ids = {number for text in texts for number in tokenizer.encode(text)}
    assert not given_ids & set(report.unreachable_tokens(tokenizer))


def test_merges_in_common() -> None:
    texts = ["abab", "abab cdcd"]
    a, b = (bpe.train([text], 258 + i, special_tokens=[]) for i, text in enumerate(texts))
    assert report.common_merges(a, a) == (1, 1)
    assert len(a.merges) == 2
    assert len(b.merges) == 3
    both = len({*a.merges} & {*b.merges})
    assert report.common_merges(a, b) == (both / (5 - both), both / 2)


def test_any_two_tokenizers_have_a_row_of_merges_in_common() -> None:
    data = bpe.train_sentencepiece([corpus(1)], 400).data
    ranked = bpe.train([corpus(1)], 400, special_tokens=[])
    tokenizers = {
        "characters": Tokenizer.from_data(data),
        "characters by rank": Tokenizer.from_data(data._replace(merges=None)),  # as a model file of sentencepiece
        "bytes": ranked,
        "bytes by rank": Tokenizer.from_ranks({token: n for n, token in ranked.vocab.items()}, pattern="gpt2"),
    }
    common = report.measure(tokenizers, {"x": [b"text"]}).merges_in_common
    assert len(common) == 6
    assert all(0.1 < row.of_all <= row.of_smaller <= 1 for row in common)


def test_a_report_as_tables_json_and_page() -> None:
    tokenizers = {"a<b": Tokenizer(BYTES | {256: b"te"}, [(b"t", b"e")]), "c": Tokenizer(BYTES, [])}
    actual = report.measure(tokenizers, {"x": [b"text"], "y": [b"more ", b"text"]})
    assert actual.vocabularies[0].unused == [i for i in range(256) if i not in b"more xt"]
    assert actual.merges_in_common == [report.CommonMerges("a<b", "c", 0.0, 0.0)]
    printed = str(actual)
    assert len(printed.splitlines()) == 5 + 1 + 3 + 1 + 2
    assert json.loads(json.dumps(actual.as_dict()))["texts"][3]["tokens"] == 9
    page = actual.html()
    assert page.count("<tr>") == 5 + 3 + 2
    assert "a&lt;b" in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
