"""Sampled ids: where encoding their text differs from them, and the ids of a text after them."""

from __future__ import annotations

import itertools
import random
from itertools import pairwise

import numpy as np
import pytest
from format_samples import needs_data, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import corpus

import bpe
from bpe.encoding import canonical

TRAINED = [corpus(3), "low lower lowest the é 中文 1234"]
BYTES = bpe.train(TRAINED, 400)
TOKENIZERS = {
    "gpt2": BYTES,
    "o200k": bpe.train(TRAINED, 400, pattern="o200k"),
    "none": bpe.train(TRAINED, 330, pattern=None),
    "nfc": bpe.Tokenizer.from_data(BYTES.data._replace(normalizer="NFC")),
    "nfd": bpe.Tokenizer.from_data(
        BYTES.add_tokens(["é"]).data._replace(normalizer="NFD", normalized=frozenset({"é"}))
    ),
    "added": BYTES.add_tokens(["low", "<tool>"]),
    "by rank": bpe.Tokenizer.from_ranks(
        {token: i for i, token in bpe.train(TRAINED, 400, special_tokens=[]).vocab.items()},
        pattern="cl100k",
        special_tokens={"<|endoftext|>": 400},
    ),
}
TEXTS = st.lists(
    st.sampled_from(
        ["low", " lower", "est", " ", "  ", "\n", "é", "e\u0301", "12", "3", "'s", "the", " the", "<|endoftext|>", "中"]
    ),
    max_size=12,
).map("".join)
PUBLISHED = [
    *("r50k_base.tiktoken", "p50k_base.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "encoder.json"),
    *("llama3_tokenizer.json", "qwen3_tokenizer.json", "deepseek_v3_tokenizer.json"),
]


@pytest.mark.parametrize("name", [*TOKENIZERS, "sentencepiece"])
@given(data=st.data(), text=TEXTS, block=st.integers(1, 20))
@settings(max_examples=40)
def test_the_first_difference_is_that_of_the_whole_text(name: str, data: st.DataObject, text: str, block: int) -> None:
    tokenizer = TOKENIZERS.get(name) or bpe.train_sentencepiece(TRAINED, 400)
    ids = tokenizer.encode(text, allowed_special="all")
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(ids)))
        ids[at:at] = data.draw(st.lists(st.sampled_from(sorted(tokenizer.vocab)), max_size=4))
    again = tokenizer.encode(tokenizer.decode_bytes(ids), allowed_special="all")
    places = [i for i, (one, other) in enumerate(zip(ids, again, strict=False)) if one != other]
    expected = places[0] if places else None if len(ids) == len(again) else min(len(ids), len(again))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "SLICE", block)
        for tokens in (ids, np.array(ids, dtype=np.int64), iter(ids)):
            assert tokenizer.first_difference(tokens) == expected
    assert tokenizer.is_canonical(ids) == (ids == again)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(before=TEXTS, after=TEXTS, context=st.integers(1, 4), far=st.sampled_from([4, 64]))
@settings(max_examples=60)
def test_text_after_ids_has_the_ids_of_the_whole(name: str, before: str, after: str, context: int, far: int) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(before, allowed_special="all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "CONTEXT", context)
        patch.setattr(canonical, "FAR", far)
        actual = tokenizer.encode_after(ids, after, allowed_special="all")
    assert actual == tokenizer.encode_after(ids, after.encode(), allowed_special="all")  # whatever the context
    whole = tokenizer.encode(before + after, allowed_special="all")
    if whole[: len(ids)] == ids:
        assert ids + actual == whole
    text = tokenizer.decode(actual)
    assert text == tokenizer.decode(tokenizer.encode(after, allowed_special="all"))


@pytest.mark.parametrize("name", ["gpt2", "o200k", "by rank"])
@given(data=st.data(), after=TEXTS)
@settings(max_examples=40)
def test_sampled_ids_stay_and_their_last_pretoken_is_merged_in_two_parts(
    name: str, data: st.DataObject, after: str
) -> None:
    tokenizer = TOKENIZERS[name]
    ordinary = sorted(set(tokenizer.vocab) - set(tokenizer.special_tokens.values()))
    ids = data.draw(st.lists(st.sampled_from(ordinary), max_size=10))
    after = after.replace("<|endoftext|>", "")
    before = tokenizer.decode_bytes(ids)
    actual = tokenizer.encode_after(ids, after)
    assert tokenizer.decode_bytes([*ids, *actual]) == before + after.encode()
    pretokens = tokenizer._text_encoder.split(before + after.encode())
    expected, end = [], 0
    for pretoken in pretokens:
        end += len(pretoken)
        if end > len(before):
            rest = pretoken[max(0, len(pretoken) - (end - len(before))) :]
            expected += tokenizer._text_encoder.encoder.encode_pieces([rest]).tolist()
    assert actual == expected


def test_a_long_conversation_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = BYTES.encode("the cat sat on the mat. " * 20_000)
    split = []
    monkeypatch.setattr(type(BYTES._text_encoder), "split", lambda self, text: split.append(len(text)) or [text])
    BYTES.encode_after(ids, "low lower")
    assert max(split) < 1000


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="disallowed special token"):
        BYTES.encode_after([1, 2], "<|endoftext|>")
    changes = (
        {"normalizer": '[{"type": "Strip", "strip_left": true, "strip_right": false}]'},
        {"normalizer": '[{"type": "Prepend", "prepend": "x"}]'},
        {"single_word": frozenset({"<|endoftext|>"})},
    )
    others = [bpe.Tokenizer.from_data(BYTES.data._replace(**change)) for change in changes]
    for tokenizer in (bpe.train_sentencepiece(TRAINED, 400), *others):
        with pytest.raises(ValueError, match="byte-level tokenizers"):
            tokenizer.encode_after([1, 2], " low")
    for ids, error in (([1.0], TypeError), (np.array([1.5]), TypeError), (np.array([2**32]), OverflowError)):
        with pytest.raises(error):
            BYTES.is_canonical(ids)
    assert BYTES.encode_after([], "low") == BYTES.encode("low")
    assert BYTES.encode_after([5], "") == []


def pairs_decide(tokenizer: bpe.Tokenizer, sequences: int, seed: int) -> tuple[int, int]:
    """(sequences that are canonical, those that are not) of random ones, each held to its pairs."""
    rng, texts = random.Random(seed), tokenizer._text_encoder
    ordinary = sorted(set(tokenizer.vocab) - texts.special_ids)
    ordinary = [number for number in ordinary if not texts.never_merged({tokenizer.vocab[number]: number})][:20_000]
    size_of = {number: len(tokenizer.vocab[number]) for number in ordinary}

    def are_canonical(rows: list[tuple[int, ...]]) -> list[bool]:
        ids = iter(texts.merge([b"".join(tokenizer.vocab[number] for number in row) for row in rows]).tolist())
        results = []
        for row in rows:
            size, merged = sum(map(size_of.__getitem__, row)), []
            while size:
                merged.append(next(ids))
                size -= len(tokenizer.vocab[merged[-1]])
            results.append(tuple(merged) == row)
        return results

    def merged(text: bytes) -> list[int]:
        ids: list[int] = texts.merge([text] if text else []).tolist()
        return ids

    # A third are random tokens; a third what merging gives for their text; a third that text, cut somewhere.
    rows: list[tuple[int, ...]] = []
    while len(rows) < sequences:
        row = rng.choices(ordinary, k=rng.randrange(1, 6))
        text = b"".join(tokenizer.vocab[number] for number in row)
        cut = rng.randrange(len(text))
        rows += [tuple(row), tuple(merged(text)), (*merged(text[:cut]), *merged(text[cut:]))]
    rows = [row for row in rows if all(number in size_of for number in row)]
    whole = are_canonical(rows)
    pairs = iter(are_canonical([pair for row in rows for pair in pairwise(row)]))
    for row, is_one in zip(rows, whole, strict=True):
        assert is_one == all(list(itertools.islice(pairs, len(row) - 1))), row
    return sum(whole), len(whole) - sum(whole)


@pytest.mark.parametrize("name", ["gpt2", "o200k", "by rank"])
def test_pairs_decide_whether_a_pretoken_is_canonical(name: str) -> None:
    canonical_ones, others = pairs_decide(TOKENIZERS[name], 4000, 1)
    assert canonical_ones > 200
    assert others > 200


@needs_data
@pytest.mark.soak
@pytest.mark.parametrize("name", PUBLISHED)
def test_pairs_decide_in_published_vocabularies(name: str) -> None:
    pattern = "gpt2" if name == "encoder.json" else None
    tokenizer = bpe.load(vocabulary(name), pattern=pattern) if pattern else bpe.load(vocabulary(name))
    canonical_ones, others = pairs_decide(tokenizer, 125_000, 2)
    assert min(canonical_ones, others) > 10_000
