"""Texts with bytes that a vocabulary has no token for: they are left out, and the others stay in their places."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from sentencepiece_samples import texts

import bpe

tokenizers = pytest.importorskip("tokenizers", reason="reads the same files")
Pair = tuple[bpe.Tokenizer, Any]  # ours, and tokenizers' of the same file
CORPUS = ["the cat sat on the mat. one two three", "naïve 中文"] * 5
TEXTS = [
    *(
        "naïve the cat",
        "one\x0btwo three four five",
        "a\x0b\x0b\x0bb c d",
        "中" * 16 + "a" * 16,
        "one\x0bпривет",
        "\x0b",
        "",
    ),
    *texts(8, 60),
]


@pytest.fixture(params=[0, 70, 90])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """A file as tokenizers' quick tour trains it, without an alphabet of all bytes, here and in tokenizers."""
    pytest.importorskip("tokenizers.trainers", reason="tokenizers 1.0 has no trainers")
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    peer.decoder = tokenizers.decoders.ByteLevel()
    if request.param == 90:
        peer.normalizer = tokenizers.normalizers.NFC()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=request.param, show_progress=False, special_tokens=["<s>"])
    peer.train_from_iterator(CORPUS[:1] if request.param == 70 else CORPUS, trainer)
    peer.save(str(tmp_path / "small.json"))
    return bpe.load(tmp_path / "small.json"), peer


def test_offsets_are_those_of_tokenizers(pair: Pair) -> None:
    tokenizer, peer = pair
    for text in [*TEXTS, "<s>naïve\x0b<s> the<s>"]:
        expected = peer.encode(text, add_special_tokens=False)
        begins = [begin for begin, _ in expected.offsets]
        assert tokenizer.encode_with_offsets(text, allowed_special="all") == (expected.ids, begins), text


def test_pieces_are_the_text_and_its_ids(pair: Pair) -> None:
    tokenizer, _ = pair
    chance = random.Random(3)
    for text in TEXTS:
        ids = tokenizer.encode(text, disallowed_special=())
        for most in (1, 2, 5, chance.randrange(1, 40)):
            beginning = tokenizer.truncate(text, most, disallowed_special=())
            assert text.startswith(beginning.text)
            assert beginning.ids == ids[: len(beginning.ids)]
            try:
                pieces = tokenizer.split(text, most, disallowed_special=())
            except ValueError as error:
                assert "share tokens" in str(error)  # noqa: PT017 (characters whose tokens are too many for a piece)
                continue
            assert "".join(str(piece.text) for piece in pieces) == text
            assert [number for piece in pieces for number in piece.ids] == ids
            for piece in pieces[:-1]:
                if text.isascii():
                    assert tokenizer.decode(piece.ids) == "".join(
                        character for character in str(piece.text) if tokenizer.encode(character, disallowed_special=())
                    )
