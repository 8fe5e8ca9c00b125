"""Training: a run folder that the same call continues, to the bit, from wherever it was stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm

from lm import lora
from lm.config import ModelConfig, TrainConfig, to_table
from lm.data import Mixture, open_data, prefetched
from lm.device import arithmetic, in_words, threads
from lm.model import Transformer
from lm.tokenizer import check_tokenizer
from lm.training import checkpoint, folders, metrics, sharded, start
from lm.training.budget import beyond, ran_out, what_fits
from lm.training.checkpoint import Checkpoint
from lm.training.distributed import DistributedContext, join, launched, local_rank
from lm.training.measure import compile_pays
from lm.training.run_folder import CHECKPOINTS, CONFIG, METRICS, REFERENCE, RunConfig, lock, read, writing
from lm.training.saving import Saver
from lm.training.trainer import Trainer
from lm.training.validation import Score
from lm.training.weights import draw, fill, from_weights, load_optimizer, on_meta, random_model

SKIPS_IN_A_ROW = 10
SHARED_WITHIN = 30.0  # seconds in which what one process wrote is seen by the others: a network's disk takes some

Say = Callable[[str], None]


class Stopped(Exception):
    """The run was asked to stop, and did so after a whole step, its state saved: the same call continues it."""


class Diverged(RuntimeError):
    """Too many steps in a row were skipped. The state of the last good one is saved."""


class OutOfMemory(RuntimeError):
    """A step does not fit the device: with the setting to lower, and what would fit."""


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        model: The model, in eval mode.
        steps: Steps in all.
        loss: The last training loss, in nats a token.
        heldout: The score on the held-out sample; None where nothing is held out.
        seconds: In steps and evaluations, over all of the run.
        tokens_per_second: In this call.
    """

    model: Transformer
    steps: int
    loss: float
    heldout: Score | None
    seconds: float
    tokens_per_second: float


def train(
    model_config: ModelConfig,
    train_config: TrainConfig,
    data: str | Path | Mapping[str, Any] | Mixture,
    run_dir: str | Path,
    *,
    progress: bool = True,
    on_step: Callable[[metrics.Line], None] | None = None,
    tensorboard: bool = False,
    tokenizer: str | Path | None = None,
    restart: bool = False,
    branch: str | Path | None = None,
    step: int | None = None,
) -> Result:
    """Trains a model in run_dir, or continues the training that stopped there.

    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads,
    and with a C compiler if there was one (see ops.cpu). With more `steps`, it is trained longer. On another device, or
    by another number of processes, it goes on to rounding, and says so. Under torchrun all processes call this with the
    same arguments. Rank 0 writes and calls on_step; on a host that does not see its run_dir, another process keeps the
    same run under the same path (see folders.py).

    Args:
        model_config: The model.
        train_config: Its training.
        data: A folder of token files, {"train": path, "heldout": path}, or a mixture of such sets (see data.open_data).
        run_dir: The run's folder.
        progress: Whether to print what is done, with a live line, on stderr.
        on_step: Called with each line of metrics.jsonl as it is written.
        tensorboard: Whether to write the metrics under run_dir/tensorboard too.
        tokenizer: The file of the tokenizer that made the data, kept in the run.
        restart: Removes a run that is there, and begins again.
        branch: Another run, whose checkpoint of `step` (its newest, if None) this one goes on from: weights, optimizer,
            metrics and the place in the data. The model must be the same; other settings may differ, and the rest is to
            the bit what the other run would have done if none does.
        step: See branch.

    Returns:
        The result, with the model.

    Raises:
        Stopped: After Ctrl-C or SIGTERM, once the step is done and saved.
        Diverged: The loss stayed NaN, or the gradient far outside its history.
        ValueError: What is in run_dir is of another configuration or other data, named; something of it is missing;
            another process is training in it; or the processes were not given the same.
        checkpoint.NotSaved: The disk is full or read-only.
        OutOfMemory: With what would fit.
        distributed.Lost: Another process of the run has ended.
    """
    run_dir = Path(run_dir)
    device = start.find_device(train_config, known_training(run_dir, restart), local_rank())
    with contextlib.ExitStack() as stack:
        # to the end: torchrun's signal may not cut off what is said of a process that was lost
        stop = stack.enter_context(stop_signals())
        distributed = stack.enter_context(join(device, train_config.collective_timeout))

        def say(line: str) -> None:
            if progress and distributed.is_main:
                print(line, file=sys.stderr)

        path = None if tokenizer is None else Path(tokenizer)
        mixture = distributed.on_all(lambda: open_and_check(model_config, train_config, data, path))
        distributed.agree(facts(model_config, train_config, mixture))
        distributed.micro_batches(train_config)
        own = train_config.batch_size // distributed.size
        if (too_much := beyond(model_config, train_config, device, own)) is not None:
            raise OutOfMemory(too_much)
        distributed = dataclasses.replace(distributed, keepers=folders.find_keepers(run_dir, distributed))
        if distributed.shards(train_config):
            folders.refuse_apart(run_dir, distributed)
        distributed.on_all(lambda: stack.enter_context(lock(run_dir)) if distributed.is_keeper else None)
        asked = (model_config, train_config, mixture.fingerprints())
        folders.gather_newest(run_dir, *asked, distributed, restart=restart)

        opened = distributed.on_main(
            lambda: start.open_run(
                run_dir,
                *asked,
                restart=restart,
                branch=branch,
                step=step,
            )
        )
        for line in opened.notes:
            say(line)
        config = train_config
        try:
            opened = with_compile_decided(opened, distributed, say)
            config = opened.training
            stack.enter_context(threads(config.threads))
            stack.enter_context(arithmetic(config.precision))
            distributed.on_main(lambda: start.prepare(run_dir, opened, path))
            folders.spread(run_dir, distributed)
            saved = saved_for_all(run_dir, opened.saved, distributed)
            shared = f", {distributed.size} processes ({config.parallel})" if distributed.size > 1 else ""
            say(f"training on {in_words(device)} in {config.precision}{shared}")
            trainer = make_trainer(opened.config, saved, mixture, distributed, reference_of(run_dir, opened.config))
            if (otherwise := start.computed_otherwise(saved, start.computed_by(config, distributed))) is not None:
                say(otherwise)
            with writing(run_dir), log_of(run_dir, trainer, on_step, tensorboard, stop) as log:
                return run_steps(trainer, run_dir, opened.config, mixture, stop, log, progress=progress)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            raise OutOfMemory(what_fits(model_config, config, device, own)) from error


def run_steps(
    trainer: Trainer,
    run_dir: Path,
    run_config: RunConfig,
    data: Mixture,
    stop: threading.Event,
    log: Callable[[metrics.Line], None],
    *,
    progress: bool,
) -> Result:
    """Every step that is left, with what is due after each: a line of metrics, an evaluation, a checkpoint, the end."""
    config, distributed = trainer.config, trainer.distributed
    began, first_step = time.perf_counter(), trainer.step
    progress = progress and distributed.is_main
    with (
        contextlib.closing(micro_batches(trainer, data)) as batches,  # type: ignore[type-var]
        Saver(run_dir, run_config, distributed, config.collective_timeout) as saver,
        tqdm(total=config.steps, initial=trainer.step, desc="train", unit="step", disable=not progress) as bar,
    ):
        trainer.model.train()
        while trainer.step < config.steps:
            line = trainer.train_step(batches, stop=stop.is_set() or saver.failed)
            step, skipped = trainer.step, line.get("skipped")
            if due(step, config.log_every, config.steps) or skipped:
                log(line)
            if skipped and distributed.is_main:
                bar.write(f"step {step} is skipped: {skipped}", file=sys.stderr)
            bar.update()
            bar.set_postfix_str(metrics.in_short(line), refresh=False)
            if due(step, config.eval_every, config.steps) and data.heldout:
                data.refuse_shortened()
                log(trainer.evaluate(data))
            # With one process, what came after the step counts too.
            asked = stop.is_set() if distributed.size == 1 else trainer.stop_asked
            diverged = trainer.skips_in_a_row >= SKIPS_IN_A_ROW
            if due(step, config.checkpoint_every, config.steps) or asked or diverged:
                saver.save(trainer)
            if asked or diverged or step == config.steps:
                saver.finish()
            if diverged:
                raise Diverged(said_of_divergence(trainer, run_dir, str(skipped)))
            if asked and step < config.steps:
                raise Stopped(f"stopped after step {step} of {config.steps}: the same command continues it")
    trainer.model.eval()
    elapsed = max(1e-9, time.perf_counter() - began)
    speed = (trainer.step - first_step) * trainer.tokens_per_step / elapsed
    return Result(trainer.model, trainer.step, trainer.loss, trainer.score, trainer.seconds, speed)


def reference_of(run_dir: Path, config: RunConfig) -> Transformer | None:
    """The model that a run by preferences began with, where it keeps one."""
    if config.train is None or config.train.objective != "dpo" or config.train.lora_rank:
        return None
    saved = checkpoint.load(run_dir / REFERENCE, 0, weights_only=True)
    assert saved is not None
    return from_weights(config.model, saved.model)


def make_trainer(
    run_config: RunConfig,
    saved: Checkpoint | None,
    data: Mixture,
    distributed: DistributedContext,
    reference: Transformer | None = None,
) -> Trainer:
    """The trainer of a run, at the step of its checkpoint, or at step 0 with random weights."""
    config = run_config.train
    assert config is not None
    sharding = distributed.shards(config)
    in_parts = sharding and saved is not None and saved.is_sharded  # each process reads its own part
    weights = {} if saved is None or in_parts else saved.model
    if config.lora_rank:
        model = lora.add(on_meta(run_config.model), config.lora_rank, config.lora_alpha)
        weights = {**lora.drawn(model, config.seed), **weights}  # at step 0 a plain model's, without adapters
        if not sharding:
            fill(model.to_empty(device="cpu"), weights)
    elif sharding:
        model = on_meta(run_config.model)  # no process ever has the whole of it
    elif saved is None:
        model = random_model(run_config.model, config.seed)
    else:
        model = from_weights(run_config.model, weights)
    trainer = Trainer(
        model,
        config,
        distributed,
        end_of_text=data.end_of_text if config.document_masking else None,
        masked=data.masked,
        bytes_per_token=data.bytes_per_token,
        reference=reference,
    )
    if saved is None:
        if sharding:
            draw(model, config.seed)
        return trainer
    if in_parts:
        sharded.read_into(saved.path / checkpoint.SHARDED, model, trainer.optimizer)
    else:
        if sharding:
            fill(model, weights)
        if saved.optimizer:
            load_optimizer(trainer.optimizer, model, saved)
    if saved.step:  # step 0 is that of weights from elsewhere, which have no history
        trainer.restore(saved.step, saved.state)
    return trainer


def micro_batches(trainer: Trainer, data: Mixture) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This process's micro-batches of every step that is left, in order."""
    config, distributed, count = trainer.config, trainer.distributed, trainer.accumulation_steps
    size = config.batch_size // distributed.size // count
    context = trainer.model.config.context_length

    def make(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        data.refuse_shortened()
        return data.batch(config.seed, index, distributed.rank, distributed.size, size, context)

    return prefetched(
        make,
        trainer.step * count,
        config.steps * count,
        distributed.device,
    )


def open_and_check(
    model: ModelConfig, config: TrainConfig, data: str | Path | Mapping[str, Any] | Mixture, tokenizer: Path | None
) -> Mixture:
    """The data, opened and found to go with the model and the tokenizer."""
    mixture = data if isinstance(data, Mixture) else open_data(data)
    if tokenizer is not None:
        check_tokenizer(tokenizer, mixture, model.vocab_size)
    mixture.check(model.vocab_size, model.context_length)
    if config.head_learning_rate is not None and model.tied_embeddings:
        raise ValueError(
            f"head_learning_rate {config.head_learning_rate} is of a head of its own, and this model's is its "
            f"embedding: give embedding_learning_rate"
        )
    if config.objective == "dpo" and not mixture.pairs:
        raise ValueError("objective 'dpo' learns from pairs, and the data holds none: `lm data preferences` makes them")
    if config.objective != "dpo" and any(part.tokens.pairs for part in mixture.parts):
        raise ValueError(
            f"the data holds pairs, and objective {config.objective!r} would learn both of each: use 'dpo'"
        )
    if config.objective == "dpo" and not config.document_masking:
        raise ValueError("objective 'dpo' goes with document_masking: without it the second of a pair sees the first")
    if config.document_masking and mixture.end_of_text is None:
        raise ValueError("documents are told apart by the end-of-text token, and the data does not say which that is")
    return mixture


def known_training(run_dir: Path, restart: bool) -> TrainConfig | None:
    """What the run in a folder was trained by, as far as it can be read: what is wrong with it is said later, to
    all."""
    if restart:
        return None
    with contextlib.suppress(ValueError, TypeError, OSError):
        return read(run_dir).train
    return None


def facts(model: ModelConfig, config: TrainConfig, data: Mixture) -> dict[str, Any]:
    """What every process of a run must have been given alike."""
    tables = {"model": to_table(model), "train": to_table(config), "data": data.fingerprints()}
    known = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
    return {**known, "the version of torch": torch.__version__, "the version of groundup-lm": start.version()}


def saved_for_all(run_dir: Path, found: Checkpoint | None, distributed: DistributedContext) -> Checkpoint | None:
    """The checkpoint that the run goes on from, the same in every process; found: by process 0, before it prepared the
    folder.

    Raises:
        ValueError: A process does not see the run's folder as process 0 does.
    """
    folder = run_dir / CHECKPOINTS
    newest = found or distributed.on_main(lambda: checkpoint.load(folder))
    said = distributed.on_main(lambda: (run_dir / CONFIG).read_text())

    def see() -> Checkpoint | None:
        last = time.monotonic() + SHARED_WITHIN
        while not is_seen(run_dir, said, newest):
            if time.monotonic() > last:
                what = CONFIG if newest is None else f"the checkpoint of step {newest.step}"
                raise ValueError(
                    f"{run_dir} does not hold {what} as process 0 sees it: give all processes one folder, on a disk "
                    f"that all of them share"
                )
            time.sleep(0.2)
        return None if newest is None else dataclasses.replace(newest, path=folder / newest.path.name)

    return distributed.on_all(see)


def is_seen(run_dir: Path, said: str, newest: Checkpoint | None) -> bool:
    """Whether a run's folder holds a configuration and a checkpoint."""
    try:
        if (run_dir / CONFIG).read_text() != said:
            return False
        if newest is None:
            return not checkpoint.steps(run_dir / CHECKPOINTS)
        return checkpoint.read_state(run_dir / CHECKPOINTS / newest.path.name)[1] == newest.hashes
    except (OSError, ValueError):
        return False


def with_compile_decided(opened: start.Opened, distributed: DistributedContext, say: Say) -> start.Opened:
    """The configuration with compile "auto" decided: all processes measure their own part of a step, process 0
    decides."""
    config = opened.training
    if config.compile != "auto":
        return opened
    say("measuring whether torch.compile pays for this run")
    own = dataclasses.replace(config, batch_size=config.batch_size // distributed.size)
    pays, why = distributed.on_all(lambda: compile_pays(opened.config.model, own, device=distributed.device))
    pays, why = distributed.on_main(lambda: (pays, why))
    say(why)
    decided = dataclasses.replace(config, compile="on" if pays else "off")
    return dataclasses.replace(opened, config=dataclasses.replace(opened.config, train=decided), is_written=False)


@contextlib.contextmanager
def log_of(
    run_dir: Path,
    trainer: Trainer,
    on_step: Callable[[metrics.Line], None] | None,
    tensorboard: bool,
    stop: threading.Event,
) -> Iterator[Callable[[metrics.Line], None]]:
    """What takes lines of metrics: in keepers to metrics.jsonl, in process 0 to who listens too, else to nobody."""
    if not trainer.distributed.is_keeper:
        yield lambda line: None
        return
    metrics.truncate(run_dir / METRICS, trainer.step)
    with contextlib.ExitStack() as stack:
        is_main = trainer.distributed.is_main
        listeners = [on_step] if on_step is not None and is_main else []
        if tensorboard and is_main:
            from lm.reporting.board import board

            listeners.append(stack.enter_context(board(run_dir / "tensorboard", trainer.step)))
        # The other processes wait in the next exchange of gradients, and not for ever.
        alone = trainer.distributed.size == 1
        patience = math.inf if alone else trainer.config.collective_timeout / 2
        yield stack.enter_context(metrics.log_to(run_dir / METRICS, *listeners, stop=stop, patience=patience))


def said_of_divergence(trainer: Trainer, run_dir: Path, skipped: str) -> str:
    """Why a run ends that skipped too many steps, and what can be done: a branch with another rate."""
    config, kept = trainer.config, checkpoint.steps(run_dir / CHECKPOINTS)
    return (
        f"{trainer.skips_in_a_row} steps in a row were skipped, the last because {skipped}: look at the data, or go "
        f"on from a checkpoint (of step {' or '.join(map(str, kept))}) with a lower learning_rate than "
        f"{config.learning_rate:g}: --branch {run_dir} --step {kept[0]} --train.learning_rate "
        f"{config.learning_rate / 2:g} --out ANOTHER"
    )


def due(step: int, every: int, last: int) -> bool:
    """Whether what happens `every` so many steps (0: only at the end) happens after this one."""
    return step == last or (every > 0 and step % every == 0)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set instead of ending the process; the second one ends it.

    In the main thread only.
    """
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
