"""The folder of a run: what was asked for, what was measured, and the model in it.

RUN/config.toml      what was asked for, resolved; the fingerprints of the data; what the run began from
RUN/metrics.jsonl    a line for each step logged and for each evaluation
RUN/checkpoints/     see checkpoint
RUN/reference/       the weights that a run by preferences began with
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor

from lm.config import ModelConfig, TrainConfig, from_table, read_toml, to_table
from lm.files import Locked, atomic_write, reason
from lm.files import lock as lock_file
from lm.lora import merged
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.checkpoint import Checkpoint, Damaged
from lm.training.metrics import read_lines
from lm.training.weights import from_weights

CONFIG, METRICS, CHECKPOINTS = "config.toml", "metrics.jsonl", "checkpoints"
REFERENCE = "reference"  # what a run by preferences began with, as a checkpoint of step 0

# Stands for the training of a model that was imported and has had none here: its configuration has no [train].
UNTRAINED = {"steps": 1, "warmup_steps": 0}


@dataclass(frozen=True)
class RunConfig:
    """What stands in a run's config.toml.

    Attributes:
        model: The model.
        train: Its training; None where it was imported and has had none.
        data: The fingerprints of the data.
        start: What the run began from, where that is not random weights: its kind ("import", "weights" or "branch"),
            and of the last two the path, step and checkpoint that they were taken from.
    """

    model: ModelConfig
    train: TrainConfig | None
    data: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)


def load(run_dir: str | Path, step: int | None = None) -> Transformer:
    """The model of a run, in eval mode, from its newest whole checkpoint or the one of `step`.

    Nothing but the weights is read: the optimizer need not be there.

    Raises:
        FileNotFoundError: There is no run, or no checkpoint in it yet.
        checkpoint.Damaged: The checkpoint asked for, or all there are.
    """
    config = read(run_dir)
    saved = checkpoint.load(Path(run_dir) / CHECKPOINTS, step, weights_only=True)
    if saved is None:
        raise FileNotFoundError(f"the run in {run_dir} has no checkpoint yet: train it for longer")
    return from_weights(config.model, plain_weights(config, saved)).eval()


def best_step(run_dir: str | Path) -> int:
    """The step of the checkpoint whose evaluation was the best of a run.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: No checkpoint is of a step that was evaluated.
    """
    read(run_dir)
    saved = checkpoint.load(Path(run_dir) / CHECKPOINTS, weights_only=True)
    if saved is None or not saved.state.get("best"):
        raise ValueError(
            f"{run_dir} has no checkpoint of a step that was evaluated on held-out data: name a step, or none"
        )
    return int(saved.state["best"][0])


def plain_weights(config: RunConfig, saved: Checkpoint) -> dict[str, Tensor]:
    """The weights of a checkpoint of a run by name, its adapters merged where it has any."""
    train = config.train
    if train is None or not train.lora_rank:
        return saved.model
    return merged(saved.model, train.lora_rank, train.lora_alpha)


def read(run_dir: str | Path) -> RunConfig:
    """The configuration of a run.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: The file is not one, or another version of this program wrote it.
    """
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} holds no run: there is no {CONFIG} in it")
    tables = read_toml(path)
    if not isinstance(tables.get("model"), dict):
        raise ValueError(f"{path} is not the configuration of a run: there is no [model] in it")
    try:
        model = from_table(ModelConfig, tables["model"], "model")
        train = from_table(TrainConfig, tables["train"], "train") if "train" in tables else None
    except KeyError as error:
        raise ValueError(
            f"{path} was written by another version of this program, or edited: {error.args[0]}; "
            f"rename the setting there, or use the version that made the run"
        ) from None
    return RunConfig(model, train, dict(tables.get("data", {})), dict(tables.get("start", {})))


def read_config(run_dir: str | Path) -> tuple[ModelConfig, TrainConfig, dict[str, Any]]:
    """What a run was started with: its model, its training, and the fingerprints of its data."""
    config = read(run_dir)
    return config.model, config.train or from_table(TrainConfig, UNTRAINED, "train"), config.data


def write(run_dir: Path, config: RunConfig) -> None:
    """Writes a run's configuration, whole or not at all."""
    tables: dict[str, Any] = {"model": to_table(config.model)}
    if config.train is not None:
        tables["train"] = to_table(config.train)
    tables |= {name: table for name, table in (("data", config.data), ("start", config.start)) if table}
    atomic_write(run_dir / CONFIG, tomli_w.dumps(tables))


def find_checkpoint(run_dir: Path) -> Checkpoint | None:
    """The newest whole checkpoint of a run; None where there was none yet.

    Raises:
        checkpoint.Damaged: All are, with the ways forward.
    """
    try:
        return checkpoint.load(run_dir / CHECKPOINTS)
    except Damaged as damage:
        raise Damaged(
            f"no checkpoint in {run_dir} is whole: {damage}. Put the files back from a copy; or begin with whole "
            f"weights alone, `--train.init_from {run_dir} --out ANOTHER`; or begin again with --restart"
        ) from None


def refuse_what_is_missing(run_dir: Path, config: RunConfig | None) -> None:
    """Refuses a folder without a checkpoint, where there was one or there are metrics of an earlier run.

    Raises:
        ValueError: What is there and what is missing, and to use --restart.
    """
    checkpoints, metrics = run_dir / CHECKPOINTS, run_dir / METRICS
    begun = {} if config is None else config.start
    if config is not None and (config.train is None or begun.get("kind") == "import"):
        raise ValueError(f"{run_dir} is an imported model whose {CHECKPOINTS} are missing: import it again")
    if config is not None and not begun and checkpoints.is_dir() and not (checkpoints / "latest").exists():
        return  # the run was stopped before its first checkpoint
    if len(read_lines(metrics)) > len(
        read_lines(metrics, begun.get("step", 0) if begun.get("kind") == "branch" else 0)
    ):
        missing = f"{CONFIG} is" if config is None else "the checkpoints that they led to are"
        raise ValueError(
            f"{run_dir} has metrics of an earlier run, and {missing} missing: "
            f"--restart removes them and begins again, or choose another folder"
        )
    if config is None and checkpoint.steps(checkpoints):
        raise ValueError(
            f"{run_dir} has checkpoints and no {CONFIG}: --restart removes them and begins again, "
            "or choose another folder"
        )
    if config is not None and (checkpoints / "latest").exists():
        raise ValueError(f"{checkpoints} has lost its checkpoints: put them back, or begin again with --restart")


def remove(run_dir: Path) -> None:
    """Removes what a run wrote, so that it begins again.

    Raises:
        ValueError: It began from an imported model, whose weights would be lost.
    """
    if (run_dir / CONFIG).is_file():
        tables = read_toml(run_dir / CONFIG)
        if "train" not in tables or tables.get("start", {}).get("kind") == "import":
            raise ValueError(f"--restart would remove the imported weights in {run_dir}: import them again instead")
    for name in (CONFIG, METRICS, "environment.json", "report.html"):
        (run_dir / name).unlink(missing_ok=True)
    for kept in run_dir.glob("tokenizer.*"):
        kept.unlink()
    for name in (CHECKPOINTS, REFERENCE, "tensorboard"):
        shutil.rmtree(run_dir / name, ignore_errors=True)


class Taken(ValueError):
    """Another process is training in this folder."""


@contextlib.contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Keeps other processes from training in the folder; it ends with the process, however that ends.

    Raises:
        Taken: By which one.
    """
    with contextlib.ExitStack() as stack:
        with writing(run_dir):
            run_dir.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(lock_file(run_dir / ".lock"))
            except Locked as locked:
                raise Taken(f"{locked.holder} is training in {run_dir}: let it end, or choose another folder") from None
        yield


@contextlib.contextmanager
def writing(run_dir: Path) -> Iterator[None]:
    """Says of a failure to write, in one sentence, what was being written and what to do."""
    try:
        yield
    except checkpoint.NotSaved:
        raise
    except OSError as error:
        why = reason(error, run_dir)
        raise checkpoint.NotSaved(f"the run in {run_dir} cannot be written: {why}") from error
