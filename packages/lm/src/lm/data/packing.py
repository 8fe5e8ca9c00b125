"""Token files of short examples that are packed whole into windows: what conversations and preferences share."""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data.problems import Fields, Problem, key_of
from lm.data.token_file import write_tokens
from lm.tokenizer import end_of_text_of

SPLITS = ("heldout", "train")  # train is written last: without it, the folder is none


Example = tuple[NDArray[Any], NDArray[np.uint8]]  # ids to be packed, and 1 for each that is learned


@dataclass
class Count:
    """The examples, tokens, learned tokens and padding of a split."""

    examples: int = 0
    tokens: int = 0
    learned: int = 0
    padding: int = 0


class PackedSplits:
    """Examples of two splits, train and heldout, which become token files with their masks.

    Packed whole: the file is cut into windows of context_length tokens, no example crosses a border, and what is left
    of a window is filled with end-of-text tokens. Each begins with one, so that `document_masking` keeps them apart.
    heldout: the share of examples that is held out, by the hash of the line. ValueError: heldout is not a share, or
    context_length is less than 2. FileExistsError: there are token files in `out`.
    """

    def __init__(
        self, tokenizer: Any, out: str | Path, *, context_length: int, end_of_text: str | None, heldout: float
    ) -> None:
        if not 0 <= heldout < 1:
            raise ValueError(f"heldout is a share, expected at least 0 and less than 1, got {heldout}")
        if context_length < 2:
            raise ValueError(f"expected a context_length of at least 2, got {context_length}")
        self.out = Path(out)
        if any(self.out.glob("*.npy")):
            raise FileExistsError(f"{out} has token files in it: choose another folder")
        self.window, self.heldout, self.fingerprint = context_length, heldout, tokenizer.fingerprint
        self.separator = int(tokenizer.special_tokens[end_of_text_of(tokenizer, end_of_text)])
        self.dtype = "uint16" if tokenizer.n_vocab <= 1 << 16 else "uint32"
        self.examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
        self.counts = {split: Count() for split in reversed(SPLITS)}
        self.left_out = Counter[str]()
        self.fields: dict[str, dict[str, Fields]] = {split: {} for split in SPLITS}  # of problems, by key

    def separated(self, ids: list[int], learned: list[bool]) -> tuple[list[int], list[bool]]:
        """Ids that begin with the separator, and True for each that is learned."""
        return (ids, learned) if ids[:1] == [self.separator] else ([self.separator, *ids], [False, *learned])

    def add(
        self, line: str, ids: Sequence[int], learned: Sequence[bool], problem: Problem | None = None, **fields: Any
    ) -> None:
        """Add an example to the split of its line's hash. ValueError: a problem has other fields in two lines."""
        number = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest())
        split = "heldout" if number < self.heldout * 2**64 else "train"
        self.examples[split].append((np.array(ids, dtype=self.dtype), np.array(learned, dtype=np.uint8)))
        self.counts[split].examples += 1
        self.counts[split].learned += sum(learned)
        if problem is not None and self.fields[split].setdefault(key_of(problem), fields) != fields:
            raise ValueError(f"two lines have one prompt and other fields: leave one of them out: {line[:200]}")

    def write(self, paths: Sequence[str | Path], lack: str, **kind: bool) -> None:
        """Write the files. kind: pairs or prompts. ValueError: nothing to train on is in the paths, for `lack`."""
        if not self.examples["train"]:
            raise ValueError(f"there is nothing to learn in {', '.join(map(str, paths))}: {lack}")
        self.out.mkdir(parents=True, exist_ok=True)
        for split, examples in self.examples.items():
            if examples:
                ids, mask = packed(examples, self.window, self.separator)
                count = self.counts[split]
                count.tokens, count.padding = len(ids), len(ids) - sum(len(own) for own, _ in examples)
                about: dict[str, Any] = {"tokenizer": self.fingerprint, "end_of_text": self.separator, **kind}
                about |= {"dtype": self.dtype, "window": self.window, "fields": self.fields[split]}
                write_tokens(self.out / f"{split}.npy", ids, mask=mask, **about)


def packed(examples: Sequence[Example], window: int, padding: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The ids and the mask of all windows, each example, the longest first, in the fullest that has room for it."""
    windows, rooms = list[list[int]](), list[tuple[int, int]]()  # rooms: (tokens free, window), in order
    for number in sorted(range(len(examples)), key=lambda number: -len(examples[number][0])):
        size = len(examples[number][0])
        place = bisect.bisect_left(rooms, (size, -1))
        free, which = rooms.pop(place) if place < len(rooms) else (window, len(windows))
        if which == len(windows):
            windows.append([])
        windows[which].append(number)
        if free > size:
            bisect.insort(rooms, (free - size, which))
    # In the order of their first example, so that what stood together in the files stays near.
    windows.sort(key=min)
    ids = np.full((len(windows), window), padding, dtype=examples[0][0].dtype)
    mask = np.zeros((len(windows), window), dtype=np.uint8)
    for row, numbers in enumerate(windows):
        own, learned = (np.concatenate(parts) for parts in zip(*(examples[n] for n in sorted(numbers)), strict=True))
        ids[row, : len(own)], mask[row, : len(own)] = own, learned
    return ids.reshape(-1), mask.reshape(-1)
