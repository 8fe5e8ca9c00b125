"""Measuring: how long a step takes here, and whether compiling pays for the length of a run."""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import cast

import numpy as np
import torch

from lm.config import DeviceName, ModelConfig, TrainConfig
from lm.data import batch
from lm.device import arithmetic, choose_device, choose_precision, keep_memory, threads
from lm.model import Transformer
from lm.training.distributed import World
from lm.training.step import Stepper

# Seconds: compile = "auto" does not try for shorter runs. Compiling took 17 s on two busy Zen 3 cores and saved 13% of a step.
WORTH_COMPILING = 300.0

# Passes of a step that are run for the time of all of them, and seconds, the first step's not counted, after which what was
# measured will do: a step of half a million tokens takes a CPU half an hour.
PASSES, ENOUGH = 2, 20.0


@dataclasses.dataclass(frozen=True)
class Speed:
    """Seconds of a usual step, and of the first, in which what is compiled is compiled; bytes at most on CUDA, else 0."""

    step: float
    first: float
    bytes: int = 0


def measure(model_config: ModelConfig, train_config: TrainConfig, *, steps: int = 8, warmup: int = 3) -> Speed:
    """Runs a few real steps on random tokens, or, where a step has many passes, the beginning and the end of them."""
    if steps < 1 or warmup < 0:
        raise ValueError(f"steps {steps} must be at least 1 and warmup {warmup} at least 0")
    device = choose_device(train_config.device)
    config = dataclasses.replace(
        train_config, device=cast(DeviceName, device.type), precision=choose_precision(train_config.precision, device)
    )
    context, micro = model_config.context_length, config.micro_batch_size or config.batch_size
    passes = config.batch_size // micro
    run = min(passes, PASSES)
    ids = np.random.default_rng(0).integers(0, model_config.vocab_size, run * micro * (context + 1), dtype=np.uint32)
    learning, times = list[float](), list[float]()
    keep_memory()
    with threads(config.threads), arithmetic(config.precision), torch.random.fork_rng(devices=[]):
        stepper = Stepper(
            Transformer(model_config), config, World(device=device), end_of_text=0 if config.document_masking else None
        )
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        for step in range(max(1, warmup) + steps):
            began = time.perf_counter()
            batches = (batch(ids, 0, step * run + i, 0, 1, micro, context) for i in range(run))
            stepper.accumulate([(x.to(device), y.to(device)) for x, y in batches], run * micro * context)
            learning.append(time.perf_counter() - began)
            stepper.clip()
            stepper.update(config.learning_rate)
            stepper.forget()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - began)
            if sum(times[1:]) > ENOUGH:  # the first may compile
                break
    most = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    warm = min(max(1, warmup), len(times) - 1)
    usual = statistics.median(times[warm:])
    whole = usual + (passes - run) * statistics.median(learning[warm:]) / run
    return Speed(whole, whole + times[0] - usual, most)


def measure_speed(model_config: ModelConfig, train_config: TrainConfig, *, steps: int = 8, warmup: int = 3) -> float:
    """Seconds that a training step takes here and now: the median of a few real ones, after a warm-up."""
    return measure(model_config, train_config, steps=steps, warmup=warmup).step


def compile_pays(model_config: ModelConfig, config: TrainConfig) -> tuple[bool, str]:
    """Whether this run ends sooner compiled, and in a sentence why: measured, where it is long enough to be worth measuring."""
    plain = measure(model_config, dataclasses.replace(config, compile="off"))
    left = plain.step * config.steps
    if left < WORTH_COMPILING:
        return (
            False,
            f"not compiled: the run takes about {left:.0f} s, and compiling is tried from {WORTH_COMPILING:.0f} s on",
        )
    try:
        fast = measure(model_config, dataclasses.replace(config, compile="on"))
    except Exception as error:  # torch.compile raises many kinds: no C++ compiler, an operator it does not know
        return False, f"not compiled: torch.compile does not work here ({str(error).strip().splitlines()[0][:200]})"
    return verdict(plain, fast, config.steps)


def verdict(plain: Speed, fast: Speed, steps: int) -> tuple[bool, str]:
    """Whether so many steps win more than compiling takes."""
    cost, gain = fast.first - fast.step, (plain.step - fast.step) * steps
    said = f"a step takes {fast.step * 1e3:.0f} ms compiled and {plain.step * 1e3:.0f} ms not"
    if gain > cost:
        return True, f"compiled: {said}, so that {steps} steps gain {gain:.0f} s for {cost:.0f} s of compiling"
    return False, f"not compiled: {said}, and compiling takes {cost:.0f} s"
