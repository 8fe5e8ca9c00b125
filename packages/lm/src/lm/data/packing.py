"""Token files of short examples that are packed whole into windows: what conversations and preferences share."""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lm.data.token_file import write_tokens
from lm.special_tokens import end_of_text_of

Line = TypeVar("Line")
SPLITS = ("heldout", "train")  # what is trained on is written last: without it, the folder is none


class Example(NamedTuple):
    """What is packed: ids, and 1 for each that is learned."""

    ids: NDArray[Any]
    mask: NDArray[np.uint8]


def json_lines(path: str | Path, parse: Callable[[Any], Line], kind: str) -> Iterator[tuple[str, Line]]:
    """Each line of JSON lines, and what parse() makes of it.

    Raises:
        ValueError: A line that is no `kind` ("conversation"), by its number and with what parse() says of it.
    """
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield line, parse(json.loads(line))
                    except ValueError as error:
                        raise ValueError(f"{path}, line {number}, is no {kind}: {error}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8: JSON lines are") from None


class PackedSplits:
    """Examples of two splits, train and heldout, which become token files with their masks.

    Args:
        tokenizer: A bpe.Tokenizer, which made the ids.
        out: The folder, which must hold no token files.
        context_length: The length of the windows, in tokens.
        end_of_text: The special token that separates examples, if it is not one of the usual names.
        heldout: The share of examples that is held out.

    Attributes:
        separator: The id of that token, which windows are filled up with.

    Raises:
        ValueError: heldout is no share, or context_length is less than 2.
        FileExistsError: There are token files in `out`.
    """

    def __init__(
        self, tokenizer: Any, out: str | Path, *, context_length: int, end_of_text: str | None, heldout: float
    ) -> None:
        if not 0 <= heldout < 1:
            raise ValueError(f"heldout is a share, at least 0 and less than 1, and {heldout} is not")
        if context_length < 2:
            raise ValueError(f"context_length must be at least 2, and {context_length} is not")
        self.out = Path(out)
        if any(self.out.glob("*.npy")):
            raise FileExistsError(f"{out} has token files in it: choose another folder")
        self.window, self.heldout, self.fingerprint = context_length, heldout, tokenizer.fingerprint
        self.separator = int(tokenizer.special_tokens[end_of_text_of(tokenizer, end_of_text)])
        self.dtype = "uint16" if tokenizer.n_vocab <= 1 << 16 else "uint32"
        self.examples: dict[str, list[Example]] = {split: [] for split in SPLITS}

    def split_of(self, line: str) -> str:
        """The split that a line belongs to, by its hash alone."""
        number = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest())
        return "heldout" if number < self.heldout * 2**64 else "train"

    def separated(self, ids: list[int], learned: list[bool]) -> tuple[list[int], list[bool]]:
        """Ids that begin with the separator, and which of them are learned."""
        return (ids, learned) if ids[:1] == [self.separator] else ([self.separator, *ids], [False, *learned])

    def add(self, split: str, ids: Sequence[int], learned: Sequence[bool]) -> None:
        """Add an example of at most context_length ids."""
        self.examples[split].append(Example(np.array(ids, dtype=self.dtype), np.array(learned, dtype=np.uint8)))

    def write(self, *, pairs: bool = False) -> dict[str, int]:
        """Write the files; returns the number of tokens of each split, padding included."""
        self.out.mkdir(parents=True, exist_ok=True)
        sizes = dict.fromkeys(SPLITS, 0)
        for split, examples in self.examples.items():
            if examples:
                ids, mask = packed(examples, self.window, self.separator)
                sizes[split] = len(ids)
                write_tokens(
                    self.out / f"{split}.npy",
                    ids,
                    dtype=self.dtype,
                    tokenizer=self.fingerprint,
                    end_of_text=self.separator,
                    mask=mask,
                    window=self.window,
                    pairs=pairs,
                )
        return sizes


def packed(examples: Sequence[Example], window: int, padding: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Examples put into windows: each, the longest first, into the fullest window that has room for it.

    The ids of all windows, filled up with padding that is not learned, and the mask.
    """
    order = sorted(range(len(examples)), key=lambda number: -len(examples[number].ids))
    windows = list[list[int]]()
    rooms = list[tuple[int, int]]()  # (tokens free, window), in order
    for number in order:
        size = len(examples[number].ids)
        place = bisect.bisect_left(rooms, (size, -1))
        free, which = rooms.pop(place) if place < len(rooms) else (window, len(windows))
        if which == len(windows):
            windows.append([])
        windows[which].append(number)
        if free > size:
            bisect.insort(rooms, (free - size, which))
    # In the order of their first example, so that what stood together in the files stays near.
    windows.sort(key=min)
    ids = np.full((len(windows), window), padding, dtype=examples[0].ids.dtype)
    mask = np.zeros((len(windows), window), dtype=np.uint8)
    for row, numbers in enumerate(windows):
        at = 0
        for number in sorted(numbers):
            one = examples[number]
            ids[row, at : at + len(one.ids)], mask[row, at : at + len(one.ids)] = one.ids, one.mask
            at += len(one.ids)
    return ids.reshape(-1), mask.reshape(-1)
