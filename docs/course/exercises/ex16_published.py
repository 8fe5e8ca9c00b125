"""Exercises of chapter 16: published tokenizers. Fill in the bodies, then run `python grade.py 16`."""

from collections.abc import Callable

import regex


def pretokens(text: str) -> list[str]:
    """The pretokens of a text by GPT-4's pattern (cl100k_base), in order.

    Its alternatives, of which the first that matches counts: one of 's 'd 'm 't 'll 've 're in any case; letters with
    at most one character before them that is no line break, letter or digit; one to three digits; other characters
    than white space, letters and digits, with at most one blank before and line breaks behind; white space up to the
    end of the text; white space up to the last line break in it; white space without its last character; one character
    of white space.
    """


def recover_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pair that each token of two bytes and more was merged from, in the order of ranks.

    A vocabulary in tiktoken's form has tokens and ranks, and no merges. The two parts of a token are what its bytes
    become by the merges before it: those of a lower rank.
    """


def encode(text: str, ranks: dict[bytes, int]) -> list[int]:
    """The ids of a text, as tiktoken gives them for GPT-4's pattern and these ranks; all single bytes have one.

    Each pretoken is merged on its own, and is its own token at once if it has a rank.
    """


def stable_ids(encode: Callable[[str], list[int]], prompt: str, ending: str) -> int:
    """Number of ids at the beginning of the prompt's that prompt + ending has too."""


def premiums(encode: Callable[[str], list[int]], translations: dict[str, str], base: str) -> dict[str, float]:
    """The tokens of each language's translation of one text, divided by those of the language `base`."""
