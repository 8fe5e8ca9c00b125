"""Activation checkpointing: what the forward pass does not keep, and the backward pass computes again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast, get_args

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lm.config import ActivationCheckpointing, one_of

if TYPE_CHECKING:
    from lm.model import Block, Transformer


def recomputed(function: Callable[..., Tensor], is_random: bool = False) -> Callable[..., Tensor]:
    """function, of which nothing but the arguments is kept: the backward pass calls it once more.

    is_random: it draws random numbers, the same ones then.
    """
    return functools.partial(checkpoint, function, use_reentrant=False, preserve_rng_state=is_random)


def checkpoint_activations(model: Transformer, what: str) -> None:
    """Sets what a model computes again, to the same bit.

    Args:
        model: It is changed in place.
        what: "none"; "selective", the inside of attention (Korthikanti et al. 2022, arXiv:2205.05198); "full", all but
            what enters each block (Chen et al. 2016, arXiv:1604.06174).

    Raises:
        ValueError: It is none of these.
    """
    one_of("activation_checkpointing", what, get_args(ActivationCheckpointing))
    model.recompute = what == "full"
    for block in model.blocks:
        cast("Block", block).attention.recompute = what == "selective"
