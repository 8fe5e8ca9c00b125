"""Measuring: how long a step takes here, and whether compiling pays for the length of a run."""

from __future__ import annotations

import dataclasses
import statistics
import time
import warnings

import numpy as np
import torch

from lm.config import ModelConfig, TrainConfig
from lm.data import batch
from lm.machine import keep_memory, threads
from lm.model import Transformer
from lm.optimizer import clip_gradients
from lm.step import accumulate, compiled, make_optimizer

# Seconds: compile = "auto" does not try for shorter runs. Compiling took 17 s on two busy Zen 3 cores and saved 13% of a step.
WORTH_COMPILING = 300.0


def measure_speed(model_config: ModelConfig, train_config: TrainConfig, *, steps: int = 8, warmup: int = 3) -> float:
    """Seconds that a training step takes here and now: the median of a few real ones, on random tokens, after a warm-up."""
    if steps < 1 or warmup < 0:
        raise ValueError(f"steps {steps} must be at least 1 and warmup {warmup} at least 0")
    rows = train_config.batch_size * (model_config.context_length + 1)
    ids = np.random.default_rng(0).integers(0, model_config.vocab_size, rows, dtype=np.uint32)
    times = []
    keep_memory()
    with threads(train_config.threads):
        with torch.random.fork_rng():
            model = Transformer(model_config)
        optimizer = make_optimizer(model, train_config)
        hidden = compiled(model) if train_config.compile == "on" else model.hidden
        context = model_config.context_length
        micro = train_config.micro_batch_size or train_config.batch_size
        for step in range(warmup + steps):
            began = time.perf_counter()
            batches = (batch(ids, 0, step + i, 0, 1, micro, context) for i in range(train_config.batch_size // micro))
            accumulate(model, hidden, batches, train_config.batch_size * context)
            float(clip_gradients(model.parameters(), train_config.gradient_clip))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - began)
    return statistics.median(times[warmup:])


def compile_pays(model_config: ModelConfig, config: TrainConfig) -> bool:
    """Whether the steps of this run are faster compiled: measured, where the run is long enough to earn back the measuring."""
    plain = measure_speed(model_config, dataclasses.replace(config, compile="off"))
    if plain * config.steps < WORTH_COMPILING:
        return False
    try:
        return measure_speed(model_config, dataclasses.replace(config, compile="on")) < plain
    except Exception as error:  # torch.compile raises many kinds: no C++ compiler, an operator it does not know
        warnings.warn(f"torch.compile does not work here, and the run does without: {error}", stacklevel=2)
        return False
