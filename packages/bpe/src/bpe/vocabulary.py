"""A vocabulary as the encoder wants it: special tokens with their ids, symbols, and the merges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bpe._pairs import pairs_of_merges, pairs_of_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.formats import TokenizerData


def number_special_tokens(special_tokens: Iterable[str] | Mapping[str, int], vocab: dict[int, bytes]) -> dict[str, int]:
    """{name: id} for special tokens; those that the vocabulary lacks are added to it."""
    if isinstance(special_tokens, str):
        raise TypeError(f"special_tokens is a list of names or {{name: id}}, not the str {special_tokens!r}")
    names = list(special_tokens)
    if "" in names:
        raise ValueError("a special token is empty; give it at least one byte or leave it out")
    if len(set(names)) < len(names):
        raise ValueError(f"a special token is given twice in {names}; give each once")
    ids: dict[str, int] = {}
    if isinstance(special_tokens, Mapping):
        for name, number in special_tokens.items():
            if vocab.setdefault(number, name.encode()) != name.encode():
                raise ValueError(f"special token {name!r} has the id {number}, but that is {vocab[number]!r} already")
            ids[name] = number
        return ids
    known = {token: number for number, token in sorted(vocab.items(), reverse=True)}
    for name in names:
        number = known.get(name.encode())
        if number is None:
            number = max(vocab, default=-1) + 1
            vocab[number] = name.encode()
        ids[name] = number
    return ids


def encoder_tables(
    data: TokenizerData, special: set[int]
) -> tuple[list[bytes], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The symbols, the id of each, and the merges between them with their ranks, as Encoder wants them.

    Two ids of the same bytes are one symbol, that of the lower, and of one that is not special before one that is. A special
    token is no symbol unless it is a single byte or the merges make it.
    """
    apart = {data.vocab[number] for number in special if len(data.vocab[number]) > 1}
    if apart and data.merges is not None:
        ends = {token[-1] for token in apart}  # so that hardly any two have to be joined to see what they make
        apart -= {left + right for left, right in data.merges if right[-1:] and right[-1] in ends}
    number_of = dict(zip(data.vocab.values(), data.vocab, strict=True))
    if len(number_of) == len(data.vocab):
        for token in apart:
            del number_of[token]
    else:
        number_of = {
            token: number
            for number, token in sorted(data.vocab.items(), key=lambda item: (item[0] not in special, -item[0]))
            if number not in special or token not in apart
        }
    symbols = list(number_of)
    ids = np.fromiter(number_of.values(), dtype=np.uint32, count=len(number_of))
    table = pairs_of_ranks(symbols, ids) if data.merges is None else pairs_of_merges(symbols, data.merges)
    return symbols, ids, table[:, :3], table[:, 3]
