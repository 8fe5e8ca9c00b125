"""Long pretokens of scripts of three bytes a character, by longest matches: the ids stay those of the reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bpe
from bpe import Tokenizer, reference

LETTERS = "กขเ世é🙂ab"
# New pretokens enough to make the tables: each cache makes them when it has seen five bytes of such for each symbol.
BEFORE = " ".join("".join(random.Random(number).choices("กขเ世", k=30)) for number in range(400)).encode()


@st.composite
def long_texts(draw: st.DrawFn) -> bytes:
    """Pretokens of 25 bytes and more, with repetitions, parts of characters, and what is not UTF-8."""
    chance = draw(st.randoms(use_true_random=False))
    letters = draw(st.text(LETTERS, min_size=1, max_size=4)) + draw(st.sampled_from(["ก", "世", "กข"]))
    words = ["世" + "".join(chance.choices(letters, k=chance.randrange(8, 60))) for _ in range(12)]
    words += [word[0] * 3 + word * chance.randrange(1, 4) for word in words[:4]]
    text = bytearray(" ".join(words).encode())
    for _ in range(draw(st.integers(0, 3))):
        text[chance.randrange(len(text))] = chance.choice([0x80, 0xB8, 0xE0, 0xE4, 0xF0, 0x61])
    return bytes(text)


@st.composite
def ranks_of(draw: st.DrawFn, text: bytes) -> dict[bytes, int]:
    """Parts of the text as tokens, in any order of ranks: many come before their parts, or are never reached."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    tokens = [
        text[begin : begin + size]
        for begin, size in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(2, 12)), max_size=60))
    ]
    for token in sorted(tokens, key=len) if draw(st.booleans()) else tokens:
        if len(token) > 1 and b" " not in token:
            ranks.setdefault(token, len(ranks))
    return ranks


@st.composite
def merges_of(draw: st.DrawFn, text: bytes) -> list[tuple[bytes, bytes]]:
    """Merges learned from the text, some of which have moved to another rank."""
    tokenizer = bpe.train([text + BEFORE], 256 + draw(st.integers(5, 80)), special_tokens=[])
    merges = list(tokenizer.merges or [])
    chance = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(0, 6))):
        merges.insert(chance.randrange(len(merges)), merges.pop(chance.randrange(len(merges))))
    return merges


def assert_alike(tokenizer: Tokenizer, text: bytes, encode_pretoken: Callable[[bytes], list[int]]) -> None:
    tokenizer.encode(BEFORE)
    pattern = tokenizer.data.pattern
    assert tokenizer.encode(text) == reference.encode(text, encode_pretoken, pattern=pattern)
    assert tokenizer.encode(text[::-1]) == reference.encode(text[::-1], encode_pretoken, pattern=pattern)


@pytest.mark.parametrize("pattern", ["gpt2", "qwen3.5"])
@given(st.data())
@settings(max_examples=60)
def test_ranks_in_any_order(pattern: str, data: st.DataObject) -> None:
    text = data.draw(long_texts())
    ranks = data.draw(ranks_of(text))
    assert_alike(
        Tokenizer.from_ranks(ranks, pattern=pattern),
        text,
        partial(reference.encode_pretoken_by_ranks, ranks=ranks),
    )


@given(st.data())
@settings(max_examples=60)
def test_merges_that_come_before_their_parts(data: st.DataObject) -> None:
    text = data.draw(long_texts())
    merges = data.draw(merges_of(text))
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), *(left + right for left, right in merges)]))
    ids = {token: number for number, token in vocab.items()}
    tokenizer = Tokenizer(vocab, merges, pattern="gpt2", special_tokens=[])
    ranks = reference.rank_merges(merges)
    assert_alike(tokenizer, text, lambda pretoken: reference.encode_pretoken_by_merges(pretoken, ranks, ids))
