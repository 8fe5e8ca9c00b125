"""The executable specification, by hand and against the packages whose results it specifies."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe import reference
from bpe.formats.vocabularies import from_printable

BYTES = [bytes([byte]) for byte in range(256)]
WORDS = b"low low low low low lower lower widest widest widest newest newest newest newest newest newest"

few_letters = st.text(alphabet="ab", min_size=1, max_size=9) | st.text(alphabet="abcé 世", min_size=1, max_size=7)
small_counts = st.dictionaries(few_letters, st.integers(1, 4), max_size=8)


def as_bytes(counts: dict[str, int]) -> dict[bytes, int]:
    return {pretoken.encode(): count for pretoken, count in counts.items()}


def repeated(counts: dict[str, int]) -> list[str]:
    return [pretoken for pretoken, count in counts.items() for _ in range(count)]


# Training, by hand


def test_the_example_of_cs336() -> None:
    vocab, merges = reference.train(Counter(WORDS.split()), 257 + 6)
    assert merges == [(b"s", b"t"), (b"e", b"st"), (b"o", b"w"), (b"l", b"ow"), (b"w", b"est"), (b"n", b"e")]
    assert [vocab[number] for number in range(256)] == BYTES
    assert [vocab[number] for number in range(256, 263)] == [
        b"<|endoftext|>",
        b"st",
        b"est",
        b"ow",
        b"low",
        b"west",
        b"ne",
    ]
    assert len(vocab) == 263


def test_the_example_of_cs336_encodes_as_the_handout_says() -> None:
    _, merges = reference.train(Counter(WORDS.split()), 257 + 6)
    ranks = reference.rank_merges(merges)
    parts = {token: number for number, token in enumerate([*BYTES, *(a + b for a, b in merges)])}
    names = {number: token for token, number in parts.items()}
    ids = reference.encode_pretoken_by_merges(b"newest", ranks, parts)
    assert [names[number] for number in ids] == [b"ne", b"west"]


def test_a_count_decides_before_the_tie_break() -> None:
    _, merges = reference.train({b"ab": 3, b"yz": 2}, 258, special_tokens=())
    assert merges == [(b"a", b"b"), (b"y", b"z")]


@pytest.mark.parametrize(
    ("tie_break", "merges"),
    [
        ("bytes", [(b"y", b"z"), (b"a", b"b")]),
        ("huggingface", [(b"a", b"b"), (b"y", b"z")]),
        ("ids", [(b"a", b"b"), (b"y", b"z")]),
    ],
)
def test_ties(tie_break: str, merges: list[tuple[bytes, bytes]]) -> None:
    assert reference.train({b"ab": 2, b"yz": 2}, 258, special_tokens=(), tie_break=tie_break)[1] == merges


def test_ties_compare_the_bytes_of_the_left_token_first() -> None:
    # "ab" is made first; then (a, b) is gone and ("ab", "c") stands against ("b", "a"): b"b" > b"ab"
    _, merges = reference.train({b"abc": 2, b"ba": 2, b"ab": 1}, 258, special_tokens=())
    assert merges == [(b"a", b"b"), (b"b", b"a")]


def test_ids_of_each_convention() -> None:
    pretokens = {b"ab": 2}
    by_bytes, _ = reference.train(pretokens, 259, special_tokens=("<s>", "</s>"))
    assert (by_bytes[65], by_bytes[256], by_bytes[257], by_bytes[258]) == (b"A", b"<s>", b"</s>", b"ab")
    by_huggingface, _ = reference.train(pretokens, 259, special_tokens=("<s>", "</s>"), tie_break="huggingface")
    assert [by_huggingface[number] for number in (0, 1, 2, 3, 258)] == [b"<s>", b"</s>", b"!", b'"', b"ab"]
    assert by_huggingface[2 + 188] == b"\x00"  # after the 188 bytes that print as themselves
    by_ids, _ = reference.train(pretokens, 259, special_tokens=("<s>", "</s>"), tie_break="ids")
    assert (by_ids[65], by_ids[256], by_ids[257], by_ids[258]) == (b"A", b"ab", b"<s>", b"</s>")


def test_training_stops_early() -> None:
    vocab, merges = reference.train({b"abc": 1}, 1000, special_tokens=())
    assert merges == [(b"b", b"c"), (b"a", b"bc")]
    assert len(vocab) == 258
    assert reference.train({b"abc": 1, b"ab": 1}, 1000, special_tokens=(), min_count=2)[1] == [(b"a", b"b")]
    assert reference.train({}, 1000)[1] == []
    assert reference.train({b"ab": 0}, 1000, min_count=0)[1] == []


def test_no_token_is_longer_than_asked() -> None:
    _, merges = reference.train({b"abcd": 3}, 1000, special_tokens=(), max_token_bytes=2)
    assert merges == [(b"c", b"d"), (b"a", b"b")]
    assert reference.train({b"abcd": 3}, 1000, special_tokens=(), max_token_bytes=1)[1] == []
    # tokenizers reads its own limit as "shorter than", and not at all for two characters
    for limit, longest in [(1, 2), (2, 2), (3, 2), (4, 3)]:
        _, merges = reference.train({b"abc": 3}, 1000, tie_break="huggingface", max_token_bytes=limit)
        assert max(len(left + right) for left, right in merges) == longest


def test_counts_pass_32_bits() -> None:
    _, merges = reference.train({b"ab": 2**40, b"yz": 2**40 - 1}, 257, special_tokens=())
    assert merges == [(b"a", b"b")]


def test_a_vocabulary_too_small_and_special_tokens_given_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size is 256"):
        reference.train({}, 256)
    with pytest.raises(ValueError, match="vocab_size is 256"):
        reference.train({}, 256, tie_break="ids")
    with pytest.raises(ValueError, match="given twice"):
        reference.train({}, 300, special_tokens=("a", b"a"))
    with pytest.raises(ValueError, match="empty"):
        reference.train({}, 300, special_tokens=("",))
    with pytest.raises(ValueError, match="tie_break"):
        reference.train({}, 300, tie_break="random")


# Training, against the packages that set the rule


@settings(max_examples=150, deadline=None)
@given(
    counts=small_counts,
    extra=st.integers(0, 12),
    min_count=st.integers(0, 3),
    limit=st.none() | st.integers(1, 6),
    specials=st.sampled_from([(), ("<|endoftext|>",), ("<a>", "\n", "b", "ab", "Ġ")]),
)
def test_huggingface_is_what_tokenizers_trains(
    counts: dict[str, int], extra: int, min_count: int, limit: int | None, specials: tuple[str, ...]
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the rule 'huggingface' is that of tokenizers")
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocab_size = 256 + len(specials) + extra
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        min_frequency=min_count,
        max_token_length=limit,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    peer.train_from_iterator(repeated(counts), trainer)
    theirs = saved_model(peer)

    vocab, merges = reference.train(
        as_bytes(counts),
        vocab_size,
        special_tokens=specials,
        tie_break="huggingface",
        min_count=min_count,
        max_token_bytes=limit,
    )
    assert merges == theirs["merges"]
    assert {n: t for n, t in vocab.items() if n >= len(specials)} == {
        n: t for n, t in theirs["vocab"].items() if n >= len(specials)
    }
    assert len(vocab) == len(theirs["vocab"])


def saved_model(tokenizer: Any) -> dict[str, Any]:
    model = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    return {
        "vocab": {number: from_printable(token) for token, number in model["vocab"].items()},
        "merges": [(from_printable(left), from_printable(right)) for left, right in merges],
    }


@settings(max_examples=150, deadline=None)
@given(counts=small_counts, extra=st.integers(0, 12))
def test_ids_is_what_rustbpe_trains(counts: dict[str, int], extra: int) -> None:
    rustbpe = pytest.importorskip("rustbpe", reason="the rule 'ids' is that of rustbpe")
    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter(repeated(counts)), 256 + extra, pattern=r"[\s\S]+")
    theirs = {number: bytes(token) for token, number in peer.get_mergeable_ranks()}
    vocab, _ = reference.train(as_bytes(counts), 256 + extra, special_tokens=(), tie_break="ids")
    assert vocab == theirs


@settings(max_examples=100, deadline=None)
@given(counts=small_counts, extra=st.integers(0, 12), tie_break=st.sampled_from(["bytes", "huggingface", "ids"]))
def test_what_was_trained_encodes_a_pretoken_as_training_left_it(
    counts: dict[str, int], extra: int, tie_break: str
) -> None:
    vocab, merges = reference.train(as_bytes(counts), 256 + extra, special_tokens=(), tie_break=tie_break)
    ids = {token: number for number, token in vocab.items()}
    for pretoken in as_bytes(counts):
        encoded = reference.encode_pretoken_by_merges(pretoken, reference.rank_merges(merges), ids)
        assert reference.decode(encoded, vocab) == pretoken
        pairs = {(vocab[a], vocab[b]) for a, b in pairwise(encoded)}
        assert not pairs & set(merges)


# Splitting


def test_split_special() -> None:
    split = reference.split_special
    assert split(b"a<s>b", ["<s>"]) == [(b"a", False), (b"<s>", True), (b"b", False)]
    assert split(b"<s><s>", [b"<s>"]) == [(b"<s>", True), (b"<s>", True)]
    assert split(b"", ["<s>"]) == []
    assert split(b"plain", []) == [(b"plain", False)]
    assert split(b"<s", ["<s>"]) == [(b"<s", False)]
    # the leftmost, and there the longest
    assert split(b"aaab", ["aa", "aaa", "aab"]) == [(b"aaa", True), (b"b", False)]
    assert split(b"xaab", ["aa", "aab"]) == [(b"x", False), (b"aab", True)]
    assert split(b"aba", ["ab", "ba"]) == [(b"ab", True), (b"a", False)]
    with pytest.raises(ValueError, match="empty"):
        split(b"a", [""])


@given(st.binary(max_size=20), st.lists(st.binary(min_size=1, max_size=3), max_size=4))
def test_split_special_loses_nothing(text: bytes, specials: list[bytes]) -> None:
    pieces = reference.split_special(text, specials)
    assert b"".join(piece for piece, _ in pieces) == text
    assert all(piece and (piece in specials) >= is_special for piece, is_special in pieces)
    assert not any(token in piece for piece, is_special in pieces if not is_special for token in specials)


def test_count_pretokens() -> None:
    texts = [b"a b<s> b", b"b", b""]
    assert reference.count_pretokens(texts, "gpt2", ["<s>"]) == {b"a": 1, b" b": 2, b"b": 1}
    assert reference.count_pretokens(texts, "gpt2", []) == {b"a": 1, b" b": 2, b"<": 1, b"s": 1, b">": 1, b"b": 1}
    assert reference.count_pretokens(texts, None, ["<s>"]) == {b"a b": 1, b" b": 1, b"b": 1}


# Encoding

RANKS = {token: number for number, token in enumerate([*BYTES, b"bc", b"ab", b"abcd", b"aa", b"aaa"])}


def test_encode_by_ranks() -> None:
    encode = reference.encode_pretoken_by_ranks
    assert encode(b"", RANKS) == []
    assert encode(b"abc", RANKS) == [97, RANKS[b"bc"]]
    assert encode(b"abcd", RANKS) == [RANKS[b"abcd"]]  # which no merge reaches
    assert encode(b"abcd", RANKS, ignore_merges=False) == [97, RANKS[b"bc"], 100]
    assert encode(b"aaaa", RANKS) == [RANKS[b"aa"], RANKS[b"aa"]]
    assert encode(b"aaaaa", RANKS) == [RANKS[b"aa"], RANKS[b"aaa"]]
    with pytest.raises(KeyError):
        encode(b"xy", {b"x": 0})


def test_encode_by_merges() -> None:
    merges = reference.rank_merges([(b"a", b"b"), (b"b", b"c"), (b"ab", b"c")])
    ids = {token: number for number, token in enumerate([*BYTES, b"ab", b"bc", b"abc", b"cd"])}
    encode = reference.encode_pretoken_by_merges
    assert encode(b"", merges, ids) == []
    assert encode(b"abc", merges, ids) == [ids[b"abc"]]
    assert encode(b"bcd", merges, ids) == [ids[b"bc"], 100]
    assert encode(b"cd", merges, ids) == [99, 100]
    assert encode(b"cd", merges, ids, ignore_merges=True) == [ids[b"cd"]]
    assert encode(b"bcabc", merges, ids) == [ids[b"bc"], ids[b"abc"]]


def test_encode_and_decode() -> None:
    def by_ranks(pretoken: bytes) -> list[int]:
        return reference.encode_pretoken_by_ranks(pretoken, RANKS)

    vocab = {number: token for token, number in RANKS.items()} | {300: b"<s>"}
    ids = reference.encode(b"abc<s> aa", by_ranks, pattern="gpt2", special_tokens={"<s>": 300})
    assert ids == [97, RANKS[b"bc"], 300, 32, RANKS[b"aa"]]
    assert reference.decode(ids, vocab) == b"abc<s> aa"
    assert reference.encode(b"<s>", by_ranks, pattern="gpt2") == [60, 115, 62]
    assert reference.decode([], vocab) == b""
    with pytest.raises(KeyError):
        reference.decode([301], vocab)


small_ranks = st.lists(st.text(alphabet="ab", min_size=2, max_size=6), unique=True, max_size=12)


@settings(max_examples=150, deadline=None)
@given(tokens=small_ranks, text=st.text(alphabet="ab", min_size=1, max_size=12))
def test_encode_by_ranks_is_what_tiktoken_encodes(tokens: list[str], text: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="the rule of ranks is that of tiktoken")
    ranks = {token: number for number, token in enumerate([*BYTES, *(token.encode() for token in tokens)])}
    peer = tiktoken.Encoding("test", pat_str=r"[\s\S]+", mergeable_ranks=ranks, special_tokens={})
    assert reference.encode_pretoken_by_ranks(text.encode(), ranks) == peer.encode(text)


@settings(max_examples=150, deadline=None)
@given(tokens=small_ranks, text=st.text(alphabet="ab", min_size=1, max_size=12), whole=st.booleans(), data=st.data())
def test_encode_by_merges_is_what_tokenizers_encodes(tokens: list[str], text: str, whole: bool, data: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the rule of merges is that of tokenizers")
    names = ["a", "b", *tokens]
    pairs = [(t[:cut], t[cut:]) for t in tokens for cut in range(1, len(t)) if t[:cut] in names and t[cut:] in names]
    merges = data.draw(st.permutations(pairs))
    model = tokenizers.models.BPE(vocab={t: n for n, t in enumerate(names)}, merges=merges, ignore_merges=whole)
    ids = {token.encode(): number for number, token in enumerate(names)}
    ranks = reference.rank_merges([(left.encode(), right.encode()) for left, right in merges])
    expected = [token.id for token in model.tokenize(text)]
    assert reference.encode_pretoken_by_merges(text.encode(), ranks, ids, ignore_merges=whole) == expected
