"""The batch of each step: windows of a ring of tokens, in the order of a keyed permutation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Ids(Protocol):
    """Token ids in a row: a flat array, or Shards."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int | slice, /) -> Any: ...


def batch(
    tokens: Ids, seed: int, step: int, rank: int, world: int, batch_size: int, context_length: int
) -> tuple[Tensor, Tensor]:
    """The batch of a step on one of several processes: a pure function of its arguments.

    The tokens are a ring, cut into windows of context_length, at another place and in another order in each epoch. So
    an epoch has every token as a target once, but for the fewer than context_length that fill no window.

    Args:
        tokens: Token ids: a flat array, or what open_tokens() gives.
        seed: Of the order.
        step: The step, from 0.
        rank: The process, from 0.
        world: How many processes there are. All together have the rows that one with batch_size · world would have.
        batch_size: Rows of one process.
        context_length: Tokens of a row.

    Returns:
        Inputs and targets, each (batch_size, context_length) int64; a target is the token after its input.

    Raises:
        ValueError: There are fewer tokens than one window and one more.

    >>> import numpy as np
    >>> inputs, targets = batch(np.arange(100), seed=0, step=3, rank=0, world=1, batch_size=2, context_length=4)
    >>> bool((targets == (inputs + 1) % 100).all())
    True
    """
    first = (step * world + rank) * batch_size
    rows = np.empty((batch_size, context_length + 1), dtype=np.int64)
    for row in range(batch_size):
        write_window(tokens, seed, first + row, rows[row])
    return inputs_and_targets(rows)


def get_batch(
    tokens: Ids,
    batch_size: int,
    context_length: int,
    device: str | torch.device = "cpu",
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """A batch of windows that begin at random, as CS336 and nanoGPT draw them: none goes past the end of the tokens.

    Args:
        tokens: Token ids: a flat array, or what open_tokens() gives.
        batch_size: Rows.
        context_length: Tokens of a row.
        device: Where the batch is wanted.
        generator: Where the random numbers come from; torch's own, if not given.

    Returns:
        Inputs and targets, each (batch_size, context_length) int64; a target is the token after its input.

    Raises:
        ValueError: There are fewer tokens than one window and one more.

    >>> import numpy as np
    >>> inputs, targets = get_batch(np.arange(100), batch_size=2, context_length=4)
    >>> bool((targets == inputs + 1).all())
    True
    """
    if len(tokens) <= context_length:
        raise ValueError(not_enough(len(tokens), context_length))
    starts = torch.randint(len(tokens) - context_length, (batch_size,), generator=generator).tolist()
    rows = np.stack([np.asarray(tokens[start : start + context_length + 1], dtype=np.int64) for start in starts])
    inputs, targets = inputs_and_targets(rows)
    return inputs.to(device), targets.to(device)


def not_enough(count: int, context_length: int) -> str:
    needed = f"a window of context_length {context_length} and one more"
    return f"{count} tokens are not enough for {needed}: shorten the context, or give more text"


def write_window(tokens: Ids, seed: int, index: int, out: NDArray[np.int64], *, packed: bool = False) -> None:
    """Write the tokens of the index-th window of a run, and the one after them, to out (context_length + 1,).

    packed: windows are cut at the multiples of context_length in every epoch, as conversations were packed.
    """
    count, context_length = len(tokens), len(out) - 1
    if count < context_length + (not packed):
        raise ValueError(not_enough(count, context_length))
    windows = count // context_length
    epoch, index = divmod(index, windows)
    key = mix(mix(seed) ^ epoch)
    start = shuffled(index, windows, key) * context_length
    if not packed:
        start = (start + key) % count
    end = start + len(out)
    if end <= count:
        out[:] = tokens[start:end]
    else:
        out[: count - start] = tokens[start:count]
        out[count - start :] = tokens[: end - count]


def inputs_and_targets(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Rows (batch, seq + 1) as inputs (batch, seq) and, each one further on, targets (batch, seq)."""
    both = torch.from_numpy(rows)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def shuffled(index: int, count: int, key: int) -> int:
    """Return the place of index in a permutation of range(count) that key chooses.

    Four rounds of a balanced Feistel network over the next power of four, repeated until the result is in range: it
    needs no table of the permutation, and no new version of a random number generator changes it.
    """
    half = max(1, (count - 1).bit_length() + 1 >> 1)
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for round_ in range(4):
            left, right = right, left ^ (mix(key + round_ << 32 ^ right) & low)
        index = left << half | right
        if index < count:
            return index


def mix(value: int) -> int:
    """Mix every bit of a value into every bit of 64: the finaliser of SplitMix64. (Steele et al. 2014)"""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return value ^ value >> 31


def windows_of(count: int, context_length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Windows [begin, end) that score `count` positions once each, as (begin, first, end): [first, end) are scored.

    The first window scores all it holds, each later one its last `stride`, so that every position but the earliest has
    at least context_length - stride before it.
    """
    end = min(context_length, count)
    yield 0, 0, end
    while end < count:
        first, end = end, min(end + stride, count)
        yield end - context_length, first, end


class Shards:
    """Flat arrays of one dtype, one after the other. A slice is a view where it lies in one of them, else a copy."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = list(parts)
        if not self.parts:
            raise ValueError("there are no shards: give at least one array of ids")
        self.starts = list(accumulate((len(part) for part in self.parts), initial=0))
        self.dtype = np.result_type(*self.parts)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            place = index + len(self) if index < 0 else index
            if not 0 <= place < len(self):
                raise IndexError(f"position {index} is outside the {len(self)} ids")
            shard = bisect_right(self.starts, place) - 1
            return self.parts[shard][place - self.starts[shard]]
        begin, end, stride = index.indices(len(self))
        if stride != 1:
            raise ValueError(f"ids are cut in one piece, and a stride of {stride} is not: slice without one")
        if end <= begin:
            return np.empty(0, self.dtype)
        shard = bisect_right(self.starts, begin) - 1
        pieces = []
        while begin < end:
            stop = min(end, self.starts[shard + 1])
            pieces.append(self.parts[shard][begin - self.starts[shard] : stop - self.starts[shard]])
            begin, shard = stop, shard + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
