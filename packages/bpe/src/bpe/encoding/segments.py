"""Segments of one text, which is encoded as a whole; only the trusted ones may hold special and added tokens.

A special token lies in one trusted stretch, which may be of several segments side by side. Added tokens of white space
alone, which some vocabularies have for indentation, are recognised everywhere.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import TYPE_CHECKING, AnyStr

from bpe.native.lazy_imports import numpy as np
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

Span = tuple[int, int, int]  # where a piece begins and ends, and the id of the token that it is, or -1


def spans_of(text: AnyStr, tokens: SpecialTokens) -> list[Span]:
    """Return a text cut up at these tokens."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    spans, end = [], 0
    for piece, index in tokens.partition(data):
        size = len(piece.decode("utf-8", "surrogateescape")) if isinstance(text, str) else len(piece)
        begin, end = end, end + size
        spans.append((begin, end, tokens.ids[index] if index >= 0 else -1))
    return spans


def trusted_spans(text: AnyStr, tokens: SpecialTokens, trusted: NDArray[np.bool_]) -> list[Span]:
    """spans_of(), where only trusted stretches hold tokens. trusted: for each character of a str, or each byte."""
    marks, blanks = _by_kind(tokens)
    spans: list[Span] = []
    edges: list[int] = (np.flatnonzero(trusted[1:] != trusted[:-1]) + 1).tolist()
    for at, stop in pairwise([0, *edges, len(text)] if text else []):
        for begin, end, number in spans_of(text[at:stop], marks) if trusted[at] else [(0, stop - at, -1)]:
            if number < 0 and spans and spans[-1][2] < 0:
                spans[-1] = (spans[-1][0], at + end, -1)
            else:
                spans.append((at + begin, at + end, number))
    if not blanks:
        return spans
    return [
        (at + begin, at + end, blank)
        for at, stop, number in spans
        for begin, end, blank in ([(0, stop - at, number)] if number >= 0 else spans_of(text[at:stop], blanks))
    ]


@functools.lru_cache(maxsize=64)
def _by_kind(tokens: SpecialTokens) -> tuple[SpecialTokens, SpecialTokens]:
    """Return the tokens with other characters than white space, and the tokens without."""
    pairs = list(zip(tokens.names, tokens.ids, strict=True))
    blank = dict(pair for pair in pairs if pair[0].decode().isspace())
    marks = dict(pair for pair in pairs if pair[0] not in blank)
    return SpecialTokens(marks, marks.values()), SpecialTokens(blank, blank.values())
