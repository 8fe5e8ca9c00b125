"""Token data: a plain .npy of ids with a JSON beside it, and the batch of each step as a pure function of the step."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DTYPES = ("uint16", "uint32")
BLOCK = 1 << 22  # ids at a time


@dataclass(frozen=True)
class Tokens:
    """One file of tokens: ids, memory-mapped, and what its JSON says about them.

    tokenizer: the fingerprint of the tokenizer that made them; bytes: the size of the text they came from;
    end_of_text: the id that separates documents. Each of the three is None where the JSON does not say.
    """

    path: Path
    ids: NDArray[np.uint16] | NDArray[np.uint32]
    sha256: str
    tokenizer: str | None = None
    bytes: int | None = None
    end_of_text: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text that a token stands for, over the whole file."""
        return None if not self.bytes else self.bytes / len(self.ids)


def write_tokens(
    path: str | Path,
    tokens: NDArray[Any] | Iterable[NDArray[Any]],
    *,
    dtype: str = "uint16",
    tokenizer: str | None = None,
    text_bytes: int | None = None,
    end_of_text: int | None = None,
) -> Tokens:
    """Writes ids, one array or many in turn, to X.npy and what is known of them to X.json; neither appears before it is whole.

    ValueError: an id that the dtype cannot hold, no ids at all, or a path that does not end in .npy.
    """
    path = Path(path)
    if path.suffix != ".npy":
        raise ValueError(f"{path} does not end in .npy, and token data is a .npy file: rename it")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} holds no token ids: use one of {', '.join(DTYPES)}")
    top = int(np.iinfo(dtype).max)
    temporary = path.with_name(path.name + ".partial")
    count = 0
    try:
        with open(temporary, "wb") as file:
            write_header(file, dtype, 0)
            for part in [tokens] if isinstance(tokens, np.ndarray) else tokens:
                array = np.asarray(part)
                if array.size and (array.min() < 0 or array.max() > top):
                    bad = array.min() if array.min() < 0 else array.max()
                    raise ValueError(f"token id {bad} does not fit {dtype}, which holds 0 to {top}: use another dtype")
                file.write(np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<")).data)
                count += array.size
            if not count:
                raise ValueError(f"there are no tokens to write to {path}")
            file.seek(0)
            write_header(file, dtype, count)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return describe(path, tokenizer=tokenizer, text_bytes=text_bytes, end_of_text=end_of_text)


def write_header(file: Any, dtype: str, count: int) -> None:
    """The .npy header of a flat array, padded so that it is as long for any count."""
    text = repr({"descr": np.dtype(dtype).newbyteorder("<").str, "fortran_order": False, "shape": (count,)})
    header = text.ljust(128 - 10 - 1) + "\n"
    file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())


def describe(
    path: str | Path,
    *,
    tokenizer: str | None = None,
    text_bytes: int | None = None,
    end_of_text: int | None = None,
) -> Tokens:
    """Writes the JSON beside a .npy of ids that is there already, and opens both."""
    path = Path(path)
    ids = map_ids(path)
    says: dict[str, object] = {"count": len(ids), "dtype": ids.dtype.name, "sha256": hash_ids(ids)}
    known = {"tokenizer": tokenizer, "bytes": text_bytes, "end_of_text": end_of_text}
    says.update({key: value for key, value in known.items() if value is not None})
    temporary = path.with_suffix(".json.partial")
    temporary.write_text(json.dumps(says, indent=1) + "\n")
    os.replace(temporary, path.with_suffix(".json"))
    return open_tokens(path, verify=False)


def open_tokens(path: str | Path, *, verify: bool = True) -> Tokens:
    """Opens X.npy with X.json beside it; `verify` reads the ids through and compares their hash.

    FileNotFoundError: either is missing. ValueError: they contradict each other, or the file is not flat uint16 or uint32.
    """
    path = Path(path)
    ids = map_ids(path)
    beside = path.with_suffix(".json")
    try:
        says = json.loads(beside.read_text())
        count, dtype, sha256 = says["count"], says["dtype"], says["sha256"]
    except FileNotFoundError:
        raise FileNotFoundError(f"{beside} is missing: lm.data.describe({str(path)!r}) writes it") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{beside} does not say count, dtype and sha256 ({error!r}): write it again") from None
    if (count, dtype) != (len(ids), ids.dtype.name):
        raise ValueError(
            f"{path} holds {len(ids)} ids of {ids.dtype.name}, and {beside.name} says {count} of {dtype}: encode the text again"
        )
    if verify and (found := hash_ids(ids)) != sha256:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is {found[:16]}…, and {beside.name} says {sha256[:16]}…: encode the text again"
        )
    return Tokens(path, ids, sha256, says.get("tokenizer"), says.get("bytes"), says.get("end_of_text"))


def map_ids(path: Path) -> NDArray[Any]:
    """A flat .npy of uint16 or uint32, memory-mapped."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no token file {path}: encode a text into it first")
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file that can be read: {error}") from None
    if ids.ndim != 1 or ids.dtype.name not in DTYPES or not len(ids):
        raise ValueError(
            f"{path} holds {ids.dtype.name} of shape {ids.shape}, and token data is flat, not empty, {' or '.join(DTYPES)}"
        )
    return ids  # type: ignore[no-any-return]


def hash_ids(ids: NDArray[Any]) -> str:
    """SHA-256 of the ids as they lie in the file, its header aside, in hex."""
    digest = hashlib.sha256()
    for start in range(0, len(ids), BLOCK):
        digest.update(np.ascontiguousarray(ids[start : start + BLOCK]).data)
    return digest.hexdigest()


def open_data(data: str | Path | Mapping[str, str | Path]) -> tuple[Tokens, Tokens | None]:
    """The training tokens, and the held-out ones where there are any. ValueError: they come from different tokenizers."""
    if isinstance(data, Mapping):
        paths = {name: Path(path) for name, path in data.items()}
    else:
        paths = {"train": Path(data) / "train.npy"}
        if (Path(data) / "heldout.npy").exists():
            paths["heldout"] = Path(data) / "heldout.npy"
    if "train" not in paths or not paths.keys() <= {"train", "heldout"}:
        raise ValueError(f"data names {', '.join(paths) or 'nothing'}: give 'train', and 'heldout' if there is any")
    tokens = open_tokens(paths["train"])
    heldout = open_tokens(paths["heldout"]) if "heldout" in paths else None
    if heldout is not None and heldout.tokenizer != tokens.tokenizer:
        raise ValueError(f"{tokens.path} and {heldout.path} were made by different tokenizers: encode both with one")
    return tokens, heldout


def check_range(tokens: Tokens, vocab_size: int) -> None:
    """ValueError if an id is not below vocab_size: found here rather than as an index error in the middle of a run."""
    for start in range(0, len(tokens), BLOCK):
        highest = int(tokens.ids[start : start + BLOCK].max())
        if highest >= vocab_size:
            raise ValueError(
                f"{tokens.path} holds token id {highest}, and the model's vocab_size is {vocab_size}: "
                f"raise vocab_size, or encode with the tokenizer that the model was made for"
            )


def batch(
    tokens: NDArray[Any], seed: int, step: int, rank: int, world: int, batch_size: int, context_length: int
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one step on one of `world` processes: two int64 tensors (batch_size, context_length).

    A pure function of its arguments. All ranks together have the rows that one process with batch_size · world would have.

    The tokens are a ring cut into windows of context_length; each epoch cuts it at another place and visits the windows in
    another order, each once. So an epoch has every token as a target once, but for the fewer than context_length
    that fill no window, which are others in the next.
    """
    if len(tokens) <= context_length:
        raise ValueError(
            f"{len(tokens)} tokens are not enough for a window of context_length {context_length} and one more: "
            f"shorten the context, or give more text"
        )
    windows = len(tokens) // context_length
    first = (step * world + rank) * batch_size
    inputs = np.empty((batch_size, context_length + 1), dtype=np.int64)
    for row in range(batch_size):
        epoch, index = divmod(first + row, windows)
        key = mix(mix(seed) ^ epoch)
        start = (shuffled(index, windows, key) * context_length + key) % len(tokens)
        end = start + context_length + 1
        if end <= len(tokens):
            inputs[row] = tokens[start:end]
        else:
            inputs[row, : len(tokens) - start] = tokens[start:]
            inputs[row, len(tokens) - start :] = tokens[: end - len(tokens)]
    both = torch.from_numpy(inputs)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def shuffled(index: int, count: int, key: int) -> int:
    """Where a permutation of range(count), chosen by key, puts index.

    Four rounds of a balanced Feistel network over the next power of four, repeated until the result is in range: no table
    of the permutation is held however many windows there are, and no new version of a random number generator changes it.
    """
    half = max(1, (count - 1).bit_length() + 1 >> 1)
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(4):
            left, right = right, left ^ (mix(key + turn << 32 ^ right) & low)
        index = left << half | right
        if index < count:
            return index


def mix(value: int) -> int:
    """A 64-bit integer whose every bit depends on every bit of the value: the finaliser of SplitMix64. (Steele et al. 2014)"""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return value ^ value >> 31


def windows_of(count: int, context_length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """How to score `count` positions once each: (begin, first, end) of windows [begin, end) of which [first, end) are scored.

    The first window scores all it holds, each later one its last `stride`, so that every position but the earliest has
    at least context_length - stride before it.
    """
    end = min(context_length, count)
    yield 0, 0, end
    while end < count:
        first, end = end, min(end + stride, count)
        yield end - context_length, first, end
