"""Checkpoints: folders that appear whole or not at all, carry their checksums, and are passed over when damaged.

checkpoints/latest                  the name of the newest, moved last
checkpoints/00001000/               the step
    model.safetensors               the weights
    optimizer.pt                    the optimizer's state, read with weights_only; absent if it has none, as at step 0
    state.json                      the run's own state, and the SHA-256 of every file and of itself
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lm import lora
from lm.config import ModelConfig, TrainConfig
from lm.device import own_part
from lm.families import build
from lm.files import atomic_write, fsync, reason, refuse_inflation, sha256
from lm.model import Transformer

CHECKPOINTS = "checkpoints"  # the folder in a run's folder
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.pt", "state.json"
# Meaning of the weights, written into each state. 2: heads are rotated by halves; without one, in neighbouring pairs.
FORMAT = 2
LONGEST_CONTEXT = 1 << 24  # positions
EXPERTS, MOST_EXPERTS = ("num_experts", "num_local_experts"), 1 << 16
LARGEST_ROTATIONS = 1 << 26  # positions times width of a head: the table of rotations that any model may have


class Damaged(ValueError):
    """A checkpoint that is not what was saved."""


class NoCheckpoint(ValueError):
    """There is no checkpoint of the requested step."""


class NotSaved(OSError):
    """Nothing could be written, and nothing half-written was left."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on the disk. Weights and optimizer are read when they are first used."""

    path: Path  # its folder
    step: int  # after which it was saved
    state: dict[str, Any]  # the run's own
    hashes: dict[str, str]  # SHA-256 of its files, by their names

    @cached_property
    def model(self) -> dict[str, Tensor]:
        """The weights by name, on the CPU."""
        try:
            return safetensors.torch.load_file(self.path / MODEL)
        except safetensors.SafetensorError as error:
            raise Damaged(f"checkpoint {self.path} is damaged: {error}") from error

    @cached_property
    def optimizer(self) -> dict[str, Any]:
        """The optimizer's state_dict on the CPU; empty without one."""
        try:
            return dict(load_pickled(self.path / OPTIMIZER)) if OPTIMIZER in self.hashes else {}
        except (OSError, TypeError, ValueError) as error:
            raise Damaged(f"checkpoint {self.path} is damaged: {error}") from error


def save(
    folder: str | Path,
    step: int,
    model: nn.Module | Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | Mapping[str, Any] | None,
    state: dict[str, Any],
    *,
    keep: int = 2,
    best: int | None = None,
) -> Path:
    """Save a step under `folder`, then remove all but the newest `keep` and the one of step `best`.

    Later steps that are there are removed too: they are damaged, or the run was set back to before them.

    Args:
        folder: The folder of all checkpoints of a run.
        step: The step.
        model: A module, or weights by name.
        optimizer: An optimizer, or its state_dict; None or an empty one writes none.
        state: What else to keep, as JSON.
        keep: The number of the newest that stay.
        best: A step that stays beside them.

    Returns:
        The checkpoint's folder.

    Raises:
        NotSaved: With what failed in one sentence; nothing half-written stays.
    """
    folder = Path(folder)
    final = folder / name_of(step)
    temporary = folder / f".{final.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        tensors = model.state_dict() if isinstance(model, nn.Module) else model
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(weights, temporary / MODEL)
        memory = optimizer.state_dict() if isinstance(optimizer, torch.optim.Optimizer) else optimizer
        if memory:
            with open(temporary / OPTIMIZER, "wb") as file:  # Python's, whose errors say why a write failed
                torch.save(dict(memory), file)

        # The state is hashed as it will be read, with lists for tuples.
        state_as_read = json.loads(json.dumps({**state, "step": step, "format": FORMAT}))
        hashes = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        hashes[STATE] = hash_json(state_as_read)
        (temporary / STATE).write_text(json.dumps({**state_as_read, "sha256": hashes}, indent=1) + "\n")

        # The files are flushed to the disk, then the folder is renamed, and only then is it named as the latest.
        for path in (*temporary.iterdir(), temporary):
            fsync(path)
        if final.exists():  # left by a run that was set back to an earlier step
            shutil.rmtree(final)
        os.rename(temporary, final)
        fsync(folder)
        atomic_write(folder / "latest", final.name + "\n")
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        why = reason(error, folder)  # while the disk is as it was
        shutil.rmtree(temporary, ignore_errors=True)
        raise NotSaved(f"the checkpoint of step {step} could not be saved under {folder}: {why}") from error
    prune(folder, step, keep, best)
    return final


def load(folder: str | Path, step: int | None = None, *, weights_only: bool = False) -> Checkpoint | None:
    """Open the newest whole checkpoint under `folder`, or the one of `step`; None where there is none.

    A damaged one is named in a warning and the one before it used.

    Args:
        folder: The folder of all checkpoints of a run.
        step: The one to open; None for the newest.
        weights_only: Look at the weights alone; the optimizer may be damaged or missing.

    Raises:
        Damaged: The requested checkpoint is damaged, or all are.
        NoCheckpoint: There is none of `step`; the message has the steps that there are.
    """
    folder = Path(folder)
    saved_steps = steps(folder)
    if step is not None:
        if step not in saved_steps:
            others = ", ".join(map(str, saved_steps)) or "none"
            raise NoCheckpoint(f"{folder} has no checkpoint of step {step}: those that it has are of {others}")
        return open_checkpoint(folder / name_of(step), weights_only=weights_only)
    with contextlib.suppress(OSError, ValueError):
        latest = int((folder / "latest").read_text())
        # One that was renamed but not yet named as the latest is whole: its rename came after its contents.
        if latest not in saved_steps:
            warnings.warn(f"checkpoint {latest} is named as the latest in {folder} and is not there", stacklevel=2)
    failures = []
    for candidate in reversed(saved_steps):
        try:
            return open_checkpoint(folder / name_of(candidate), weights_only=weights_only)
        except Damaged as damage:
            failures.append(str(damage))
            if candidate != saved_steps[0]:
                warnings.warn(f"{damage}; the one before it is used", stacklevel=2)
    if failures:
        raise Damaged("; ".join(failures))
    return None


def open_checkpoint(path: Path, *, weights_only: bool = False) -> Checkpoint:
    """Open one checkpoint; its checksums are compared before anything in it is believed. Damaged: with the file."""
    damaged = f"checkpoint {path} is damaged: "
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        hashes = dict(state.pop("sha256"))
        if hashes.get(STATE) != hash_json(state) or not {MODEL} <= hashes.keys() <= {MODEL, OPTIMIZER, STATE}:
            raise ValueError(f"its files are {', '.join(hashes)}")
        step, version = int(state.pop("step")), state.pop("format", 1)
    except FileNotFoundError:
        raise Damaged(f"{damaged}{STATE} is not there") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{damaged}{STATE} is not what was saved") from error
    if version != FORMAT:
        remedy = "its heads are rotated in neighbouring pairs: import what the version that wrote it exports"
        raise ValueError(f"expected a checkpoint of format {FORMAT}, got format {version} in {path}: {remedy}")
    for name in (MODEL,) if weights_only or OPTIMIZER not in hashes else (MODEL, OPTIMIZER):
        try:
            digest = sha256(path / name)
        except OSError as error:
            raise Damaged(f"{damaged}{name}: {error.strerror}") from error
        if digest != hashes[name]:
            raise Damaged(f"{damaged}{name} is not what was saved")
    return Checkpoint(path, step, state, hashes)


def load_pickled(path: Path) -> Any:
    """Load tensors and plain values that torch.save wrote; nothing is run. ValueError: it holds else, or is damaged."""
    refuse_inflation(path)
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception:  # the unpickler raises what it likes; its messages advise to load the file without this check
        raise ValueError(f"{path} is damaged, or holds more than tensors and plain values") from None
    # A stride of 0 repeats memory without end, and names may share it, as tied weights do.
    if sum(tensor.nbytes for tensor in tensors_in(value)) > 4 * path.stat().st_size:
        raise ValueError(f"{path} is damaged: its tensors are more than four times as large as the file")
    return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tables and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def name_of(step: int) -> str:
    return f"{step:08d}"


def steps(folder: str | Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(entry.name) for entry in os.scandir(folder) if entry.name.isdecimal() and entry.is_dir())
    return []


def prune(folder: Path, newest: int, keep: int, best: int | None) -> None:
    """Remove all but `newest`, the `keep` - 1 before it and the best, and what an interrupted save left."""
    saved_steps = steps(folder)
    until = [step for step in saved_steps if step <= newest][-keep:]
    for step in saved_steps:
        if step not in until and (step != best or step > newest):
            shutil.rmtree(folder / name_of(step), ignore_errors=True)
    for partial in folder.glob(".*.partial"):
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def hash_json(table: Any) -> str:
    """SHA-256 of a JSON value, however it is laid out, in hex."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def check_sizes(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], source: object) -> None:
    """ValueError: a configuration is many times larger than the tensors of these shapes; before memory is taken."""
    largest = 16 * max((size for shape in shapes.values() for size in shape), default=0)
    elements = sum(map(math.prod, shapes.values()))
    context = min(LONGEST_CONTEXT, max(LARGEST_ROTATIONS, elements) // max(1, config.head_width))
    experts = sum(max(shape) if len(shape) > 2 else 1 for shape in shapes.values())  # by name or in one tensor
    bounds = {
        "num_layers": len(shapes),
        **dict.fromkeys(EXPERTS, min(experts, MOST_EXPERTS)),
        **dict.fromkeys(("vocab_size", "d_model", "d_ff", "num_heads", "head_dim", "vocab_multiple"), largest),
        "context_length": context,
    }
    for name, most in bounds.items():
        value = config.head_width if name == "head_dim" else getattr(config, name, None)
        if isinstance(value, int) and value > most:
            raise ValueError(f"{source}: {name} is {value:,}, damaged: the tensors beside it allow {most:,} at most")


def from_weights(
    config: ModelConfig, weights: Mapping[str, Tensor], source: object = "config.toml", train: TrainConfig | None = None
) -> Transformer:
    """A model with these weights, on the CPU; none is drawn at random first. ValueError: they are not the model's.

    train: its training, whose adapters the model has; before the first step they are not among the weights.
    """
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in weights.items()}, source)
    with torch.device("meta"):  # a model whose weights have shapes and no memory
        model = build(config)
    is_first = False  # the adapters are before their first step
    if train is not None and train.lora_rank:
        settings = {name: getattr(train, f"lora_{name}") for name in ("targets", "dropout", "rslora", "dora", "base")}
        lora.add(model, train.lora_rank, train.lora_alpha, **settings)
        weights = lora.quantized(model, weights)
        is_first = not any(name.endswith(lora.NAMES) for name in weights)
    own = {name: part for name, part in model.state_dict().items() if not (is_first and name.endswith(lora.NAMES))}
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"the weights {'lack' if name in own else 'have'} {name!r}, and the model says otherwise")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shapes = tuple(tensor.shape), tuple(weights[name].shape)
            raise ValueError("expected the weight {!r} to have the shape {}, got {}".format(name, *shapes))
    model.to_empty(device="cpu").load_state_dict(weights, strict=False)  # the names are those above
    if is_first and train is not None:
        lora.draw(model, train.seed)
    return model


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Checkpoint) -> None:
    """Put the optimizer's state of a checkpoint into an optimizer, sharded as its weights are; its settings stay."""
    parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for index, values in saved.optimizer["state"].items():
        for key, value in values.items():
            if not 0 <= index < len(parameters) or value.numel() > parameters[index].numel():
                shape = tuple(value.shape)
                raise ValueError(f"{saved.path} has {key} of shape {shape} for weight {index}, which is not its own")
            weight = parameters[index]
            state.setdefault(index, {})[key] = own_part(value, weight) if value.shape == weight.shape else value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
