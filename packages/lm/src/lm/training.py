"""Training: a run folder that the same call continues, to the bit, from wherever it was stopped.

RUN/config.toml      what was asked for, resolved, and the fingerprints of the data
RUN/metrics.jsonl    a line for each step logged and for each evaluation
RUN/checkpoints/     see checkpoint
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import math
import os
import signal
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from lm import checkpoint
from lm.config import ModelConfig, TrainConfig, from_table, read_toml, to_table
from lm.data import Tokens, batch, check_range, open_tokens, windows_of
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.optimizer import adamw, clip_gradients, constant, cosine, linear

# A gradient norm is far outside its history when it is this many times the median of the last ones.
OUTLIER = 20.0
HISTORY = 128
HISTORY_AT_LEAST = 32
SKIPS_IN_A_ROW = 10

# What may differ between a run and its continuation, because it changes nothing that is learned.
FREE = frozenset({"log_every", "eval_every", "eval_tokens", "checkpoint_every", "keep_checkpoints", "micro_batch_size"})

# Seconds: compile = "auto" does not try for shorter runs. Compiling took 17 s on two busy Zen 3 cores and saved 13% of a step.
WORTH_COMPILING = 300.0


class Stopped(Exception):
    """The run was asked to stop, and did so after a whole step, its state saved: the same call continues it."""


class Diverged(RuntimeError):
    """Too many steps in a row were skipped. The state of the last good one is saved."""


@dataclass(frozen=True)
class Score:
    """What a model makes of a text: nats over `tokens` predictions, which stand for `bytes` of text where that is known."""

    nats: float
    tokens: int
    bytes: float | None = None

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Comparable between tokenizers, and with compressors."""
        return None if self.bytes is None else self.nats / self.bytes / math.log(2)


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
    data: str | Path | Mapping[str, str | Path],
    run_dir: str | Path,
    *,
    progress: bool = True,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Trains a model in run_dir, or continues the training that stopped there.

    data: a folder with train.npy and, if there is one, heldout.npy, or {"train": path, "heldout": path}: see data.open_tokens.
    progress: a live line on stderr. on_step: called with each line of metrics.jsonl as it is written.
    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads.

    Stopped: after Ctrl-C or SIGTERM, once the step is done and saved. Diverged: the loss stayed NaN or the gradient far
    outside its history. ValueError: the run in run_dir is of another configuration or other data, named.
    checkpoint.NotSaved: the disk is full or read-only.
    """
    run_dir = Path(run_dir)
    tokens, heldout = open_data(data)
    check_range(tokens, model_config.vocab_size)
    if heldout is not None:
        check_range(heldout, model_config.vocab_size)
    # A text too short for one window fails here, before anything is written.
    batch(tokens.ids, 0, 0, 0, 1, 1, model_config.context_length)
    with stop_signals() as stop:
        run = Run(run_dir, model_config, train_config, tokens, heldout, progress=progress, on_step=on_step)
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
        tokens: Tokens,
        heldout: Tokens | None,
        *,
        progress: bool,
        on_step: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.folder, self.tokens, self.heldout, self.progress, self.on_step = folder, tokens, heldout, progress, on_step
        self.config = settle(folder, model_config, config, tokens, heldout)
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
                if due(self.step, config.eval_every, config.steps) and self.heldout is not None:
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
        batches = (batch(self.tokens.ids, config.seed, first + i, 0, 1, micro, context) for i in range(passes))
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
            "bits_per_byte": finite(Score(loss, 1, self.tokens.bytes_per_token).bits_per_byte),
            "learning_rate": rate,
            "gradient_norm": finite(norm),
            "tokens_per_second": round(self.tokens_a_step / self.pace, 1),
            "seconds": round(self.seconds, 3),
        }
        return line if trouble is None else {**line, "skipped": trouble}

    def evaluate(self) -> dict[str, Any]:
        """Scores the held-out sample; gives its line of metrics."""
        assert self.heldout is not None
        began = time.perf_counter()
        self.score = evaluate(self.model, self.heldout, max_tokens=self.config.eval_tokens or None)
        self.scored_at = self.step
        self.model.train()
        self.seconds += time.perf_counter() - began
        return {
            "step": self.step,
            "heldout_loss": finite(self.score.loss),
            "heldout_bits_per_byte": finite(self.score.bits_per_byte),
            "seconds": round(self.seconds, 3),
        }

    def log(self, metrics: TextIO, line: dict[str, Any]) -> None:
        metrics.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
        metrics.flush()
        if self.on_step is not None:
            self.on_step(line)


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of a step, counted from 0, by the schedule of the configuration."""
    if config.schedule == "constant":
        return constant(step, max_lr=config.learning_rate, warmup_steps=config.warmup_steps)
    if config.schedule == "cosine":
        return cosine(
            step,
            max_lr=config.learning_rate,
            min_lr=config.min_learning_rate,
            warmup_steps=config.warmup_steps,
            total_steps=config.steps,
        )
    return linear(
        step,
        max_lr=config.learning_rate,
        min_lr=config.min_learning_rate,
        warmup_steps=config.warmup_steps,
        total_steps=config.steps,
        decay_steps=config.decay_steps,
    )


def accumulate(
    model: Transformer, hidden: Callable[[Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]], tokens: int
) -> float:
    """Adds the gradients of the loss over batches that hold `tokens` targets together; gives it in nats a token."""
    total = 0.0
    for inputs, targets in batches:
        loss = (
            chunked_cross_entropy(
                hidden(inputs), model.head_weight, targets, vocab_size=model.config.vocab_size, reduction="sum"
            )
            / tokens
        )
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def in_trouble(loss: float, norm: float, norms: list[float]) -> str | None:
    """Why a step must not be taken, or None: loss or gradient is no number, or its norm is far outside those of late."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(norm):
        return f"the gradient norm is {norm}"
    if len(norms) >= HISTORY_AT_LEAST and norm > OUTLIER * (usual := statistics.median(norms)):
        return f"the gradient norm is {norm:.3g}, and of late it was {usual:.3g}"
    return None


@torch.inference_mode()
def evaluate(
    model: Transformer,
    tokens: Tokens | NDArray[Any],
    *,
    context_length: int | None = None,
    stride: int | None = None,
    max_tokens: int | None = None,
    batch_size: int = 16,
    progress: bool = False,
) -> Score:
    """Scores every token once, the very first included, so that the nats are what it would take to store the text.

    Windows of context_length (the model's, if not given) move by `stride` (context_length, if not given): all but the first
    context_length tokens are predicted from at least context_length - stride tokens before them.
    The first token is predicted from end_of_text where tokens.end_of_text names it, as documents were joined by it in training;
    else it costs log(vocab_size), as it would without a model.
    max_tokens: score about that many, in windows spread evenly over the text, instead of all; then `bytes` is in proportion.
    """
    config = model.config
    context = config.context_length if context_length is None else context_length
    stride = context if stride is None else stride
    if not 1 <= stride <= context <= config.context_length:
        raise ValueError(
            f"stride {stride} and context_length {context} must be in order, from 1 to the model's {config.context_length}"
        )
    ids = tokens.ids if isinstance(tokens, Tokens) else tokens
    before = tokens.end_of_text if isinstance(tokens, Tokens) else None
    targets = ids if before is not None else ids[1:]
    windows = list(windows_of(len(targets), context, stride)) if len(targets) else []
    if max_tokens is not None and len(windows) * stride > max_tokens:
        wanted = max(1, max_tokens // stride)
        windows = [windows[i * len(windows) // wanted] for i in range(wanted)]
    nats, scored = 0.0, 0
    if before is None and (not windows or windows[0][0] == 0):
        nats, scored = math.log(config.vocab_size), 1
    was_training = model.training
    model.eval()
    total = sum(end - first for _, first, end in windows)
    with tqdm(total=total, desc="evaluate", unit="token", unit_scale=True, disable=not progress) as bar:
        for group in alike(windows, batch_size):
            begin, first, end = group[0]
            rows = np.empty((len(group), end - begin + 1), dtype=np.int64)
            for row, (start, _, stop) in zip(rows, group, strict=True):
                # Input i is the token before target i. Targets are ids[1:], or all ids and then end_of_text is the first input.
                if before is None:
                    row[:] = ids[start : stop + 1]
                else:
                    row[1:] = ids[start:stop]
                    row[0] = ids[start - 1] if start else before
            both = torch.from_numpy(rows)
            hidden = model.hidden(both[:, :-1])[:, first - begin :]
            loss = chunked_cross_entropy(
                hidden, model.head_weight, both[:, 1 + first - begin :], vocab_size=config.vocab_size, reduction="sum"
            )
            nats += float(loss)
            scored += len(group) * (end - first)
            bar.update(len(group) * (end - first))
    model.train(was_training)
    share = tokens.bytes * scored / len(ids) if isinstance(tokens, Tokens) and tokens.bytes else None
    return Score(nats, scored, share)


def alike(windows: list[tuple[int, int, int]], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Runs of at most `most` windows of the same length that score as many tokens each: what fits one batch."""
    for _, run in itertools.groupby(windows, key=lambda window: (window[2] - window[0], window[2] - window[1])):
        while group := list(itertools.islice(run, most)):
            yield group


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


def make_optimizer(model: Transformer, config: TrainConfig) -> torch.optim.AdamW:
    return adamw(model, config.learning_rate, (config.beta1, config.beta2), config.eps, config.weight_decay)


def compiled(model: Transformer) -> Callable[[Tensor], Tensor]:
    """model.hidden with each block through torch.compile: they are alike, so what is compiled for the first serves all."""
    for block in model.blocks:
        block.compile()
    return model.hidden


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


def settle(
    folder: Path, model_config: ModelConfig, config: TrainConfig, tokens: Tokens, heldout: Tokens | None
) -> TrainConfig:
    """What the run in `folder` trains by: written there at its start, later compared: ValueError names what differs.

    Settings that the machine decides (threads 0, compile "auto") are decided once, so that a continuation decides the same.
    """
    path = folder / "config.toml"
    if path.exists():
        known_model, known, data = read_config(folder)
        config = dataclasses.replace(
            config,
            threads=config.threads or known.threads,
            compile=known.compile if config.compile == "auto" else config.compile,
        )
        asked = {"model": to_table(model_config), "train": to_table(config), "data": fingerprints(tokens, heldout)}
        there = {"model": to_table(known_model), "train": to_table(known), "data": data}
        for section, table in asked.items():
            for key in sorted(table.keys() | there[section].keys()):
                old, new = there[section].get(key), table.get(key)
                if old != new and not (section == "train" and key in FREE):
                    raise ValueError(
                        f"the run in {folder} has {section}.{key} = {old!r}, and this call asks for {new!r}: "
                        f"ask for the same to continue it, or choose another folder"
                    )
        return config
    with threads(config.threads):
        config = dataclasses.replace(config, threads=torch.get_num_threads())
        if config.compile == "auto":
            config = dataclasses.replace(config, compile="on" if compile_pays(model_config, config) else "off")
    tables = {"model": to_table(model_config), "train": to_table(config), "data": fingerprints(tokens, heldout)}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / ".config.toml.partial"
        try:
            temporary.write_text(tomli_w.dumps(tables))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return config


def fingerprints(tokens: Tokens, heldout: Tokens | None) -> dict[str, str]:
    """What a run says of its data: hashes, not paths, so that data may move."""
    says = {"train_sha256": tokens.sha256}
    if heldout is not None:
        says["heldout_sha256"] = heldout.sha256
    if tokens.tokenizer is not None:
        says["tokenizer"] = tokens.tokenizer
    return says


def read_config(run_dir: str | Path) -> tuple[ModelConfig, TrainConfig, dict[str, Any]]:
    """What a run was started with: its model, its training, and the fingerprints of its data."""
    path = Path(run_dir) / "config.toml"
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} holds no run: there is no config.toml in it")
    tables = read_toml(path)
    model = from_table(ModelConfig, tables.get("model", {}), "model")
    return model, from_table(TrainConfig, tables.get("train", {}), "train"), dict(tables.get("data", {}))


def load(run_dir: str | Path, step: int | None = None) -> Transformer:
    """The model of a run, in eval mode, from its newest whole checkpoint or the one of `step`."""
    config, _, _ = read_config(run_dir)
    saved = checkpoint.load(Path(run_dir) / "checkpoints", step)
    if saved is None:
        raise FileNotFoundError(f"the run in {run_dir} has no checkpoint yet: train it for longer")
    with torch.random.fork_rng():
        model = Transformer(config)
    model.load_state_dict(saved.model)
    return model.eval()


def open_data(data: str | Path | Mapping[str, str | Path]) -> tuple[Tokens, Tokens | None]:
    """The training tokens, and the held-out ones where there are any. ValueError: they come from different tokenizers."""
    if isinstance(data, Mapping):
        paths = {name: Path(path) for name, path in data.items()}
    else:
        paths = {"train": Path(data) / "train.npy"}
        if (Path(data) / "heldout.npy").exists():
            paths["heldout"] = Path(data) / "heldout.npy"
    if "train" not in paths or not paths.keys() <= {"train", "heldout"}:
        raise ValueError(f"data names {', '.join(paths) or 'nothing'}: give 'train', and 'heldout' if there is any")
    tokens = open_tokens(paths["train"])
    heldout = open_tokens(paths["heldout"]) if "heldout" in paths else None
    if heldout is not None and heldout.tokenizer != tokens.tokenizer:
        raise ValueError(f"{tokens.path} and {heldout.path} were made by different tokenizers: encode both with one")
    return tokens, heldout


def truncate_metrics(path: Path, step: int) -> None:
    """Drops the lines after `step`, and one that was cut off in the writing."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            if json.loads(line)["step"] > step:
                continue
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
        kept.append(line)
    temporary = path.with_name(".metrics.jsonl.partial")
    with writing(path.parent):
        temporary.write_text("".join(kept), encoding="utf-8")
        os.replace(temporary, path)


def due(step: int, every: int, last: int) -> bool:
    """Whether what happens `every` so many steps (0: only at the end) happens after this one."""
    return step == last or (every > 0 and step % every == 0)


def finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def in_short(line: dict[str, Any]) -> str:
    """A line of metrics for the terminal."""
    parts = [f"loss {line['loss']:.3f}" if line["loss"] is not None else "loss NaN"]
    if line["bits_per_byte"] is not None:
        parts.append(f"{line['bits_per_byte']:.3f} bits/byte")
    parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(parts)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Says of a failure to write, in one sentence, what was being written and what to do."""
    try:
        yield
    except checkpoint.NotSaved:
        raise
    except OSError as error:
        why = checkpoint.reason(error, folder)
        raise checkpoint.NotSaved(f"the run in {folder} cannot be written: {why}") from error


def keep_memory() -> None:
    """Tells glibc to keep freed memory for the next allocation rather than hand large blocks back to the kernel each time.

    A step frees and allocates the same tensors over and over: at 4 layers of 128, vocabulary 2,048 and 1,024 tokens a step
    that was 3,000 to 4,000 page faults and 8 to 11 ms of kernel time a step, and with this next to none. It lasts as long as
    the process; other allocators are left alone.
    """
    with contextlib.suppress(OSError, AttributeError):  # no C library by that name, or one without mallopt
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(ctypes.c_int(-3), ctypes.c_int(1 << 30))  # M_MMAP_THRESHOLD
        mallopt(ctypes.c_int(-1), ctypes.c_int((1 << 31) - 1))  # M_TRIM_THRESHOLD


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs torch on so many threads (0: as many as it has), and puts back what was."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
