"""A run: its folder, its configuration, the checkpoint that it continues from, and what it began with.

RUN/config.toml      the configuration, resolved; the fingerprints of the data; the model that the run began with
RUN/metrics.jsonl    a line for each step logged and for each evaluation
RUN/checkpoints/     see checkpoint.py
RUN/reference/       the first weights of a run by preferences
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from io import RawIOBase
from pathlib import Path
from typing import Any, Literal, cast

import tomli_w
import torch
from torch import Tensor

from lm.config import DeviceName, ModelConfig, TrainConfig, from_table, read_toml, to_table
from lm.device import choose_device, choose_precision, describe_machine
from lm.extras import MissingExtra
from lm.families import config_class
from lm.files import atomic_write, fsync, reason
from lm.lora import merge, merged, scale_of
from lm.model import Transformer
from lm.ops.cpu import passes
from lm.optimizer import AVERAGE, make_optimizer
from lm.tokenizer import keep_tokenizer, kept_tokenizer
from lm.training import checkpoint, resume
from lm.training.checkpoint import CHECKPOINTS, Checkpoint, Damaged, from_weights, load_optimizer
from lm.training.metrics import METRICS, Line, read_lines, truncate
from lm.training.resume import RunConfig
from lm.training.trainer import Processes, Trainer, objective_of

CONFIG, REFERENCE, ENVIRONMENT = "config.toml", "reference", "environment.json"

# Stands for the training of an imported model that has had none here: its configuration has no [train].
UNTRAINED = {"steps": 1, "warmup_steps": 0}
HUB = "hf://"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w./-]+)?")  # gpt2, OWNER/NAME, OWNER/NAME@REVISION
MODEL_FILES = (".gguf", ".pt", ".bin")  # of other programs


@dataclass(frozen=True)
class Run:
    """A run in a folder."""

    folder: Path
    config: RunConfig  # that it trains by
    saved: Checkpoint | None = None  # to continue from; None before the first step
    notes: tuple[str, ...] = ()  # lines for the user: where the run continues, and each difference
    is_written: bool = False  # True if config.toml has this configuration already

    @property
    def training(self) -> TrainConfig:
        """The configuration of its training, which an opened run has."""
        assert self.config.train is not None
        return self.config.train

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @classmethod
    def open(
        cls,
        folder: Path,
        model: ModelConfig,
        requested: TrainConfig,
        data: dict[str, Any],
        *,
        restart: bool = False,
        branch: str | Path | None = None,
        step: int | None = None,
    ) -> Run:
        """Read the run in a folder and check it against the request; write nothing, unless restart removes the old one.

        The arguments are those of train(), and the data's fingerprints. ValueError: the folder does not go with the
        request, or something is missing, by name.
        """
        if restart:
            with writing(folder):
                remove(folder)
        written = earlier = read(folder) if is_run(folder) else None
        saved = None if written is None else find_checkpoint(folder)
        if written is not None and saved is not None:
            earlier = resume.recorded(saved, written)
        config = RunConfig(model, resolve(requested, None if earlier is None else earlier.train), data)
        if earlier is not None:
            resume.refuse_changes(folder, earlier, config)
        if earlier is not None and earlier.train is not None:
            resume.refuse_other_origin(folder, earlier.start, branch, step)
            start = earlier.start
        elif earlier is not None:
            start = {"kind": "import", **earlier.start}
        elif branch is not None or step is not None or requested.init_from != "scratch":
            source = resume.source_of(requested, branch, step)
            start = resume.origin(folder, config, source, read(source), step, is_branch=branch is not None)
        else:
            start = {}
        config = dataclasses.replace(config, start=start)
        if not start and (requested.lora_rank or objective_of(requested.objective).needs_start):
            adapts = f"lora_rank {requested.lora_rank}" if requested.lora_rank else f"objective {requested.objective!r}"
            raise ValueError(f"{adapts} adapts weights, and this run begins with random ones: give --train.init_from")
        if saved is None or earlier is None:
            refuse_missing_files(folder, earlier)
            notes = resume.origin_notes(config) if start else iter(())
        else:
            notes = resume.notes(saved, earlier.train, config)
        return cls(folder, config, saved, tuple(notes), written == config)

    def prepare(self, tokenizer: Path | None = None) -> Run:
        """Write what stands in the folder before the first step; return the run with its checkpoint."""
        config, start, saved = self.config, self.config.start, self.saved
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self.is_written:
                write(self.folder, config)
            if not (self.folder / ENVIRONMENT).exists():
                machine = {**describe_machine(self.training.device), "begun": time.strftime("%Y-%m-%d %H:%M %z")}
                atomic_write(self.folder / ENVIRONMENT, json.dumps(machine, indent=1) + "\n")
            source = Path(start["from"]) if start.get("kind") in ("weights", "branch") else None
            if tokenizer is None and source is not None and kept_tokenizer(self.folder) is None:
                tokenizer = kept_tokenizer(source)
            if tokenizer is not None:
                keep_tokenizer(tokenizer, self.folder)
            if saved is None and source is not None:
                saved = resume.copy_origin(self.folder, config, source, lambda s: plain_weights(read(source), s))
            if objective_of(self.training.objective).needs_reference(self.training) and not self.training.lora_rank:
                keep_reference(self.folder, source if start.get("kind") == "branch" else None)
            self.checkpoints.mkdir(exist_ok=True)
        return dataclasses.replace(self, saved=saved, is_written=True)

    def state(self, trainer: Trainer) -> dict[str, Any]:
        """Return what a checkpoint holds beside weights and optimizer."""
        return trainer.state() | {
            "computed_by": computed_by(self.training, trainer.distributed),
            "config": resume.exact_settings(self.config),
        }

    def save(self, trainer: Trainer) -> None:
        """Save the state after a step; process 0 writes. All processes call it."""
        state, tensors, best = self.state(trainer), trainer.tensors(), int(trainer.best[0]) if trainer.best else None

        def write() -> None:
            fsync(self.folder / METRICS)  # after a power failure the checkpoint must find the lines that led to it
            keep = self.training.keep_checkpoints
            checkpoint.save(self.checkpoints, trainer.step, *tensors, state, keep=keep, best=best)

        trainer.distributed.on_main(write)

    @staticmethod
    def load(folder: str | Path, step: int | Literal["average"] | None = None) -> Transformer:
        """Load the model of a run, in eval mode, from its newest whole checkpoint or the one of `step`.

        "average": the moving average of its weights, of the newest. Else the optimizer need not be there.
        FileNotFoundError: no run, or no checkpoint yet. ValueError: the run keeps no average.
        """
        config, path, is_average = read(folder), Path(folder) / CONFIG, step == "average"
        number = None if isinstance(step, str) else step
        saved = checkpoint.load(Path(folder) / CHECKPOINTS, number, weights_only=not is_average)
        if saved is None:
            raise FileNotFoundError(f"the run in {folder} has no checkpoint yet: train it for longer")
        if not is_average:
            return from_weights(config.model, plain_weights(config, saved), path).eval()
        if config.train is None or not config.train.ema or not saved.step:
            raise ValueError(f"the run in {folder} keeps no average of its weights: train one with --train.ema 0.999")
        model = from_weights(config.model, saved.model, path, config.train)
        optimizer = make_optimizer(model, config.train)
        load_optimizer(optimizer, saved)
        for weight, state in optimizer.state.items():
            weight.detach().copy_(state[AVERAGE])
        return (merge(model) if config.train.lora_rank else model).eval()


def resolve(requested: TrainConfig, earlier: TrainConfig | None = None) -> TrainConfig:
    """Name device, precision and threads where they are left open: the run's so far, else this machine's."""
    device = find_device(requested, earlier)
    precision = requested.precision
    if earlier is not None and precision == "auto":
        precision = "auto" if earlier.precision == "tf32" and device.type != "cuda" else earlier.precision
    precision = choose_precision(precision, device)
    if precision == "fp16" and requested.parallel == "fsdp":
        raise ValueError("precision 'fp16' goes with parallel 'ddp': its loss scale is not shared between shards")
    return dataclasses.replace(
        requested,
        device=cast(DeviceName, device.type),
        precision=precision,
        threads=requested.threads or (torch.get_num_threads() if earlier is None else earlier.threads),
    )


def find_device(requested: TrainConfig, earlier: TrainConfig | None, index: int = 0) -> torch.device:
    """Return the device requested, or else that of the run so far; index: of the CUDA devices."""
    if earlier is None or requested.device != "auto":
        return choose_device(requested.device, index)
    try:
        return choose_device(earlier.device, index)
    except ValueError:
        raise ValueError(f"the run was on {earlier.device!r}, which is not here: --train.device cpu moves it") from None


def computed_by(config: TrainConfig, processes: Processes) -> dict[str, Any]:
    """Return what can change the last bits of a step beside the configuration; saved, and compared on resume."""
    return {
        "torch": torch.__version__,
        "groundup-lm": version(),
        "processes": processes.size,
        **({"parallel": config.parallel} if processes.size > 1 else {}),
        "device": config.device,
        "precision": config.precision,
        "threads": config.threads,
        "compile": config.compile,
        "attention and fused passes": passes.backend_name(processes.device),
    }


def version() -> str:
    """This package's version, or "unknown" if it is imported from its source."""
    try:
        return metadata.version("groundup-lm")
    except metadata.PackageNotFoundError:
        return "unknown"


def is_run(path: str | Path) -> bool:
    """True if a folder holds a run."""
    return (Path(path) / CONFIG).is_file()


def best_step(run_dir: str | Path) -> int:
    """Return the step of the run's checkpoint with the best evaluation. ValueError: none was evaluated."""
    read(run_dir)
    saved = checkpoint.load(Path(run_dir) / CHECKPOINTS, weights_only=True)
    if saved is None or not saved.state.get("best"):
        raise ValueError(f"{run_dir} has no checkpoint of a step that was evaluated on held-out data: name a step")
    return int(saved.state["best"][0])


def plain_weights(config: RunConfig, saved: Checkpoint) -> dict[str, Tensor]:
    """Return the weights of a checkpoint by name, with adapters merged in."""
    train = config.train
    if train is None or not train.lora_rank:
        return saved.model
    return merged(saved.model, scale_of(train.lora_rank, train.lora_alpha, train.lora_rslora))


def read(run_dir: str | Path) -> RunConfig:
    """Read the configuration of a run. FileNotFoundError: there is none. ValueError: another version wrote it."""
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} holds no run: there is no {CONFIG} in it")
    tables = read_toml(path)
    if not isinstance(tables.get("model"), dict):
        raise ValueError(f"{path} is not the configuration of a run: there is no [model] in it")
    try:
        model = from_table(config_class(tables["model"]), tables["model"], "model")
        train = from_table(TrainConfig, tables["train"], "train") if "train" in tables else None
    except KeyError as error:
        raise ValueError(f"{path} was edited, or another version of this program wrote it: {error.args[0]}") from None
    return RunConfig(model, train, dict(tables.get("data", {})), dict(tables.get("start", {})))


def read_config(run_dir: str | Path) -> tuple[ModelConfig, TrainConfig, dict[str, Any]]:
    """Read the model, the training and the data's fingerprints of a run."""
    config = read(run_dir)
    return config.model, config.train or from_table(TrainConfig, UNTRAINED, "train"), config.data


def write(run_dir: Path, config: RunConfig) -> None:
    """Write a run's configuration, whole or not at all."""
    tables: dict[str, Any] = {"model": to_table(config.model)}
    if config.train is not None:
        tables["train"] = to_table(config.train)
    tables |= {name: table for name, table in (("data", config.data), ("start", config.start)) if table}
    atomic_write(run_dir / CONFIG, tomli_w.dumps(tables))


def find_checkpoint(run_dir: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint of a run; None if it has none yet. Damaged: all are, with a remedy."""
    try:
        return checkpoint.load(run_dir / CHECKPOINTS)
    except Damaged as damage:
        weights = f"begin with whole weights alone, `--train.init_from {run_dir} --out ANOTHER`"
        remedy = f"Put the files back from a copy; or {weights}; or begin again with --restart"
        raise Damaged(f"no checkpoint in {run_dir} is whole: {damage}. {remedy}") from None


def refuse_missing_files(run_dir: Path, config: RunConfig | None) -> None:
    """ValueError: a folder lacks its checkpoint, or has metrics or checkpoints of an earlier run without one."""
    checkpoints, start = run_dir / CHECKPOINTS, {} if config is None else config.start
    if config is not None and (config.train is None or start.get("kind") == "import"):
        raise ValueError(f"{run_dir} is an imported model whose {CHECKPOINTS} are missing: import it again")
    has_latest = (checkpoints / "latest").exists()
    if config is not None and not start and checkpoints.is_dir() and not has_latest:
        return  # the run was stopped before its first checkpoint
    if config is None and not checkpoints.exists() and not (run_dir / METRICS).exists():
        return
    begun = start.get("step", 0) if start.get("kind") == "branch" else 0
    lines = read_lines(run_dir / METRICS)
    if has_latest or checkpoint.steps(checkpoints) or len(lines) > len(read_lines(run_dir / METRICS, begun)):
        missing = f"{CONFIG} is" if config is None else "the checkpoints that they led to are"
        raise ValueError(f"{run_dir} has metrics of an earlier run, and {missing} missing: --restart begins again")


def keep_reference(run_dir: Path, branched_from: Path | None) -> None:
    """Copy the weights of step 0, or the reference of the run that this one branched from: preferences need them."""
    if checkpoint.steps(run_dir / REFERENCE):
        return
    folder = run_dir / CHECKPOINTS if branched_from is None else branched_from / REFERENCE
    saved = checkpoint.load(folder, 0, weights_only=True)
    assert saved is not None
    checkpoint.save(run_dir / REFERENCE, 0, saved.model, None, {})


def remove(run_dir: Path) -> None:
    """Remove what a run wrote, so that it begins again. ValueError: imported weights would be lost."""
    if is_run(run_dir):
        tables = read_toml(run_dir / CONFIG)
        if "train" not in tables or tables.get("start", {}).get("kind") == "import":
            raise ValueError(f"--restart would remove the imported weights in {run_dir}: import them again instead")
    for name in (CONFIG, METRICS, ENVIRONMENT, "report.html"):
        (run_dir / name).unlink(missing_ok=True)
    for tokenizer in run_dir.glob("tokenizer.*"):
        tokenizer.unlink()
    for name in (CHECKPOINTS, REFERENCE, "tensorboard", "wandb", "mlflow"):
        shutil.rmtree(run_dir / name, ignore_errors=True)


@contextlib.contextmanager
def writing(run_dir: Path) -> Iterator[None]:
    """Turn an error in writing into NotSaved, with the folder and a remedy."""
    try:
        yield
    except checkpoint.NotSaved:
        raise
    except OSError as error:
        why = reason(error, run_dir)
        raise checkpoint.NotSaved(f"the run in {run_dir} cannot be written: {why}") from error


@contextlib.contextmanager
def log_of(
    run_dir: Path,
    trainer: Trainer,
    on_step: Callable[[Line], object] | None,
    trackers: Sequence[str],
    stop: threading.Event,
) -> Iterator[Callable[[Line], None]]:
    """A function that takes lines of metrics: in process 0 to metrics.jsonl and the listeners, elsewhere to nobody.

    Each line is appended at once. On a full disk it waits for space, until the run is told to stop; what could not be
    written by then is written with the next line.
    """
    if not trainer.distributed.is_main:
        yield lambda line: None
        return
    path, pending = run_dir / METRICS, bytearray()
    if trainer.step or path.exists():
        truncate(path, trainer.step)
    with contextlib.ExitStack() as stack:
        listeners = list[Callable[[Line], object]]()
        if trackers:
            from lm.reporting.trackers import tracker

            listeners += [stack.enter_context(tracker(name)(run_dir, trainer.step)) for name in trackers]
        file = stack.enter_context(open(path, "ab", buffering=0))

        def log(line: Line) -> None:
            text = json.dumps({key: value for key, value in line.items() if value is not None})
            pending.extend(text.encode() + b"\n")
            write_all(file, pending, path, stop)
            for listener in listeners:
                listener(line)
            if on_step is not None and on_step(line) is True:
                stop.set()

        yield log
        if pending:
            write_all(file, pending, path, stop)


def write_all(file: RawIOBase, pending: bytearray, path: Path, stop: threading.Event) -> None:
    """Write the pending bytes and remove them, as far as the disk has space (see log_of)."""
    has_warned = False
    while pending:
        try:
            del pending[: file.write(pending) or 0]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not has_warned:
                print(f"the disk of {path} is full: the run waits for space", file=sys.stderr)
                has_warned = True
            if stop.wait(1.0):
                return


def hub_name(path: str | Path) -> str | None:
    """Return the model's hf:// name if `path` names one on the Hub, else None.

    A bare name ("gpt2", "openai-community/gpt2") is one where no file or folder of this machine has that path.
    """
    if not isinstance(path, str) or path.startswith(HUB):
        return path if isinstance(path, str) else None
    is_bare = HUB_NAME.fullmatch(path) and not path.endswith(MODEL_FILES) and not Path(path).exists()
    return HUB + path if is_bare else None


def located(path: str | Path) -> Path:
    """Return a model's path on this machine; one on the Hub is downloaded. FileNotFoundError: with the reason."""
    name = hub_name(path)
    if name is None:
        return Path(path)
    try:
        return downloaded(name)
    except (OSError, MissingExtra) as error:
        if name == path:
            raise
        raise FileNotFoundError(f"there is no {path} here, and as a model of the Hugging Face Hub: {error}") from None


def place_of(path: str | Path) -> str:
    """Return what identifies a model: its hf:// name, or its absolute path."""
    return hub_name(path) or str(Path(path).resolve())


@functools.lru_cache(maxsize=8)
def downloaded(name: str) -> Path:
    """Return the folder of a model on the Hub; its newest revision is looked up once in a process."""
    from lm.data.hub import model_folder

    return model_folder(name)
