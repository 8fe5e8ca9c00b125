"""The conventions of training: which of several pairs with equal counts is merged first, and which ids tokens get.

Trainers differ in these two points only. A convention is that of a known trainer; `tie_break` names it:

    tie_break      of equal counts, first        ids                                trainer
    bytes          the greatest pair of bytes    bytes, special tokens, merges      CS336
    ids            the smallest pair of ids      bytes, merges, special tokens      rustbpe
    huggingface    the smallest pair of ids      special tokens, bytes, merges      tokenizers' BpeTrainer

Where ties are broken by ids, the order of the first 256 symbols (the alphabet) decides too, so it is the convention's.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Literal

from bpe.native.printable import PRINTABLE

TieBreak = Literal["bytes", "huggingface", "ids"]


class Convention:
    """A convention by its name: "bytes" or "ids". The alphabet is the bytes in order; a special token of a byte is it.

    by_bytes: ties go to the greatest (left bytes, right bytes); else to the smallest pair of symbols.
    """

    def __init__(self, name: TieBreak) -> None:
        self.by_bytes = name == "bytes"

    def smallest_vocabulary(self, special: tuple[bytes, ...]) -> int:
        """Number of tokens before the first merge: the bytes, and the special tokens that are no byte."""
        return 256 + sum(len(name) > 1 for name in special)

    def alphabet(self, special: tuple[bytes, ...]) -> list[bytes]:
        """The 256 bytes, in the order of their symbols."""
        return [bytes([byte]) for byte in range(256)]

    def longest_merge(self, max_token_bytes: int | None) -> int:
        """Maximum number of bytes of a merged token; 0 for no bound."""
        return max_token_bytes or 0

    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        """Return {id: token} and the id of each special token; tokens: the alphabet, then the token of each merge."""
        others = [token for token in special if len(token) > 1]
        begin = 256 if self.by_bytes else len(tokens)  # their ids
        vocab = dict(enumerate(chain(islice(tokens, begin), others, islice(tokens, begin, None))))
        ids = {token: i for i, token in chain(enumerate(tokens[:256]), enumerate(others, begin))}
        return vocab, {token.decode(): ids[token] for token in special}


class HuggingFace(Convention):
    """tokenizers' BpeTrainer's: ties to the smallest (left id, right id); ids: special tokens, bytes, merges.

    tokenizers spells each byte as a printable character and orders the bytes by their spelling. Where a special token
    is the spelling of a byte, the two are one token: the special token "a" is the byte "a", and "Ġ" is the space; the
    special token " " is not, as no byte is spelled so.
    """

    def smallest_vocabulary(self, special: tuple[bytes, ...]) -> int:
        return 256 + sum(name.decode() not in PRINTABLE for name in special)

    def alphabet(self, special: tuple[bytes, ...]) -> list[bytes]:
        rank_of = {name.decode(): i for i, name in enumerate(special)}
        order = sorted(range(256), key=lambda byte: (rank_of.get(PRINTABLE[byte], len(rank_of)), PRINTABLE[byte]))
        return [bytes([byte]) for byte in order]

    def longest_merge(self, max_token_bytes: int | None) -> int:
        # BpeTrainer stays below its max_token_length, but merges two bytes whatever it is
        return max(2, max_token_bytes - 1) if max_token_bytes else 0

    def number(self, tokens: list[bytes], special: tuple[bytes, ...]) -> tuple[dict[int, bytes], dict[str, int]]:
        byte_of = {PRINTABLE[token[0]].encode(): token for token in tokens[:256]}
        first = [byte_of.get(name, name) for name in special]
        alphabet = [token for spelling, token in byte_of.items() if spelling not in special]
        vocab = dict(enumerate(chain(first, alphabet, islice(tokens, 256, None))))
        return vocab, {name.decode(): i for i, name in enumerate(special)}


CONVENTIONS: dict[str, Convention] = {
    "bytes": Convention("bytes"),
    "huggingface": HuggingFace("huggingface"),
    "ids": Convention("ids"),
}
