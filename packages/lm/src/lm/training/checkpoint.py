"""Checkpoints: folders that appear whole or not at all, carry their checksums, and are passed over when damaged.

checkpoints/latest                  the name of the newest, moved last
checkpoints/00001000/               the step
    model.safetensors               the weights
    optimizer.pt                    the optimizer's state, read with weights_only
    state.json                      the run's own state, and the SHA-256 of the other two and of itself
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lm import files

FILES = ("model.safetensors", "optimizer.pt")
STATE = "state.json"


class Damaged(ValueError):
    """A checkpoint that is not what was saved."""


class NotSaved(OSError):
    """Nothing could be written, and nothing half-written was left."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds: weights by name, the optimizer's state_dict, and the run's own state."""

    path: Path
    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    state: dict[str, Any]


def save(
    folder: str | Path,
    step: int,
    model: nn.Module | Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | Mapping[str, Any],
    state: dict[str, Any],
    *,
    keep: int = 2,
    best: int | None = None,
) -> Path:
    """Saves a step under `folder`, then removes all but the newest `keep` and the one of step `best`; gives its path.

    Later steps that are there are removed too: they are damaged, or the run was set back to before them.
    model, optimizer: themselves, or their state_dicts.
    Written in a temporary folder, flushed to the disk, renamed, and only then named as the latest.
    NotSaved: with what failed in one sentence; nothing half-written stays.
    """
    folder = Path(folder)
    final = folder / f"{step:08d}"
    temporary = folder / f".{final.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        tensors = model.state_dict() if isinstance(model, nn.Module) else model
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(weights, temporary / FILES[0])
        memory = optimizer.state_dict() if isinstance(optimizer, torch.optim.Optimizer) else dict(optimizer)
        with open(temporary / FILES[1], "wb") as file:  # Python's, which says why a write failed
            torch.save(memory, file)
        says = json.loads(json.dumps({**state, "step": step}))  # as it will be read, tuples as lists
        hashes = {**{name: files.hash_file(temporary / name) for name in FILES}, STATE: hash_table(says)}
        (temporary / STATE).write_text(json.dumps({**says, "sha256": hashes}, indent=1) + "\n")
        for name in (*FILES, STATE):
            files.sync(temporary / name)
        files.sync(temporary)
        if final.exists():  # left by a run that was set back to an earlier step
            shutil.rmtree(final)
        os.rename(temporary, final)
        files.sync(folder)
        pointer = folder / ".latest.partial"
        pointer.write_text(final.name + "\n")
        files.sync(pointer)
        os.replace(pointer, folder / "latest")
        files.sync(folder)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        why = files.reason(error, folder)  # while the disk is as it was
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            (folder / ".latest.partial").unlink(missing_ok=True)
        raise NotSaved(f"the checkpoint of step {step} could not be saved under {folder}: {why}") from error
    prune(folder, step, keep, best)
    return final


def load(folder: str | Path, step: int | None = None) -> Checkpoint | None:
    """The newest whole checkpoint under `folder`, or the one of `step`; None where there is none.

    A damaged one is named in a warning and the one before it used. Damaged: the one asked for, or all there are.
    """
    folder = Path(folder)
    if step is not None:
        return read(folder / f"{step:08d}")
    found = steps(folder)
    with contextlib.suppress(OSError, ValueError):
        latest = int((folder / "latest").read_text())
        # One that was renamed but not yet named as the latest is whole: its rename came after its contents.
        if latest not in found:
            warnings.warn(f"checkpoint {latest} is named as the latest in {folder} and is not there", stacklevel=2)
    failures = []
    for candidate in reversed(found):
        try:
            return read(folder / f"{candidate:08d}")
        except Damaged as damage:
            failures.append(str(damage))
            if candidate != found[0]:
                warnings.warn(f"{damage}; the one before it is used", stacklevel=2)
    if failures:
        raise Damaged("; ".join(failures))
    return None


def read(path: Path) -> Checkpoint:
    """One checkpoint, its checksums compared before anything in it is believed. Damaged: named, with the file."""
    try:
        says = path / STATE
        state = json.loads(says.read_text(encoding="utf-8"))
        hashes = state.pop("sha256")
        if hashes.get(STATE) not in (hash_table(state), None):  # none: made before a state had one
            raise ValueError("not what was saved")
        step = int(state.pop("step"))
    except FileNotFoundError:
        raise Damaged(f"checkpoint {path} is damaged: {STATE} is not there") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"checkpoint {path} is damaged: {STATE} is not what was saved") from error
    for name in FILES:
        try:
            found = files.hash_file(path / name)
        except OSError as error:
            raise Damaged(f"checkpoint {path} is damaged: {name}: {error.strerror}") from error
        if found != hashes.get(name):
            raise Damaged(f"checkpoint {path} is damaged: {name} is not what was saved")
    model = safetensors.torch.load_file(path / FILES[0])
    optimizer = torch.load(path / FILES[1], map_location="cpu", weights_only=True)
    return Checkpoint(path, step, model, optimizer, state)


def steps(folder: str | Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(entry.name) for entry in os.scandir(folder) if entry.name.isdecimal() and entry.is_dir())
    return []


def prune(folder: Path, newest: int, keep: int, best: int | None) -> None:
    """Removes all but `newest`, the `keep` - 1 before it and the best, and what an interrupted save left."""
    found = steps(folder)
    until = [step for step in found if step <= newest][-keep:]
    for step in found:
        if step not in until and (step != best or step > newest):
            shutil.rmtree(folder / f"{step:08d}", ignore_errors=True)
    for partial in folder.glob(".*.partial"):
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)


def hash_table(table: Any) -> str:
    """SHA-256 of what JSON says, however it is laid out, in hex."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
