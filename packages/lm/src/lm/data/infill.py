"""Fill-in-the-middle: documents rearranged so that a left-to-right model learns to write between two texts.

A document is cut at two characters into prefix, middle and suffix, and becomes (Bavarian et al. 2022, arXiv:2207.14255)

    PSM   <prefix> prefix <suffix> suffix <middle> middle
    SPM   <prefix> <suffix> suffix <middle> prefix middle        (the paper's second variant)

The three parts are encoded each on its own: a model asked to go on from the middle of a token has then seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lm.data.batches import mix

PREFIX, MIDDLE, SUFFIX = NAMES = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")


class Cut(NamedTuple):
    """A document in three parts; spm: which of the two orders they are to have."""

    prefix: bytes
    middle: bytes
    suffix: bytes
    spm: bool


@dataclass(frozen=True)
class FillInTheMiddle:
    """The cuts of documents, by the seed and a document's index alone, and the ids that mark the parts.

    rate: the share of documents that are cut; spm_rate: the share of those in the order SPM.
    """

    prefix_id: int
    middle_id: int
    suffix_id: int
    rate: float = 0.5
    spm_rate: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "spm_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share of documents, from 0 to 1, got {getattr(self, name)}")

    @classmethod
    def of(cls, special_tokens: Mapping[str, int], names: Sequence[str] = NAMES, **settings: Any) -> FillInTheMiddle:
        """With the ids of a tokenizer's special tokens: prefix, middle, suffix. KeyError: it lacks one."""
        if missing := " or ".join(repr(name) for name in names if name not in special_tokens):
            raise KeyError(f"the tokenizer has no special token {missing}: name its own with --fim-tokens")
        return cls(*(special_tokens[name] for name in names), **settings)

    def cut(self, document: bytes, index: int) -> Cut | None:
        """The index-th document in its three parts, which may be empty; None where it is not cut."""
        state = mix(mix(self.seed) ^ index)
        draws = []
        for _ in range(4):
            state = mix(state)
            draws.append(state / 2**64)
        if draws[0] >= self.rate:
            return None
        first, second = sorted(at_character(document, int(draw * (len(document) + 1))) for draw in draws[2:])
        return Cut(document[:first], document[first:second], document[second:], draws[1] < self.spm_rate)

    def encode(self, document: bytes, index: int, encode: Callable[[bytes], NDArray[Any]]) -> NDArray[Any]:
        """The ids of the index-th document, rearranged or not; `encode` takes no text for a special token."""
        cut = self.cut(document, index)
        if cut is None:
            return encode(document)
        prefix, middle, suffix = encode(cut.prefix), encode(cut.middle), encode(cut.suffix)
        if cut.spm:
            parts = [[self.prefix_id, self.suffix_id], suffix, [self.middle_id], prefix, middle]
        else:
            parts = [[self.prefix_id], prefix, [self.suffix_id], suffix, [self.middle_id], middle]
        return np.concatenate([np.asarray(part, dtype=np.uint32) for part in parts])


def at_character(text: bytes, at: int) -> int:
    """The beginning of the UTF-8 character that the place lies in."""
    while 0 < at < len(text) and text[at] & 0xC0 == 0x80:
        at -= 1
    return at
