"""Where each token begins in its text, in bytes and in characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def byte_offsets(pieces: Sequence[bytes]) -> list[int]:
    """The byte at which each piece begins in the pieces joined."""
    return list(itertools.accumulate(map(len, pieces), initial=0))[:-1]


def character_offsets(pieces: Sequence[bytes]) -> list[int]:
    """The character at which each piece of UTF-8 begins; one that begins inside a character has the place of that."""
    lead = np.frombuffer(b"".join(pieces) + b"\0", dtype=np.uint8) & 0xC0 != 0x80
    places: list[int] = np.maximum(np.cumsum(lead) - 1, 0)[byte_offsets(pieces)].tolist() if pieces else []
    return places
