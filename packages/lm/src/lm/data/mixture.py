"""The data of a run: token files, opened and checked, and several sets of them in proportion to their weights.

X.npy       token ids; or X.bin, as token_formats.py reads it
X.json      their description (see DESCRIPTION)
X.mask      which of them are learned
X.fields    the other fields of problems (see problems.py)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lm.data.batches import Ids, Shards, inputs_and_targets, not_enough, write_window
from lm.data.token_formats import ENDINGS, map_bin, open_mask
from lm.documents import IGNORE

BLOCK = 1 << 22  # ids at a time
READ_THROUGH = 1 << 28  # bytes of ids up to which opening reads them all: a fraction of a second
PREPARED = "prepared.json"  # of prepare: what the folder is made of, and whether it is finished
HELD_OUT = re.compile(r"(heldout|held-out|held_out|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
TRAINING = re.compile(r"train(?![a-z])", re.IGNORECASE)
NEITHER = re.compile(r"test(?![a-z])", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

# The content of X.json; the first three must be there. mask and fields: SHA-256 of X.mask and of X.fields.
DESCRIPTION = {
    **{"count": int, "dtype": str, "sha256": str, "highest": int, "tokenizer": str, "bytes": int, "end_of_text": int},
    **{"mask": str, "window": int, "pairs": bool, "prompts": bool, "fields": str},
}


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

    def __getitem__(self, index: int | slice) -> Any:
        return self.ids[index]

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


@dataclass(frozen=True)
class DataSet:
    """One set of a mixture: its tokens, the held-out ones, and its weight among the others."""

    name: str
    weight: Fraction
    tokens: Tokens
    heldout: Tokens | None = None


class Mixture:
    """Sets of tokens from which each row of a batch is taken in turn, in proportion to their weights.

    Rows are assigned to sets by rounding, not by sampling: after any number of rows each set has had its share of them
    to within half as many rows as there are sets. The set of row n depends on n alone, so that training continues from
    any step without a state. Each set goes through its own epochs, in an order given by its name and the seed.

    Attributes:
        heldout: The held-out tokens, by the name of their set.
        every: The tokens of all sets, and the held-out ones.
        tokenizer: The fingerprint of the tokenizer that made all of it, where that is known.
        end_of_text: The id that separates documents, where that is known.
        masked: True if there are tokens that are not learned.
        pairs: True if all sets are pairs of a preferred and another conversation.
        bytes_per_token: Bytes of text that a token stands for, over the rows of a long run, where that is known.
        fingerprints: Hashes of the files, so that they may move; weights; and the id that ends a document.
    """

    def __init__(self, parts: Sequence[DataSet]) -> None:
        if not parts:
            raise ValueError("there is nothing to learn from: name at least one set of tokens")
        self.parts = list(parts)
        self.heldout = {part.name: part.heldout for part in self.parts if part.heldout is not None}
        self.every = [*(part.tokens for part in self.parts), *self.heldout.values()]
        first = self.parts[0].tokens
        self.tokenizer, self.end_of_text = first.tokenizer, first.end_of_text
        for part in self.parts:
            same = (part.tokens.tokenizer, part.tokens.end_of_text) == (first.tokenizer, first.end_of_text)
            heldout = first if part.heldout is None else part.heldout
            if not same or heldout.tokenizer != first.tokenizer:
                path = heldout.path if same else part.tokens.path
                raise ValueError(f"{first.path} and {path} were made by different tokenizers: encode all with one")
        self.masked = any(part.tokens.mask is not None for part in self.parts)
        self.pairs = all(tokens.pairs for tokens in self.every)
        weights = [part.weight for part in self.parts]
        self.shares = [weight / sum(weights) for weight in weights]  # of a row
        self.takes = [weight / sum(weights[i:]) for i, weight in enumerate(weights)]  # of what those before leave over
        sizes = [part.tokens.bytes_per_token or 0.0 for part in self.parts]
        mean = sum(float(share) * size for share, size in zip(self.shares, sizes, strict=True))
        self.bytes_per_token = mean if all(sizes) else None
        self.fingerprints: dict[str, Any] = {}
        for part in self.parts:
            about: dict[str, Any] = {}
            for split, tokens in (("train", part.tokens), ("heldout", part.heldout)):
                if tokens is not None:
                    about[f"{split}_sha256"] = tokens.sha256
                    about |= {} if tokens.mask_sha256 is None else {f"{split}_mask_sha256": tokens.mask_sha256}
            if part.tokens.fields:
                about["train_fields_sha256"] = "".join(sha256 for _, sha256 in part.tokens.fields)
            if part.name:
                about["weight"] = float(part.weight)
            self.fingerprints |= {part.name: about} if part.name else about
        ids = {"tokenizer": self.tokenizer, "end_of_text": self.end_of_text}
        self.fingerprints |= {name: value for name, value in ids.items() if value is not None}

    @property
    def highest(self) -> int:
        """The greatest id, of the held-out tokens too."""
        return max(map(highest_of, self.every))

    def refuse_shortened(self) -> None:
        """ValueError: a file is shorter than when it was opened."""
        for tokens in self.every:
            tokens.refuse_shortened()

    def share(self, name: str) -> float:
        """Return the share of the rows that a set has."""
        return next(float(share) for part, share in zip(self.parts, self.shares, strict=True) if part.name == name)

    def check(self, vocab_size: int, context_length: int) -> None:
        """ValueError: an id is not below vocab_size, or a set is too short for one window."""
        for tokens in self.every:
            check_range(tokens, vocab_size)
        for part in self.parts:
            packed = part.tokens.window
            if packed not in (None, context_length):
                windows = f"windows of {packed} tokens, and context_length is {context_length}"
                raise ValueError(f"{part.tokens.path} is packed into {windows}: prepare it with --context")
            if packed is None and len(part.tokens) <= context_length:
                raise ValueError(not_enough(len(part.tokens), context_length))

    def pick(self, row: int) -> tuple[int, int]:
        """Return the set of a row of the run, and the number of the row in that set; all are counted from 0."""
        for index, take in enumerate(self.takes):
            before, after = rounded(row * take), rounded((row + 1) * take)
            if after > before:
                return index, before
            row -= before
        raise IndexError(f"row {row} is of no set")  # the last set takes all that is left

    def batch(
        self, seed: int, index: int, rank: int, world: int, batch_size: int, context_length: int, rows_before: int = 0
    ) -> tuple[Tensor, Tensor]:
        """One batch of a run: that of lm.data.batch if there is one set. Targets that are not learned are IGNORE.

        index: the step, or the micro-batch, counted from 0. rows_before: those that count as read before index 0.
        """
        rows = np.empty((batch_size, context_length + 1), dtype=np.int64)
        learned = np.ones_like(rows) if self.masked else None
        first = rows_before + (index * world + rank) * batch_size
        for row in range(batch_size):
            which, place = self.pick(first + row)
            part = self.parts[which]
            packed, own = part.tokens.window is not None, seed  # each named set has an order of its own
            if part.name:
                own ^= int.from_bytes(hashlib.sha256(part.name.encode()).digest()[:8])
            write_window(part.tokens.ids, own, place, rows[row], packed=packed)
            if learned is not None and part.tokens.mask is not None:
                write_window(part.tokens.mask, own, place, learned[row], packed=packed)
        inputs, targets = inputs_and_targets(rows)
        if learned is not None:
            targets = targets.masked_fill(torch.from_numpy(learned[:, 1:] == 0), IGNORE)  # of one row they share memory
        return inputs, targets

    def epochs(self, tokens: int) -> dict[str, float]:
        """Return the number of times that a run of this many tokens goes through each set."""
        return {
            part.name: float(tokens * share) / len(part.tokens)
            for part, share in zip(self.parts, self.shares, strict=True)
        }

    def steps(self, epochs: float, batch_size: int, context_length: int) -> int:
        """Return the number of steps that go through the windows of all sets this often."""
        windows = sum(len(part.tokens) // context_length for part in self.parts)
        return max(1, math.ceil(epochs * windows / batch_size))


def open_data(data: str | Path | NDArray[Any] | Mapping[str, Any]) -> Mixture:
    """Open a folder of token files, one file, {"train": path, "heldout": path}, or {name: {"path": path, "weight": w}}.

    In place of a file there may be a flat array of ids; a weight that is not given is 1. ValueError, TypeError,
    FileNotFoundError: with the name. See token_files for the names of held-out files.
    """
    if isinstance(data, np.ndarray):
        data = {"train": data}
    if not isinstance(data, Mapping):
        return Mixture([DataSet("", Fraction(1), *open_set(Path(data)))])
    if not any(isinstance(value, Mapping) for value in data.values()):
        if "train" not in data or not data.keys() <= {"train", "heldout"}:
            raise ValueError(f"data names {', '.join(data) or 'nothing'}: give 'train', and 'heldout' if there is any")
        files = {name: opened(value) for name, value in data.items() if value is not None}
        return Mixture([DataSet("", Fraction(1), files["train"], files.get("heldout"))])
    for name, table in data.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"a set is named {name!r}: letters, digits, - and _ make a name")
        if not isinstance(table, Mapping) or "path" not in table or not table.keys() <= {"path", "weight"}:
            raise ValueError(f"the set {name!r} is given as {table!r}: give it a path, and a weight unless that is 1")
    weights = {name: weight_of(name, table.get("weight", 1)) for name, table in data.items()}
    return Mixture([DataSet(name, weight, *open_set(Path(data[name]["path"]))) for name, weight in weights.items()])


def opened(data: str | Path | NDArray[Any]) -> Tokens:
    """The tokens of a file, or of an array in memory. TypeError, ValueError: it is not a flat array of ids."""
    if not isinstance(data, np.ndarray):
        return open_tokens(data)
    if not np.issubdtype(data.dtype, np.integer) or data.ndim != 1:
        raise TypeError(f"expected a flat array of token ids, got {data.dtype} of shape {data.shape}")
    if not len(data) or data.min() < 0:
        raise ValueError(f"expected ids from 0 on, got {int(data.min()) if len(data) else 'none'}")
    digest = hashlib.sha256(np.ascontiguousarray(data).data).hexdigest()
    return Tokens(path=Path("array"), ids=data, sha256=digest, highest=int(data.max()))


def open_set(path: Path) -> tuple[Tokens, Tokens | None]:
    """The tokens of a file; or of a folder, and its held-out ones."""
    if path.suffix in ENDINGS and not path.is_dir():
        return open_tokens(path), None
    train, heldout = token_files(path)
    return open_tokens(train), open_tokens(heldout) if heldout else None


def open_heldout(path: str | Path) -> Tokens:
    """The tokens of a file, or the held-out ones of a folder. FileNotFoundError: nothing is."""
    if not Path(path).is_dir():
        return open_tokens(path)
    if not (files := token_files(path)[1]):
        raise FileNotFoundError(f"nothing is held out in {path}: name one of its files")
    return open_tokens(files)


def weight_of(name: str, weight: object) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, (int, float, Fraction)):
        raise TypeError(f"the weight of the set {name!r} must be a number, and {weight!r} is {type(weight).__name__}")
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"the weight of the set {name!r} must be more than 0, got {weight}: leave the set out")
    return Fraction(str(weight))  # 0.1 is a tenth, not the nearest double


def rounded(value: Fraction) -> int:
    """To the nearest integer, halves up: never further than 1/2 off, and never less for more."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


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
    masks = [np.broadcast_to(np.uint8(1), len(one)) if one.mask is None else np.asarray(one.mask) for one in opened]
    digests = "".join(one.mask_sha256 or "-" for one in opened)
    return {"mask": Shards(masks), "mask_sha256": hashlib.sha256(digests.encode()).hexdigest()}


def read_description(path: Path) -> dict[str, Any]:
    """Read X.json. ValueError: it lacks a value that it must have, or has one of another type."""
    try:
        table = json.loads(path.read_text())
        about = {key: table[key] for key in DESCRIPTION if key in table or key in ("count", "dtype", "sha256")}
        for key, value in about.items():
            if type(value) is not DESCRIPTION[key]:
                raise TypeError(f"{key} is {value!r}")
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not say count, dtype and sha256 ({error!r}): write it again") from None
    return about


def open_one(path: Path, verify: bool | None) -> Tokens:
    """Open a file of ids with its description, or with one made by reading it through."""
    beside, mask_path = path.with_suffix(".json"), path.with_suffix(".mask")
    about = read_description(beside) if beside.exists() else {}
    ids = map_tokens(path, about.get("dtype"))
    if about and (about["count"], about["dtype"]) != (len(ids), ids.dtype.name):
        sizes = f"{len(ids)} ids of {ids.dtype.name}, and {beside.name} says {about['count']} of {about['dtype']}"
        raise ValueError(f"{path} holds {sizes}: encode the text again")
    verify = ids.nbytes <= READ_THROUGH if verify is None else verify
    highest = about.get("highest")
    if verify or not about:
        digest, highest = examine(ids, path)
        about = about or {"count": len(ids), "dtype": ids.dtype.name, "sha256": digest}
        refuse_damaged(path, digest, about["sha256"])
        if about.get("highest", highest) != highest:
            raise ValueError(f"{beside} is damaged: the highest id is {highest}, and it says {about['highest']}")
    window, mask_sha256, fields = (about.get(name) for name in ("window", "mask", "fields"))
    if window is not None and (window < 1 or len(ids) % window):
        raise ValueError(f"{beside} is damaged: {len(ids)} ids are not a whole number of windows of {window}")
    mask = None if mask_sha256 is None else open_mask(mask_path, len(ids))
    if mask is not None and verify:
        refuse_damaged(mask_path, hashlib.sha256(np.ascontiguousarray(mask).data).hexdigest(), str(mask_sha256))
    names = ("sha256", "tokenizer", "bytes", "end_of_text", "window", "pairs", "prompts")
    return Tokens(
        path=path,
        ids=ids,
        highest=highest,
        mask=mask,
        mask_sha256=mask_sha256,
        fields=() if fields is None else ((path, fields),),
        files=tuple((one, one.stat().st_size) for one in (path, *([] if mask is None else [mask_path]))),
        **{name: about[name] for name in names if name in about},
    )


def refuse_damaged(path: Path, digest: str, described: str) -> None:
    """ValueError: a file has another SHA-256 than its description."""
    if digest != described:
        hashes = f"its SHA-256 is {digest[:16]}…, and the JSON beside it says {described[:16]}…"
        raise ValueError(f"{path} is damaged: {hashes}: encode the text again")


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
