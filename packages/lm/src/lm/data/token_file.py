"""Token files, written: ids to X.npy with their description, masks and fields beside it (see mixture.py)."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data.mixture import Tokens, examine, map_tokens, open_tokens, read_description
from lm.data.problems import Fields, write_fields
from lm.data.token_formats import DTYPES
from lm.files import atomic_file, atomic_write


class TokenWriter:
    """Writes ids as they come to X.npy, and their description to X.json; neither appears before `finish`."""

    def __init__(self, path: str | Path, *, dtype: str = "uint16") -> None:
        self.path = Path(path)
        if self.path.suffix != ".npy":
            raise ValueError(f"{path} does not end in .npy, and token data is a .npy file: rename it")
        if dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r} holds no token ids: use one of {', '.join(DTYPES)}")
        self.dtype, self.top = np.dtype(dtype).newbyteorder("<"), int(np.iinfo(dtype).max)
        description_path(self.path)
        self.count, self.highest, self.digest = 0, 0, hashlib.sha256()
        self.pending = contextlib.ExitStack()
        self.file = self.pending.enter_context(atomic_file(self.path))
        self.write_header()

    def __enter__(self) -> TokenWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.pending.__exit__(InterruptedError, InterruptedError(), None)  # does nothing once it is finished

    def write(self, ids: NDArray[Any]) -> None:
        """Add a flat array of ids. ValueError: one that the dtype cannot hold."""
        if not ids.size:
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high > self.top:
            raise ValueError(f"token id {low if low < 0 else high} does not fit {self.dtype.name}: use another dtype")
        data = np.ascontiguousarray(ids, dtype=self.dtype).data
        self.file.write(data)
        self.digest.update(data)
        self.count += ids.size
        self.highest = max(self.highest, high)

    def write_header(self) -> None:
        """Write the header of .npy, which NumPy pads so that it is as long for any count."""
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self.file, about)

    def finish(self, **description: Any) -> None:
        """Put both files in their place, the JSON first, with more of a DESCRIPTION. ValueError: no ids."""
        if not self.count:
            raise ValueError(f"there are no tokens to write to {self.path}")
        self.file.seek(0)
        self.write_header()
        about = {"count": self.count, "dtype": self.dtype.name, "sha256": self.digest.hexdigest()}
        write_description(self.path, **about, highest=self.highest, **description)
        self.pending.close()


def write_tokens(
    path: str | Path,
    tokens: NDArray[Any] | Iterable[NDArray[Any]],
    *,
    dtype: str = "uint16",
    tokenizer: str | None = None,
    text_bytes: int | None = None,
    end_of_text: int | None = None,
    mask: NDArray[Any] | None = None,
    window: int | None = None,
    pairs: bool = False,
    prompts: bool = False,
    fields: Mapping[str, Fields] | None = None,
) -> Tokens:
    """Write ids, one array or several in turn, to X.npy and their description to X.json; neither appears half-written.

    mask: 1 for ids that are learned, written to X.mask; fields: of problems by key, written to X.fields; the rest: see
    Tokens. ValueError: an id that the dtype cannot hold, no ids at all, or a path that does not end in .npy.
    """
    with TokenWriter(path, dtype=dtype) as writer:
        for part in [tokens] if isinstance(tokens, np.ndarray) else tokens:
            writer.write(np.asarray(part))
        digest = None
        if mask is not None:
            if mask.shape != (writer.count,):
                raise ValueError(f"a mask of shape {mask.shape} does not go with {writer.count} ids: give one for each")
            marks = np.ascontiguousarray(mask != 0, dtype=np.uint8)
            with atomic_file(Path(path).with_suffix(".mask")) as file:
                np.save(file, marks, allow_pickle=False)
            digest = hashlib.sha256(marks.data).hexdigest()
        about: dict[str, Any] = {"tokenizer": tokenizer, "bytes": text_bytes, "end_of_text": end_of_text}
        about |= {"window": window, "pairs": pairs or None, "prompts": prompts or None}
        writer.finish(**about, mask=digest, fields=write_fields(Path(path), fields) if fields else None)
    return open_tokens(path, verify=False)


def describe(
    path: str | Path,
    *,
    dtype: str | None = None,
    tokenizer: str | None = None,
    text_bytes: int | None = None,
    end_of_text: int | None = None,
) -> Tokens:
    """Write the JSON beside a file of ids, and open both. dtype: of bare ids, "uint16" or "uint32"."""
    path = Path(path)
    ids = map_tokens(path, dtype)
    sha256, highest = examine(ids, path)
    about: dict[str, Any] = {"tokenizer": tokenizer, "bytes": text_bytes, "end_of_text": end_of_text}
    write_description(path, count=len(ids), dtype=ids.dtype.name, sha256=sha256, highest=highest, **about)
    return open_tokens(path, verify=False)


def write_description(path: Path, **about: Any) -> None:
    """Write X.json, without the values that are None."""
    table = {key: value for key, value in about.items() if value is not None}
    atomic_write(description_path(path), json.dumps(table, indent=1) + "\n")


def description_path(path: Path) -> Path:
    """Return the path of the JSON beside X.npy. FileExistsError: another file has that name, a tokenizer perhaps."""
    beside = path.with_suffix(".json")
    if beside.exists():
        try:
            read_description(beside)
        except ValueError:
            raise FileExistsError(f"{beside} is there and is no description of ids: write to another name") from None
    return beside
