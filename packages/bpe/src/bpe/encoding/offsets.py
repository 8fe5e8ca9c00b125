"""Offsets of the ids of a text, as tokenizers counts them for texts whose bytes are not all encoded."""

from __future__ import annotations

import json
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


DROPPING = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit")


def spaces_added_by(steps: str) -> str:
    """Return "never", or, where a step puts a space before every pretoken, "always" or "if missing".

    steps: of a pre-tokenizer, as JSON, or "". Pretokens between which text is dropped begin with no space of their own.
    """
    parsed = json.loads(steps or "[]")
    if not any(one.get("add_prefix_space") for one in parsed):
        return "never"
    drops = any(one["type"] in DROPPING or one.get("behavior") == "Removed" for one in parsed)
    return "always" if drops else "if missing"


def positions_by_pretoken(
    data: bytes, pretokens: Iterable[bytes], encoder: Encoder, decoder: Decoder, lost: bytes | None, spaces: str
) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of a piece with bytes that are left out or spaces that are added, and the positions of each.

    lost: the bytes that are left out, between which tokens stand in their places. None for the positions of
    tokenizers: there such bytes move the tokens behind them in their pretoken to the left, and a byte has the size of
    the printable character that stands for it. spaces: of spaces_added_by(); a space has that of what follows it.
    """
    ids: list[int] = []
    begins: list[int] = []
    ends: list[int] = []
    end = 0
    size_of = [1 if lost is not None else len(character.encode()) for character in PRINTABLE]
    for pretoken in pretokens:
        has_space = spaces != "never" and pretoken.startswith(b" ")
        added = has_space and (spaces == "always" or not data.startswith(pretoken, end))
        begin = max(end, data.find(pretoken[added:], end))  # what a pattern drops lies between pretokens
        end = begin + len(pretoken) - added
        numbers = encoder.encode_pieces([pretoken]).tolist()
        counted = [(position, byte) for position, byte in enumerate(pretoken) if lost is None or byte not in lost]
        positions = [max(0, position - added) for position, byte in counted for _ in range(size_of[byte])]
        at = 0
        for token in decoder.decode_each(numbers):
            begins.append(begin + positions[at])
            at += sum(map(size_of.__getitem__, token))
            ends.append(begin + positions[at] if at < len(positions) else end)
        ids += numbers
    return ids, begins, ends
