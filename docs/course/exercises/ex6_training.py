"""Exercises of chapter 6: training. Fill in the bodies, then run `python grade.py 6`."""

import os
from collections.abc import Callable, Iterable
from typing import IO, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn


def cross_entropy(inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(inputs)[target], a scalar. inputs (…, vocab_size): logits; targets (…): ids."""


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017).

    For each parameter p with gradient g, at its t-th step, from t = 1:
        m = beta1 · m + (1 - beta1) · g
        v = beta2 · v + (1 - beta2) · g²
        p = p - lr · √(1 - beta2^t) / (1 - beta1^t) · m / (√v + eps)
        p = p - lr · weight_decay · p          (or before the line above: both are in use, and right here)
    What an optimizer remembers belongs into self.state[p], so that state_dict() has it.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Change the parameters of every group in self.param_groups; self.state[p] is a dictionary that is yours."""


def get_lr_cosine_schedule(
    it: int, max_learning_rate: float, min_learning_rate: float, warmup_iters: int, cosine_cycle_iters: int
) -> float:
    """A line from 0 up to the maximum at warmup_iters, half a cosine down to the minimum at cosine_cycle_iters, and the
    minimum from there on."""


def gradient_clipping(parameters: Iterable[nn.Parameter], max_l2_norm: float) -> None:
    """Scale all gradients (p.grad, in place) by max_l2_norm / (norm + 1e-6) if their joint L2 norm is greater."""


def get_batch(dataset: np.ndarray, batch_size: int, context_length: int, device: str) -> tuple[Tensor, Tensor]:
    """Windows of a flat array of ids that begin at random: inputs and targets, (batch_size, context_length) int64 each.

    The targets are the inputs one further. Every window that fits has to be possible.
    """


def save_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, out: str | os.PathLike | BinaryIO | IO[bytes]
) -> None:
    """Write model, optimizer and iteration to a path or an open file."""


def load_checkpoint(
    src: str | os.PathLike | BinaryIO | IO[bytes], model: nn.Module, optimizer: torch.optim.Optimizer
) -> Any:
    """Put back what save_checkpoint wrote, and return the iteration."""
