"""Texts, and tokenizers of the shapes that SentencePiece-style ones are published in, made without another library."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import bpe
from bpe import patterns

WORDS = ["the", "cat", "sat", "on", "a", "mat", "with", "its", "hat", "é", "ü", "世界", "世", "ключ", "слово", "12"]
WORDS += ["345", "isn't", "x=y;", "\n\n", "{}", "▁", "\t"]


def texts(seed: int, count: int) -> Iterator[str]:
    """Words that the tokenizers know and others, with one space between or several, or none."""
    chance = random.Random(seed)
    others = [*WORDS, "🙂", "Ж", "界世", "zebra", "<s>", "</s>", "ñandú", "\x00", "  ", "tthhee", "\u0301"]
    spaces = [" ", "", "  ", " ", "▁"]
    for _ in range(count):
        parts = [chance.choice(others) + chance.choice(spaces) for _ in range(chance.randrange(12))]
        yield "".join(parts)


def shapes() -> dict[str, bpe.Tokenizer]:
    """Tokenizers that differ in what they do about spaces."""
    base = bpe.train_sentencepiece([" ".join(WORDS[:-1] * 3 + WORDS[:6] * 9)], 346, split_lines=False).data
    assert base.characters is not None
    whole, never = patterns.resolve(None), base.characters._replace(prepend="never")
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepended = {"type": "Prepend", "prepend": "▁"}
    result = {
        "llama-2": base._replace(
            pattern=whole, characters=never, normalizer=json.dumps([prepended, replaced], ensure_ascii=False)
        ),
        "gemma": base._replace(pattern=whole, characters=never, normalizer=json.dumps([replaced], ensure_ascii=False)),
        "prepended-and-split": base._replace(characters=never, normalizer=json.dumps([prepended], ensure_ascii=False)),
        "metaspace-always-split": base,
        "metaspace-first-whole": base._replace(pattern=whole, characters=base.characters._replace(prepend="first")),
        "metaspace-never-whole": base._replace(pattern=whole, characters=never),
    }
    return {name: bpe.Tokenizer.from_data(data) for name, data in result.items()}
