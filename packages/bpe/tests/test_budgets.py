"""Texts cut at the borders of tokens: to a number of ids, and into pieces that share a few."""

from __future__ import annotations

import functools
import itertools

import pytest
from format_samples import sample
from hypothesis import given
from hypothesis import strategies as st
from strategies import NEARLY_UTF8, PIECES, corpus

import bpe

EOT = "<|endoftext|>"
TEXT = st.lists(st.sampled_from([*PIECES, "ﬁ", "中文字", "👩‍🚀", "the cat "]), max_size=30).map("".join)
KINDS = ["gpt2", "o200k", "whole", "own", "sentencepiece", "NFC", "NFKC", "flags"]


@functools.cache
def tokenizer_of(kind: str) -> bpe.Tokenizer:
    if kind == "sentencepiece":
        return bpe.train_sentencepiece([corpus(6), "中文字 ﬁ é"], 500)
    if kind in ("NFC", "NFKC"):
        return bpe.Tokenizer.from_data(sample(normalizer=kind))
    if kind == "flags":
        return bpe.Tokenizer.from_data(sample(normalizer="NFC", lstrip=frozenset({"<s>"})))
    pattern = {"whole": None, "own": r"[a-z]+|\s+(?!\S)|\s+|[^a-z\s]"}.get(kind, kind)
    trained = bpe.train([corpus(6), "中文字" * 9 + "文中字👩‍🚀" * 9], 400)
    return bpe.Tokenizer(trained.vocab, trained.merges, pattern=pattern, special_tokens=trained.special_tokens)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT, raw=NEARLY_UTF8, tokens=st.integers(5, 12), overlap=st.integers(0, 3))
def test_pieces_are_the_text_and_its_ids(kind: str, text: str, raw: bytes, tokens: int, overlap: int) -> None:
    tokenizer = tokenizer_of(kind)
    for whole in (text, text.encode(), raw):
        ids, offsets = tokenizer.encode_with_offsets(whole, disallowed_special=())
        try:
            pieces = tokenizer.split(whole, tokens, disallowed_special=())
            shared = tokenizer.split(whole, tokens, overlap, disallowed_special=())
        except ValueError:
            assert whole is raw or kind == "NFKC"  # long runs without a border: no UTF-8, or one character for many
            continue
        assert type(whole)().join(piece.text for piece in pieces) == (whole if ids else type(whole)())
        assert list(itertools.chain(*(piece.ids for piece in pieces))) == ids
        assert all(0 < len(piece.ids) <= tokens for piece in [*pieces, *shared])
        if overlap == 0:
            assert shared == pieces
        place = 0
        for piece in shared:  # each is a part of the ids and of the text, and goes on where the one before ended
            ends = [i + len(piece.ids) for i in range(max(0, place - overlap), place + 1)]
            place = next(end for end in ends if end > place and ids[end - len(piece.ids) : end] == piece.ids)
        assert place == len(ids)
        if pieces and kind in ("gpt2", "o200k", "whole", "own"):
            for piece in [*pieces, *shared]:
                assert tokenizer.decode_bytes(piece.ids) == (
                    piece.text.encode() if isinstance(piece.text, str) else piece.text
                )
        for most in (0, 1, tokens, len(ids), len(ids) + 5):
            part = tokenizer.truncate(whole, most, disallowed_special=())
            assert len(part.ids) <= most
            assert part.ids == ids[: len(part.ids)]
            assert whole.startswith(part.text)  # type: ignore[arg-type]
            if len(part.ids) < len(ids) and isinstance(whole, str):
                assert len(part.text) == (offsets[len(part.ids)] if part.ids else 0)
                assert most - len(part.ids) < 5 or kind == "NFKC"
        assert tokenizer.truncate(whole, len(ids), disallowed_special=()).ids == ids


@pytest.mark.parametrize("kind", ["gpt2", "o200k", "sentencepiece", "NFC"])
def test_a_long_text_is_encoded_only_as_far_as_it_is_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, text = tokenizer_of(kind), corpus(3).replace(EOT, "") * 4
    encoded: list[int] = []
    to_ids = type(tokenizer._text_encoder).to_ids

    def counted(texts: object, data: bytes, special: object) -> object:
        encoded.append(len(data))
        return to_ids(texts, data, special)  # type: ignore[arg-type]

    monkeypatch.setattr(type(tokenizer._text_encoder), "to_ids", counted)
    for most in (1, 30, 700):
        encoded.clear()
        part = tokenizer.truncate(text, most)
        assert len(part.ids) >= most - 3
        if tokenizer._text_encoder.can_cut:
            assert 0 < sum(encoded) < 16 * most + 600
        assert tokenizer.encode(text)[: len(part.ids)] == part.ids


def test_budgets_that_cannot_be_kept() -> None:
    tokenizer = tokenizer_of("gpt2")
    assert tokenizer.split("", 4) == []
    assert tokenizer.split("a", 1) == [("a", [97])]
    assert tokenizer.truncate("\u0378", 1) == ("", [])
    for tokens, overlap in [(0, 0), (3, 3), (3, -1)]:
        with pytest.raises(ValueError, match=str(tokens)):
            tokenizer.split("the cat", tokens, overlap)
    with pytest.raises(ValueError, match="-1"):
        tokenizer.truncate("the cat", -1)
    for call in (tokenizer.truncate, tokenizer.split):
        with pytest.raises(TypeError, match="tokens must be a whole number"):
            call("the cat", 1.5)
    assert tokenizer.truncate("the cat", 2**63 - 1).text == "the cat"
    with pytest.raises(ValueError, match="2 tokens from byte 1"):
        tokenizer.split("a\u0378b", 1)
    for call in (tokenizer.truncate, tokenizer.split):
        with pytest.raises(ValueError, match="endoftext"):
            call("the cat" * 1000 + EOT, 1)  # also where it is behind what is taken
        assert call("the cat", 2, allowed_special="all")
