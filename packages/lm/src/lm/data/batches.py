"""The batch of each step: windows of a ring of tokens in an order that a keyed permutation gives, with no table of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lm.data.shards import Ids


def batch(
    tokens: Ids, seed: int, step: int, rank: int, world: int, batch_size: int, context_length: int
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one step on one of `world` processes: two int64 tensors (batch_size, context_length).

    A pure function of its arguments. All ranks together have the rows that one process with batch_size · world would have.

    The tokens are a ring cut into windows of context_length; each epoch cuts it at another place and visits the windows in
    another order, each once. So an epoch has every token as a target once, but for the fewer than context_length
    that fill no window, which are others in the next. ValueError: fewer tokens than one window and one more.
    """
    first = (step * world + rank) * batch_size
    rows = np.empty((batch_size, context_length + 1), dtype=np.int64)
    for row in range(batch_size):
        window(tokens, seed, first + row, rows[row])
    return inputs_and_targets(rows)


def window(tokens: Ids, seed: int, index: int, out: NDArray[np.int64]) -> None:
    """Writes the index-th window of a run of seed to `out`: as many targets as it holds but one, and the input before them."""
    count, context_length = len(tokens), len(out) - 1
    if count <= context_length:
        raise ValueError(
            f"{count} tokens are not enough for a window of context_length {context_length} and one more: "
            f"shorten the context, or give more text"
        )
    windows = count // context_length
    epoch, index = divmod(index, windows)
    key = mix(mix(seed) ^ epoch)
    start = (shuffled(index, windows, key) * context_length + key) % count
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
