"""Training: a run folder that the same call continues, to the bit, from wherever it was stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch
from torch import Tensor
from tqdm import tqdm

from lm import checkpoint
from lm.config import ModelConfig, TrainConfig
from lm.data import Mixture, open_data
from lm.machine import keep_memory, threads
from lm.model import Transformer
from lm.optimizer import clip_gradients
from lm.run_folder import finite, settle, truncate_metrics, writing
from lm.scoring import Score, evaluate, mixed
from lm.step import HISTORY, accumulate, compiled, in_trouble, learning_rate, make_optimizer

SKIPS_IN_A_ROW = 10


class Stopped(Exception):
    """The run was asked to stop, and did so after a whole step, its state saved: the same call continues it."""


class Diverged(RuntimeError):
    """Too many steps in a row were skipped. The state of the last good one is saved."""


@dataclass(frozen=True)
class Result:
    """A finished run: the model, its last training loss (nats a token), its score on the held-out sample, and its speed."""

    model: Transformer
    steps: int
    loss: float
    heldout: Score | None
    seconds: float
    tokens_per_second: float


def train(
    model_config: ModelConfig,
    train_config: TrainConfig,
    data: str | Path | Mapping[str, Any],
    run_dir: str | Path,
    *,
    progress: bool = True,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Trains a model in run_dir, or continues the training that stopped there.

    data: a folder of token files, {"train": path, "heldout": path}, or a mixture of such sets: see data.open_data.
    progress: a live line on stderr. on_step: called with each line of metrics.jsonl as it is written.
    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads.

    Stopped: after Ctrl-C or SIGTERM, once the step is done and saved. Diverged: the loss stayed NaN or the gradient far
    outside its history. ValueError: the run in run_dir is of another configuration or other data, named.
    checkpoint.NotSaved: the disk is full or read-only.
    """
    run_dir = Path(run_dir)
    mixture = open_data(data)
    mixture.check(model_config.vocab_size, model_config.context_length)  # here, before anything is written
    with stop_signals() as stop:
        run = Run(run_dir, model_config, train_config, mixture, progress=progress, on_step=on_step)
        keep_memory()
        with threads(run.config.threads):
            return run.go(stop)


class Run:
    """The state of one run, and the loop."""

    def __init__(
        self,
        folder: Path,
        model_config: ModelConfig,
        config: TrainConfig,
        data: Mixture,
        *,
        progress: bool,
        on_step: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.folder, self.data, self.progress, self.on_step = folder, data, progress, on_step
        self.config = settle(folder, model_config, config, data)
        with torch.random.fork_rng():
            torch.manual_seed(self.config.seed)
            self.model = Transformer(model_config)
        self.optimizer = make_optimizer(self.model, self.config)
        self.step = 0
        self.seconds = 0.0
        self.loss = math.nan
        self.norms: list[float] = []  # of the last steps that were not skipped
        self.skipped = 0  # in a row
        self.best: list[float] | None = None  # the step and the loss of the best evaluation that has a checkpoint
        self.score: Score | None = None
        self.scored_at = -1
        self.pace: float | None = None  # seconds a step, smoothed
        self.tokens_a_step = self.config.batch_size * model_config.context_length
        self.restore()

    def restore(self) -> None:
        """Takes up the newest whole checkpoint, and forgets the metrics of the steps after it."""
        saved = checkpoint.load(self.folder / "checkpoints")
        if saved is not None:
            self.model.load_state_dict(saved.model)
        if saved is not None and saved.step:  # step 0 is that of an imported model, which has weights and no history
            self.optimizer.load_state_dict(saved.optimizer)
            self.step, state = saved.step, saved.state
            self.seconds, self.loss = state["seconds"], state["loss"]
            self.norms, self.skipped, self.best = state["norms"], state["skipped"], state["best"]
            self.score = Score(**state["score"]) if state["score"] else None
        truncate_metrics(self.folder / "metrics.jsonl", self.step)

    def save(self) -> None:
        """Saves the state; it is the best so far if it was just scored and no saved one scored less."""
        just_scored = self.score is not None and self.scored_at == self.step
        if self.score is not None and just_scored and (self.best is None or self.score.loss < self.best[1]):
            self.best = [self.step, self.score.loss]
        state = {
            "seconds": self.seconds,
            "loss": self.loss,
            "norms": self.norms,
            "skipped": self.skipped,
            "best": self.best,
            "score": dataclasses.asdict(self.score) if self.score else None,
        }
        best = int(self.best[0]) if self.best else None
        keep = self.config.keep_checkpoints
        checkpoint.save(self.folder / "checkpoints", self.step, self.model, self.optimizer, state, keep=keep, best=best)

    def go(self, stop: threading.Event) -> Result:
        """Every step that is left, with what is due after each."""
        config, began, begin = self.config, time.perf_counter(), self.step
        hidden = compiled(self.model) if config.compile == "on" else self.model.hidden
        metrics_path = self.folder / "metrics.jsonl"
        with (
            writing(self.folder),
            open(metrics_path, "a", encoding="utf-8") as metrics,
            tqdm(total=config.steps, initial=self.step, desc="train", unit="step", disable=not self.progress) as bar,
        ):
            self.model.train()
            while self.step < config.steps:
                line = self.advance(hidden)
                trouble = line.get("skipped")
                if due(self.step, config.log_every, config.steps) or trouble:
                    self.log(metrics, line)
                if trouble:
                    bar.write(f"step {self.step} is skipped: {trouble}", file=sys.stderr)
                bar.update()
                bar.set_postfix_str(in_short(line), refresh=False)
                if due(self.step, config.eval_every, config.steps) and self.data.heldout:
                    self.log(metrics, self.evaluate())
                diverged = self.skipped >= SKIPS_IN_A_ROW
                if due(self.step, config.checkpoint_every, config.steps) or stop.is_set() or diverged:
                    os.fsync(metrics.fileno())
                    self.save()
                if diverged:
                    raise Diverged(
                        f"{self.skipped} steps in a row were skipped, the last because {trouble}: lower learning_rate "
                        f"{config.learning_rate} or look at the data; the weights from before are kept in {self.folder}"
                    )
                if stop.is_set() and self.step < config.steps:
                    raise Stopped(f"stopped after step {self.step} of {config.steps}: the same command continues it")
        self.model.eval()
        elapsed = max(1e-9, time.perf_counter() - began)
        speed = (self.step - begin) * self.tokens_a_step / elapsed
        return Result(self.model, self.step, self.loss, self.score, self.seconds, speed)

    def advance(self, hidden: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """One step, and its line of metrics. A step in trouble changes no weight and no state of the optimizer."""
        config, began = self.config, time.perf_counter()
        rate = learning_rate(config, self.step)
        micro = config.micro_batch_size or config.batch_size
        passes = config.batch_size // micro
        context = self.model.config.context_length
        first = self.step * passes
        batches = (self.data.batch(config.seed, first + i, 0, 1, micro, context) for i in range(passes))
        loss = accumulate(self.model, hidden, batches, self.tokens_a_step)
        norm = float(clip_gradients(self.model.parameters(), config.gradient_clip))
        trouble = in_trouble(loss, norm, self.norms)
        if trouble is None:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.norms = [*self.norms[1 - HISTORY :], norm]
            self.loss, self.skipped = loss, 0
        else:
            self.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        took = time.perf_counter() - began
        self.pace = took if self.pace is None else 0.9 * self.pace + 0.1 * took
        self.seconds += took
        line = {
            "step": self.step,
            "tokens": self.step * self.tokens_a_step,
            "loss": finite(loss),
            "bits_per_byte": finite(Score(loss, 1, self.data.bytes_per_token).bits_per_byte),
            "learning_rate": rate,
            "gradient_norm": finite(norm),
            "tokens_per_second": round(self.tokens_a_step / self.pace, 1),
            "seconds": round(self.seconds, 3),
        }
        return line if trouble is None else {**line, "skipped": trouble}

    def evaluate(self) -> dict[str, Any]:
        """Scores the held-out sample, that of each set where there are several; gives its line of metrics."""
        began, heldout = time.perf_counter(), self.data.heldout
        most = max(1, self.config.eval_tokens // len(heldout)) if self.config.eval_tokens else None
        scores = {name: evaluate(self.model, tokens, max_tokens=most) for name, tokens in heldout.items()}
        self.score = mixed([(self.data.share(name), score) for name, score in scores.items()])
        self.scored_at = self.step
        self.model.train()
        self.seconds += time.perf_counter() - began
        return {
            "step": self.step,
            "heldout_loss": finite(self.score.loss),
            "heldout_bits_per_byte": finite(self.score.bits_per_byte),
            **{f"heldout_loss/{name}": finite(score.loss) for name, score in scores.items() if name},
            "seconds": round(self.seconds, 3),
        }

    def log(self, metrics: TextIO, line: dict[str, Any]) -> None:
        metrics.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
        metrics.flush()
        if self.on_step is not None:
            self.on_step(line)


def due(step: int, every: int, last: int) -> bool:
    """Whether what happens `every` so many steps (0: only at the end) happens after this one."""
    return step == last or (every > 0 and step % every == 0)


def in_short(line: dict[str, Any]) -> str:
    """A line of metrics for the terminal."""
    parts = [f"loss {line['loss']:.3f}" if line["loss"] is not None else "loss NaN"]
    if line["bits_per_byte"] is not None:
        parts.append(f"{line['bits_per_byte']:.3f} bits/byte")
    parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(parts)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set instead of ending the process; the second one ends it. In the main thread only."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, ask)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
