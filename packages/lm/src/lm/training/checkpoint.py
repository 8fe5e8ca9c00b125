"""Checkpoints: folders that appear whole or not at all, carry their checksums, and are passed over when damaged.

checkpoints/latest                  the name of the newest, moved last
checkpoints/00001000/               the step
    model.safetensors               the weights
    optimizer.pt                    the optimizer's state, read with weights_only; absent if it has none, as at step 0
    sharded/                        instead of both, what each process of a sharded run wrote (see sharded.py)
    state.json                      the run's own state, and the SHA-256 of every file and of itself
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from lm.files import atomic_write, fsync, is_plain_name, reason, refuse_inflation, sha256

Result = TypeVar("Result")
CHECKPOINTS = "checkpoints"  # the folder in a run's folder
MODEL, OPTIMIZER, SHARDED, STATE = "model.safetensors", "optimizer.pt", "sharded", "state.json"
# Meaning of the weights, written into each state. 2: heads are rotated by halves; without one, in neighbouring pairs.
FORMAT = 2


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

    @property
    def is_sharded(self) -> bool:
        """True if each process wrote its part."""
        return (self.path / SHARDED).is_dir()

    @property
    def fingerprint(self) -> str:
        """A hash of all that it holds."""
        return hash_json(self.hashes)

    @property
    def weights_fingerprint(self) -> str:
        """A hash of its weights; of a sharded one, of all that the processes wrote."""
        return self.hashes.get(MODEL) or hash_json({k: v for k, v in self.hashes.items() if k.startswith(SHARDED)})

    @cached_property
    def model(self) -> dict[str, Tensor]:
        """The weights by name, whole, on the CPU."""
        if self.is_sharded:
            return self.sharded(lambda module, path: module.read(path, "model"))
        return safetensors.torch.load_file(self.path / MODEL)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight by name, as the files' headers have it. Damaged: they have none."""
        if self.is_sharded:
            return self.sharded(lambda module, path: module.shapes(path, "model"))
        with self.undamaged(), safetensors.safe_open(self.path / MODEL, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    @cached_property
    def optimizer(self) -> dict[str, Any]:
        """The optimizer's whole state_dict on the CPU; empty without one. A sharded one's "state" is by weight."""
        if self.is_sharded:
            return {"state": self.sharded(lambda module, path: module.by_weight(module.read(path, "optimizer")))}
        with self.undamaged():
            return dict(load_pickled(self.path / OPTIMIZER)) if OPTIMIZER in self.hashes else {}

    def sharded(self, read: Callable[[Any, Path], Result]) -> Result:
        """Read what the processes wrote. Damaged: the index is not that of the files."""
        from lm.training import sharded  # here, because it takes long to load

        with self.undamaged():
            return read(sharded, self.path / SHARDED)

    @contextlib.contextmanager
    def undamaged(self) -> Iterator[None]:
        """Turn an error of reading into Damaged, with the checkpoint."""
        try:
            yield
        except (OSError, TypeError, ValueError, safetensors.SafetensorError) as error:
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
    """Saves a step under `folder`, then removes all but the newest `keep` and the one of step `best`.

    Later steps that are there are removed too: they are damaged, or the run was set back to before them.

    Args:
        folder: The folder of all checkpoints of a run.
        step: The step.
        model: A module, or weights by name.
        optimizer: An optimizer, or its state_dict; None or an empty one writes none.
        state: What else to keep, as JSON.
        keep: How many of the newest stay.
        best: A step that stays beside them.

    Returns:
        The checkpoint's folder.

    Raises:
        NotSaved: With what failed in one sentence; nothing half-written stays.
    """
    with saving(folder, step, state, keep=keep, best=best) as temporary:
        tensors = model.state_dict() if isinstance(model, nn.Module) else model
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(weights, temporary / MODEL)
        memory = optimizer.state_dict() if isinstance(optimizer, torch.optim.Optimizer) else optimizer
        if memory:
            with open(temporary / OPTIMIZER, "wb") as file:  # Python's, whose errors say why a write failed
                torch.save(dict(memory), file)
    return Path(folder) / name_of(step)


def copy(source: Checkpoint, folder: str | Path, state: dict[str, Any]) -> Path:
    """Copy a checkpoint under another folder, with another state."""
    with saving(folder, source.step, state) as temporary:
        for name in source.hashes.keys() - {STATE}:
            (temporary / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source.path / name, temporary / name)
    return Path(folder) / name_of(source.step)


@contextlib.contextmanager
def saving(
    folder: str | Path, step: int, state: dict[str, Any], *, keep: int = 2, best: int | None = None
) -> Iterator[Path]:
    """A temporary folder to write a checkpoint's files into, which becomes the checkpoint of `step` (see save).

    Flushed to the disk, renamed, and only then named as the latest.
    """
    folder = Path(folder)
    final = folder / name_of(step)
    temporary = folder / f".{final.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        # As it will be read, with lists for tuples.
        state_as_read = json.loads(json.dumps({**state, "step": step, "format": FORMAT}))
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        hashes = {path.relative_to(temporary).as_posix(): sha256(path) for path in paths}
        hashes[STATE] = hash_json(state_as_read)
        (temporary / STATE).write_text(json.dumps({**state_as_read, "sha256": hashes}, indent=1) + "\n")
        for path in (*paths, temporary / STATE, *(path for path in temporary.iterdir() if path.is_dir())):
            fsync(path)
        fsync(temporary)
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


def load(folder: str | Path, step: int | None = None, *, weights_only: bool = False) -> Checkpoint | None:
    """The newest whole checkpoint under `folder`, or the one of `step`; None where there is none.

    A damaged one is named in a warning and the one before it used.

    Args:
        folder: The folder of all checkpoints of a run.
        step: The one to open; None for the newest.
        weights_only: Looks at the weights alone; the optimizer may be damaged or missing.

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
    """One checkpoint, its checksums compared before anything in it is believed.

    Damaged: with the file. ValueError: a version of this package with other weights wrote it.
    """
    try:
        state, hashes = read_state(path)
        step, version = int(state.pop("step")), state.pop("format", 1)
    except FileNotFoundError:
        raise Damaged(f"checkpoint {path} is damaged: {STATE} is not there") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"checkpoint {path} is damaged: {STATE} is not what was saved") from error
    if version != FORMAT:
        raise ValueError(
            f"expected a checkpoint of format {FORMAT}, got format {version} in {path}: its heads are rotated in "
            "neighbouring pairs, so train it anew, or export it by the version that wrote it and import that"
        )
    for name in sorted(hashes.keys() - {STATE}):
        if weights_only and name == OPTIMIZER:
            continue
        try:
            digest = sha256(path / name)
        except OSError as error:
            raise Damaged(f"checkpoint {path} is damaged: {name}: {error.strerror}") from error
        if digest != hashes[name]:
            raise Damaged(f"checkpoint {path} is damaged: {name} is not what was saved")
    if MODEL not in hashes and not any(name.startswith(SHARDED) for name in hashes):
        raise Damaged(f"checkpoint {path} is damaged: {MODEL} is not there")
    return Checkpoint(path, step, state, hashes)


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The state of a checkpoint and the hashes of its files. OSError, ValueError: it is not what was saved."""
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    hashes = dict(state.pop("sha256"))
    for name in hashes:  # a branch copies these files: a name may not lead out of the checkpoint
        in_shards = name.startswith(f"{SHARDED}/") and is_plain_name(name.removeprefix(f"{SHARDED}/"))
        if name not in (MODEL, OPTIMIZER, STATE) and not in_shards:
            raise ValueError(f"{path / STATE} names {name!r}, which is not a file of a checkpoint")
    if hashes.get(STATE) != hash_json(state):
        raise ValueError(f"{path / STATE} is not what was saved")
    return state, hashes


def load_pickled(path: Path) -> Any:
    """Load what torch.save wrote, if it is tensors and plain values that take no more memory than the file.

    Nothing in the file is run. FileNotFoundError. ValueError: it holds anything else, or is damaged.
    """
    refuse_inflation(path, path)
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
    """Removes all but `newest`, the `keep` - 1 before it and the best, and what an interrupted save left."""
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
