"""The moving average of the weights, which lies in the optimizer's state, so that checkpoints and shards keep it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

AVERAGE = "average"  # its key in the state of a weight


@torch.no_grad()
def average_weights(optimizer: torch.optim.Optimizer, ema: float, step: int) -> None:
    """average ← d average + (1 - d) weights; d is ema, and at most (1 + step) / (10 + step) in the first steps."""
    decay = min(ema, (1 + step) / (10 + step))
    for weight, state in optimizer.state.items():
        state.setdefault(AVERAGE, weight.detach().clone()).lerp_(weight.detach(), 1 - decay)


@contextlib.contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put the average in the place of the weights, if there is one, and the weights back."""
    both = [(weight.detach(), state[AVERAGE]) for weight, state in optimizer.state.items() if AVERAGE in state]

    def swap() -> None:
        for weight, average in both:
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)

    swap()
    try:
        yield
    finally:
        swap()
