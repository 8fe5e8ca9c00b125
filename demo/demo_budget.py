"""The cost of the demo's model: counted by `accounting`, with the time of a step measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from accounting import (
    FLOPRate,
    Group,
    Parameters,
    forward_flops,
    human,
    optimizer_flops,
    parameters,
    training_flops,
    training_memory,
)
from lm.config import ModelConfig, TrainConfig
from lm.training.budget import policy

# Memory by the categories that people ask about; the groups of accounting.training_memory's peak that each holds.
CATEGORIES = {
    "parameters": (Group.PARAMETERS,),
    "gradients": (Group.GRADIENTS,),
    "optimizer state": (Group.OPTIMIZER_STATE,),
    "activations": (Group.SAVED,),
    "logits and temporaries": (Group.THIS_BLOCK, Group.IN_FLIGHT, Group.TEMPORARY, Group.ALLOCATOR),
}


class Budget:
    """Parameters, FLOPs, memory and time of training a model.

    seconds_per_step, and scoring, the seconds that held-out scoring on the way takes, are measured by the caller.
    """

    def __init__(self, config: ModelConfig, train: TrainConfig, seconds_per_step: float, scoring: float) -> None:
        shape, batch_size, self.steps = config.shape(), train.batch_size, train.steps
        how = policy(config, train, torch.device("cpu"))
        self.optimizer_name = {"adamw": "AdamW", "muon": "Muon"}[how.optimizer]
        self.tokens = self.steps * batch_size * config.context_length
        self.seconds = self.steps * seconds_per_step + scoring
        self.seconds_of_steps = self.steps * seconds_per_step
        self.parameters = parameters(shape)
        self.forward = forward_flops(shape)
        self.step = training_flops(shape, batch_size=batch_size)
        self.optimizer = optimizer_flops(shape, optimizer=how.optimizer)
        self.memory = training_memory(shape, batch_size, policy=how)
        self.context = config.context_length

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds_of_steps

    @property
    def flops_per_second(self) -> FLOPRate:
        return FLOPRate(self.steps * (int(self.step.total) + int(self.optimizer.total)) / self.seconds_of_steps)

    @property
    def total_parameters(self) -> int:
        return int(self.parameters.total)

    @property
    def peak_bytes(self) -> int:
        return int(self.memory.total)

    def memory_by_category(self) -> dict[str, int]:
        """Bytes at the peak of a step; the categories add up to peak_bytes."""
        groups_bytes = self.memory.peak.by_group()
        return {name: sum(int(groups_bytes[group]) for group in groups) for name, groups in CATEGORIES.items()}

    def lines(self) -> list[str]:
        """The budget as lines for a terminal."""
        memory = self.memory_by_category()
        return [
            _line("parameters", human(Parameters(self.total_parameters)), _parts(self.parameters)),
            _line("forward pass", f"{human(self.forward.total)} for {self.context} tokens", _parts(self.forward)),
            _line("training step", human(self.step.total), f"and {self.optimizer_name} {human(self.optimizer.total)}"),
            _line(
                "memory at the peak", f"{self.peak_bytes / 1e6:.1f} MB", f"in the {self.memory.peak.title} of a step"
            ),
            *(_line(f"  {name}", f"{size / 1e6:.1f} MB", "") for name, size in memory.items() if size),
            _line("steps", f"{self.steps:,}", f"{self.tokens:,} tokens"),
            _line(
                "time", f"{self.seconds:.0f} s", f"at {self.tokens_per_second:,.0f} tokens/s, measured here just now"
            ),
            _line("arithmetic", human(self.flops_per_second), "forward, backward and optimizer"),
        ]


def _line(label: str, value: str, note: str) -> str:
    return f"  {label:<26}{value:<30}{note}".rstrip()


def _parts(breakdown: Mapping[str, int]) -> str:
    total = sum(int(value) for value in breakdown.values())
    return ", ".join(f"{name} {int(value) / total:.0%}" for name, value in breakdown.items() if value)
