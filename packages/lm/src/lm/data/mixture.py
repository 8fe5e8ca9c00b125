"""The data of a run: one set of tokens, or several in proportion to their weights."""

from __future__ import annotations

import hashlib
import math
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

from lm.data.batches import inputs_and_targets, not_enough, write_window
from lm.data.token_file import Tokens, check_range, highest_of, open_tokens, token_files
from lm.data.token_formats import ENDINGS
from lm.documents import IGNORE

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


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
    """

    def __init__(self, parts: Sequence[DataSet]) -> None:
        if not parts:
            raise ValueError("there is nothing to learn from: name at least one set of tokens")
        self.parts = list(parts)
        first = self.parts[0].tokens
        for part in self.parts:
            same = (part.tokens.tokenizer, part.tokens.end_of_text) == (first.tokenizer, first.end_of_text)
            heldout = first if part.heldout is None else part.heldout
            if not same or heldout.tokenizer != first.tokenizer:
                path = heldout.path if same else part.tokens.path
                raise ValueError(f"{first.path} and {path} were made by different tokenizers: encode all with one")
        rest = whole = sum(part.weight for part in self.parts)
        self.shares: list[Fraction] = []  # of a row
        self.takes: list[Fraction] = []  # of what the sets before it have left over
        for part in self.parts:
            self.shares.append(part.weight / whole)
            self.takes.append(part.weight / rest)
            rest -= part.weight

    @property
    def tokenizer(self) -> str | None:
        """The fingerprint of the tokenizer that made all of it, where that is known."""
        return self.parts[0].tokens.tokenizer

    @property
    def end_of_text(self) -> int | None:
        """The id that separates documents, where that is known."""
        return self.parts[0].tokens.end_of_text

    @property
    def every(self) -> list[Tokens]:
        """The tokens of all sets, and the held-out ones."""
        return [tokens for part in self.parts for tokens in (part.tokens, part.heldout) if tokens is not None]

    @property
    def masked(self) -> bool:
        """True if there are tokens that are not learned."""
        return any(part.tokens.mask is not None for part in self.parts)

    @property
    def pairs(self) -> bool:
        """True if all sets are pairs of a preferred and another conversation."""
        return all(tokens.pairs for tokens in self.every)

    @property
    def highest(self) -> int:
        """The greatest id, of the held-out tokens too."""
        return max(map(highest_of, self.every))

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text that a token stands for, over the rows of a long run."""
        sizes = [part.tokens.bytes_per_token for part in self.parts]
        return sum(float(s) * (size or 0.0) for s, size in zip(self.shares, sizes, strict=True)) if all(sizes) else None

    @property
    def heldout(self) -> dict[str, Tokens]:
        """The held-out tokens, by the name of their set."""
        return {part.name: part.heldout for part in self.parts if part.heldout is not None}

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

    def fingerprints(self) -> dict[str, Any]:
        """The data in a run's configuration: hashes, so that data may move; weights; the id that ends a document."""
        table: dict[str, Any] = {}
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
            table |= {part.name: about} if part.name else about
        rest = {"tokenizer": self.tokenizer, "end_of_text": self.end_of_text}
        return table | {name: value for name, value in rest.items() if value is not None}


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
