"""Activation checkpointing: the backward pass computes activations again instead of reading them from memory."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint


def recomputed(function: Callable[..., Tensor], is_random: bool = False) -> Callable[..., Tensor]:
    """The function, called again in the backward pass instead of keeping its activations.

    is_random: it draws random numbers, and draws the same ones the second time.
    """
    return functools.partial(checkpoint, function, use_reentrant=False, preserve_rng_state=is_random)
