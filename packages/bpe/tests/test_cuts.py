"""Pretokens of scripts without spaces, cut where no token joins two characters: the ids stay those of the reference."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe import Tokenizer, reference
from bpe.patterns import PATTERNS

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
    encode = partial(reference.encode_pretoken_by_ranks, ranks=ranks)
    expected = reference.encode(text, encode, pattern=PATTERNS[pattern])
    tokenizer = Tokenizer.from_ranks(ranks, pattern=pattern)
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(text) == expected  # from the cache
