"""Training: `train` opens a run, builds its trainer and runs its steps."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import multiprocessing
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from numpy.typing import NDArray

from lm import __version__
from lm.config import ModelConfig, TrainConfig, to_table
from lm.data import Mixture, open_data
from lm.device import Processes, device_name, launched, memory_of, threads
from lm.families import build
from lm.files import atomic_write, lock
from lm.model import Transformer
from lm.progress import progress_bar
from lm.tokenizer import check_tokenizer
from lm.training import checkpoint, distributed, metrics, resume, run
from lm.training.budget import beyond, ran_out, what_fits
from lm.training.checkpoint import CHECKPOINTS, from_weights, load_optimizer
from lm.training.distributed import DistributedContext
from lm.training.metrics import Line
from lm.training.rewards import Function, RewardFailed, named
from lm.training.run import CONFIG, REFERENCE, Run
from lm.training.trainer import MicroBatch, Trainer, objective_of
from lm.training.validation import Score

INITIAL = "initial"  # the folder, in a run's, of the imported model that it began with
SKIPS_IN_A_ROW = 10


class Stopped(Exception):
    """The run was asked to stop, and did so after a whole step, its state saved: the same call continues it."""


class Diverged(RuntimeError):
    """The loss was not finite for too many steps, or a weight is not. No checkpoint holds such weights."""


class OutOfMemory(RuntimeError):
    """A step does not fit the device: with the setting to lower, and what would fit."""


@dataclass(frozen=True)
class Result:
    """A finished run."""

    model: Transformer  # in eval mode
    steps: int  # in all
    loss: float  # the last training loss, in nats a token
    heldout: Score | None  # on the held-out sample; None if nothing is held out
    seconds: float  # in steps and evaluations, over all of the run
    tokens_per_second: float  # in this call
    skipped: int = 0  # updates that changed nothing, over all of the run: "skipped" in metrics.jsonl says why


def train(
    model_config: ModelConfig | None,
    train_config: TrainConfig,
    data: str | Path | NDArray[Any] | Mapping[str, Any] | Mixture,
    run_dir: str | Path,
    *,
    progress: bool = True,
    on_step: Callable[[Line], object] | None = None,
    trackers: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    restart: bool = False,
    branch: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
    reward: str | Function | Sequence[Function | tuple[Function, float]] | None = None,
    callbacks: Sequence[Callable[[Trainer, Line], object]] = (),
) -> Result:
    """Train a model in run_dir, or continue the training that stopped there.

    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads,
    and with a C compiler if there was one (see ops.cpu). With more `steps` it is trained longer, and with fewer it ends
    earlier, as long as the learning rate has been the same so far. On another device, or
    by another number of processes, it continues to rounding, and says so. Under torchrun all processes call this with
    the same arguments and one folder, which all of them see; rank 0 writes and calls on_step.

    Args:
        model_config: The model; None for that of init_from.
        train_config: Its training. init_from may name any model that lm.load reads, on the Hugging Face Hub too: it is
            imported as a run in RUN_DIR/initial, which keeps its tokenizer and its chat template.
        data: A folder of token files, {"train": path, "heldout": path}, a mixture of such sets, or a flat array of ids
            (see data.open_data).
        run_dir: The run's folder.
        progress: Print messages and a live line on stderr.
        on_step: Called with each line of metrics.jsonl as it is written. If it returns True, the run stops after that
            step as by Ctrl-C: saved, with Stopped.
        trackers: Names of other programs that get the metrics too: "tensorboard", "wandb", "mlflow".
        tokenizer: The file of the tokenizer that made the data, kept in the run.
        restart: Remove a run that is there, and begin again.
        branch: Another run, whose checkpoint of `step` (its newest, if None) this one continues: weights, optimizer,
            metrics and the place in the data. The model must be the same; other settings may differ, and if none does,
            the rest is to the bit what the other run would have done.
        step: See branch; "best" for the checkpoint with the best evaluation.
        reward: Of objective "grpo", in place of train.reward: a function (see training.rewards), or a list of functions
            and of pairs of a function and its weight, whose sum an answer earns.
        callbacks: Functions called after each step in every process, with the trainer, whose `model` they may look at,
            and the line of metrics of the step. If one returns True, the run stops as by Ctrl-C.

    Returns:
        The result, with the model.

    Raises:
        Stopped: After Ctrl-C, SIGTERM or by on_step, once the step is done and saved.
        Diverged: The loss or its gradient stayed NaN or infinite, or the weights became so.
        ValueError: The run in run_dir has another configuration, other data or another origin, by name; something of it
            is missing; another process is training in it; no model is given; or the processes were not given the same.
        checkpoint.NotSaved: The disk is full or read-only.
        OutOfMemory: With what would fit.
        distributed.Lost: Another process of the run has ended.
        RewardFailed: A reward raised or took too long; the run is saved before that step.
    """
    run_dir, config, functions = Path(run_dir), train_config, dict[str, Function]()
    if reward is not None:
        text, functions = named(reward)
        config = dataclasses.replace(config, reward=text)
    if step == "best":
        if branch is None:
            raise ValueError("step 'best' is of the run that --branch names: name it")
        step = run.best_step(branch)
    if step == "average":
        raise ValueError("a branch goes on from a step with its optimizer, and 'average' is the weights alone")
    for value, kind in ((model_config, ModelConfig), (train_config, TrainConfig)):
        if not isinstance(value, kind) and (value is not None or kind is TrainConfig):
            remedy = "of a model pass model.config, and its run as init_from"
            raise TypeError(f"expected a {kind.__name__}, got a {type(value).__name__}: {remedy}")

    with contextlib.ExitStack() as stack:
        # The processes. Signals are caught to the end: torchrun's must not cut off the message about a lost process.
        stop = stack.enter_context(stop_signals())
        earlier = None if restart else run.training_of(run_dir)
        device = run.find_device(config, earlier)
        processes = Processes(device=device)
        if launched():
            processes = stack.enter_context(distributed.join(device, config.collective_timeout))
        processes.micro_batches(config)  # ValueError: they cannot share a step
        own = config.batch_size // processes.size  # sequences of this process in a step
        speaks = processes.is_main and progress

        def say(line: str) -> None:
            if speaks:
                print(line, file=sys.stderr)

        # The model and the data, which must be the same in every process.
        init_from, model = processes.on_main(lambda: begin_with(config, model_config, run_dir, earlier, restart))
        config = dataclasses.replace(config, init_from=init_from)
        path = None if tokenizer is None else Path(tokenizer)
        mixture = processes.on_all(
            lambda: open_and_check(model, config, data, path, device, own), lambda data: facts(model, config, data)
        )
        if config.epochs is not None:
            steps = mixture.steps(config.epochs, config.batch_size, model.context_length)
            say(f"{config.epochs:g} epochs are {steps:,} steps")
            config = dataclasses.replace(config, steps=steps, epochs=None)

        # The run's folder, from here on this run's alone.
        with run.writing(run_dir):
            processes.on_main(lambda: stack.enter_context(lock(run_dir)))
        try:
            how: dict[str, Any] = {"tokenizer": path, "restart": restart, "branch": branch, "step": step}
            opened = processes.on_main(lambda: Run.open(run_dir, model, config, mixture.fingerprints, **how))
            for line in opened.notes:
                say(line)
            config = opened.training
            if isinstance(processes, DistributedContext):
                opened = distributed.wait_until_visible(opened, run_dir, processes)

            # The trainer, and its steps.
            stack.enter_context(threads(config.threads, config.precision))
            shared = f", {processes.size} processes ({config.parallel})" if processes.size > 1 else ""
            if opened.saved is None or opened.saved.step < config.steps:
                say(f"training on {device_name(device)} in {config.precision}{shared}")
            trainer = build_trainer(opened, mixture, processes)
            trainer.objective.open(mixture, run_dir, functions)
            if opened.saved and (note := resume.rounding_note(opened.saved, run.computed_by(config, processes))):
                say(note)
            with run.writing(run_dir), log_of(run_dir, trainer, on_step, trackers, stop) as log:
                return run_steps(trainer, opened, mixture, stop, log, callbacks, progress=progress)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            raise OutOfMemory(what_fits(model, config, device, own)) from error


def run_steps(
    trainer: Trainer,
    run: Run,
    data: Mixture,
    stop: threading.Event,
    log: Callable[[Line], None],
    callbacks: Sequence[Callable[[Trainer, Line], object]],
    *,
    progress: bool,
) -> Result:
    """Run the steps that are left, each followed by metrics, an evaluation, a checkpoint, the end."""
    config, processes = trainer.config, trainer.distributed
    batches, bar = micro_batches(trainer, data), None
    trainer.model.train()
    with contextlib.ExitStack() as stack:
        while trainer.step < config.steps and not ends_early(trainer):
            try:
                line = trainer.train_step(batches, stop=stop.is_set())
            except (RewardFailed, distributed.ProcessesDiffer):  # before the weights were changed, and in all processes
                run.save(trainer)
                raise
            step, skipped = trainer.step, line.get("skipped")
            if bar is None:  # The first step may compile, so that its time says nothing of the others'.
                options: dict[str, Any] = {"initial": step, "disable": not (progress and processes.is_main)}
                bar = stack.enter_context(progress_bar("train", config.steps, "step", **options))
            else:
                bar.update()
            bar.set_postfix_str(metrics.in_short(line), refresh=False)

            # Metrics, and an evaluation.
            if due(step, config.log_every, config.steps) or skipped:
                log(line)
            if skipped and processes.is_main:
                bar.write(f"step {step} is skipped: {skipped}", file=sys.stderr)
            if due(step, config.eval_every, config.steps) and data.heldout:
                data.refuse_shortened()
                try:
                    log(trainer.evaluate(data))
                except Exception:
                    if not trainer.is_sharded:
                        run.save(trainer)
                    raise
            for callback in callbacks:
                if callback(trainer, line) is True:
                    stop.set()

            # The end of the run, a request to stop, and the checkpoint that precedes both.
            ends = step == config.steps or ends_early(trainer)
            # With one process, a signal that came after the step counts too.
            stopping = stop.is_set() if processes.size == 1 else trainer.stop_requested
            diverged = trainer.skips_in_a_row >= SKIPS_IN_A_ROW
            if due(step, config.checkpoint_every, config.steps) or stopping or diverged or ends:
                # Saving removes older checkpoints: weights that are not numbers may not take their place.
                is_good = trainer.has_finite_weights()
                diverged = diverged or not is_good
                if is_good:
                    run.save(trainer)
            if diverged:
                raise Diverged(divergence_message(trainer, run.folder, skipped))
            if stopping and not ends:
                raise Stopped(f"stopped after step {step} of {config.steps}: the same command continues it")
    trainer.model.eval()
    speed = trainer.throughput.mean_tokens_per_second or math.nan
    return Result(trainer.model, trainer.step, trainer.loss, trainer.score, trainer.seconds, speed, trainer.skipped)


@contextlib.contextmanager
def log_of(
    run_dir: Path,
    trainer: Trainer,
    on_step: Callable[[Line], object] | None,
    trackers: Sequence[str],
    stop: threading.Event,
) -> Iterator[Callable[[Line], None]]:
    """A function that takes lines of metrics: in process 0 to metrics.jsonl and the listeners, elsewhere to nobody."""
    if not trainer.distributed.is_main:
        yield lambda line: None
        return
    path, pending = run_dir / metrics.METRICS, bytearray()
    if path.exists():  # lines of steps after the checkpoint are written again
        atomic_write(path, "".join(metrics.read_lines(path, trainer.step)))
    with contextlib.ExitStack() as stack:
        listeners = list[Callable[[Line], object]]()
        for name in trackers:
            from lm.reporting.trackers import tracker

            listeners.append(stack.enter_context(tracker(name)(run_dir, trainer.step)))
        listeners += [] if on_step is None else [on_step]
        file = stack.enter_context(open(path, "ab", buffering=0))

        def log(line: Line) -> None:
            text = json.dumps({key: value for key, value in line.items() if value is not None})
            pending.extend(text.encode() + b"\n")
            write_all(file, pending, path, stop)
            for listener in listeners:
                if listener(line) is True:
                    stop.set()

        yield log
        write_all(file, pending, path, stop)


def write_all(file: RawIOBase, pending: bytearray, path: Path, stop: threading.Event) -> None:
    """Write the pending bytes and remove them; on a full disk, wait for space until the run is told to stop."""
    has_warned = False
    while pending:
        is_last_try = stop.is_set()  # space may have come just before
        try:
            del pending[: file.write(pending) or 0]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not has_warned:
                print(f"the disk of {path} is full: the run waits for space", file=sys.stderr)
            has_warned = True
            if is_last_try:
                return
            stop.wait(1.0)


def ends_early(trainer: Trainer) -> bool:
    """True if the held-out loss has not fallen for early_stopping evaluations, in any process."""
    patience = trainer.config.early_stopping
    return bool(patience and trainer.distributed.sum(float(trainer.stale >= patience))[0])


def build_trainer(run: Run, data: Mixture, processes: Processes) -> Trainer:
    """Return the trainer of a run, at the step of its checkpoint, or at step 0 with random weights."""
    config, saved, shape = run.training, run.saved, run.config.model
    if saved is None:
        # The weights are drawn on the CPU, and the process's random state stays what it was.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)
            # lm.families is entered for its own architectures only.
            model = Transformer(shape) if type(shape) is ModelConfig else build(shape)
    else:
        model = from_weights(shape, saved.model, run.folder / CONFIG, config)
    reference = None
    if (run.folder / REFERENCE).is_dir():
        first = checkpoint.load(run.folder / REFERENCE, 0, weights_only=True)
        assert first is not None
        reference = from_weights(shape, first.model)
    if config.teacher is not None:
        from lm.interop.loading import load

        reference = load(config.teacher)
    trainer = Trainer(
        model,
        config,
        processes,
        end_of_text=data.end_of_text if config.document_masking else None,
        bytes_per_token=data.bytes_per_token,
        reference=reference,
    )
    trainer.rows_before = run.config.start.get("rows_before", 0)
    if saved is not None and saved.optimizer:
        load_optimizer(trainer.optimizer, saved)
    if saved is not None and saved.step:  # step 0 is that of weights from elsewhere, which have no history
        trainer.restore(saved.step, saved.state)
    return trainer


def micro_batches(trainer: Trainer, data: Mixture) -> Iterator[MicroBatch]:
    """Yield this process's micro-batches of every step that is left, in order."""
    config, processes, count = trainer.config, trainer.distributed, trainer.accumulation_steps
    size = config.batch_size // processes.size // count
    context = trainer.model.config.context_length
    for index in range(trainer.step * count, config.steps * count):
        data.refuse_shortened()
        before = trainer.rows_before
        yield data.batch(config.seed, index, processes.rank, processes.size, size, context, rows_before=before)


def open_and_check(
    model: ModelConfig,
    config: TrainConfig,
    data: str | Path | NDArray[Any] | Mapping[str, Any] | Mixture,
    tokenizer: Path | None,
    device: torch.device,
    own: int,
) -> Mixture:
    """Open the data and check that it goes with the model, its training, the tokenizer and the machine."""
    if may_exceed_memory(model, config, device, own) and (message := beyond(model, config, device, own)):
        raise OutOfMemory(message)
    mixture = data if isinstance(data, Mixture) else open_data(data)
    if tokenizer is not None:
        check_tokenizer(tokenizer, mixture, model.vocab_size)
    mixture.check(model.vocab_size, model.context_length)
    if config.head_learning_rate is not None and model.tied_embeddings:
        raise ValueError("head_learning_rate has no effect, as the head is the embedding: give embedding_learning_rate")
    objective_of(config.objective).check(config, mixture)
    if config.document_masking and mixture.end_of_text is None:
        raise ValueError("documents are told apart by the end-of-text token, and the data does not say which that is")
    return mixture


def begin_with(
    config: TrainConfig, model: ModelConfig | None, run_dir: Path, earlier: TrainConfig | None, restart: bool
) -> tuple[str, ModelConfig]:
    """Return init_from as a run, another program's model being imported as one, and the model."""
    if config.init_from == "scratch":
        if model is None:
            raise ValueError("there is no [model]: describe one, or name one to begin with by train.init_from")
        return config.init_from, model
    init_from, before = config.init_from, None if earlier is None else earlier.init_from
    if init_from != before:
        is_run = run.is_run(init_from)
        source = Path(init_from) if is_run else import_initial(init_from, run_dir, restart)
        # A path may be written in two ways, and an imported model may have been moved with the run's folder.
        is_same = before and (Path(before).resolve() == source.resolve() if is_run else Path(before).name == INITIAL)
        init_from = before if before and is_same else str(source)
    # It may also be gone.
    return init_from, model or run.read(init_from if earlier is None else run_dir).model


def import_initial(source: str, run_dir: Path, restart: bool) -> Path:
    """Import another program's model as a run in run_dir, unless that was done, and return its folder."""
    from lm.interop.importing import import_run

    initial = run_dir / INITIAL
    began = run.read(initial).start.get("from", "another model") if run.is_run(initial) else None
    if began == run.place_of(source):
        return initial
    if began is not None and run.is_run(run_dir) and not restart:
        remedy = "choose another folder, or begin again with --restart"
        raise ValueError(f"the run in {run_dir} began with {began}, and this call names {source}: {remedy}")
    run.located(source)
    shutil.rmtree(initial, ignore_errors=True)  # left by an interrupted import
    import_run(source, initial)
    return initial


def may_exceed_memory(model: ModelConfig, config: TrainConfig, device: torch.device, own: int) -> bool:
    """True if a step on a CPU is so large that accounting must count it: by a bound far above its memory."""
    width = model.d_model + model.d_ff + model.num_heads * (2 * model.head_width + model.context_length)
    tokens = (config.micro_batch_size or own) * model.context_length
    elements = (model.num_layers * width + model.vocab_rows) * (tokens + max(width, 64))
    return device.type == "cpu" and 64 * elements > memory_of(device) // 4


def facts(model: ModelConfig, config: TrainConfig, data: Mixture) -> dict[str, Any]:
    """Return what every process of a run must have been given alike, by name."""
    tables = {"model": to_table(model), "train": to_table(config), "data": data.fingerprints}
    settings = {f"{section}.{key}": value for section, table in tables.items() for key, value in table.items()}
    return {**settings, "the version of torch": torch.__version__, "the version of groundup-lm": __version__}


def divergence_message(trainer: Trainer, run_dir: Path, skipped: str | None) -> str:
    """Say why a run ends that diverged, and the remedy: a branch with another rate, if there is a checkpoint."""
    config, steps = trainer.config, checkpoint.steps(run_dir / CHECKPOINTS)
    rate = f"--train.learning_rate {config.learning_rate / 2:g}"
    reason = f"after step {trainer.step} a weight is NaN or infinite"
    if trainer.skips_in_a_row >= SKIPS_IN_A_ROW:
        reason = f"{trainer.skips_in_a_row} steps in a row were skipped, the last because {skipped}"
    remedy = f"begin again with {rate} --restart"
    if steps:
        places = f"a checkpoint (of step {' or '.join(map(str, steps))})"
        lower = f"with a lower learning_rate than {config.learning_rate:g}"
        remedy = f"go on from {places} {lower}: --branch {run_dir} --step {steps[0]} {rate} --out ANOTHER"
    return f"{reason}: look at the data, or {remedy}"


def due(step: int, every: int, last: int) -> bool:
    """True if what happens every `every` steps (0: only after the last) happens after this one."""
    return step == last or (every > 0 and step % every == 0)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set instead of ending the process; the second one ends it."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: FrameType | None) -> None:
        event.set()
        # What started several processes passes on what they were sent already, and kills those that do not end.
        if not launched() and multiprocessing.parent_process() is None:
            signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, request)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
