"""Every source of the order of merging, with and without whole pretokens being looked up first, beside the
reference.

Vocabularies are drawn at random, so that they hold tokens that no merge reaches, tokens that can be made in several
ways, and ranks that stand on their head.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe import patterns, reference
from bpe.formats import TokenizerData
from bpe.formats.vocabularies import to_printable
from bpe.tokenizer import Tokenizer

BYTES = [bytes([byte]) for byte in range(256)]
TOKENS = st.lists(st.text("abc", min_size=2, max_size=7).map(str.encode), unique=True, max_size=24)
# short, long enough for windows, and of one letter
TEXT = st.one_of(st.text("abc ", max_size=30), st.text("abc", min_size=48, max_size=200), st.text("a", max_size=150))
PATTERN = st.sampled_from(["gpt2", "o200k", None])


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
    """({token: id}, merges in any order): some tokens no merge makes, some several make, some halves nothing makes."""
    tokens = draw(st.permutations(draw(TOKENS)))
    ids = {token: number for number, token in enumerate([*BYTES, *tokens])}
    possible = [(token[:cut], token[cut:]) for token in tokens for cut in range(1, len(token))]
    possible = [(left, right) for left, right in possible if left in ids and right in ids]
    if not possible:
        return ids, []
    # some of them in any order, or all, token by token, as files list them
    return ids, draw(st.lists(st.sampled_from(possible), unique=True) | st.permutations(possible) | st.just(possible))


def made(
    ids: dict[bytes, int], merges: list[tuple[bytes, bytes]] | None, pattern: str | None, whole: bool
) -> Tokenizer:
    vocab = {number: token for token, number in ids.items()}
    return Tokenizer.from_data(TokenizerData(vocab, merges, {}, patterns.resolve(pattern), ignore_merges=whole))


@settings(max_examples=100)
@given(vocabulary=vocabularies(), pattern=PATTERN, whole=st.booleans(), text=TEXT)
def test_a_list_of_merges(vocabulary: Any, pattern: str | None, whole: bool, text: str) -> None:
    ids, merges = vocabulary
    encode = functools.partial(
        reference.encode_pretoken_by_merges, merges=reference.rank_merges(merges), ids=ids, ignore_merges=whole
    )
    expected = reference.encode(text.encode(), encode, pattern=pattern)
    assert made(ids, merges, pattern, whole).encode(text) == expected


@settings(max_examples=100)
@given(tokens=TOKENS, order=st.randoms(use_true_random=False), pattern=PATTERN, whole=st.booleans(), text=TEXT)
def test_ranks_of_any_order(tokens: list[bytes], order: Any, pattern: str | None, whole: bool, text: str) -> None:
    everything = [*BYTES, *tokens]
    order.shuffle(everything)  # a longer token may come before its parts, and a byte after both
    ids = {token: number for number, token in enumerate(everything)}
    encode = functools.partial(reference.encode_pretoken_by_ranks, ranks=ids, ignore_merges=whole)
    expected = reference.encode(text.encode(), encode, pattern=pattern)
    assert made(ids, None, pattern, whole).encode(text) == expected


@settings(max_examples=25)
@given(vocabulary=vocabularies(), by_rank=st.booleans(), whole=st.booleans(), chance=st.randoms(use_true_random=False))
def test_many_new_pretokens_side_by_side(vocabulary: Any, by_rank: bool, whole: bool, chance: Any) -> None:
    # more than there are lanes, of every length that one takes, some of them met again before they are known
    ids, merges = vocabulary
    everything = list(ids)
    if by_rank:
        chance.shuffle(everything)
    ids = {token: number for number, token in enumerate(everything)}
    words = ["".join(chance.choices("abc", k=chance.choice([1, 2, 3, 5, 8, 13, 16, 40, 65]))) for _ in range(60)]
    # longer ones fill several lanes, or windows of their own
    words += ["".join(chance.choices("abc", k=size)) for size in chance.sample(range(64, 330), 2)]
    text = " ".join(chance.choices([*words, "é", "1"], k=80))
    if by_rank:
        encode = functools.partial(reference.encode_pretoken_by_ranks, ranks=ids, ignore_merges=whole)
    else:
        ranked = reference.rank_merges(merges)
        encode = functools.partial(reference.encode_pretoken_by_merges, merges=ranked, ids=ids, ignore_merges=whole)
    expected = reference.encode(text.encode(), encode, pattern="gpt2")
    tokenizer = made(ids, None if by_rank else merges, "gpt2", whole)
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(text) == expected, "and from the cache"


@given(tokens=TOKENS, text=TEXT)
def test_ranks_as_tiktoken(tokens: list[bytes], text: str) -> None:
    ids = {token: number for number, token in enumerate([*BYTES, *tokens])}
    theirs = tiktoken.Encoding("x", pat_str=r"\S+|\s", mergeable_ranks=ids, special_tokens={})
    ours = Tokenizer.from_ranks(ids, pattern=r"\S+|\s")
    assert ours.encode(text) == theirs.encode(text)


@given(vocabulary=vocabularies(), whole=st.booleans(), text=TEXT)
def test_merges_as_tokenizers(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Any, whole: bool, text: str
) -> None:
    ids, merges = vocabulary
    ours = made(ids, merges, "gpt2", whole)
    path = tmp_path_factory.mktemp("written") / "semantics.json"
    ours.to_huggingface(path)
    assert json.loads(path.read_text())["model"]["merges"] == [[*map(to_printable, merge)] for merge in merges]
    assert ours.encode(text) == tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
