"""What a tokenizer does to a text, in figures: compression, how much of the vocabulary is used, its longest tokens."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bpe.tokenizer import Tokenizer

_WORD = re.compile(rb"\S+")
PILE_BYTES = 825 * 10**9  # the Pile (Gao et al. 2020), as it is usually quoted


@dataclass(frozen=True)
class Compression:
    """A tokenizer on a text. bytes_per_token and tokens_per_word: a word is a run of anything but ASCII white space."""

    tokenizer: str
    text: str
    bytes: int
    tokens: int
    bytes_per_token: float
    tokens_per_word: float
    used: float  # the share of the vocabulary that the text uses
    megabytes_per_second: float  # one thread, ids to an array, measured once here and now
    pile_hours: float  # what the Pile would take at that speed

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)


def compression(tokenizer: Tokenizer, text: bytes, *, name: str = "", text_name: str = "") -> Compression:
    """Measure a tokenizer on a text. ValueError for an empty one, which has no rates."""
    if not text:
        raise ValueError(f"the text {text_name!r} is empty, so there is nothing to measure")
    begun = time.perf_counter()
    ids = tokenizer.encode_to_numpy(text, allowed_special="all")
    seconds = max(time.perf_counter() - begun, 1e-9)
    words = max(1, sum(1 for _ in _WORD.finditer(text)))
    rate = len(text) / seconds
    return Compression(
        tokenizer=name or tokenizer.name,
        text=text_name,
        bytes=len(text),
        tokens=len(ids),
        bytes_per_token=len(text) / len(ids),
        tokens_per_word=len(ids) / words,
        used=len(np.unique(ids)) / tokenizer.vocab_size,
        megabytes_per_second=rate / 1e6,
        pile_hours=PILE_BYTES / rate / 3600,
    )


def longest_tokens(tokenizer: Tokenizer, count: int = 10) -> list[tuple[int, bytes]]:
    """The longest tokens that are not special, longest first, as (id, bytes)."""
    special = set(tokenizer.special_tokens.values())
    ordinary = [(number, token) for number, token in tokenizer.vocab.items() if number not in special]
    return sorted(ordinary, key=lambda item: (-len(item[1]), item[0]))[:count]


def broken_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of tokens of several bytes that are not whole characters: they never stand alone in well-formed text."""
    broken = []
    for number, token in sorted(tokenizer.vocab.items()):
        if len(token) > 1:
            try:
                token.decode()
            except UnicodeDecodeError:
                broken.append(number)
    return broken


def common_merges(a: Tokenizer, b: Tokenizer) -> float:
    """The share of merges two tokenizers have in common: of all that either has (Jaccard)."""
    ours, theirs = set(a.merges), set(b.merges)
    return len(ours & theirs) / max(1, len(ours | theirs))


def table(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, bytes]) -> str:
    """Every tokenizer on every text, as lines of text with columns that stand under one another."""
    rows = [("tokenizer", "text", "bytes/token", "tokens/word", "used", "MB/s", "Pile, hours")]
    for name, tokenizer in tokenizers.items():
        for text_name, text in texts.items():
            found = compression(tokenizer, text, name=name, text_name=text_name)
            rows.append(
                (
                    name,
                    text_name,
                    f"{found.bytes_per_token:.3f}",
                    f"{found.tokens_per_word:.3f}",
                    f"{found.used:.1%}",
                    f"{found.megabytes_per_second:.0f}",
                    f"{found.pile_hours:.2f}",
                )
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: tuple[str, ...]) -> str:
        cells = zip(row, widths, strict=True)
        return "  ".join(cell.rjust(width) if i > 1 else cell.ljust(width) for i, (cell, width) in enumerate(cells))

    return "\n".join(map(line, rows))
