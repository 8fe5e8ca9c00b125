"""A vocabulary as the encoder wants it: special tokens with their ids, symbols, and the merges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

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


def encoder_tables(data: TokenizerData, special: set[int]) -> tuple[list[bytes], list[int], NDArray[Any], NDArray[Any]]:
    """The symbols, the id of each, and the merges between them with their ranks, as Encoder wants them."""
    made = {left + right for left, right in data.merges} if data.merges is not None else set()
    number_of = {
        token: number
        for number, token in sorted(data.vocab.items(), reverse=True)
        if number not in special or len(token) == 1 or token in made
    }
    symbols = list(number_of)
    index = {token: i for i, token in enumerate(symbols)}
    if data.merges is None:
        rows = [
            (index[token[:cut]], index[token[cut:]], index[token], number)
            for token, number in number_of.items()
            for cut in range(1, len(token))
            if token[:cut] in index and token[cut:] in index
        ]
    else:
        rows = []
        for rank, (left, right) in enumerate(data.merges):
            if left not in index or right not in index or left + right not in index:
                missing = next(token for token in (left, right, left + right) if token not in index)
                raise ValueError(f"merge {rank}, {left!r} + {right!r}: the vocabulary has no token {missing!r}")
            rows.append((index[left], index[right], index[left + right], rank))
        if len(set(data.merges)) < len(data.merges):
            raise ValueError("a merge stands twice in the list; leave the second one out, it can never apply")
    table = np.array(rows, dtype=np.uint32).reshape(-1, 4)
    return symbols, list(number_of.values()), table[:, :3], table[:, 3]
