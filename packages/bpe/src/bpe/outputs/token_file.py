"""Ids on disk: a .npy that any program can map, written as the ids come, and a JSON beside it that says what they
are."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe import sources
from bpe.native.atomic_file import atomic_file, write_atomically
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import stream
from bpe.progress import Progress

CHUNK = 4 << 20  # bytes of text that a thread encodes at a time
HEADER = 128  # bytes of the .npy before its data: room for any count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Encoded = tuple[NDArray[np.uint32], sources.Stretch]


def write(
    source: sources.Source,
    out: Path,
    *,
    encode: Callable[[Any], NDArray[np.uint32]],
    cut: Callable[[Any, int], int],
    margin: int,
    dtype: np.dtype[Any],
    largest: int,
    tokenizer: str,
    end_of_text: int | None,
    workers: int,
    report: Progress,
) -> int:
    """Encode the texts of a source in threads and write their ids in order; see Tokenizer.encode_file."""
    import hashlib

    if dtype not in (np.dtype(np.uint16), np.dtype(np.uint32)):
        raise ValueError(f"ids are written as uint16 or uint32, not {dtype}")
    if largest > np.iinfo(dtype).max:
        raise ValueError(f"the largest id is {largest}, which {dtype} cannot hold; use uint32")
    if workers < 1:
        raise ValueError(f"workers is {workers}; it takes at least 1")
    if out.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(out))
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is there and is no file, so that ids cannot be written to it: name another")
    description = _description_of(out)
    total = sources.size_of(source)
    count = size = read = 0
    digest = hashlib.sha256()

    def encode_stretch(stretch: sources.Stretch) -> Encoded:
        with memoryview(stretch.text)[stretch.begin : stretch.end] as piece:
            ids = encode(piece)
        sources.release(stretch.text, stretch.begin, stretch.end)
        return ids, stretch

    with atomic_file(out) as file:
        file.write(bytes(HEADER))
        for array, stretch in stream(encode_stretch, sources.stretches(source, cut, margin, CHUNK), workers):
            data = array.astype(dtype.newbyteorder("<"), copy=False)
            digest.update(data.data)
            file.write(data.data)
            count += len(array)
            size += stretch.end - stretch.begin
            read += stretch.read
            report("encoding bytes", read, total)
        _write_header(file, dtype, count)
        about = {
            "count": count,
            "dtype": str(dtype),
            "bytes": size,
            "tokenizer": tokenizer,
            "end_of_text": end_of_text,
            "sha256": digest.hexdigest(),  # of the ids as they lie in the file, its header aside
        }
        text = json.dumps({key: value for key, value in about.items() if value is not None}, indent=1) + "\n"
        try:
            write_atomically(description, text.encode())
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(out)) from None
    return count


def _description_of(out: Path) -> Path:
    """Where the JSON beside X.npy goes. FileExistsError: something else has that name, perhaps the tokenizer itself."""
    path = out.with_suffix(".json")
    if path == out:
        raise ValueError(f"ids are written to X.npy, with X.json beside it, and {out} would be both: name it .npy")
    if path.exists():
        try:
            about = json.loads(path.read_bytes())
        except ValueError:
            about = None
        if not (isinstance(about, dict) and {"count", "dtype", "sha256"} <= about.keys()):
            raise FileExistsError(
                f"{path} is there and is no description of ids, and that of {out.name} would take its place: "
                f"write to another name, or remove it"
            )
    return path


def _write_header(file: BinaryIO, dtype: np.dtype[Any], count: int) -> None:
    """The header of the .npy format, version 1.0, padded to HEADER bytes."""
    about = f"{{'descr': '{dtype.newbyteorder('<').str}', 'fortran_order': False, 'shape': ({count},), }}"
    file.seek(0)
    file.write(b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + about.ljust(HEADER - 11).encode() + b"\n")
