"""One training step, in the parts that the loop and the measuring of its speed share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from lm.config import TrainConfig
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.optimizer import adamw, constant, cosine, linear

# A gradient norm is far outside its history when it is this many times the median of the last ones.
OUTLIER = 20.0
HISTORY = 128
HISTORY_AT_LEAST = 32


def accumulate(
    model: Transformer, hidden: Callable[[Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]], tokens: int
) -> float:
    """Adds the gradients of the loss over batches that hold `tokens` targets together; gives it in nats a token."""
    total = 0.0
    for inputs, targets in batches:
        loss = (
            chunked_cross_entropy(
                hidden(inputs), model.head_weight, targets, vocab_size=model.config.vocab_size, reduction="sum"
            )
            / tokens
        )
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def in_trouble(loss: float, norm: float, norms: list[float]) -> str | None:
    """Why a step must not be taken, or None: loss or gradient is no number, or its norm is far outside those of late."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(norm):
        return f"the gradient norm is {norm}"
    if len(norms) >= HISTORY_AT_LEAST and norm > OUTLIER * (usual := statistics.median(norms)):
        return f"the gradient norm is {norm:.3g}, and of late it was {usual:.3g}"
    return None


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of a step, counted from 0, by the schedule of the configuration."""
    if config.schedule == "constant":
        return constant(step, max_lr=config.learning_rate, warmup_steps=config.warmup_steps)
    if config.schedule == "cosine":
        return cosine(
            step,
            max_lr=config.learning_rate,
            min_lr=config.min_learning_rate,
            warmup_steps=config.warmup_steps,
            total_steps=config.steps,
        )
    return linear(
        step,
        max_lr=config.learning_rate,
        min_lr=config.min_learning_rate,
        warmup_steps=config.warmup_steps,
        total_steps=config.steps,
        decay_steps=config.decay_steps,
    )


def make_optimizer(model: Transformer, config: TrainConfig) -> torch.optim.AdamW:
    return adamw(model, config.learning_rate, (config.beta1, config.beta2), config.eps, config.weight_decay)


def compiled(model: Transformer) -> Callable[[Tensor], Tensor]:
    """model.hidden with each block through torch.compile: they are alike, so what is compiled for the first serves all."""
    for block in model.blocks:
        block.compile()
    return model.hidden
