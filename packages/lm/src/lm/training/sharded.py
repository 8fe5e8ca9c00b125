"""Sharded checkpoints: each process writes its part of weights and optimizer, by torch.distributed.checkpoint.

No process ever has the whole of the optimizer, and any number of processes, or one alone, can read what another number
wrote. Tensors are named model.WEIGHT and optimizer.KEY.WEIGHT, where KEY is what the optimizer calls it: exp_avg, step,
momentum, …

torch keeps the index of the files as a pickle, which runs whatever its author put into it. Here it is JSON, index.json:
the parts of each tensor, with the file and the bytes in it where each lies.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import WriteResult

from lm.files import atomic_write, is_plain_name, read_json, refuse_inflation

INDEX = "index.json"


class Writer(FileSystemWriter):
    """torch's writer, with its index in JSON."""

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        places = {result.index: result.storage_data for part in results for result in part}
        table: dict[str, Any] = {}
        for name, entry in metadata.state_dict_metadata.items():
            assert isinstance(entry, TensorStorageMetadata)
            parts = []
            for chunk in entry.chunks:
                place = places[MetadataIndex(name, chunk.offsets)]
                bytes_of_file = [place.relative_path, place.offset, place.length]
                parts.append([list(chunk.offsets), list(chunk.sizes), *bytes_of_file])
            dtype = str(entry.properties.dtype).removeprefix("torch.")
            table[name] = {"dtype": dtype, "shape": list(entry.size), "parts": parts}
        atomic_write(Path(self.path) / INDEX, json.dumps(table, indent=1) + "\n")


class Reader(FileSystemReader):
    """torch's reader of what Writer wrote, which believes nothing that the files' sizes contradict."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Read the index. ValueError: it is damaged, names files elsewhere, or promises more than the files hold."""
        folder = Path(self.path)
        table, entries, places = read_json(folder / INDEX), dict[str, Any](), dict[MetadataIndex, _StorageInfo]()
        available = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        try:
            for name, entry in table.items():
                dtype, shape = getattr(torch, entry["dtype"]), torch.Size(entry["shape"])
                if not isinstance(dtype, torch.dtype) or min(shape, default=0) < 0:
                    raise ValueError(f"{name} has the dtype {entry['dtype']!r} and the shape {entry['shape']}")
                available -= math.prod(shape) * dtype.itemsize
                chunks = []
                for offsets, sizes, file, begin, length in entry["parts"]:
                    if not is_plain_name(file):
                        raise ValueError(f"{name} lies in {file!r}, which is not a file of this folder")
                    chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
                    places[MetadataIndex(name, torch.Size(offsets))] = _StorageInfo(file, int(begin), int(length))
                entries[name] = TensorStorageMetadata(TensorProperties(dtype), shape, chunks)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ValueError(f"{folder / INDEX} is damaged: {error}") from None
        if available < 0:
            raise ValueError(f"{folder / INDEX} is damaged: its tensors are larger than the files beside it")
        return Metadata(entries, storage_data=places)

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> IO[bytes]:
        file.seek(sinfo.offset)
        part = io.BytesIO(file.read(sinfo.length))
        refuse_inflation(part, sinfo.relative_path)
        return part


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of a model and its optimizer by name, as they lie: of a sharded one, this process's parts."""
    named = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            named[f"optimizer.{key}.{name}"] = value
    return named


def shapes(path: Path, section: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a section ("model" or "optimizer"), by the rest of their names.

    ValueError: the index is damaged (see Reader).
    """
    return {name: tuple(entry.size) for name, entry in entries(Reader(path), section).items()}


def entries(reader: Reader, section: str) -> dict[str, TensorStorageMetadata]:
    """The index of a section, by the rest of the tensors' names."""
    every = cast("dict[str, TensorStorageMetadata]", reader.read_metadata().state_dict_metadata)
    return {name.removeprefix(f"{section}."): one for name, one in every.items() if name.startswith(f"{section}.")}


def read(path: Path, section: str) -> dict[str, Tensor]:
    """The tensors of a section in full, as shapes(). One process alone calls it."""
    reader = Reader(path)
    parts = entries(reader, section)
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in parts.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        load({f"{section}.{name}": tensor for name, tensor in tensors.items()}, storage_reader=reader, no_dist=True)
    return tensors


def read_into(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Read each process's part of a sharded model and of its optimizer. All processes call it."""
    reader = Reader(path)
    parameters = dict(model.named_parameters())
    for name, entry in entries(reader, "optimizer").items():
        key, _, parameter = name.partition(".")
        like = parameters.get(parameter)
        if like is None or entry.size.numel() > like.numel():
            raise ValueError(f"{path / INDEX} has {name} of shape {tuple(entry.size)}, which is not of this model")
        weight, size = like.detach(), entry.size
        fresh = torch.zeros_like(weight) if size == weight.shape else torch.zeros(size, device=weight.device)
        optimizer.state[like][key] = fresh
    tensors = tensors_of(model, optimizer)
    load(cast("dict[str, Any]", tensors), storage_reader=reader)
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})


def by_weight(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """KEY.WEIGHT → tensor as WEIGHT → KEY → tensor."""
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, _, weight = name.partition(".")
        state.setdefault(weight, {})[key] = tensor
    return state
