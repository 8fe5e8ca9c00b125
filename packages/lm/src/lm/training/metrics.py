"""The metrics of a run: its file, the live line, and how fast it goes."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

from lm.config import ModelConfig, TrainConfig
from lm.device import peak_flops
from lm.files import atomic_write
from lm.training.budget import trained_shape
from lm.training.distributed import DistributedContext

Line = dict[str, Any]


class Throughput:
    """Tokens a second, smoothed over the last steps, and the share of the device's published peak that they use
    (MFU)."""

    def __init__(self, model: ModelConfig, config: TrainConfig, distributed: DistributedContext) -> None:
        self.tokens_per_step = config.batch_size * model.context_length
        self.seconds_per_step: float | None = None
        peak, self.peak_tokens_per_second = peak_flops(distributed.device, config.precision), math.nan
        if peak is not None and not (config.lora_rank and model.value_embeddings):  # which accounting does not count
            from accounting import training_flops  # here, because nothing but MFU needs it

            flops_per_token = (
                int(training_flops(trained_shape(model, config), pairs="causal").total) / model.context_length
            )
            self.peak_tokens_per_second = peak * distributed.size / flops_per_token

    def update(self, seconds: float) -> None:
        """Takes in how long a step took."""
        before = self.seconds_per_step
        self.seconds_per_step = seconds if before is None else 0.9 * before + 0.1 * seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_step / max(1e-9, self.seconds_per_step or math.inf)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, where the device's peak is known. (Chowdhery et al. 2022, arXiv:2204.02311)"""
        return finite(self.tokens_per_second / self.peak_tokens_per_second)


@contextlib.contextmanager
def log_to(
    path: Path, *listeners: Callable[[Line], None], stop: threading.Event | None = None, patience: float = math.inf
) -> Iterator[Callable[[Line], None]]:
    """What takes lines of metrics: adds them to a file at once, and gives them to the listeners.

    Where the disk is full it says so and waits for space: `patience` seconds, or until the run is asked to stop. What
    could not be written then is written with the next line.
    """
    with open(path, "ab", buffering=0) as file:
        waiting = bytearray()

        def log(line: Line) -> None:
            known = {key: value for key, value in line.items() if value is not None}
            waiting.extend(json.dumps(known).encode() + b"\n")
            write_all(file, waiting, path, stop or threading.Event(), patience)
            for listener in listeners:
                listener(line)

        yield log
        if waiting:
            write_all(file, waiting, path, stop or threading.Event(), 0.0)


def write_all(file: RawIOBase, waiting: bytearray, path: Path, stop: threading.Event, patience: float) -> None:
    """Writes what waits and takes it away, as far as the disk has space for it in time (see log_to)."""
    last, said = time.monotonic() + patience, False
    while waiting:
        try:
            del waiting[: file.write(waiting) or 0]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not said:
                print(f"the disk of {path} is full: the run waits for space", file=sys.stderr)
                said = True
            if time.monotonic() >= last or stop.wait(1.0):
                return


def read_lines(path: Path, until: int | None = None) -> list[str]:
    """The lines of a metrics file up to a step; what is no such line, as one cut off in the writing, is left out."""
    kept = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                step = json.loads(line)["step"]
                if until is None or step <= until:
                    kept.append(line)
    return kept


def truncate(path: Path, step: int) -> None:
    """Drops the lines after a step."""
    if path.exists():
        atomic_write(path, "".join(read_lines(path, step)))


def in_short(line: Line) -> str:
    """A line of metrics for the terminal."""
    parts = [f"loss {line['loss']:.3f}" if line["loss"] is not None else "loss NaN"]
    if line["bits_per_byte"] is not None:
        parts.append(f"{line['bits_per_byte']:.3f} bits/byte")
    parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in line:
        parts.append(f"MFU {line['mfu']:.0%}")
    if line["gradient_norm"] is not None:
        parts.append(f"norm {line['gradient_norm']:.2f}")
    return "  ".join(parts)


def finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None
