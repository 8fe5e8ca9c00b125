"""Measuring: how long a step takes here, and whether compiling pays for the length of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import numpy as np
import torch

from lm.config import GRPO_SETTINGS, DeviceName, ModelConfig, TrainConfig, settable
from lm.data import batch
from lm.device import choose_device, choose_precision, float32_matmul_precision, threads
from lm.families import build
from lm.progress import progress_bar
from lm.training.objectives import MicroBatch
from lm.training.trainer import Processes, Trainer

# Seconds: compile = "auto" does not try for shorter runs. Compiling took 17 s on two busy Zen 3 cores and saved 13% of
# a step.
WORTH_COMPILING = 300.0

# Passes of a step that are run for the time of all of them, and seconds, the first step's not counted, after which what
# was measured will do: a step of half a million tokens takes a CPU half an hour.
PASSES, ENOUGH = 2, 20.0


AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)


@dataclasses.dataclass(frozen=True)
class Speed:
    """Seconds of a usual step, and of the first, which compiles; the most bytes on CUDA, else 0."""

    step: float
    first: float
    bytes: int = 0


class TimedTrainer(Trainer):
    """A trainer that notes how long the forward and backward passes of each step took, in seconds."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.pass_seconds: list[float] = []

    def forward_backward(self, micro_batches: list[MicroBatch], num_targets: int) -> float:
        began = time.perf_counter()
        loss = super().forward_backward(micro_batches, num_targets)
        self.pass_seconds.append(time.perf_counter() - began)
        return loss


@contextlib.contextmanager
def on_random_tokens(
    kind: type[AnyTrainer], model_config: ModelConfig, train_config: TrainConfig, device: torch.device | None
) -> Iterator[tuple[AnyTrainer, Iterator[MicroBatch]]]:
    """Yield a trainer of a configuration, by this process alone, and random micro-batches for it.

    Of a step with more than PASSES forward passes, PASSES are run. The random state of the process stays as it was.
    """
    device = choose_device(train_config.device) if device is None else device
    context, micro = model_config.context_length, train_config.micro_batch_size or train_config.batch_size
    size = min(train_config.batch_size // micro, PASSES) * micro
    tokens_alone: dict[str, Any] = {
        name: settable(TrainConfig)[name].default for name in ("objective", "dpo_beta", *GRPO_SETTINGS)
    }
    config = dataclasses.replace(
        train_config,
        **tokens_alone,
        device=cast(DeviceName, device.type),
        precision=choose_precision(train_config.precision, device),
        batch_size=size,
        micro_batch_size=micro,
    )
    ids = np.random.default_rng(0).integers(0, model_config.vocab_size, size * (context + 1), dtype=np.uint32)
    end_of_text = 0 if config.document_masking else None
    with threads(config.threads), float32_matmul_precision(config.precision), torch.random.fork_rng(devices=[]):
        trainer = kind(build(model_config), config, Processes(device=device), end_of_text=end_of_text)
        yield trainer, (batch(ids, 0, index, 0, 1, micro, context) for index in itertools.count())


def measure(
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    steps: int = 8,
    warmup: int = 3,
    device: torch.device | None = None,
    progress: bool = False,
) -> Speed:
    """Run a few real steps on random tokens, or, where a step has many passes, the beginning and the end of them.

    Args:
        model_config: The model.
        train_config: Its training; batch_size is taken to be all of one process.
        steps: Steps measured, at most: no more are begun once all but the first took ENOUGH seconds.
        warmup: Steps before them.
        device: The device; None for that of the configuration.
        progress: Show a live line on stderr.
    """
    if steps < 1 or warmup < 0:
        raise ValueError(f"expected steps of at least 1 and warmup of at least 0, got {steps} and {warmup}")
    micro = train_config.micro_batch_size or train_config.batch_size
    passes, most, times = train_config.batch_size // micro, max(1, warmup) + steps, list[float]()
    run = min(passes, PASSES)
    with (
        progress_bar("measuring steps", most, "step", leave=False, disable=not progress) as bar,
        on_random_tokens(TimedTrainer, model_config, train_config, device) as (trainer, batches),
    ):
        of = f" of its {passes}" if passes > run else ""
        size = f"{micro} x {model_config.context_length}"
        bar.set_postfix_str(f"{run}{of} passes of {size} tokens each; until {ENOUGH:.0f} s are measured")
        on_cuda = trainer.device.type == "cuda"
        if on_cuda:
            torch.cuda.reset_peak_memory_stats(trainer.device)
        for _ in range(most):
            began = time.perf_counter()
            trainer.train_step(batches)
            if on_cuda:
                torch.cuda.synchronize(trainer.device)
            times.append(time.perf_counter() - began)
            bar.update()
            if sum(times[1:]) > ENOUGH:  # the first may compile
                break
    peak = torch.cuda.max_memory_allocated(trainer.device) if on_cuda else 0
    warm = min(max(1, warmup), len(times) - 1)
    usual = statistics.median(times[warm:])
    whole = usual + (passes - run) * statistics.median(trainer.pass_seconds[warm:]) / run
    return Speed(whole, whole + times[0] - usual, peak)


def compile_pays(
    model_config: ModelConfig, config: TrainConfig, *, device: torch.device | None = None, progress: bool = False
) -> tuple[bool, str]:
    """Return True if this run ends sooner compiled, and the reason in a sentence; short runs are not measured."""
    off, on = (dataclasses.replace(config, compile=compile) for compile in ("off", "on"))
    plain = measure(model_config, off, device=device, progress=progress)
    left = plain.step * config.steps
    if left < WORTH_COMPILING:
        return (
            False,
            f"not compiled: the run takes about {left:.0f} s, and compiling is tried from {WORTH_COMPILING:.0f} s on",
        )
    try:
        fast = measure(model_config, on, device=device, progress=progress)
    except Exception as error:  # torch.compile raises many kinds: no C++ compiler, an operator it does not know
        return False, f"not compiled: torch.compile does not work here ({str(error).strip().splitlines()[0][:200]})"
    return verdict(plain, fast, config.steps)


def verdict(plain: Speed, fast: Speed, steps: int) -> tuple[bool, str]:
    """Return True if these steps gain more than compiling takes, and the reason in a sentence."""
    cost, gain = fast.first - fast.step, (plain.step - fast.step) * steps
    said = f"a step takes {fast.step * 1e3:.0f} ms compiled and {plain.step * 1e3:.0f} ms not"
    if gain > cost:
        return True, f"compiled: {said}, so that {steps} steps gain {gain:.0f} s for {cost:.0f} s of compiling"
    return False, f"not compiled: {said}, and compiling takes {cost:.0f} s"
