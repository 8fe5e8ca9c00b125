"""Texts cut where tokens begin: the beginning that fits a number of tokens, and pieces of at most a number.

A text is encoded once. A cut is the beginning of a token that is also the beginning of a character: one that starts
inside a character, or inside what the tokenizer made of one character, is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bpe.encoding.text_encoder import TextEncoder
from bpe.encoding.texts import Text, checked
from bpe.native.checks import integer
from bpe.native.lazy_imports import numpy as np
from bpe.scanning.special_tokens import Rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.decoder import Decoder

_FEWEST_BYTES, _BYTES_OF_TOKEN = 256, 8  # of a text that are encoded at first, for each token of the budget


class Piece(NamedTuple):
    """A piece of a text and its ids, as Tokenizer.truncate() and Tokenizer.split() return them."""

    text: str | bytes
    ids: list[int]


class _Tokens(NamedTuple):
    """The ids of a text, the byte where each begins (and the size of the text), and the numbers of those to cut at."""

    ids: list[int]
    offsets: NDArray[np.int64]
    borders: NDArray[np.int64]


def _tokens(encoder: TextEncoder, decoder: Decoder, data: bytes, rules: Rules, most: int | None = None) -> _Tokens:
    """most: ids after which the rest of the text is not needed."""
    ids: list[int] = []
    offsets, firsts, at = [], [], 0
    while at < len(data) and (most is None or len(ids) <= most):
        end = len(data)
        if most is not None and encoder.can_cut:
            size = max(_FEWEST_BYTES, _BYTES_OF_TOKEN * (most - len(ids)))
            end = encoder.safe_cut(data, min(at + size, len(data)), rules.all)
        part = data[at:end]
        aligned = encoder.with_offsets(part, rules, decoder, exact=True)
        part_ids = encoder.to_ids(part, rules.recognised).tolist() if aligned is None else aligned[0]
        decoded, begins = decoder.decode_with_offsets(part_ids, False)
        ids += part_ids
        offsets.append(at + np.array(begins if aligned is None else aligned[1], dtype=np.int64))
        firsts.append(np.frombuffer(decoded + b" ", dtype=np.uint8)[begins])
        at = end
    starts = np.concatenate([*offsets, [at]])
    cuts = np.append(np.concatenate([*firsts, np.empty(0, dtype=np.uint8)]) & 0xC0 != 0x80, True)
    cuts &= np.frombuffer(data + b" ", dtype=np.uint8)[starts] & 0xC0 != 0x80
    cuts[1:] &= starts[1:] > starts[:-1]
    cuts[[0, -1]] = True
    starts[0] = 0 if ids else at  # a text may have no ids
    return _Tokens(ids, starts, np.flatnonzero(cuts))


def _piece(text: Text, data: bytes, tokens: _Tokens, begin: int, end: int) -> Piece:
    part = data[tokens.offsets[begin] if begin else 0 : tokens.offsets[end]]
    return Piece(part.decode() if isinstance(text, str) else part, tokens.ids[begin:end])


def truncate(encoder: TextEncoder, decoder: Decoder, text: Text, rules: Rules, most: int) -> Piece:
    """Return the beginning of a text that has at most `tokens` ids; see Tokenizer.truncate()."""
    most = integer("tokens", most, 0)
    data = bytes(checked(text, rules, repair=True))
    tokens = _tokens(encoder, decoder, data, rules, most)
    return _piece(text, data, tokens, 0, int(tokens.borders[np.searchsorted(tokens.borders, most, "right") - 1]))


def cut(encoder: TextEncoder, decoder: Decoder, text: Text, rules: Rules, most: int, overlap: int) -> list[Piece]:
    """Return a text in pieces of at most `tokens` ids; see Tokenizer.split()."""
    if integer("overlap", overlap, 0) >= integer("tokens", most):
        raise ValueError(f"expected an overlap below the {most} tokens of a piece, got {overlap}")
    data = bytes(checked(text, rules, repair=True))
    tokens = _tokens(encoder, decoder, data, rules)
    borders = tokens.borders
    pieces: list[Piece] = []
    end = 0
    if data and not tokens.ids:
        return [Piece(text if isinstance(text, str) else data, [])]
    while end < len(tokens.ids):
        following = int(borders[np.searchsorted(borders, end, "right")])
        begin = int(borders[np.searchsorted(borders, max(end - overlap, following - most))])
        if begin > end:
            offset = tokens.offsets[end]
            raise ValueError(
                f"the text cannot be cut for {following - end} tokens from byte {offset} on, more than the {most} of a "
                "piece: these characters share tokens; allow a piece more tokens"
            )
        end = int(borders[np.searchsorted(borders, begin + most, "right") - 1])
        pieces.append(_piece(text, data, tokens, begin, end))
    return pieces
