"""The learning rate of a step: cosine, linear, constant, each after a linear warm-up."""

from __future__ import annotations

import math

from lm.config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of a step, counted from 0, by the schedule of a configuration."""
    rate, warmup_steps = config.learning_rate, config.warmup_steps
    if config.schedule == "constant":
        return constant(step, max_lr=rate, warmup_steps=warmup_steps)
    least, steps = config.min_learning_rate, config.steps
    if config.schedule == "cosine":
        return cosine(step, max_lr=rate, min_lr=least, warmup_steps=warmup_steps, total_steps=steps)
    decay = config.decay_steps
    return linear(step, max_lr=rate, min_lr=least, warmup_steps=warmup_steps, total_steps=steps, decay_steps=decay)


def cosine(step: int, *, max_lr: float, min_lr: float = 0.0, warmup_steps: int = 0, total_steps: int) -> float:
    """Linear warm-up, then half a cosine from max_lr down to min_lr.

    min_lr is the rate of step total_steps and of those after; the last step of training is the one before it.
    """
    if step < warmup_steps:
        return warmup(step, max_lr, warmup_steps)
    if step >= total_steps:
        return min_lr
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return min_lr + 0.5 * (max_lr - min_lr) * (1.0 + math.cos(math.pi * done))


def linear(
    step: int,
    *,
    max_lr: float,
    min_lr: float = 0.0,
    warmup_steps: int = 0,
    total_steps: int,
    decay_steps: int | None = None,
) -> float:
    """Linear warm-up, max_lr, and over the last decay_steps (all after the warm-up, if not given) a line to min_lr.

    Step total_steps - decay_steps is the last at max_lr; min_lr is the rate of step total_steps, one after the last.
    With few decay_steps this is warm-up–stable–decay. (Hu et al. 2024, arXiv:2404.06395)
    """
    if step < warmup_steps:
        return warmup(step, max_lr, warmup_steps)
    decay_steps = total_steps - warmup_steps if decay_steps is None else decay_steps
    if step >= total_steps:
        return min_lr
    share = min(1.0, (total_steps - step) / decay_steps)
    return min_lr + (max_lr - min_lr) * share


def constant(step: int, *, max_lr: float, warmup_steps: int = 0) -> float:
    """Linear warm-up, then max_lr."""
    return warmup(step, max_lr, warmup_steps) if step < warmup_steps else max_lr


def warmup(step: int, max_lr: float, warmup_steps: int) -> float:
    """The line that reaches max_lr at step warmup_steps. Step 0 is already above zero, so that it is not wasted."""
    return max_lr * (step + 1) / (warmup_steps + 1)
