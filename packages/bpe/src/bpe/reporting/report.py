"""Figures of tokenizers on texts, as tables, JSON and a page: compression, speed, and the tokens that are used."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import combinations
from typing import Any

from bpe.native.lazy_imports import numpy as np
from bpe.reporting.view import asset
from bpe.tokenizer import Tokenizer

_WORD = re.compile(rb"\S+")
_BESIDE = ("", "a", "A", " ", "1", "!", "'", "\n", "中", "\u0301")  # what may stand beside a token, a kind each
PILE_BYTES = 825 * 10**9  # the Pile (Gao et al. 2020), as usually quoted
TIMED_BYTES = 4 * 10**6  # below, a first pass mostly fills caches


@dataclass(frozen=True)
class Compression:
    """A tokenizer on a text. A word is a run of anything but ASCII white space."""

    tokenizer: str
    text: str
    bytes: int
    tokens: int
    bytes_per_token: float
    tokens_per_word: float
    used: float  # the share of the vocabulary that the text uses
    # One thread, ids to an array, measured once here and now, loading aside; None for a text below TIMED_BYTES.
    megabytes_per_second: float | None
    pile_hours: float | None  # time of the Pile at that speed


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer: ids in lists, and the longest as text."""

    tokenizer: str
    tokens: int
    special: int
    longest: list[str]
    unused: list[int]  # in none of the texts
    unreachable: list[int]  # in no text at all
    broken: list[int]  # not whole characters


@dataclass(frozen=True)
class CommonMerges:
    """The merges that two tokenizers have in common, as shares."""

    one: str
    another: str
    of_all: float  # of the merges that either has (Jaccard): small where one has many more, whatever they share
    of_smaller: float  # of the merges of the tokenizer that has fewer


@dataclass(frozen=True)
class Report:
    """texts: each tokenizer on each text; vocabularies: each tokenizer; merges_in_common: each two tokenizers."""

    texts: list[Compression]
    vocabularies: list[Vocabulary]
    merges_in_common: list[CommonMerges]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)

    def tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """(heading, rows with the names of the columns first) of each table."""
        texts = [("tokenizer", "text", "bytes", "tokens", "bytes/token", "tokens/word", "used", "MB/s", "Pile, hours")]
        texts += [
            (
                row.tokenizer, row.text, f"{row.bytes:,}", f"{row.tokens:,}", f"{row.bytes_per_token:.3f}",
                f"{row.tokens_per_word:.3f}", f"{row.used:.1%}", _number(row.megabytes_per_second, 0),
                _number(row.pile_hours, 2),
            )
            for row in self.texts
        ]  # fmt: skip
        vocabularies = [("tokenizer", "tokens", "special", "unused", "unreachable", "parts of characters", "longest")]
        vocabularies += [
            (
                row.tokenizer, f"{row.tokens:,}", f"{row.special:,}", f"{len(row.unused):,}",
                f"{len(row.unreachable):,}", f"{len(row.broken):,}", "  ".join(map(repr, row.longest)),
            )
            for row in self.vocabularies
        ]  # fmt: skip
        merges = [("one", "another", "in common, of all", "of the smaller's")]
        merges += [
            (row.one, row.another, f"{row.of_all:.1%}", f"{row.of_smaller:.1%}") for row in self.merges_in_common
        ]
        tables = ("Texts", [*texts]), ("Vocabularies", [*vocabularies]), ("Merges", [*merges])
        return [(heading, [*rows]) for heading, rows in tables if len(rows) > 1]

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_aligned(rows)) for _, rows in self.tables())

    def html(self) -> str:
        """A page that needs nothing but itself."""
        parts = []
        for heading, table in self.tables():
            kinds = [' class="n"' if numbers else "" for numbers in _of_numbers(table)]
            head, *body = (
                "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=True))
                for row, tag in zip(table, ["th", *["td"] * (len(table) - 1)], strict=True)
            )
            lines = "".join(f"<tr>{row}</tr>\n" for row in body)
            scrolls = f'<div class="wide" tabindex="0" role="group" aria-label="{heading}">'
            parts.append(f"<h2>{heading}</h2>\n{scrolls}<table><thead><tr>{head}</tr></thead>\n")
            parts.append(f"<tbody>{lines}</tbody></table></div>\n")
        page = asset("report.html").replace("STYLE", asset("dress.css")).replace("NOTES", escape(NOTES))
        return page.replace("TABLES", "".join(parts))


NOTES = (
    "A word is a run of anything but ASCII white space. Used: the share of the vocabulary that the text uses. MB/s: "
    f"one thread, once, on the machine that wrote this page, for texts of {TIMED_BYTES / 1e6:.0f} MB and more; Pile: "
    "the hours that 825 GB would take so. Unused: in none of these texts. Unreachable: tokens that no text gives, "
    "because merging never makes them or the split pattern always cuts them. "
    "Merges in common: of all that either tokenizer has, and of the smaller tokenizer's."
)


def measure(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, Sequence[bytes]]) -> Report:
    """Every tokenizer on every text, a text being several that are encoded apart. ValueError for one that is empty."""
    rows, vocabularies = [], []
    for name, tokenizer in tokenizers.items():
        seen: set[int] = set()
        for text_name, parts in texts.items():
            row, used = compression(tokenizer, parts, name=name, text_name=text_name)
            rows.append(row)
            seen |= used
        longest = [token.decode(errors="replace") for _, token in longest_tokens(tokenizer, 5)]
        lists = sorted(set(tokenizer.vocab) - seen), unreachable_tokens(tokenizer), broken_tokens(tokenizer)
        vocabularies.append(Vocabulary(name, len(tokenizer.vocab), len(tokenizer.special_tokens), longest, *lists))
    common = [
        CommonMerges(one, other, *common_merges(tokenizers[one], tokenizers[other]))
        for one, other in combinations(tokenizers, 2)
    ]
    return Report(rows, vocabularies, common)


def compression(
    tokenizer: Tokenizer, texts: Sequence[bytes], *, name: str = "", text_name: str = ""
) -> tuple[Compression, set[int]]:
    """Measure a tokenizer on a text, and the ids it has there. ValueError for an empty one, which has no rates."""
    size = sum(map(len, texts))
    if not size:
        raise ValueError(f"the text {text_name!r} is empty, so there is nothing to measure")
    tokenizer.encode_to_numpy("a")  # makes its tables
    begun = time.process_time()
    ids = [tokenizer.encode_to_numpy(text, allowed_special="all") for text in texts]
    seconds = max(time.process_time() - begun, 1e-9)
    tokens = sum(map(len, ids))
    used = set(np.unique(np.concatenate(ids)).tolist())
    words = max(1, sum(sum(1 for _ in _WORD.finditer(text)) for text in texts))
    rate = size / seconds if size >= TIMED_BYTES else None
    row = Compression(
        tokenizer=name or tokenizer.name,
        text=text_name,
        bytes=size,
        tokens=tokens,
        bytes_per_token=size / tokens,
        tokens_per_word=tokens / words,
        used=len(used) / tokenizer.vocab_size,
        megabytes_per_second=rate and rate / 1e6,
        pile_hours=rate and PILE_BYTES / rate / 3600,
    )
    return row, used


def ordinary_tokens(tokenizer: Tokenizer) -> list[tuple[int, bytes]]:
    """(id, bytes) of each token that text can be merged to, neither special nor added, by id."""
    split_off = tokenizer._text_encoder.special_ids
    return [(number, token) for number, token in sorted(tokenizer.vocab.items()) if number not in split_off]


def longest_tokens(tokenizer: Tokenizer, count: int = 10) -> list[tuple[int, bytes]]:
    """The longest tokens that are not special, longest first, as (id, bytes)."""
    return sorted(ordinary_tokens(tokenizer), key=lambda item: (-len(item[1]), item[0]))[:count]


def broken_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of tokens of several bytes that are not whole characters: they never stand alone in well-formed text."""
    return [number for number, token in sorted(tokenizer.vocab.items()) if len(token) > 1 and not _is_text(token)]


def _is_text(token: bytes) -> bool:
    return token.decode(errors="ignore").encode() == token


def unreachable_tokens(tokenizer: Tokenizer) -> list[int]:
    """The ids of ordinary tokens that no text gives.

    Merging between two borders of tokens depends on the bytes there alone, so a token that its own bytes do not merge
    to appears only where a pretoken that is a token is not merged. A token that the split pattern cuts, whatever stands
    beside it, never appears (a character of every kind is tried; parts of characters aside).
    """
    data = tokenizer._data
    ordinary = ordinary_tokens(tokenizer)
    ids = {token: number for number, token in reversed(ordinary)}  # the lowest, where several have the same bytes
    never = set(tokenizer._text_encoder.never_merged(ids))
    split = tokenizer._text_encoder.split
    numbers = []
    for number, token in ordinary:
        merged = token not in never and ids[token] == number
        if (merged or data.ignore_merges) and (len(split(token)) == 1 or (merged and not _always_cut(token, split))):
            continue
        numbers.append(number)
    return numbers


def _always_cut(token: bytes, split: Callable[[bytes], list[bytes]]) -> bool:
    """True if a pretoken ends inside the token, whatever text is beside it."""
    if not _is_text(token):
        return False
    for before in map(str.encode, _BESIDE):
        for after in map(str.encode, _BESIDE):
            end = 0
            ends = [end := end + len(piece) for piece in split(before + token + after)]
            if not any(len(before) < end < len(before) + len(token) for end in ends):
                return False
    return True


def common_merges(a: Tokenizer, b: Tokenizer) -> tuple[float, float]:
    """Return the common merges of two tokenizers as a share of all merges, and of the smaller's."""
    of_a, of_b = set(a.merges), set(b.merges)
    both = len(of_a & of_b)
    return both / max(1, len(of_a | of_b)), both / max(1, min(len(of_a), len(of_b)))


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _of_numbers(rows: Sequence[tuple[str, ...]]) -> list[bool]:
    """True for each column of numbers; the first row has the names."""
    return [all(cell == "-" or cell[:1].isdigit() for cell in column[1:]) for column in zip(*rows, strict=True)]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as lines of text whose columns stand under one another; columns of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width, numbers in zip(row, widths, _of_numbers(rows), strict=True)
        ).rstrip()
        for row in rows
    ]
