"""Token data: .npy files of ids, each with a JSON description beside it; several files are read as one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data.problems import Fields, write_fields
from lm.data.shards import Ids, Shards
from lm.data.token_formats import DTYPES, ENDINGS, map_bin
from lm.files import atomic_file, atomic_write

BLOCK = 1 << 22  # ids at a time
READ_THROUGH = 1 << 28  # bytes of ids up to which opening reads them all: a fraction of a second
PREPARED = "prepared.json"  # of prepare: what the folder is made of, and whether it is finished
HELD_OUT = re.compile(r"(heldout|held-out|held_out|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
TRAINING = re.compile(r"train(?![a-z])", re.IGNORECASE)
NEITHER = re.compile(r"test(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tokens of one file, or of several as one, with their description; None for what it does not say."""

    path: Path  # the file, or the folder of several
    ids: Ids  # memory-mapped
    sha256: str  # of the ids
    tokenizer: str | None = None  # fingerprint of the tokenizer that made them
    # Size of the text that they stand for, in UTF-8, without the names of end-of-text tokens: see Score.bits_per_byte.
    bytes: int | None = None
    end_of_text: int | None = None  # the id that separates documents
    highest: int | None = None  # the greatest id
    mask: Ids | None = None  # uint8, 1 for each id that is learned as a target; None: all are
    mask_sha256: str | None = None
    window: int | None = None  # context_length of packed conversations; None: windows may be cut anywhere
    pairs: bool = False  # True for pairs of a preferred and another conversation (see conversations.py)
    prompts: bool = False  # True for prompts without an answer: only the end of a turn is marked
    fields: tuple[tuple[Path, str], ...] = ()  # files with fields of their problems, with the SHA-256 of those fields
    files: tuple[tuple[Path, int], ...] = ()  # each file with its size when it was opened

    def __len__(self) -> int:
        return len(self.ids)

    def refuse_shortened(self) -> None:
        """ValueError: a file is shorter than when it was opened: reading the lost part would end the process."""
        for path, size in self.files:
            try:
                now = os.stat(path).st_size
            except FileNotFoundError:
                continue  # a file that was removed stays readable to who has it open
            if now < size:
                raise ValueError(f"{path} has {now:,} bytes, and had {size:,} when it was opened: put it back")

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text that a token stands for, over the whole of it."""
        return None if not self.bytes else self.bytes / len(self.ids)


@dataclass(frozen=True, kw_only=True)
class Description:
    """The content of the JSON beside a file of ids; see Tokens."""

    count: int
    dtype: str
    sha256: str
    highest: int | None = None
    tokenizer: str | None = None
    bytes: int | None = None
    end_of_text: int | None = None
    mask: str | None = None  # SHA-256 of X.mask
    window: int | None = None
    pairs: bool | None = None
    prompts: bool | None = None
    fields: str | None = None  # SHA-256 of X.fields

    @classmethod
    def read(cls, path: Path) -> Description:
        """Read X.json. ValueError: it lacks a value that it must have, or has one of another type."""
        try:
            table = json.loads(path.read_text())
            values = {key: table[key] for key in ("count", "dtype", "sha256")}
            values |= {field.name: table[field.name] for field in fields(cls) if field.name in table}
            for field in fields(cls):
                kind = {"str": str, "int": int, "bool": bool}[str(field.type).partition(" ")[0]]
                if field.name in values and type(values[field.name]) is not kind:
                    raise TypeError(f"{field.name} is {values[field.name]!r}")
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path} does not say count, dtype and sha256 ({error!r}): write it again") from None
        return cls(**values)

    def write(self, path: Path) -> None:
        """Write the JSON beside a file of ids."""
        table = {key: value for key, value in vars(self).items() if value is not None}
        atomic_write(description_path(path), json.dumps(table, indent=1) + "\n")


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
        self.file.write(header(self.dtype, 0))

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

    def finish(self, **description: Any) -> None:
        """Put both files in their place, the JSON first, with more fields of a Description. ValueError: no ids."""
        if not self.count:
            raise ValueError(f"there are no tokens to write to {self.path}")
        self.file.seek(0)
        self.file.write(header(self.dtype, self.count))
        about: dict[str, Any] = {"count": self.count, "dtype": self.dtype.name, "sha256": self.digest.hexdigest()}
        Description(**about, highest=self.highest, **description).write(self.path)
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


def open_mask(path: Path, count: int, sha256: str, verify: bool | None) -> NDArray[Any]:
    """Open the mask beside a file of `count` ids. FileNotFoundError, ValueError: it is missing, or not as written."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, which says which tokens are learned: prepare them again")
    try:
        mask = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a mask that can be read: {error}") from None
    if mask.dtype != np.uint8 or mask.shape != (count,):
        raise ValueError(f"{path} holds {mask.dtype} {mask.shape}, and there are {count} ids: prepare them again")
    if verify or (verify is None and count <= READ_THROUGH):
        refuse_damaged(path, hashlib.sha256(np.ascontiguousarray(mask).data).hexdigest(), sha256)
    return np.asarray(mask)


def refuse_damaged(path: Path, digest: str, described: str) -> None:
    """ValueError: a file has another SHA-256 than its description."""
    if digest != described:
        hashes = f"its SHA-256 is {digest[:16]}…, and the JSON beside it says {described[:16]}…"
        raise ValueError(f"{path} is damaged: {hashes}: encode the text again")


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
    """Write the JSON beside a file of ids, and open both. dtype: of bare ids, "uint16" or "uint32"."""
    path = Path(path)
    ids = map_tokens(path, dtype)
    sha256, highest = examine(ids, path)
    about: dict[str, Any] = {"tokenizer": tokenizer, "bytes": text_bytes, "end_of_text": end_of_text}
    Description(count=len(ids), dtype=ids.dtype.name, sha256=sha256, highest=highest, **about).write(path)
    return open_tokens(path, verify=False)


def description_path(path: Path) -> Path:
    """Return the path of the JSON beside X.npy. FileExistsError: another file has that name, a tokenizer perhaps."""
    beside = path.with_suffix(".json")
    if beside.exists():
        try:
            Description.read(beside)
        except ValueError:
            raise FileExistsError(f"{beside} is there and is no description of ids: write to another name") from None
    return beside


def open_tokens(path: str | Path | Sequence[str | Path], *, verify: bool | None = None) -> Tokens:
    """Open X.npy, or X.bin as token_formats.py reads it, with the description in X.json; or several files as one.

    verify: read the ids through and compare their hash; None: if there are at most READ_THROUGH bytes of them. Without
    a JSON, the ids are hashed and nothing else is known of them.

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
    if len(windows := {one.window for one in opened}) > 1:
        names = ", ".join(sorted("none" if window is None else str(window) for window in windows))
        raise ValueError(f"{first.path.parent}: packed into different windows ({names}): prepare all with one")
    return Tokens(
        path=paths[0].parent,
        ids=Shards([np.asarray(one.ids) for one in opened]),
        sha256=hashlib.sha256("".join(one.sha256 for one in opened).encode()).hexdigest(),
        tokenizer=first.tokenizer,
        bytes=None if None in (sizes := [one.bytes for one in opened]) else sum(map(int, filter(None, sizes))),
        end_of_text=first.end_of_text,
        highest=max(map(highest_of, opened)),
        **masks_of(opened),
        window=windows.pop(),
        pairs=all(one.pairs for one in opened),
        prompts=any(one.prompts for one in opened),
        fields=tuple(file for one in opened for file in one.fields),
        files=tuple(file for one in opened for file in one.files),
    )


def masks_of(opened: Sequence[Tokens]) -> dict[str, Any]:
    """The masks of several files as one; of a file that has none, everything is learned."""
    if all(one.mask is None for one in opened):
        return {}
    everything = np.ones((), dtype=np.uint8)
    masks = [np.broadcast_to(everything, len(one)) if one.mask is None else np.asarray(one.mask) for one in opened]
    digests = "".join(one.mask_sha256 or "-" for one in opened)
    return {"mask": Shards(masks), "mask_sha256": hashlib.sha256(digests.encode()).hexdigest()}


def open_one(path: Path, verify: bool | None) -> Tokens:
    """Open a file of ids with its description, or with one made by reading it through."""
    beside, mask_path = path.with_suffix(".json"), path.with_suffix(".mask")
    about = Description.read(beside) if beside.exists() else None
    ids = map_tokens(path, None if about is None else about.dtype)
    is_read = about is None or verify or (verify is None and ids.nbytes <= READ_THROUGH)
    digest, highest = examine(ids, path) if is_read else (None, None)
    if about is None:
        about = Description(count=len(ids), dtype=ids.dtype.name, sha256=str(digest), highest=highest)
    if (about.count, about.dtype) != (len(ids), ids.dtype.name):
        sizes = f"{len(ids)} ids of {ids.dtype.name}, and {beside.name} says {about.count} of {about.dtype}"
        raise ValueError(f"{path} holds {sizes}: encode the text again")
    if digest is not None:
        refuse_damaged(path, digest, about.sha256)
        if about.highest not in (None, highest):
            raise ValueError(f"{beside} is damaged: its highest id is {about.highest}, and {path.name} holds {highest}")
    if about.window is not None and (about.window < 1 or len(ids) % about.window):
        raise ValueError(f"{beside} is damaged: {len(ids)} ids are not a whole number of windows of {about.window}")
    mask = None if about.mask is None else open_mask(mask_path, len(ids), about.mask, verify)
    return Tokens(
        path=path,
        ids=ids,
        sha256=about.sha256,
        tokenizer=about.tokenizer,
        bytes=about.bytes,
        end_of_text=about.end_of_text,
        highest=about.highest if highest is None else highest,
        mask=mask,
        mask_sha256=about.mask,
        window=about.window,
        pairs=bool(about.pairs),
        prompts=bool(about.prompts),
        fields=() if about.fields is None else ((path, about.fields),),
        files=tuple((one, one.stat().st_size) for one in (path, *([] if mask is None else [mask_path]))),
    )


def map_tokens(path: Path, dtype: str | None) -> NDArray[Any]:
    """Memory-map the ids of a token file. dtype: of bare ids, uint16 (nanoGPT's) if not given."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no token file {path}: encode a text into it first")
    if path.suffix not in ENDINGS:
        remedy = "`bpe encode` makes one of text, convert_tokens.py of other programs' ids"
        raise ValueError(f"{path} is not a token file: expected {' or '.join(ENDINGS)} ({remedy})")
    if path.suffix != ".npy":
        ids = map_bin(path, dtype)
    else:
        try:
            ids = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a .npy file that can be read: {error}") from None
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(f"{path}: expected flat ids, whole numbers, got {ids.dtype} {ids.shape}")
    if not len(ids):
        raise ValueError(f"{path} holds no tokens: encode a text that is not empty into it")
    return np.asarray(ids)  # the same memory without np.memmap's class, whose slices cost more


def examine(ids: NDArray[Any], path: Path) -> tuple[str, int]:
    """SHA-256 of the ids as they lie in the file, its header aside, in hex; and the highest of them."""
    digest, highest = hashlib.sha256(), 0
    for start in range(0, len(ids), BLOCK):
        block = np.ascontiguousarray(ids[start : start + BLOCK])
        digest.update(block.data)
        highest = max(highest, int(block.max()))
        if block.dtype.kind == "i" and (lowest := int(block.min())) < 0:
            raise ValueError(f"{path}: expected ids of at least 0, got {lowest} among the first {start + len(block):,}")
    return digest.hexdigest(), highest


def check_range(tokens: Tokens, vocab_size: int) -> None:
    """ValueError if an id is not below vocab_size: found here rather than as an index error in the middle of a run."""
    if (highest := highest_of(tokens)) >= vocab_size:
        raise ValueError(f"{tokens.path} holds token id {highest}, and vocab_size is {vocab_size}: raise it")


def highest_of(tokens: Tokens) -> int:
    """Return the greatest id: of the description, else by reading the ids."""
    if tokens.highest is not None:
        return tokens.highest
    return max(int(tokens.ids[start : start + BLOCK].max()) for start in range(0, len(tokens), BLOCK))


def token_files(folder: str | Path, *, unfinished: bool = False) -> tuple[list[Path], list[Path]]:
    """Return the token files of a folder that are for training, and those held out, each in the order of their names.

    They are the .npy files; where there are none, the .bin files. Names that begin with heldout, val, valid, validation
    or dev are held out, those that begin with test are left alone. The others are for training; where some of them
    begin with train, only those. unfinished: also of a folder that prepare has not finished, else a ValueError.
    """
    folder = Path(folder)
    if not folder.is_dir():
        if folder.exists():
            raise NotADirectoryError(f"expected a folder of token files, got the file {folder}: see `lm data prepare`")
        raise FileNotFoundError(f"there is no folder {folder}: make it with `lm data prepare` or `lm data get`")
    if not unfinished and not finished(folder):
        raise ValueError(f"{folder} is not finished: the `lm data` command that began it goes on with it")
    there = list(folder.iterdir())
    ending = next((ending for ending in ENDINGS if any(path.suffix == ending for path in there)), None)
    names = sorted((path for path in there if path.suffix == ending), key=by_number)
    heldout = [path for path in names if HELD_OUT.match(path.name)]
    others = [path for path in names if path not in heldout and not NEITHER.match(path.name)]
    named = [path for path in others if TRAINING.match(path.name)]
    if not others:
        message = f"there is no token file to train on in {folder}, such as train.npy or train-00000.npy"
        raise FileNotFoundError(f"{message}: `lm data prepare` writes them")
    return named or others, heldout


def finished(folder: Path) -> bool:
    """True if a folder is complete: prepare() finished it, or did not write it."""
    try:
        return bool(json.loads((folder / PREPARED).read_text())["finished"])
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return False


def by_number(path: Path) -> list[tuple[int, str]]:
    """A key by which part-2 comes before part-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.stem)]
