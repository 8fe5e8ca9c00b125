"""Profile a training step: seconds by phase and operator and bytes by torch.profiler, FLOPs by FlopCounterMode."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function
from torch.utils.flop_counter import FlopCounterMode

from lm.config import ModelConfig, TrainConfig
from lm.training.budget import memory_is_counted, policy, trained_shape
from lm.training.measure import on_random_tokens
from lm.training.trainer import MicroBatch, Trainer

if TYPE_CHECKING:
    from accounting import TrainingMemory

PHASES = ("forward", "backward", "optimizer step")


@dataclasses.dataclass(frozen=True)
class Operator:
    """All calls of one operator in a step: seconds without those of the operators that it calls, FLOPs by torch."""

    name: str
    calls: int
    seconds: float
    flops: int


@dataclasses.dataclass(frozen=True)
class Profile:
    """The figures of a step."""

    seconds: list[dict[str, float]]  # of each phase, for each timed step
    operators: list[Operator]  # the slowest first
    highest: dict[str, int]  # the most bytes of tensors alive in each phase
    predicted: TrainingMemory | None  # accounting's memory of the step; None for a shape whose memory is not counted
    flops: int  # by accounting, over causal pairs
    tokens: int
    micro_batches: tuple[int, int]  # the number that was run, and that of a whole step

    def predicted_highest(self, phase: str) -> int | None:
        """The most bytes alive in a phase, by accounting."""
        if self.predicted is None:
            return None
        return max(int(part.total) for part in self.predicted.phases if part.kind.value == phase)


class PhasedTrainer(Trainer):
    """A trainer that times the phases of a step, and names them for the profiler."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.range: Any = None
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.module.register_forward_pre_hook(lambda *_: self.enter("forward"))
        self.module.register_forward_hook(lambda *_: self.enter("backward"))

    def enter(self, phase: str) -> None:
        """End the phase before and begin this one."""
        self.leave()
        self.begin(phase)

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self.phase, self.began, self.range = phase, time.perf_counter(), record_function(phase)
        self.range.__enter__()

    def leave(self) -> None:
        """End the phase."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.phase_seconds[self.phase] += time.perf_counter() - self.began
        self.range.__exit__(None, None, None)

    def forward_backward(self, micro_batches: list[MicroBatch], num_targets: int) -> Tensor:
        loss = super().forward_backward(micro_batches, num_targets)
        self.enter("optimizer step")
        return loss

    def timed_step(self, batches: Iterator[MicroBatch]) -> dict[str, float]:
        """Train a step and return the seconds of its phases; what comes before the first forward is optimizer step."""
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.begin(PHASES[-1])
        self.train_step(batches)
        self.leave()
        return self.phase_seconds


def profile(
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    steps: int = 5,
    device: torch.device | None = None,
    trace: str | Path | None = None,
) -> Profile:
    """Profile `steps` training steps on random tokens by this process alone, after one that is not timed.

    Of a step with more micro-batches two are run. device: None for that of the configuration. trace: a file for torch's
    trace of one step, which ui.perfetto.dev opens.
    """
    from accounting import training_flops, training_memory  # here, because nothing but a budget needs it

    if steps < 2:
        raise ValueError(f"expected at least 2 steps, for a deviation, got {steps}")
    if trace is not None and not Path(trace).absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(trace).absolute().parent} for the trace")
    if train_config.compile == "on":
        raise ValueError("train.compile 'on' hides the operators of the blocks: profile with --train.compile off")
    config, micro = dataclasses.replace(train_config, compile="off"), train_config.micro_batch_size
    micro = micro or config.batch_size
    with on_random_tokens(PhasedTrainer, model_config, config, device) as (trainer, batches):
        config, device = trainer.config, trainer.device
        run, whole = config.batch_size // micro, train_config.batch_size // micro
        trainer.timed_step(batches)
        timed = [trainer.timed_step(batches) for _ in range(steps)]
        # Counting FLOPs slows every operator down, so that it has a step of its own.
        with FlopCounterMode(display=False) as counter:
            trainer.timed_step(batches)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        # acc_events: one cycle is all there is, and torch 2.11 warns that it forgets those before
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
            trainer.timed_step(batches)
    if trace is not None:
        profiler.export_chrome_trace(str(trace))
    states = [value for state in trainer.optimizer.state.values() for value in state.values()]
    tensors = [*trainer.model.parameters(), *(value for value in states if isinstance(value, Tensor))]
    shape = trained_shape(model_config, config)
    counted = policy(model_config, config, device, accumulate=run > 1)
    flops = training_flops(shape, batch_size=config.batch_size, pairs="causal")
    in_c = {"_Attend": int(flops["forward scores"]), "_AttendBackward": int(flops["backward scores"])}
    return Profile(
        seconds=timed,
        operators=operators(profiler, counter, device, in_c),
        highest=highest(profiler, {t.data_ptr(): t.numel() * t.element_size() for t in tensors}, device),
        predicted=training_memory(shape, micro, policy=counted) if memory_is_counted(model_config, config) else None,
        flops=int(flops.total),
        tokens=config.batch_size * model_config.context_length,
        micro_batches=(run, whole),
    )


def operators(profiler: Any, counter: FlopCounterMode, device: torch.device, in_c: dict[str, int]) -> list[Operator]:
    """The operators of the profiled step, the slowest first; on CUDA the seconds are those of their kernels.

    in_c: FLOPs of those that the counter does not see.
    """
    flops = {str(name).replace(".", "::"): count for name, count in counter.get_flop_counts()["Global"].items()} | in_c
    rows = [
        Operator(
            row.key,
            row.count,
            (row.self_device_time_total if device.type == "cuda" else row.self_cpu_time_total) / 1e6,
            flops.get(row.key, 0),
        )
        for row in profiler.key_averages()
        if row.key not in PHASES
    ]
    return sorted((row for row in rows if row.seconds > 0), key=lambda row: -row.seconds)


def highest(profiler: Any, before: dict[int, int], device: torch.device) -> dict[str, int]:
    """The most bytes alive in each phase of the profiled step; before: those of the tensors that were there."""
    events = profiler.profiler.kineto_results.events()
    phases = [(event.start_ns(), event.end_ns(), event.name()) for event in events if event.name() in PHASES]
    changes = [
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]" and event.device_type().name == device.type.upper()
    ]
    alive, most = sum(before.values()), dict.fromkeys(PHASES, 0)
    for moment, size in sorted(changes):
        alive += size
        for begin, end, name in phases:
            if begin <= moment < end:
                most[name] = max(most[name], alive)
    return most
