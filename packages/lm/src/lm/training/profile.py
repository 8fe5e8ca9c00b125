"""Profile training steps by torch.profiler: the seconds and bytes of phases and operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function

from lm.config import ModelConfig, TrainConfig
from lm.training.measure import on_random_tokens
from lm.training.trainer import MicroBatch, Trainer

PHASES = ("forward", "backward", "optimizer step")


class PhasedTrainer(Trainer):
    """A trainer whose steps have PHASES as ranges in a profile."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.range: Any = None
        self.module.register_forward_pre_hook(lambda *_: self.enter("forward"))
        self.module.register_forward_hook(lambda *_: self.enter("backward"))

    def enter(self, phase: str | None) -> None:
        """End the phase before and begin this one, if it is one."""
        if self.range is not None:
            self.range.__exit__(None, None, None)
        self.range = None if phase is None else record_function(phase)
        if self.range is not None:
            self.range.__enter__()

    def forward_backward(self, micro_batches: list[MicroBatch], num_targets: int) -> Tensor:
        loss = super().forward_backward(micro_batches, num_targets)
        self.enter("optimizer step")
        return loss

    def train_step(self, batches: Iterator[MicroBatch], **more: Any) -> dict[str, Any]:
        line = super().train_step(batches, **more)
        self.enter(None)
        return line


def profile(
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    steps: int = 3,
    device: torch.device | None = None,
    trace: str | Path | None = None,
) -> torch.profiler.profile:
    """Profile training steps on random tokens by this process alone, after one that is not in the profile.

    Args:
        model_config: The model.
        train_config: Its training; of a step with more micro-batches two are run.
        steps: The number of steps.
        device: None for that of the configuration.
        trace: A file for torch's trace, which ui.perfetto.dev opens.

    Returns:
        torch's profiler. Its key_averages() have PHASES beside the operators.

    Raises:
        ValueError: steps is less than 1, or the configuration compiles the blocks, which hides their operators.
        FileNotFoundError: The folder of the trace does not exist.
    """
    if steps < 1:
        raise ValueError(f"expected at least 1 step, got {steps}")
    if trace is not None and not Path(trace).absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(trace).absolute().parent} for the trace")
    if train_config.compile == "on":
        raise ValueError("train.compile 'on' hides the operators of the blocks: profile with --train.compile off")
    config = dataclasses.replace(train_config, compile="off")
    with on_random_tokens(PhasedTrainer, model_config, config, device) as (trainer, batches):
        trainer.train_step(batches)
        cuda = [ProfilerActivity.CUDA] if trainer.device.type == "cuda" else []
        # acc_events: there is one cycle, and torch 2.11 warns that it forgets those before
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU, *cuda], profile_memory=True, with_flops=True, acc_events=True
        ) as profiler:
            for _ in range(steps):
                trainer.train_step(batches)
    if trace is not None:
        profiler.export_chrome_trace(str(trace))
    return profiler  # type: ignore[no-any-return]  # torch does not type it
