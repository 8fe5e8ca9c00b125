"""A training step on this machine, on random tokens: its duration, and its profile by torch.profiler."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from lm.config import DeviceName, ModelConfig, TrainConfig, settable, settings_of
from lm.data import batch
from lm.device import Processes, choose_device, choose_precision, threads
from lm.families import build
from lm.progress import progress_bar
from lm.training.trainer import MicroBatch, Trainer

# Passes of a step that are run for the time of all of them, and seconds of steps, the first one not counted, after
# which no more are begun: a step of half a million tokens takes a CPU half an hour.
PASSES, ENOUGH = 2, 20.0


@contextlib.contextmanager
def on_random_tokens(
    model_config: ModelConfig, train_config: TrainConfig, device: torch.device | None
) -> Iterator[tuple[Trainer, Iterator[MicroBatch]]]:
    """Yield a trainer by this process alone, and random micro-batches; of a step's passes at most PASSES are run."""
    device = choose_device(train_config.device) if device is None else device
    context, micro = model_config.context_length, train_config.micro_batch_size or train_config.batch_size
    size = min(train_config.batch_size // micro, PASSES) * micro
    names = ("objective", "teacher", *settings_of("distill"), *settings_of("dpo"), *settings_of("grpo"))
    next_token: dict[str, Any] = {name: settable(TrainConfig)[name].default for name in names}
    config = dataclasses.replace(
        train_config,
        **next_token,
        device=cast(DeviceName, device.type),
        precision=choose_precision(train_config.precision, device),
        batch_size=size,
        micro_batch_size=micro,
    )
    ids = np.random.default_rng(0).integers(0, model_config.vocab_size, size * (context + 1), dtype=np.uint32)
    end_of_text = 0 if config.document_masking else None
    with threads(config.threads, config.precision), torch.random.fork_rng(devices=[]):
        trainer = Trainer(build(model_config), config, Processes(device=device), end_of_text=end_of_text)
        yield trainer, (batch(ids, 0, index, 0, 1, micro, context) for index in itertools.count())


def measure(
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    steps: int = 8,
    warmup: int = 3,
    device: torch.device | None = None,
    progress: bool = False,
) -> float:
    """Return the seconds of a usual step, of up to `steps` real ones on random tokens after `warmup`.

    Of a step with many passes PASSES are run, and no more steps once all but the first took ENOUGH seconds.
    """
    if steps < 1 or warmup < 0:
        raise ValueError(f"expected steps of at least 1 and warmup of at least 0, got {steps} and {warmup}")
    micro = train_config.micro_batch_size or train_config.batch_size
    passes, most, times = train_config.batch_size // micro, max(1, warmup) + steps, list[float]()
    run = min(passes, PASSES)
    with (
        progress_bar("measuring steps", most, "step", leave=False, disable=not progress) as bar,
        on_random_tokens(model_config, train_config, device) as (trainer, batches),
    ):
        of = f" of its {passes}" if passes > run else ""
        size = f"{micro} x {model_config.context_length}"
        bar.set_postfix_str(f"{run}{of} passes of {size} tokens each; until {ENOUGH:.0f} s are measured")
        passes_only, pass_seconds = trainer.forward_backward, list[float]()

        def timed(micro_batches: list[MicroBatch], num_losses: int) -> Tensor:
            began = time.perf_counter()
            loss = passes_only(micro_batches, num_losses)
            float(loss)  # waits for the device
            pass_seconds.append(time.perf_counter() - began)
            return loss

        trainer.forward_backward = timed  # type: ignore[method-assign]
        for _ in range(most):
            began = time.perf_counter()
            trainer.train_step(batches)
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
            times.append(time.perf_counter() - began)
            bar.update()
            if sum(times[1:]) > ENOUGH:  # the first may compile
                break
    warm = min(max(1, warmup), len(times) - 1)
    return statistics.median(times[warm:]) + (passes - run) * statistics.median(pass_seconds[warm:]) / run


def profile(
    model_config: ModelConfig, train_config: TrainConfig, *, steps: int = 3, device: torch.device | None = None
) -> torch.profiler.profile:
    """Return torch's profiler of training steps on random tokens, after one step that is not in the profile.

    ValueError: steps is less than 1, or the configuration compiles the blocks, which hides their operators.
    """
    if steps < 1:
        raise ValueError(f"expected at least 1 step, got {steps}")
    if train_config.compile == "on":
        raise ValueError("train.compile 'on' hides the operators of the blocks: profile with --train.compile off")
    with on_random_tokens(model_config, train_config, device) as (trainer, batches):
        trainer.train_step(batches)
        cuda = [ProfilerActivity.CUDA] if trainer.device.type == "cuda" else []
        # acc_events: there is one cycle, and torch 2.11 warns that it forgets those before
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU, *cuda], profile_memory=True, with_flops=True, acc_events=True
        ) as profiler:
            for _ in range(steps):
                trainer.train_step(batches)
    return profiler  # type: ignore[no-any-return]  # torch does not type it
