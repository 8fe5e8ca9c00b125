"""Token data: files of ids, each with a JSON beside it that says what they are; several files are read as one.

This package writes .npy; token_formats.py has what it reads beside them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data.shards import Ids, Shards
from lm.data.token_formats import DTYPES, map_tokens, mark_of_documents
from lm.files import atomic_file, atomic_write

BLOCK = 1 << 22  # ids at a time
SIGNED = {"int32": "uint32"}  # what Megatron-LM's ids are read as
READ_THROUGH = 1 << 28  # bytes of ids up to which opening reads them all: a fraction of a second


@dataclass(frozen=True)
class Tokens:
    """Tokens of one file, or of several as one, with what the JSON beside them says; None where it does not say.

    Attributes:
        path: The file, or the folder of several.
        ids: The ids, memory-mapped.
        sha256: Of the ids.
        tokenizer: The fingerprint of the tokenizer that made them.
        bytes: The size of the text that they stand for, in UTF-8, special tokens written by their names. Bits per byte
            are over it, everywhere.
        end_of_text: The id that separates documents.
        highest: The greatest id; None where neither the JSON says it nor the ids were read.
        mask: 1 for each id that is learned as a target and 0 for the others, uint8; None where all are.
        mask_sha256: Of the mask.
        window: The context_length of the windows that conversations were packed into; None where windows may be cut
            anywhere.
        pairs: Whether they are pairs of a preferred and another conversation (see preferences.py).
        files: Each file with its bytes, as it was when it was opened.
    """

    path: Path
    ids: Ids
    sha256: str
    tokenizer: str | None = None
    bytes: int | None = None
    end_of_text: int | None = None
    highest: int | None = None
    mask: Ids | None = None
    mask_sha256: str | None = None
    window: int | None = None
    pairs: bool = False
    files: tuple[tuple[Path, int], ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def refuse_shortened(self) -> None:
        """ValueError: a file is shorter than when it was opened, so that reading what is gone would end the
        process."""
        for path, size in self.files:
            try:
                now = os.stat(path).st_size
            except FileNotFoundError:
                continue  # a file that was removed stays readable to who has it open
            if now < size:
                raise ValueError(
                    f"{path} has {now:,} bytes, and had {size:,} when it was opened: put it back as it was, and run "
                    f"the same command again"
                )

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text that a token stands for, over the whole of it."""
        return None if not self.bytes else self.bytes / len(self.ids)


class Unfinished(Exception):
    """What is written is not wanted."""


class TokenWriter:
    """Writes ids as they come to X.npy, and what is known of them to X.json; neither appears before `finish`.

    Leaving the `with` without having finished, an error or Ctrl-C, removes what was written so far.
    """

    def __init__(self, path: str | Path, *, dtype: str = "uint16") -> None:
        self.path = Path(path)
        if self.path.suffix != ".npy":
            raise ValueError(f"{path} does not end in .npy, and token data is a .npy file: rename it")
        if dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r} holds no token ids: use one of {', '.join(DTYPES)}")
        self.dtype, self.top = np.dtype(dtype).newbyteorder("<"), int(np.iinfo(dtype).max)
        description_of(self.path)
        self.count, self.highest, self.digest = 0, 0, hashlib.sha256()
        self.pending = contextlib.ExitStack()
        self.file = self.pending.enter_context(atomic_file(self.path))
        self.file.write(header(self.dtype, 0))

    def __enter__(self) -> TokenWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pending.__exit__(Unfinished, Unfinished(), None)  # nothing, once it is finished

    def write(self, ids: NDArray[Any]) -> None:
        """Adds a flat array of ids. ValueError: one that the dtype cannot hold."""
        if not ids.size:
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high > self.top:
            raise ValueError(
                f"token id {low if low < 0 else high} does not fit {self.dtype.name}, which holds 0 to {self.top}: "
                f"use another dtype"
            )
        data = np.ascontiguousarray(ids, dtype=self.dtype).data
        self.file.write(data)
        self.digest.update(data)
        self.count += ids.size
        self.highest = max(self.highest, high)

    def finish(
        self,
        *,
        tokenizer: str | None = None,
        text_bytes: int | None = None,
        end_of_text: int | None = None,
        mask: str | None = None,
        window: int | None = None,
        pairs: bool = False,
    ) -> None:
        """Puts both files in their place, the JSON first. ValueError: there are no ids."""
        if not self.count:
            raise ValueError(f"there are no tokens to write to {self.path}")
        self.file.seek(0)
        self.file.write(header(self.dtype, self.count))
        describe_as(
            self.path,
            self.count,
            self.dtype.name,
            self.digest.hexdigest(),
            self.highest,
            tokenizer,
            text_bytes,
            end_of_text,
            mask,
            window,
            pairs,
        )
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
) -> Tokens:
    """Writes ids, one array or many in turn, to X.npy and what is known of them to X.json; neither appears before it is
    whole.

    mask: which of them are learned, to X.mask; window and pairs: of packed conversations (see Tokens).
    ValueError: an id that the dtype cannot hold, no ids at all, or a path that does not end in .npy.
    """
    with TokenWriter(path, dtype=dtype) as writer:
        for part in [tokens] if isinstance(tokens, np.ndarray) else tokens:
            writer.write(np.asarray(part))
        digest = None if mask is None else write_mask(path, mask, writer.count)
        writer.finish(
            tokenizer=tokenizer,
            text_bytes=text_bytes,
            end_of_text=end_of_text,
            mask=digest,
            window=window,
            pairs=pairs,
        )
    return open_tokens(path, verify=False)


def write_mask(path: str | Path, mask: NDArray[Any], count: int) -> str:
    """Writes a mask of so many ids to X.mask, which is a .npy by another name; its SHA-256."""
    if mask.shape != (count,):
        raise ValueError(f"a mask of shape {mask.shape} does not go with {count} ids: give one for each")
    target = Path(path).with_suffix(".mask")
    marks = np.ascontiguousarray(mask != 0, dtype=np.uint8)
    with atomic_file(target) as file:
        np.save(file, marks, allow_pickle=False)
    return hashlib.sha256(marks.data).hexdigest()


def open_mask(path: Path, count: int, sha256: str, verify: bool | None) -> NDArray[Any]:
    """The mask beside a file of so many ids. FileNotFoundError, ValueError: it is not there, or not as written."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, which says what of the tokens is learned: prepare them again")
    try:
        mask = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no mask that can be read: {error}") from None
    if mask.dtype != np.uint8 or mask.shape != (count,):
        raise ValueError(
            f"{path} holds {mask.dtype} of shape {mask.shape}, and there are {count} ids: prepare them again"
        )
    if verify or (verify is None and count <= READ_THROUGH):
        found = hashlib.sha256(np.ascontiguousarray(mask).data).hexdigest()
        if found != sha256:
            raise ValueError(
                f"{path} is damaged: its SHA-256 is {found[:16]}…, and the JSON beside it says {sha256[:16]}…: "
                f"prepare the tokens again"
            )
    return np.asarray(mask)


def header(dtype: np.dtype[Any], count: int) -> bytes:
    """The .npy header of a flat array, padded so that it is as long for any count."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": (count,)}).ljust(128 - 10 - 1) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def describe(
    path: str | Path,
    *,
    dtype: str | None = None,
    tokenizer: str | None = None,
    text_bytes: int | None = None,
    end_of_text: int | None = None,
) -> Tokens:
    """Writes the JSON beside a file of ids that is there already, and opens both.

    dtype: of bare ids, which say nothing of themselves: "uint16" or "uint32".
    """
    path = Path(path)
    ids = map_tokens(path, dtype).ids
    describe_as(path, len(ids), ids.dtype.name, *examine(ids), tokenizer, text_bytes, end_of_text)
    return open_tokens(path, verify=False)


def describe_as(
    path: Path,
    count: int,
    dtype: str,
    sha256: str,
    highest: int,
    tokenizer: str | None,
    text_bytes: int | None,
    end_of_text: int | None,
    mask: str | None = None,
    window: int | None = None,
    pairs: bool = False,
) -> None:
    says: dict[str, object] = {"count": count, "dtype": dtype, "sha256": sha256, "highest": highest}
    known = {"tokenizer": tokenizer, "bytes": text_bytes, "end_of_text": end_of_text, "mask": mask, "window": window}
    known |= {"pairs": pairs or None}
    says.update({key: value for key, value in known.items() if value is not None})
    atomic_write(description_of(path), json.dumps(says, indent=1) + "\n")


def description_of(path: Path) -> Path:
    """Where the JSON beside X.npy goes. FileExistsError: something else has that name, a tokenizer perhaps."""
    beside = path.with_suffix(".json")
    if beside.exists():
        try:
            read_description(beside)
        except ValueError:
            raise FileExistsError(
                f"{beside} is there and is no description of ids, and that of {path.name} would take its place: "
                f"write to another name, or remove it"
            ) from None
    return beside


def open_tokens(path: str | Path | Sequence[str | Path], *, verify: bool | None = None) -> Tokens:
    """Opens X.npy, or a file of another of the formats that token_formats.py reads, with what X.json beside it says; or
    several such files, in their order, as one.

    verify: whether to read the ids through and compare their hash; if not given, where there are no more than
        READ_THROUGH
    bytes of them. Where there is no JSON, the ids are hashed and nothing else is known of them.

    FileNotFoundError: a file is missing. ValueError: file and JSON contradict each other, a file is not flat uint16 or
    uint32, or files come from different tokenizers.
    """
    if isinstance(path, (str, Path)):
        return open_one(Path(path), verify)
    paths = [Path(one) for one in path]
    if not paths:
        raise ValueError("no token files are given: name at least one")
    if verify is None:
        verify = sum(one.stat().st_size for one in paths if one.exists()) <= READ_THROUGH
    opened = [open_one(one, verify) for one in paths]
    if len(opened) == 1:
        return opened[0]
    first = opened[0]
    for other in opened[1:]:
        if (other.tokenizer, other.end_of_text) != (first.tokenizer, first.end_of_text):
            raise ValueError(f"{first.path} and {other.path} were made by different tokenizers: encode both with one")
    return Tokens(
        paths[0].parent,
        Shards([np.asarray(one.ids) for one in opened]),
        hashlib.sha256("".join(one.sha256 for one in opened).encode()).hexdigest(),
        first.tokenizer,
        total([one.bytes for one in opened]),
        first.end_of_text,
        greatest([one.highest for one in opened]),
        **masks_of(opened),
        window=window_of(opened),
        pairs=all(one.pairs for one in opened),
        files=tuple(file for one in opened for file in one.files),
    )


def window_of(opened: Sequence[Tokens]) -> int | None:
    """The window that the conversations of all files were packed into. ValueError: they were packed differently."""
    known = {one.window for one in opened}
    if len(known) > 1:
        said = ", ".join(sorted("none" if window is None else str(window) for window in known))
        raise ValueError(
            f"{opened[0].path.parent} holds files packed into different windows ({said}): "
            "prepare all with one --context"
        )
    return known.pop()


def masks_of(opened: Sequence[Tokens]) -> dict[str, Any]:
    """The masks of several files as one; of a file that has none, everything is learned."""
    if all(one.mask is None for one in opened):
        return {}
    everything = np.ones((), dtype=np.uint8)
    masks = [np.broadcast_to(everything, len(one)) if one.mask is None else np.asarray(one.mask) for one in opened]
    digests = "".join(one.mask_sha256 or "-" for one in opened)
    return {"mask": Shards(masks), "mask_sha256": hashlib.sha256(digests.encode()).hexdigest()}


def open_one(path: Path, verify: bool | None) -> Tokens:
    beside = path.with_suffix(".json")
    says = read_description(beside) if beside.exists() else None
    mapped = map_tokens(path, None if says is None else says["dtype"])
    ids = mapped.ids
    if says is None:
        found, top = examine(ids)
        return Tokens(path, ids, found, end_of_text=mark_of_documents(mapped, None), highest=top, files=sizes(path))
    if (says["count"], SIGNED.get(says["dtype"], says["dtype"])) != (len(ids), ids.dtype.name):
        raise ValueError(
            f"{path} holds {len(ids)} ids of {ids.dtype.name}, and {beside.name} says {says['count']} of "
            f"{says['dtype']}: encode the text again"
        )
    sha256, highest = says["sha256"], says.get("highest")
    if verify or (verify is None and ids.nbytes <= READ_THROUGH):
        found, highest = examine(ids)
        if found != sha256:
            raise ValueError(
                f"{path} is damaged: its SHA-256 is {found[:16]}…, and {beside.name} says {sha256[:16]}…: "
                f"encode the text again"
            )
        if says.get("highest") not in (None, highest):
            raise ValueError(
                f"{beside} is damaged: it says that the highest id is {says['highest']}, "
                f"and {path.name} holds {highest}"
            )
    mask, digest = None, says.get("mask")
    if digest is not None:
        mask = open_mask(path.with_suffix(".mask"), len(ids), digest, verify)
    packed = says.get("window")
    if packed is not None and (packed < 1 or len(ids) % packed):
        raise ValueError(f"{beside} is damaged: {len(ids)} ids are no whole windows of {packed}")
    return Tokens(
        path,
        ids,
        sha256,
        says.get("tokenizer"),
        says.get("bytes"),
        mark_of_documents(mapped, says.get("end_of_text")),
        highest,
        mask,
        digest,
        packed,
        says.get("pairs", False),
        sizes(path, *([] if mask is None else [path.with_suffix(".mask")])),
    )


def sizes(*paths: Path) -> tuple[tuple[Path, int], ...]:
    """Each file with its bytes."""
    return tuple((path, path.stat().st_size) for path in paths)


def read_description(path: Path) -> dict[str, Any]:
    """The JSON beside a .npy of ids. ValueError: it does not say what it must, or says it in another type."""
    kinds = {
        "count": int,
        "dtype": str,
        "sha256": str,
        "highest": int,
        "tokenizer": str,
        "bytes": int,
        "end_of_text": int,
        "mask": str,
        "window": int,
        "pairs": bool,
    }
    try:
        says = json.loads(path.read_text())
        for key in ("count", "dtype", "sha256"):
            says[key]
        for key, kind in kinds.items():
            if key in says and type(says[key]) is not kind:
                raise TypeError(f"{key} is {says[key]!r}")
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not say count, dtype and sha256 ({error!r}): write it again") from None
    return says  # type: ignore[no-any-return]


def examine(ids: NDArray[Any]) -> tuple[str, int]:
    """SHA-256 of the ids as they lie in the file, its header aside, in hex; and the highest of them."""
    digest, highest = hashlib.sha256(), 0
    for start in range(0, len(ids), BLOCK):
        block = np.ascontiguousarray(ids[start : start + BLOCK])
        digest.update(block.data)
        highest = max(highest, int(block.max()))
    return digest.hexdigest(), highest


def check_range(tokens: Tokens, vocab_size: int) -> None:
    """ValueError if an id is not below vocab_size: found here rather than as an index error in the middle of a run."""
    highest = tokens.highest
    if highest is None:
        highest = max(int(tokens.ids[start : start + BLOCK].max()) for start in range(0, len(tokens), BLOCK))
    if highest >= vocab_size:
        raise ValueError(
            f"{tokens.path} holds token id {highest}, and the model's vocab_size is {vocab_size}: "
            f"raise vocab_size, or encode with the tokenizer that the model was made for"
        )


def total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def greatest(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
