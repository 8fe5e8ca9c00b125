"""The lines of a run's metrics: read, cut off and written for the terminal; and the speed of its steps."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import torch

from lm.config import ModelConfig, TrainConfig
from lm.device import peak_flops
from lm.training.budget import trained_shape

METRICS = "metrics.jsonl"
SHORT = {"loss": "loss {:.3f}", "bits_per_byte": "{:.3f} bits/byte", "tokens_per_second": "{:,.0f} tokens/s"}
SHORT |= {"mfu": "MFU {:.0%}", "gradient_norm": "norm {:.2f}"}
Line = dict[str, Any]


def read_lines(path: Path, until: int | None = None) -> list[str]:
    """Read the lines of a metrics file up to a step; an invalid line, as of an interrupted write, is left out."""
    lines = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                step = json.loads(line)["step"]
                if until is None or step <= until:
                    lines.append(line.rstrip() + "\n")  # the last may lack its end
    return lines


def in_short(line: Line) -> str:
    """Format a line of metrics for the terminal."""
    line = {**line, "loss": math.nan if line["loss"] is None else line["loss"]}
    return "  ".join(form.format(line[name]) for name, form in SHORT.items() if line.get(name) is not None)


def finite(value: float | None) -> float | None:
    """The value, or None for NaN and infinities, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


class Throughput:
    """Tokens a second over the steps after the first: their mean, of late, and as a share of the peak (MFU).

    (Chowdhery et al. 2022, arXiv:2204.02311) None if not known.
    """

    def __init__(self, model: ModelConfig, config: TrainConfig, device: torch.device, processes: int) -> None:
        self.tokens_per_step = config.batch_size * model.context_length
        self.steps, self.seconds = -1, 0.0  # after the first
        self.recent, self.weight = 0.0, 0.0  # exponentially weighted sum of seconds, and of the weights
        self.mean_tokens_per_second: float | None = None
        self.tokens_per_second: float | None = None
        self.mfu: float | None = None
        peak, self.peak_tokens_per_second = peak_flops(device, config.precision), math.nan
        if peak is not None:
            from accounting import training_flops  # here, because only MFU needs it

            with contextlib.suppress(ValueError):  # adapters that accounting does not count
                flops = int(training_flops(trained_shape(model, config), pairs="causal").total)
                self.peak_tokens_per_second = peak * processes / (flops / model.context_length)

    def update(self, seconds: float) -> None:
        """Take in the duration of a step."""
        self.steps += 1
        if self.steps > 0:
            self.seconds += seconds
            self.recent, self.weight = 0.9 * self.recent + 0.1 * seconds, 0.9 * self.weight + 0.1
            self.mean_tokens_per_second = self.tokens_per_step * self.steps / max(1e-9, self.seconds)
            self.tokens_per_second = self.tokens_per_step * self.weight / max(1e-9, self.recent)
            self.mfu = finite(self.tokens_per_second / self.peak_tokens_per_second)
