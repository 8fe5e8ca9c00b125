"""Long pretokens, which are merged in windows that overlap or cut where no token joins two characters, beside the
reference, which merges them whole.

Tokens here are as long as windows and longer, so that windows have nothing in common and wider ones have to be merged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fibonacci_word, growing_vocabularies, long_texts

import bpe
from bpe import patterns, reference
from bpe.formats import TokenizerData
from bpe.tokenizer import Tokenizer

BYTES = [bytes([byte]) for byte in range(256)]


def whole(
    ids: dict[bytes, int], merges: list[tuple[bytes, bytes]] | None, ignore_merges: bool
) -> tuple[Tokenizer, Callable[[str], list[int]]]:
    """A tokenizer without a pattern, and what it should answer."""
    vocab = {number: token for token, number in ids.items()}
    tokenizer = Tokenizer.from_data(
        TokenizerData(vocab, merges, {}, patterns.resolve(None), ignore_merges=ignore_merges), cache_bytes=0
    )
    encode: Any = functools.partial(reference.encode_pretoken_by_ranks, ranks=ids, ignore_merges=ignore_merges)
    if merges is not None:
        ranked = reference.rank_merges(merges)
        encode = functools.partial(
            reference.encode_pretoken_by_merges, merges=ranked, ids=ids, ignore_merges=ignore_merges
        )
    return tokenizer, lambda text: encode(text.encode())


@settings(max_examples=300)
@given(vocabulary=growing_vocabularies(), by_rank=st.booleans(), ignore_merges=st.booleans(), text=long_texts())
def test_windows_give_what_merging_all_at_once_gives(
    vocabulary: Any, by_rank: bool, ignore_merges: bool, text: str
) -> None:
    ids, merges = vocabulary
    tokenizer, expected = whole(ids, None if by_rank else merges, ignore_merges)
    assert tokenizer.encode(text) == expected(text)


def test_tokens_of_every_power_of_two() -> None:
    # no window narrower than the text has a token in common with the one before it, until the longest token is short
    # beside it
    tokens = [b"a" * 2**power for power in range(1, 12)]
    ids = {token: number for number, token in enumerate([*BYTES, *tokens])}
    merges = [(token[: len(token) // 2],) * 2 for token in tokens]
    for listed in (merges, None):
        tokenizer, _ = whole(ids, listed, False)
        for size in (65, 1000, 2048, 4095, 4097, 30_000):
            expected = [*[ids[tokens[-1]]] * (size // 2048)]
            expected += [ids[b"a" * 2**power] for power in range(10, -1, -1) if size >> power & 1]
            assert tokenizer.encode("a" * size) == expected
            assert tokenizer.encode("b" + "a" * size + "b") == [98, *expected, 98]


def test_long_texts_beside_windows_of_other_widths() -> None:
    # the same text with something before it, which moves every window, encodes alike from where that has no influence
    chance = np.random.default_rng(3)
    text = "".join(chance.choice(list("ab"), size=20_000)) + fibonacci_word(20_000) + "ab" * 5_000
    tokenizer = bpe.train([text[:5_000], text[20_000:30_000]], 330, pattern=None, special_tokens=[])
    expected = tokenizer.encode(text)
    assert max(map(len, tokenizer.vocab.values())) > 200
    assert tokenizer.decode(expected) == text
    for before in range(1, 130, 9):
        assert tokenizer.encode("!" * before + text) == tokenizer.encode("!" * before) + expected


def test_a_pair_of_the_last_symbol_of_a_power_of_two() -> None:
    # All bits of such a pair were ones, as in a free slot of the table of pairs: from 2^17 symbols on it was taken for
    # a merge where the filter did not stop it. The second merge here is one whose bit in the filter is the same.
    count = 1 << 17
    last = np.uint64(count - 1)
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        expected = ((last << np.uint64(17) | last) * golden) >> np.uint64(64 - 8)
        lefts = np.arange(1000, 100_000, dtype=np.uint64)
        pairs = lefts << np.uint64(17) | np.uint64(999)
        left = int(lefts[np.flatnonzero((pairs * golden) >> np.uint64(64 - 8) == expected)[0]])
    tokens = [*BYTES, *(b"#" + number.to_bytes(3, "big") for number in range(256, count - 2))]
    tokens += [tokens[left] + tokens[999], b"xy"]
    tokenizer = Tokenizer(dict(enumerate(tokens)), [(b"x", b"y"), (tokens[left], tokens[999])], pattern=None)
    assert tokenizer.vocab_size == count
    assert tokenizer.encode("xyxy") == [count - 1, count - 1]
    assert tokenizer.encode("xyxy" * 50) == [count - 1] * 100


# Scripts without spaces

CHARACTERS = "กาบเ世界你。,あ가é🙂𠀀a 1\n"
TEXTS = st.text(CHARACTERS, max_size=40)


@st.composite
def ranks_and_text(draw: st.DrawFn) -> tuple[dict[bytes, int], bytes]:
    """Draw the 256 bytes and parts of the text as tokens, with parts of characters and what merges do not lead to."""
    text = draw(TEXTS).encode()
    ranks = {bytes([byte]): byte for byte in range(256)}
    for begin, size in draw(st.lists(st.tuples(st.integers(0, 160), st.integers(2, 9)), max_size=30)):
        token = text[begin : begin + size]
        if len(token) > 1:
            ranks.setdefault(token, len(ranks))
    return ranks, text + draw(TEXTS).encode() + text


@pytest.mark.parametrize("pattern", ["gpt2", "qwen3.5", "o200k", "deepseek-v3"])
@given(ranks_and_text())
@settings(max_examples=150)
def test_cut_pretokens_have_the_ids_of_whole_ones(pattern: str, drawn: tuple[dict[bytes, int], bytes]) -> None:
    ranks, text = drawn
    encode = functools.partial(reference.encode_pretoken_by_ranks, ranks=ranks)
    expected = reference.encode(text, encode, pattern=pattern)
    tokenizer = Tokenizer.from_ranks(ranks, pattern=pattern)
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(text) == expected  # from the cache
