"""Exercises of chapter 13: evaluation. Fill in the bodies, then run `python grade.py 13`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def continuation_log_probs(logits: Tensor, ids: Tensor, start: int) -> Tensor:
    """log p of each id from number `start` on (start > 0), each after the ids before it: (n - start,).

    logits (n, vocab) are a model's answer to ids (n,): those in row i are for the id behind it, number i + 1.
    """


def split_at_seam(encode: Callable[[str], list[int]], context: str, ending: str) -> tuple[list[int], list[int]]:
    """The ids of context + ending, encoded as one text, in two parts: what is given, and what is scored.

    Blanks and line breaks at the end of the context go to the ending. What is given are the first ids that the whole
    text and the (shortened) context alone have in common; what is scored is all the rest.
    """


def choose(log_probs: list[list[float]], endings: list[str], by: str) -> int:
    """The number of the likeliest of several endings, from the log p of each one's tokens; of equal ones the first.

    by: "sum" compares the sums, "token" the means over tokens, "byte" the sums divided by the bytes of the text in
    UTF-8.
    """


def hellaswag_rows(context: list[int], endings: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Rows of context and ending for one forward pass: ids and mask, both (endings, longest row), int64.

    Rows are padded behind. The mask is 1 where an id of the ending stands, and 0 for context and padding. An id of an
    ending may be equal to the padding.
    """


def hellaswag_choice(logits: Tensor, ids: Tensor, mask: Tensor) -> int:
    """The row whose ending has the largest mean log p over its tokens, from logits (rows, n, vocab) for ids (rows, n).

    The id at place i + 1 is predicted by the logits of place i. What stands where the mask is 0 does not count.
    """


def bits_per_byte(log_probs: list[float], text: str) -> float:
    """The bits that a model needs for each byte (UTF-8) of a text, from the natural log p of the text's tokens."""


def contaminated(tests: list[str], training: list[str], n: int = 13) -> list[bool]:
    """For each test text, whether n consecutive words of it stand in one of the training texts.

    Words are re.findall(r"\\w+", text.lower()). Of a test of fewer than n words all have to stand there, in a row; one
    without words is not contaminated.
    """


def paired_difference(first: list[bool], second: list[bool]) -> tuple[float, float]:
    """The difference of two models' accuracies on the same questions, first - second, and its standard error.

    The error is s / √n, where s² is the variance of the n differences of single questions, with n - 1 in the
    denominator.
    """
