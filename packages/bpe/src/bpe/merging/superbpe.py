"""Settings of SuperBPE, whose tokens go on across the borders of pretokens, such as " of the"."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bpe.native.checks import integer
from bpe.patterns import SplitPattern

# The second split pattern that the authors of SuperBPE recommend: digits, runs of punctuation and trailing spaces stay
# apart, and all else between them is one pretoken.
SUPERWORD_PATTERN = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"
NO_BOUND = (1 << 30) - 1  # words: more than any token has


class SuperBPE(NamedTuple):
    """Settings of SuperBPE (Liu et al. 2025, arXiv 2503.13423): first words are learned, then superwords.

    Up to the transition, merges stay within the pretokens of train()'s pattern. Then the text is split by a second
    pattern that lets tokens go on across white space, and merging goes on from there. The tokenizer splits by the
    second pattern. As in the authors' code, no superword has a space after a colon.

    Attributes:
        transition: The vocabulary at which superwords begin: its share of vocab_size (float), or its size (int). The
            default is that of the authors' best model, 180,000 of 200,000.
        max_words: The most words of a superword, or None. White space separates words.
        pattern: The second split pattern, as train() takes one. The default is that of the authors' code.
    """

    transition: float = 0.9
    max_words: int | None = 4
    pattern: SplitPattern = SUPERWORD_PATTERN

    def tokens_before(self, vocab_size: int, smallest: int) -> int:
        """Size of the vocabulary at the transition. ValueError for none; smallest: tokens before the first merge."""
        if self.max_words is not None:
            integer("max_words", self.max_words)
        if isinstance(self.transition, int):
            if not smallest <= self.transition <= vocab_size:
                raise ValueError(
                    f"transition is {self.transition}; expected a share (float) or a number of tokens (int), "
                    f"{smallest} to {vocab_size}"
                )
            return self.transition
        if not 0 <= self.transition <= 1:
            raise ValueError(f"transition is {self.transition}; a share of vocab_size is from 0.0 to 1.0")
        return max(smallest, round(self.transition * vocab_size))


Superwords = Literal["superbpe"] | SuperBPE | None


def settings_of(superwords: Superwords) -> SuperBPE | None:
    """Return the settings that an argument stands for. ValueError for an unknown name."""
    if superwords == "superbpe":
        return SuperBPE()
    if superwords is None or isinstance(superwords, SuperBPE):
        return superwords
    raise ValueError(f"expected superwords='superbpe', a bpe.SuperBPE or None, got {superwords!r}")
