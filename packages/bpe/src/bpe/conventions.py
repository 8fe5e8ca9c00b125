"""The conventions of training: which of several pairs of equal count is merged first, and which ids the tokens get.

Each is that of a known trainer, and is asked for by its name, `tie_break`. A tie is broken by the bytes of the two
tokens or by their ids, so that a convention also owns the order of the first 256 symbols, its alphabet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain, islice
from typing import Literal

TieBreak = Literal["bytes", "huggingface", "ids"]


class Convention(ABC):
    """What "bytes" and "ids" have in common: symbols in the order of the bytes; a special token of one byte is it."""

    by_bytes = (
        False  # among pairs of equal count: the greatest (left bytes, right bytes), or the smallest pair of symbols
    )

    def smallest_vocabulary(self, special: tuple[bytes, ...]) -> int:
        """The tokens before anything is merged: the bytes and the special tokens that are none of them."""
        return 256 + sum(len(name) > 1 for name in special)

    def alphabet(self, special: tuple[bytes, ...]) -> list[bytes]:
        """The 256 bytes in the order that breaks ties."""
        return [bytes([byte]) for byte in range(256)]

    def longest_merge(self, max_token_bytes: int | None) -> int:
        """The bytes that a merged token may have; 0 for no bound."""
        return max_token_bytes or 0

    @abstractmethod
    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        """The ids of the alphabet, the special tokens and the merged tokens.

        Args:
            tokens: The alphabet, and after it the token of each merge.
            special: The special tokens in their order.

        Returns:
            The token of each id, and the id of each special token.
        """


class Bytes(Convention):
    """CS336's: ties to the greatest (left bytes, right bytes); ids: bytes, special tokens, merges."""

    by_bytes = True

    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        others = [token for token in special if len(token) > 1]
        ids = {token: i for i, token in enumerate(chain(tokens[:256], others))}
        vocab = dict(enumerate(chain(tokens[:256], others, islice(tokens, 256, None))))
        return vocab, {token.decode(): ids[token] for token in special}


class Ids(Convention):
    """rustbpe's: ties to the smallest (left id, right id); ids: bytes, merges, special tokens."""

    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        others = [token for token in special if len(token) > 1]
        ids = {token: i for i, token in enumerate(tokens[:256])}
        ids |= {token: i for i, token in enumerate(others, len(tokens))}
        return dict(enumerate(chain(tokens, others))), {token.decode(): ids[token] for token in special}


class HuggingFace(Convention):
    """tokenizers' BpeTrainer's: ties to the smallest (left id, right id); ids: special tokens, bytes, merges.

    A byte is spelled as a printable character, and the bytes come in the order of their spelling. A byte that is
    spelled as a special token is has that token's id: the special token "a" is the byte "a", but " " is not the byte
    spelled "Ġ".
    """

    def smallest_vocabulary(self, special: tuple[bytes, ...]) -> int:
        return 256 + sum(name.decode() not in _printable() for name in special)

    def alphabet(self, special: tuple[bytes, ...]) -> list[bytes]:
        printable, place = _printable(), {name.decode(): i for i, name in enumerate(special)}
        order = sorted(range(256), key=lambda byte: (place.get(printable[byte], len(place)), printable[byte]))
        return [bytes([byte]) for byte in order]

    def longest_merge(self, max_token_bytes: int | None) -> int:
        # BpeTrainer stays below its max_token_length, and does not ask about pairs of bytes
        return max(2, max_token_bytes - 1) if max_token_bytes else 0

    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        byte_of = {_printable()[token[0]].encode(): token for token in tokens[:256]}
        first = [byte_of.get(name, name) for name in special]
        alphabet = [token for spelling, token in byte_of.items() if spelling not in special]
        vocab = dict(enumerate(chain(first, alphabet, islice(tokens, 256, None))))
        return vocab, {name.decode(): i for i, name in enumerate(special)}


CONVENTIONS: dict[str, Convention] = {"bytes": Bytes(), "huggingface": HuggingFace(), "ids": Ids()}


def _printable() -> list[str]:
    """How tokenizers spells each byte."""
    from bpe.native.printable import PRINTABLE

    return PRINTABLE
