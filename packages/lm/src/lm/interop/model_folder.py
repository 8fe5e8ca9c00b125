"""A model's folder: written whole or not at all, with the names of its files in export.json, by which an export knows
its own folders; read with every file accounted for."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from lm import files
from lm.files import fsync, reason

FORMAT, MARK = "groundup-export", "export.json"
WEIGHTS = "model.safetensors"


@contextlib.contextmanager
def replacing(folder: str | Path) -> Iterator[Path]:
    """A new folder beside `folder` to write into, which takes its place, flushed, when all went well. FileExistsError:
    there is something at `folder` that no export put there. OSError: with the reason in a sentence."""
    folder = Path(folder)
    if folder.exists() and not is_ours(folder):
        raise FileExistsError(f"{folder} is there already, and holds no export of this program: choose another folder")
    mark = secrets.token_hex(4)
    temporary, old = (folder.with_name(f".{folder.name}.{mark}.{kind}") for kind in ("partial", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        table = {"format": FORMAT, "files": sorted(path.name for path in temporary.iterdir())}
        (temporary / MARK).write_text(json.dumps(table, indent=1) + "\n")
        readable = (temporary / MARK).stat().st_mode  # safetensors makes files that only their owner reads
        for path in temporary.iterdir():
            path.chmod(readable)
            fsync(path)
        fsync(temporary)
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(temporary, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
        fsync(folder.parent)
    except (OSError, safetensors.SafetensorError) as error:
        if isinstance(error, FileExistsError | FileNotFoundError):
            raise
        raise OSError(f"{folder} cannot be written: {reason(error, folder.parent)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """True if an export may replace the folder: it is empty, or holds what an export wrote and nothing else."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    names, about = {entry.name for entry in os.scandir(folder)}, files.read_json(folder / MARK, missing_ok=True)
    return not names or (about.get("format") == FORMAT and sorted(names - {MARK}) == about.get("files"))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file of a model's folder. FileNotFoundError, ValueError: naming the file."""
    return files.read_json(of_folder(path))


def of_folder(path: Path) -> Path:
    """A file of a model's folder. ValueError: it is a link that leaves the folder, and not to the Hub's cache."""
    folder, target = path.parent.resolve(), path.resolve()
    blobs = folder.parents[1] / "blobs" if len(folder.parents) > 1 and folder.parent.name == "snapshots" else None
    if not target.is_relative_to(folder) and target.parent != blobs:
        raise ValueError(f"{path} is a link to {target}, outside its folder: put the file itself there")
    return path


def write_weights(folder: Path, tensors: Iterable[tuple[str, Tensor]], shard_bytes: int) -> None:
    """Write tensors as model.safetensors, or as shards of at most shard_bytes (or one tensor) with their index."""
    shards, size, total = list[dict[str, Tensor]]([{}]), 0, 0
    for name, tensor in tensors:
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size, total = size + tensor.nbytes, total + tensor.nbytes
    if len(shards) == 1:
        safetensors.torch.save_file(shards[0], folder / WEIGHTS, metadata={"format": "pt"})
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        safetensors.torch.save_file(shard, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index, indent=1) + "\n")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder: model.safetensors, or its shards by their index. FileNotFoundError: there are no
    weights. ValueError: a file is damaged, or index and files contradict each other."""
    if (folder / WEIGHTS).is_file():
        return read_safetensors(of_folder(folder / WEIGHTS))
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        remedy = "save other formats by transformers' save_pretrained"
        raise FileNotFoundError(f"{folder} holds no weights: there is neither {WEIGHTS} nor an index of it; {remedy}")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(file, str) for file in places.values()):
        raise ValueError(f'{index} has no "weight_map" of tensors and files')
    files = sorted(set(places.values()))
    for file in files:
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise ValueError(f"{index} names the file {file!r}, which is not a file of its own folder")
        if not (folder / file).is_file():
            raise ValueError(f"{folder} is not whole: {file}, which {index.name} names, is missing")
    tensors: dict[str, Tensor] = {}
    for file in files:
        there = read_safetensors(of_folder(folder / file))
        named = {name for name, place in places.items() if place == file}
        for name in sorted(named ^ there.keys()):
            lacks = "lacks" if name in named else "has"
            raise ValueError(f"{folder / file} {lacks} the tensor {name!r}, and {index.name} says otherwise")
        tensors |= there
    return tensors


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file. ValueError: it is damaged."""
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged or no .safetensors file: {error}") from None
