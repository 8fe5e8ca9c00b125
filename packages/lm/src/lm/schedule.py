"""The learning rate of a step: a linear warm-up, then half a cosine, a line, or a constant rate."""

from __future__ import annotations

import math

from lm.config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of a step, counted from 0, by the schedule of a configuration.

    Warm-up reaches learning_rate at step warmup_steps; step 0 is above zero already. min_learning_rate is the rate of
    step `steps`, one after the last. With few decay_steps "linear" is warm-up–stable–decay. (Hu et al. 2024,
    arXiv:2404.06395)
    """
    rate, least, warmup, steps = config.learning_rate, config.min_learning_rate, config.warmup_steps, config.steps
    if step < warmup:
        return rate * (step + 1) / (warmup + 1)
    if config.schedule == "constant":
        return rate
    if step >= steps:
        return least
    if config.schedule == "cosine":
        return least + 0.5 * (rate - least) * (1.0 + math.cos(math.pi * ((step - warmup) / (steps - warmup))))
    decay = steps - warmup if config.decay_steps is None else config.decay_steps
    return least + (rate - least) * min(1.0, (steps - step) / decay)
