"""Vocabularies of the characters of words (tortoise-tts, CLIP, GPT-1), against tokenizers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import bpe

tokenizers = pytest.importorskip("tokenizers")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
CORPUS = [
    "the other weather, then another!",
    "low lower lowest newer wider wide",
    "hé l'été déjà vu naïveté",
    "人人生而自由 12 123",
]
PARTS = [*" x!'é人生Ω\n▁ﬁ", "the", "other", "  ", "low", "er", "e\u0301", "\U0001f600", "X", "12", "<unk>", "<s>"]


def file_of(kind: str) -> Any:
    """A tokenizer.json that tokenizers trains with the settings of a published file."""
    options = {"unk_token": "<unk>"}
    if kind in ("clip", "gpt-1"):
        options["end_of_word_suffix"] = "</w>"
    if kind == "fused":
        options["fuse_unk"] = True
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(**({} if kind == "dropped" else options)))
    pre, decoders = tokenizers.pre_tokenizers, tokenizers.decoders
    alphabet = []
    if kind == "clip":
        split = pre.Split(tokenizers.Regex(CLIP), "removed", invert=True)
        tokenizer.pre_tokenizer = pre.Sequence([split, pre.ByteLevel(add_prefix_space=False)])
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.NFC(), tokenizers.normalizers.Lowercase()]
        )
        tokenizer.decoder, alphabet = decoders.ByteLevel(), pre.ByteLevel.alphabet()
    elif kind == "gpt-1":
        tokenizer.normalizer, tokenizer.pre_tokenizer = tokenizers.normalizers.BertNormalizer(), pre.BertPreTokenizer()
        tokenizer.decoder = decoders.BPEDecoder("</w>")
    elif kind == "fused":
        tokenizer.decoder = decoders.Fuse()
    elif kind in ("metaspace", "metaspace, nothing in front"):
        scheme = "always" if kind == "metaspace" else "never"
        tokenizer.normalizer = tokenizers.normalizers.NFKC()
        tokenizer.pre_tokenizer, tokenizer.decoder = pre.Metaspace("▁", scheme), decoders.Metaspace("▁", scheme)
    elif kind == "bytes":
        tokenizer.pre_tokenizer, tokenizer.decoder = pre.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    else:
        tokenizer.pre_tokenizer = pre.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600 if kind == "clip" else 120, show_progress=False, special_tokens=["<s>", "<unk>"],
        initial_alphabet=alphabet, end_of_word_suffix=options.get("end_of_word_suffix", ""),
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return json.loads(tokenizer.to_str())


KINDS = ["tortoise", "dropped", "fused", "clip", "gpt-1", "bytes", "metaspace", "metaspace, nothing in front"]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_offsets_texts_and_streams_are_those_of_tokenizers(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file_of(kind)), "utf-8")
    peer, tokenizer = tokenizers.Tokenizer.from_file(str(path)), bpe.load(path)
    assert tokenizer.data.words is not None
    tokenizer.save(tmp_path / "saved.json")
    assert bpe.load(tmp_path / "saved.json").data == tokenizer.data
    tokenizer.to_huggingface(tmp_path / "written.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "written.json"))
    chance = random.Random(7)
    samples = ["", *("".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 12))) for _ in range(300))]
    for text, ids in zip(samples, tokenizer.encode_batch(samples, allowed_special="all"), strict=True):
        expected = peer.encode(text)
        assert tokenizer.encode_with_offsets(text, allowed_special="all") == (
            expected.ids, [begin for begin, _ in expected.offsets]
        ), text  # fmt: skip
        assert ids == expected.ids == again.encode(text).ids == tokenizer.encode(text, allowed_special="all"), text
        decoded = peer.decode(ids, skip_special_tokens=False)
        assert tokenizer.decode(ids) == decoded == again.decode(ids, skip_special_tokens=False), text
        stream = tokenizer.decode_stream()
        assert "".join(map(stream.step, ids)) + stream.finish() == decoded, text
        assert list(tokenizer.encode_iterable([text[:5], text[5:]], allowed_special="all")) == ids, text
    pickled = bpe.Tokenizer.from_data(tokenizer.data)
    assert pickled.decode_batch([ids, ids]) == [decoded, decoded]


def test_a_long_word_is_merged_in_time_that_grows_with_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file_of("tortoise")), "utf-8")
    tokenizer = bpe.load(path)
    assert tokenizer.encode("the" * 100_000) == tokenizer.encode("the" * 10) * 10_000


@pytest.mark.parametrize(
    "change",
    [{"unk_token": "nothing"}, {"continuing_subword_prefix": "##"}, {"dropout": 0.5}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    file = file_of("tortoise")
    file["model"] |= change
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), "utf-8")
    with pytest.raises(ValueError, match=next(iter(change))):
        bpe.load(path)
