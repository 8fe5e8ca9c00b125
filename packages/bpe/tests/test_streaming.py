"""Text in chunks: the ids of the whole wherever it is cut, and little of it held."""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import functools
import itertools
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import NEARLY_UTF8, PIECES, corpus

import bpe
from bpe import patterns
from bpe.tokenizer import Tokenizer

EOT = "<|endoftext|>"
SPECIAL = [EOT, "<|im start|>", "<|im", "m s", "12", "aA"]
OWN = r"[a-z]+|\s+|[^a-z\s]"
PATTERNS = [*patterns.PATTERNS, None, OWN]
TEXT = st.lists(st.sampled_from([*PIECES, *SPECIAL, "aAbB", "123456789", "\u0663" * 7, "ABCdef"]), max_size=40).map(
    "".join
)


@functools.cache
def made(pattern: str | None) -> Tokenizer:
    trained = bpe.train([corpus(6)], 320, special_tokens=[])
    return Tokenizer(trained.vocab, trained.merges, pattern=pattern, special_tokens=SPECIAL)


def cut_up(data: st.DataObject, size: int) -> list[int]:
    return sorted(data.draw(st.lists(st.integers(0, size), max_size=12)))


@pytest.mark.parametrize("pattern", PATTERNS)
@given(data=st.data(), text=TEXT, raw=NEARLY_UTF8)
def test_a_stream_of_chunks_gives_the_ids_of_the_whole(
    pattern: str | None, data: st.DataObject, text: str, raw: bytes
) -> None:
    tokenizer = made(pattern)
    for whole in (text, text.encode(), raw):
        edges = [0, *cut_up(data, len(whole)), len(whole)]
        chunks = [whole[begin:end] for begin, end in itertools.pairwise(edges)]
        expected = tokenizer.encode(whole, allowed_special="all")
        assert list(tokenizer.encode_iterable(chunks, allowed_special="all")) == expected
        for room in (1, 7, 40):  # far smaller than in use, so that the text is cut
            arrays = tokenizer._text_encoder.chunks(chunks, tokenizer._text_encoder.policy.rules("all", ()), room)
            assert [number for array in arrays for number in array.tolist()] == expected
        session, so_far, ids = tokenizer.encode_session(allowed_special="all"), whole[:0], list[int]()
        for chunk in chunks:
            so_far = so_far + chunk
            count, rest = session.append(chunk)
            ids[count:] = rest
            assert ids == session.ids.tolist() == tokenizer.encode(so_far, allowed_special="all")
        ordinary = tokenizer._text_encoder.chunks(chunks, tokenizer._text_encoder.policy.rules((), ()), 3)
        assert [number for array in ordinary for number in array.tolist()] == tokenizer.encode_ordinary(whole)


BOUNDED = [  # text, most of it without words' ends, and patterns that take no more than a few characters of it at once
    ("the cat sat on the mat. ", ["gpt2", "o200k"]),
    ("3", ["cl100k", "o200k", "qwen2", "deepseek-v3"]),
    ("aBcDe", ["o200k"]),
    ("a" * 500 + EOT, ["gpt2", None]),
]


@pytest.mark.parametrize(("unit", "pattern"), [(unit, pattern) for unit, names in BOUNDED for pattern in names])
@pytest.mark.parametrize("chunk", [1 << 12, 3 << 19])
def test_a_stream_holds_little(unit: str, pattern: str | None, chunk: int) -> None:
    tokenizer = made(pattern)
    assert list(tokenizer.encode_iterable([unit], allowed_special="all")) == tokenizer.encode(
        unit, allowed_special="all"
    )  # makes what is made once
    piece = (unit * (chunk // len(unit) + 1))[:chunk]
    total = max(1, (1 << 19) // chunk)

    def chunks() -> Iterator[str]:
        for _ in range(total):
            yield piece

    tracemalloc.start()
    count = sum(1 for _ in tokenizer.encode_iterable(chunks(), allowed_special="all"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count > total * chunk // 800
    assert peak < 1 << 20, f"{peak:,} bytes"


def test_a_pretoken_without_end_is_held() -> None:
    fed = 0

    def chunks() -> Iterator[str]:
        nonlocal fed
        for _ in range(40):
            fed += 1
            yield "a" * 10_000

    assert next(made("gpt2").encode_iterable(chunks())) >= 0
    assert fed == 40  # all of it, and so it must be: the last character decides what the first belongs to


def test_a_refused_special_token_ends_a_stream() -> None:
    tokenizer = made("gpt2")
    for chunks in ([f"the cat{EOT}"], [f"the cat{EOT[:5]}", EOT[5:]], ["a" * 70_000, EOT, "a" * 70_000]):
        with pytest.raises(ValueError, match="endoftext"):
            list(tokenizer.encode_iterable(chunks))
        text = "".join(chunks)
        ordinary = tokenizer.encode_iterable(chunks, disallowed_special=())
        assert list(ordinary) == tokenizer.encode(text, disallowed_special=())
        refused = tokenizer.encode_iterable(chunks, allowed_special={EOT}, disallowed_special={EOT})
        with pytest.raises(ValueError, match="endoftext"):
            list(refused)
    session = tokenizer.encode_session()
    session.append("the cat" + EOT[:5])
    with pytest.raises(ValueError, match="endoftext"):
        session.append(EOT[5:])
    assert session.append(" sat")[0] > 0
    assert session.ids.tolist() == tokenizer.encode(f"the cat{EOT[:5]} sat")
    with pytest.raises(TypeError, match="'all' or a set of names"):
        tokenizer.encode_iterable([], allowed_special=EOT)  # at once, not with the first id
