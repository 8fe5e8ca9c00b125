"""The folder of a run: what was asked for, what was measured, and the model in it.

RUN/config.toml      what was asked for, resolved, and the fingerprints of the data
RUN/metrics.jsonl    a line for each step logged and for each evaluation
RUN/checkpoints/     see checkpoint
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import tomli_w
import torch

from lm import files
from lm.config import DeviceName, ModelConfig, TrainConfig, from_table, read_toml, to_table
from lm.data import Mixture
from lm.device import choose_device, choose_precision, threads
from lm.model import Transformer
from lm.training import checkpoint, environment
from lm.training.measure import compile_pays

# What may differ between a run and its continuation, because it changes nothing that is learned.
FREE = frozenset(
    {
        "log_every",
        "eval_every",
        "eval_tokens",
        "checkpoint_every",
        "keep_checkpoints",
        "micro_batch_size",
        "activation_checkpointing",
        "parallel",
    }
)

# Stands for the training of a model that was imported and has had none here: its configuration has no [train].
UNTRAINED = {"steps": 1, "warmup_steps": 0}


def load(run_dir: str | Path, step: int | None = None) -> Transformer:
    """The model of a run, in eval mode, from its newest whole checkpoint or the one of `step`."""
    config, _, _ = read_config(run_dir)
    saved = checkpoint.load(Path(run_dir) / "checkpoints", step)
    if saved is None:
        raise FileNotFoundError(f"the run in {run_dir} has no checkpoint yet: train it for longer")
    with torch.random.fork_rng(devices=[]):
        model = Transformer(config)
    model.load_state_dict(saved.model)
    return model.eval()


def read_config(run_dir: str | Path) -> tuple[ModelConfig, TrainConfig, dict[str, Any]]:
    """What a run was started with: its model, its training, and the fingerprints of its data."""
    path = Path(run_dir) / "config.toml"
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} holds no run: there is no config.toml in it")
    tables = read_toml(path)
    if not isinstance(tables.get("model"), dict):
        raise ValueError(f"{path} is not the configuration of a run: there is no [model] in it")
    model = from_table(ModelConfig, tables["model"], "model")
    return model, from_table(TrainConfig, tables.get("train", UNTRAINED), "train"), dict(tables.get("data", {}))


def settle(
    folder: Path,
    model_config: ModelConfig,
    config: TrainConfig,
    mixture: Mixture,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> TrainConfig:
    """What the run in `folder` trains by: written there at its start, later compared: ValueError names what differs.

    Settings that the machine decides (threads 0, "auto") are decided once, so that a continuation decides the same.
    say: gets a sentence on each decision that was measured.
    """
    path = folder / "config.toml"
    asked_model, asked_data = to_table(model_config), mixture.fingerprints()
    if path.exists() and "train" not in read_toml(path):
        known_model, _, data = read_config(folder)
        refuse_other(folder, "model", to_table(known_model), asked_model)
        refuse_other(folder, "data", data, {key: asked_data.get(key) for key in data})
    elif path.exists():
        known_model, known, data = read_config(folder)
        known = on_this_machine(known)
        config = on_this_machine(
            dataclasses.replace(
                config,
                threads=config.threads or known.threads,
                compile=known.compile if config.compile == "auto" else config.compile,
                device=known.device if config.device == "auto" else config.device,
                precision=known.precision if config.precision == "auto" else config.precision,
            )
        )
        refuse_other(folder, "model", to_table(known_model), asked_model)
        refuse_other(folder, "train", to_table(known), to_table(config))
        refuse_other(folder, "data", data, asked_data)
        return config
    config = on_this_machine(config)
    with threads(config.threads):
        config = dataclasses.replace(config, threads=torch.get_num_threads())
        if config.compile == "auto":
            pays, why = compile_pays(model_config, config)
            say(why)
            config = dataclasses.replace(config, compile="on" if pays else "off")
    tables = {"model": asked_model, "train": to_table(config), "data": asked_data}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / ".config.toml.partial"
        try:
            temporary.write_text(tomli_w.dumps(tables), encoding="utf-8")
            files.sync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        environment.record(folder, config.device)
    return config


def made_with(model_config: ModelConfig, config: TrainConfig) -> dict[str, dict[str, Any]]:
    """What a checkpoint says of the configuration that it was made with: all that may not change."""
    train = {key: value for key, value in to_table(config).items() if key not in FREE}
    return {"model": to_table(model_config), "train": train}


def refuse_edited(saved: checkpoint.Checkpoint, model_config: ModelConfig, config: TrainConfig) -> None:
    """ValueError: config.toml was edited after the checkpoint was made, with the first key that differs."""
    now = made_with(model_config, config)
    for section, there in saved.state.get("config", {}).items():
        for key, old, new in differences(there, now[section]):
            raise ValueError(
                f"checkpoint {saved.path} was made with {section}.{key} = {old!r}, and config.toml has {new!r}: "
                f"put that back to continue the run, or choose another folder"
            )


def refuse_other(folder: Path, section: str, there: dict[str, Any], asked: dict[str, Any]) -> None:
    """ValueError: a section of the run's configuration is not what is asked for, with the first key that differs."""
    for key, old, new in differences(there, asked):
        if not (section == "train" and key in FREE):
            raise ValueError(
                f"the run in {folder} has {section}.{key} = {old!r}, and this call asks for {new!r}: "
                f"ask for the same to continue it, or choose another folder"
            )


def differences(there: dict[str, Any], asked: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each key that two tables do not agree on, in order, with what each has; None where it has nothing."""
    for key in sorted(there.keys() | asked.keys()):
        if there.get(key) != asked.get(key):
            yield key, there.get(key), asked.get(key)


def on_this_machine(config: TrainConfig) -> TrainConfig:
    """The configuration with its device and precision named. ValueError: they are not here."""
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    if precision == "fp16" and config.parallel == "fsdp":
        raise ValueError("precision 'fp16' goes with parallel 'ddp': its loss scale is not shared between shards")
    return dataclasses.replace(config, device=cast(DeviceName, device.type), precision=precision)


class Taken(ValueError):
    """Another process is training in this folder."""


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other processes from training in the folder; it ends with the process, however that ends. Taken: by which one."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not take(handle):
            who = os.read(handle, 32).decode(errors="replace").strip() or "another one"
            raise Taken(f"process {who} is training in {folder}: let it end, or choose another folder")
        with writing(folder):
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


def take(handle: int) -> bool:
    """Locks an open file for this process, unless another has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True


def truncate_metrics(path: Path, step: int) -> None:
    """Drops the lines after `step`, and what is none, as one that was cut off in the writing."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            if json.loads(line)["step"] > step:
                continue
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
        kept.append(line)
    temporary = path.with_name(".metrics.jsonl.partial")
    with writing(path.parent):
        temporary.write_text("".join(kept), encoding="utf-8")
        files.sync(temporary)
        os.replace(temporary, path)


def finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Says of a failure to write, in one sentence, what was being written and what to do."""
    try:
        yield
    except checkpoint.NotSaved:
        raise
    except OSError as error:
        why = files.reason(error, folder)
        raise checkpoint.NotSaved(f"the run in {folder} cannot be written: {why}") from error
