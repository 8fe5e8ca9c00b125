"""Training: a run folder that the same call continues, to the bit, from wherever it was stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
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

from lm import files
from lm.config import ModelConfig, TrainConfig
from lm.data import Mixture, open_data, prefetched
from lm.device import arithmetic, choose_device, in_words, keep_memory, peak_flops, threads
from lm.loss import IGNORE
from lm.model import Transformer
from lm.ops.cpu import passes
from lm.tokenizer import keep_tokenizer
from lm.training import checkpoint
from lm.training.budget import beyond, ran_out, what_fits
from lm.training.distributed import World, joined, launched, local_rank
from lm.training.run_folder import finite, lock, made_with, refuse_edited, settle, truncate_metrics, writing
from lm.training.step import HISTORY, Stepper, in_trouble, learning_rate
from lm.training.validation import Score, evaluate, mixed

SKIPS_IN_A_ROW = 10


class Stopped(Exception):
    """The run was asked to stop, and did so after a whole step, its state saved: the same call continues it."""


class Diverged(RuntimeError):
    """Too many steps in a row were skipped. The state of the last good one is saved."""


class OutOfMemory(RuntimeError):
    """A step does not fit the device: with the setting to lower, and what would fit."""


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
    tensorboard: bool = False,
    tokenizer: str | Path | None = None,
) -> Result:
    """Trains a model in run_dir, or continues the training that stopped there.

    data: a folder of token files, {"train": path, "heldout": path}, or a mixture of such sets: see data.open_data.
    progress: a live line on stderr. on_step: called with each line of metrics.jsonl as it is written.
    tensorboard: writes them under run_dir/tensorboard too. tokenizer: the file of the one that made the data, kept in the run.
    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads, and with
    a C compiler if there was one (see passes).
    Under torchrun all processes call this, and rank 0 alone writes and calls on_step; how many there are may change between
    a run and its continuation, and not what data a step sees.

    Stopped: after Ctrl-C or SIGTERM, once the step is done and saved. Diverged: the loss stayed NaN or the gradient far
    outside its history. ValueError: the run in run_dir is of another configuration or other data, named, or another process
    is training in it. checkpoint.NotSaved: the disk is full or read-only. OutOfMemory: with what would fit.
    distributed.Lost: another process of the run has ended.
    """
    run_dir = Path(run_dir)
    mixture = open_data(data)
    mixture.check(model_config.vocab_size, model_config.context_length)  # here, before anything is written
    if train_config.document_masking and mixture.end_of_text is None:
        raise ValueError("documents are told apart by the end-of-text token, and the data does not say which that is")
    device = choose_device(train_config.device, local_rank())
    with contextlib.ExitStack() as stack:
        # to the end: torchrun's signal may not cut off what is said of a process that was lost
        stop = stack.enter_context(stop_signals())
        world = stack.enter_context(joined(device))
        world.check(train_config.batch_size, train_config.micro_batch_size)
        own = train_config.batch_size // world.size
        if (too_much := beyond(model_config, train_config, device, own)) is not None:
            raise OutOfMemory(too_much)
        if world.first:
            stack.enter_context(lock(run_dir))

        def say(line: str) -> None:
            if progress and world.first:
                print(line, file=sys.stderr)

        config = train_config
        try:
            config = world.once(lambda: settle(run_dir, model_config, train_config, mixture, say=say))
            if tokenizer is not None:  # only now: a call that is refused may be of another one than the run's
                source = Path(tokenizer)
                with writing(run_dir):
                    world.once(lambda: keep_tokenizer(source, run_dir))
            shared = f", {world.size} processes ({config.parallel})" if world.size > 1 else ""
            say(f"training on {in_words(device)} in {config.precision}{shared}")
            keep_memory()
            stack.enter_context(threads(config.threads))
            stack.enter_context(arithmetic(config.precision))
            return Run(
                run_dir,
                model_config,
                config,
                mixture,
                world,
                progress=progress,
                on_step=on_step,
                tensorboard=tensorboard,
            ).go(stop)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            raise OutOfMemory(what_fits(model_config, config, device, own)) from error


class Run:
    """The state of one run, and the loop."""

    def __init__(
        self,
        folder: Path,
        model_config: ModelConfig,
        config: TrainConfig,
        data: Mixture,
        world: World,
        *,
        progress: bool,
        on_step: Callable[[dict[str, Any]], None] | None,
        tensorboard: bool,
    ) -> None:
        self.folder, self.data, self.config, self.world = folder, data, config, world
        self.progress, self.on_step, self.tensorboard = progress and world.first, on_step, tensorboard
        saved = checkpoint.load(folder / "checkpoints")
        if saved is not None:
            refuse_edited(saved, model_config, config)
        with torch.random.fork_rng(devices=[]):  # the weights are made on the CPU
            torch.default_generator.manual_seed(config.seed)
            self.model = Transformer(model_config)
        if saved is not None:
            self.model.load_state_dict(saved.model)
        end_of_text = data.end_of_text if config.document_masking else None
        self.stepper = Stepper(self.model, config, world, end_of_text=end_of_text)
        self.step = 0
        self.seconds = 0.0
        self.loss = math.nan
        self.norms: list[float] = []  # of the last steps that were not skipped
        self.skipped = 0  # in a row
        self.best: list[float] | None = None  # the step and the loss of the best evaluation that has a checkpoint
        self.score: Score | None = None
        self.scored_at = -1
        self.pace: float | None = None  # seconds a step, smoothed
        self.tokens_a_step = config.batch_size * model_config.context_length
        if saved is not None and saved.step:  # step 0 is that of an imported model, which has weights and no history
            self.restore(saved)
        if world.first:
            truncate_metrics(folder / "metrics.jsonl", self.step)
        self.flops_a_token, self.peak = 0.0, peak_flops(world.device, config.precision)
        if self.peak is not None:
            from accounting import training_flops  # here, because nothing but MFU needs it

            flops = training_flops(model_config.shape(), pairs="causal")
            self.flops_a_token = int(flops.total) / model_config.context_length

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Takes up all but the weights of a checkpoint."""
        self.step, state = saved.step, saved.state
        self.stepper.restore(saved.optimizer, state.get("scaler", {}))
        self.seconds, self.loss = state["seconds"], state["loss"]
        self.norms, self.skipped, self.best = state["norms"], state["skipped"], state["best"]
        self.score = Score(**state["score"]) if state["score"] else None
        before, now = state.get("passes"), passes.means(self.world.device)
        if before not in (None, now) and self.progress:
            said = f"{before} computed what stands between products in the steps so far, and {now} does now"
            print(f"{said}: the run continues to rounding, not to the bit", file=sys.stderr)

    def save(self) -> None:
        """Saves the state; it is the best so far if it was just scored and no saved one scored less."""
        just_scored = self.score is not None and self.scored_at == self.step
        if self.score is not None and just_scored and (self.best is None or self.score.loss < self.best[1]):
            self.best = [self.step, self.score.loss]
        model, optimizer, scaler = self.stepper.state()
        state = {
            "seconds": self.seconds,
            "loss": self.loss,
            "norms": self.norms,
            "skipped": self.skipped,
            "best": self.best,
            "score": dataclasses.asdict(self.score) if self.score else None,
            "passes": passes.means(self.world.device),
            "config": made_with(self.model.config, self.config),
            **({"scaler": scaler} if scaler else {}),
        }
        best, keep = int(self.best[0]) if self.best else None, self.config.keep_checkpoints
        folder = self.folder / "checkpoints"

        def write() -> None:
            # who goes on from here after a power failure finds the lines that led here
            files.sync(self.folder / "metrics.jsonl")
            checkpoint.save(folder, self.step, model, optimizer, state, keep=keep, best=best)

        self.world.once(write)

    def go(self, stop: threading.Event) -> Result:
        """Every step that is left, with what is due after each."""
        config, began, begin = self.config, time.perf_counter(), self.step
        micro = config.micro_batch_size or config.batch_size // self.world.size
        passes = config.batch_size // self.world.size // micro
        batches = prefetched(self.make(micro), self.step * passes, config.steps * passes, self.world.device)
        with (
            writing(self.folder),
            contextlib.closing(batches),  # type: ignore[type-var]
            self.logs() as log,
            tqdm(total=config.steps, initial=self.step, desc="train", unit="step", disable=not self.progress) as bar,
        ):
            self.model.train()
            while self.step < config.steps:
                line, asked = self.advance(itertools.islice(batches, passes), stop)
                trouble = line.get("skipped")
                if due(self.step, config.log_every, config.steps) or trouble:
                    log(line)
                if trouble and self.world.first:
                    bar.write(f"step {self.step} is skipped: {trouble}", file=sys.stderr)
                bar.update()
                bar.set_postfix_str(in_short(line), refresh=False)
                if due(self.step, config.eval_every, config.steps) and self.data.heldout:
                    log(self.evaluate())
                if self.world.size == 1:
                    asked = stop.is_set()  # during what came after the step, too
                diverged = self.skipped >= SKIPS_IN_A_ROW
                if due(self.step, config.checkpoint_every, config.steps) or asked or diverged:
                    self.save()
                if diverged:
                    raise Diverged(
                        f"{self.skipped} steps in a row were skipped, the last because {trouble}: lower learning_rate "
                        f"{config.learning_rate} or look at the data; the weights from before are kept in {self.folder}"
                    )
                if asked and self.step < config.steps:
                    raise Stopped(f"stopped after step {self.step} of {config.steps}: the same command continues it")
        self.model.eval()
        elapsed = max(1e-9, time.perf_counter() - began)
        speed = (self.step - begin) * self.tokens_a_step / elapsed
        return Result(self.model, self.step, self.loss, self.score, self.seconds, speed)

    def make(self, micro: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """What gives this process's part of each pass of the run, counted from the first step's first."""
        seed, world, context = self.config.seed, self.world, self.model.config.context_length
        return lambda index: self.data.batch(seed, index, world.rank, world.size, micro, context)

    def advance(self, batches: Iterator[tuple[Tensor, Tensor]], stop: threading.Event) -> tuple[dict[str, Any], bool]:
        """One step: its line of metrics, and whether any process was asked to stop.

        A step in trouble changes no weight and no state of the optimizer.
        """
        began, stepper = time.perf_counter(), self.stepper
        rate = learning_rate(self.config, self.step)
        learned = self.tokens_a_step
        if self.data.masked:  # their number must be known before the first gradient
            batches = iter(held := list(batches))
            learned = int(self.world.sum(sum(int((y != IGNORE).sum()) for _, y in held))[0])
        here = ((x.to(self.world.device), y.to(self.world.device)) for x, y in batches)
        loss = stepper.accumulate(here, max(1, learned))
        norm = stepper.clip()
        # Processes must agree, and a norm could differ in its last bit: each takes the mean.
        norm, asked = self.world.sum(norm / self.world.size, stop.is_set())
        trouble = in_trouble(loss, norm, self.norms)
        if not learned:
            trouble, loss = "none of its tokens is to be learned", math.nan
        elif trouble is None:
            stepper.update(rate)
            self.norms = [*self.norms[1 - HISTORY :], norm]
            self.loss, self.skipped = loss, 0
        elif stepper.overflowed(norm):
            trouble = "the gradients overflow fp16, and the scale of the loss is lowered"
        else:
            self.skipped += 1
        stepper.forget()
        self.step += 1
        took = time.perf_counter() - began
        self.pace = took if self.pace is None else 0.9 * self.pace + 0.1 * took
        self.seconds += took
        speed = self.tokens_a_step / self.pace
        line = {
            "step": self.step,
            "tokens": self.step * self.tokens_a_step,
            "loss": finite(loss),
            "bits_per_byte": finite(Score(loss, 1, self.data.bytes_per_token).bits_per_byte),
            "learning_rate": rate,
            "gradient_norm": finite(norm),
            "tokens_per_second": round(speed, 1),
            "seconds": round(self.seconds, 3),
        }
        if self.peak is not None:
            line["mfu"] = round(speed * self.flops_a_token / (self.peak * self.world.size), 4)
        return (line if trouble is None else {**line, "skipped": trouble}), bool(asked)

    def evaluate(self) -> dict[str, Any]:
        """Scores the held-out sample, that of each set where there are several; gives its line of metrics."""
        began, heldout = time.perf_counter(), self.data.heldout
        most = max(1, self.config.eval_tokens // len(heldout)) if self.config.eval_tokens else None
        scores = {
            name: evaluate(
                self.model,
                tokens,
                max_tokens=most,
                document_masking=self.config.document_masking,
                summed=self.stepper.score,
            )
            for name, tokens in heldout.items()
        }
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

    @contextlib.contextmanager
    def logs(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        """What takes lines of metrics: on rank 0 to metrics.jsonl and to who listens, on the others to nobody."""
        if not self.world.first:
            yield lambda line: None
            return
        with contextlib.ExitStack() as stack:
            metrics: TextIO = stack.enter_context(open(self.folder / "metrics.jsonl", "a", encoding="utf-8"))
            listeners = [self.on_step] if self.on_step is not None else []
            if self.tensorboard:
                from lm.reporting.board import board

                listeners.append(stack.enter_context(board(self.folder / "tensorboard", self.step)))

            def log(line: dict[str, Any]) -> None:
                metrics.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
                metrics.flush()
                for listener in listeners:
                    listener(line)

            yield log


def due(step: int, every: int, last: int) -> bool:
    """Whether what happens `every` so many steps (0: only at the end) happens after this one."""
    return step == last or (every > 0 and step % every == 0)


def in_short(line: dict[str, Any]) -> str:
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
        if not launched():  # torchrun passes on what the terminal sent already, and kills after 30 seconds by itself
            signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, ask)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
