"""Exercises of chapter 15: inference and experts. Fill in the bodies, then run `python grade.py 15`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def cached_attention(q: Tensor, k: Tensor, v: Tensor, cache: list[Tensor]) -> Tensor:
    """Causal attention of new positions, each to itself and all before it: (heads, new, d).

    q, k and v, (heads, new, d), are of the new positions; cache is [keys, values] of all positions before, each
    (heads, past, d). Replace both entries of the cache by those with the new positions behind (torch.cat).
    """


def speculate(draft: Tensor, target: Tensor, tokens: list[int], uniforms: list[float]) -> list[int]:
    """The tokens that one step of speculative decoding gives, distributed as if the target alone had drawn them.

    draft (n, vocab) are the probabilities from which the n tokens were drawn, target (n + 1, vocab) those of the large
    model at the same places and one more. Token i is accepted if uniforms[i] < target / draft of it. At the first that
    is not, a token is drawn from max(0, target - draft), normalized, and no more; if all are accepted, one is drawn
    from the last row of target. Draw by uniforms[-1]: the first token whose cumulated probability is above it.
    """


def quantize(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A matrix (out, in) in int8, and a float32 scale for each `group` of numbers in a row, (out, in // group).

    A scale is the group's largest absolute value / 127, and 1 where all are zero; numbers are rounded to the nearest.
    """


def dequantize(numbers: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix (out, in) of quantize()'s numbers and scales."""


def finish_steps(lengths: list[int], arrivals: list[int], slots: int) -> list[int]:
    """The step in which each request gets its last token, with continuous batching.

    Each step gives a token to every request in one of the slots. A request takes a free slot in the step `arrivals`
    says, or in the first one after that in which there is one; earlier arrivals go first, of equal ones the first in
    the list. A slot is free again in the step after its request's last token. Steps count from 0.
    """


def mixture(x: Tensor, router: Tensor, experts: Sequence[Callable[[Tensor], Tensor]], k: int) -> Tensor:
    """A layer of experts: (tokens, d) → (tokens, d).

    The logits of a token are its products with the rows of router, (experts, d). Its k experts with the largest logits
    compute, weighted by the softmax over these k alone. Call each expert once at most, on its own tokens together.
    """


def balance_loss(logits: Tensor, k: int) -> Tensor:
    """experts · Σ f p: 1 if all experts are used alike, and more otherwise; logits (tokens, experts).

    f is the share of an expert among all choices of the k largest logits of each token, p the mean over tokens of its
    probability among all experts. Gradients go through p. (Fedus et al. 2021)
    """
