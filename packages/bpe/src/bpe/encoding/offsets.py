"""Offsets of the ids of a text, as tokenizers counts them for texts whose bytes are not all encoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bpe.native.lazy_imports import numpy as np
from bpe.native.printable import PRINTABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.decoder import Decoder
    from bpe.encoding.encoder import Encoder


def characters_of_bytes(data: bytes) -> NDArray[Any]:
    """Return, for each byte of UTF-8, the number of the character that it belongs to."""
    return np.cumsum(np.frombuffer(data, dtype=np.uint8) & 0xC0 != 0x80) - 1


def begins_by_pretoken(
    data: bytes, pretokens: Iterable[bytes], encoder: Encoder, decoder: Decoder, lost: bytes | None
) -> tuple[list[int], NDArray[Any]]:
    """Return the ids of a piece with bytes that are left out, and the byte where each begins.

    Args:
        data, pretokens: the piece, and the pretokens of it.
        encoder, decoder: of the tokenizer.
        lost: the bytes that are left out, between which tokens stand in their places. None for the places that
            tokenizers gives: there such bytes move the tokens behind them in their pretoken to the left. Sizes are
            the printable characters' that stand for bytes: one or two bytes of UTF-8.
    """
    ids: list[int] = []
    begins: list[int] = []
    end = 0
    size_of = [1 if lost is not None else len(character.encode()) for character in PRINTABLE]
    for pretoken in pretokens:
        begin = max(end, data.find(pretoken, end))  # what a pattern drops lies between pretokens
        end = begin + len(pretoken)
        numbers = encoder.encode_pieces([pretoken]).tolist()
        counted = [(place, byte) for place, byte in enumerate(pretoken) if lost is None or byte not in lost]
        places = [place for place, byte in counted for _ in range(size_of[byte])]
        at = 0
        for token in decoder.decode_each(numbers):
            begins.append(begin + places[at])
            at += sum(map(size_of.__getitem__, token))
        ids += numbers
    return ids, np.array(begins, dtype=np.int64)
