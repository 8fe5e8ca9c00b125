"""Sharded checkpoints: each process writes its part of weights and optimizer, by torch.distributed.checkpoint.

No process ever has the whole of the optimizer, and any number of processes, or one alone, can read what another number
wrote. Tensors are named model.WEIGHT and optimizer.KEY.WEIGHT, where KEY is what the optimizer
calls it: exp_avg, step, momentum, …
"""

from __future__ import annotations

import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of a model and its optimizer by name, as they lie: of a sharded one, this process's parts."""
    named = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            named[f"optimizer.{key}.{name}"] = value
    return named


def wait(part: Future[Any]) -> None:
    """Wait until every process's part is written. OSError: one of them could not."""
    try:
        part.result()
    except CheckpointException as failed:  # which is no Exception
        rank, (error, _) = next(iter(failed.failures.items()))
        raise OSError(getattr(error, "errno", None) or 0, f"process {rank}: {error}") from None


def read(path: Path, section: str) -> dict[str, Tensor]:
    """The tensors of a section ("model" or "optimizer") in full, by the rest of their names.

    One process alone calls it.
    """
    about = FileSystemReader(path).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in about.items()
        if name.startswith(f"{section}.") and isinstance(entry, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        load(cast("dict[str, Any]", tensors), checkpoint_id=path, no_dist=True)
    return {name.removeprefix(f"{section}."): tensor for name, tensor in tensors.items()}


def read_into(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Reads each process's part of a sharded model and of its optimizer. All processes call it."""
    about = FileSystemReader(path).read_metadata().state_dict_metadata
    parameters = dict(model.named_parameters())
    for name, entry in about.items():
        section, _, rest = name.partition(".")
        if section == "optimizer":
            key, _, parameter = rest.partition(".")
            like = parameters[parameter]
            size = cast(TensorStorageMetadata, entry).size
            weight = like.detach()
            fresh = torch.zeros_like(weight) if size == weight.shape else torch.zeros(size, device=weight.device)
            optimizer.state[like][key] = fresh
    tensors = tensors_of(model, optimizer)
    load(cast("dict[str, Any]", tensors), checkpoint_id=path)
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})


def by_weight(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """KEY.WEIGHT → tensor as WEIGHT → KEY → tensor."""
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, _, weight = name.partition(".")
        state.setdefault(weight, {})[key] = tensor
    return state
