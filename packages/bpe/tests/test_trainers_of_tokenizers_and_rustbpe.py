"""train() against the trainers whose rules it follows, from text to ids: tokenizers and rustbpe themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from strategies import corpus

import bpe
from bpe.formats.vocabularies import from_printable
from bpe.scanning.special_tokens import SpecialTokens

DATA = os.environ.get("GROUNDUP_DATA")
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END = "<|endoftext|>"


def texts() -> list[Any]:
    """Something small, and real text of several scripts where there is any."""
    actual: list[Any] = [pytest.param(corpus(11, words=20_000), 2000, id="made up")]
    for name in ("tinystories", "russian_stories", "chinese_poetry", "thai_social", "udhr_all"):
        skip = pytest.mark.skipif(
            DATA is None, reason="real texts are looked for in the folder that GROUNDUP_DATA names"
        )
        text = ""
        if DATA is not None:
            with open(Path(DATA, "data", f"{name}.txt"), "rb") as file:
                text = file.read(300_000).decode(errors="ignore")
        actual.append(pytest.param(text, 3000, id=name, marks=skip))
    return actual


@pytest.mark.parametrize(("text", "size"), texts())
@pytest.mark.parametrize(
    ("special", "min_count", "longest"), [([END], 1, None), ([END, "<pad>"], 3, None), ([], 2, 6)], ids=str
)
def test_huggingface_is_tokenizers(
    text: str, size: int, special: list[str], min_count: int, longest: int | None
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the rule 'huggingface' is that of tokenizers")
    documents = text.split(END)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        min_frequency=min_count,
        max_token_length=longest,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    peer.train_from_iterator(documents, trainer)
    model = json.loads(peer.to_str())["model"]
    theirs = {number: token for token, number in model["vocab"].items()}
    actual = bpe.train(
        documents,
        len(theirs),
        special_tokens=special,
        tie_break="huggingface",
        min_count=min_count,
        max_token_bytes=longest,
    )
    assert actual.vocab_size == len(theirs)
    for number, token in actual.vocab.items():
        if number >= len(special):
            assert from_printable(theirs[number]) == token
        else:
            assert theirs[number] == special[number]
    assert list(actual.merges) == [(from_printable(left), from_printable(right)) for left, right in model["merges"]]


@pytest.mark.parametrize(("text", "size"), texts())
def test_ids_is_rustbpe(text: str, size: int) -> None:
    rustbpe = pytest.importorskip("rustbpe", reason="the rule 'ids' is that of rustbpe")
    documents = text.split(END)
    peer = rustbpe.Tokenizer()
    peer.train_from_iterator(iter(documents), size, pattern=GPT2)
    theirs = {number: bytes(token) for token, number in peer.get_mergeable_ranks()}
    assert bpe.train(documents, len(theirs), special_tokens=[], tie_break="ids").vocab == theirs


@pytest.mark.parametrize("special", [["\u0120"], ["<pad>", "\u0120", "a", " "], ["\u010a", "\u00c3"]], ids=ascii)
def test_a_special_token_spelled_as_a_byte_is_that_byte_too_as_in_tokenizers(
    special: list[str], tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the rule 'huggingface' is that of tokenizers")
    text = "a b a b a bcd bcd \u00e9 \u0120 bcd\n\nb \u00e9\n" * 3
    documents = [piece.decode() for piece, index in SpecialTokens(special).partition(text.encode()) if index < 0]
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=262, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    peer.train_from_iterator(documents, trainer)
    actual = bpe.train([text], peer.get_vocab_size(), special_tokens=special, tie_break="huggingface")
    actual.to_huggingface(tmp_path / "tokenizer.json")
    actual.save(tmp_path / "own.json")
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab() == peer.get_vocab()
    again = bpe.Tokenizer.from_huggingface(tmp_path / "tokenizer.json"), bpe.Tokenizer.load(tmp_path / "own.json")
    for sample in (text, "a b", "\u0120", "a\u0120b \u0120", "\u00e9 \u00c3  \n \u010a", " "):
        ids = peer.encode(sample).ids
        for one in (actual, *again):
            assert one.encode(sample, allowed_special="all") == ids
            assert one.decode(ids) == peer.decode(ids, skip_special_tokens=False)
