"""BpeTrainer, with the names and defaults of tokenizers 0.23."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AddedToken:
    """A special token and how it is found in a text, as tokenizers' AddedToken."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


@dataclass
class BpeTrainer:
    """Settings of the vocabulary to train.

    Args:
        vocab_size: The most tokens, special tokens and alphabet included.
        min_frequency: No pair that occurs less often is merged.
        show_progress: Show bars, where tqdm is installed.
        special_tokens: str or AddedToken. They get the first ids; training does not look for them in texts.
        limit_alphabet: The most characters that become tokens, the commonest. The others are dropped from the texts.
        initial_alphabet: Strings whose first characters become tokens even where the texts have none.
        max_token_length: No token of as many characters or more is merged from more than two.
        continuing_subword_prefix, end_of_word_suffix: Not supported: only None is taken.

    Raises:
        ValueError: A setting that is not supported, or a number below zero.
    """

    vocab_size: int = 30000
    min_frequency: int = 0
    show_progress: bool = True
    special_tokens: Sequence[str | Any] = ()
    limit_alphabet: int | None = None
    initial_alphabet: Sequence[str] = ()
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_token_length: int | None = None
    added_tokens: list[AddedToken] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        refuse_affixes(vars(self))
        for name in ("vocab_size", "min_frequency", "limit_alphabet", "max_token_length"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"expected {name} to be 0 or more, got {value}")
        self.added_tokens = [_added(token) for token in self.special_tokens]


def refuse_affixes(options: dict[str, Any]) -> None:
    """Refuse marks of the parts of words, which training here does not have."""
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if options[name]:
            raise ValueError(f"{name}={options[name]!r} is not supported: leave it out")


def _added(token: Any) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token)
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return AddedToken(token.content, **{name: getattr(token, name) for name in flags})
