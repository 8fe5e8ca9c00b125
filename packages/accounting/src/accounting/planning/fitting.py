"""The largest sizes that fit: exact inverses by bisection, where the answer fits and the answer plus one does not.

Memory is monotone in every size, but for 8-bit moments where a tensor reaches 4,096 elements and its own shrink. With a
layout, device_bytes are those of each device, and batches are micro-batches of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import choose, instance, positive
from accounting.formula import linear_in
from accounting.memory.training import training_memory, training_peak
from accounting.models.resizing import deepened, lengthened, widened
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes

if TYPE_CHECKING:
    from accounting.cluster.layout import Layout

VARIED = ("layers", "width")
FAR = 1 << 40  # a batch so large that the phase with the steepest line is the peak


def max_batch_size(
    shape: TransformerShape,
    device_bytes: int,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
    layout: Layout | None = None,
) -> int:
    """The largest batch whose training step peaks within device_bytes; 0 if not even one sequence fits."""
    limit = positive("device_bytes", device_bytes)
    far = peak_bytes(shape, FAR, seq_len, policy=policy, layout=layout)
    slope = peak_bytes(shape, FAR + 1, seq_len, policy=policy, layout=layout) - far
    guess = FAR - (far - limit) // slope  # right wherever the phase that wins far out is the peak already
    return largest(lambda batch: peak_bytes(shape, batch, seq_len, policy=policy, layout=layout) <= limit, guess)


def longest_context(
    shape: TransformerShape,
    device_bytes: int,
    batch_size: int = 1,
    *,
    policy: Policy = DEFAULT,
    layout: Layout | None = None,
) -> int:
    """The longest sequence that a training step of batch_size of them can hold in device_bytes; 0 if none.

    Learned positions grow with it, since each has parameters of its own.
    """
    limit = positive("device_bytes", device_bytes)
    return largest(
        lambda length: peak_bytes(lengthened(shape, length), batch_size, length, policy=policy, layout=layout) <= limit
    )


def largest_shape(
    shape: TransformerShape,
    device_bytes: int,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    vary: str = "layers",
    policy: Policy = DEFAULT,
    layout: Layout | None = None,
) -> TransformerShape | None:
    """The deepest (vary="layers") or widest (vary="width") relative of `shape` that trains in device_bytes; None if
    none.

    Widening keeps the width of a head, the number of query heads to a key head, and the ratio of d_ff to d_model. With
    a layout none has fewer layers than stages, nor fewer heads than devices that share a layer.
    """
    limit = positive("device_bytes", device_bytes)
    choose("vary", vary, VARIED)
    make = deepened if vary == "layers" else widened
    least = _least(lambda n: make(shape, n), layout)
    steps = largest(
        lambda n: peak_bytes(make(shape, n), batch_size, seq_len, policy=policy, layout=layout) <= limit, least=least
    )
    return make(shape, steps) if steps >= least else None


def _least(make: Callable[[int], TransformerShape], layout: Layout | None) -> int:
    """The smallest n whose shape can be laid out; ValueError if none can, as where the vocabulary has too few rows."""
    if layout is None:
        return 1
    from accounting.cluster.layout import Place, shard  # one device alone does not need it

    for n in range(1, max(layout.tensor, layout.pipeline)):
        try:
            shard(make(n), layout, Place())
        except ValueError:
            continue
        return n
    most = max(layout.tensor, layout.pipeline)
    shard(make(most), layout, Place())
    return most


@dataclass(frozen=True)
class Line:
    """peak = slope · batch + intercept in bytes, exact from batch `first` on, where `phase` is the peak."""

    slope: Bytes
    intercept: Bytes
    first: int
    phase: str
    per_sequence: Breakdown
    fixed: Breakdown


def memory_line(shape: TransformerShape, seq_len: int | None = None, *, policy: Policy = DEFAULT) -> Line:
    """The peak of a training step as a straight line in the batch size, in the phase that wins for large batches.

    Every phase is such a line for all but the smallest batches; below `first` another phase, such as the optimizer's
    step, is higher. It is a line of the tensors' own bytes: an allocator's rounding is left out.
    """
    policy = replace(policy, allocator="exact")
    high = training_memory(shape, FAR, seq_len, policy=policy).peak
    slope = peak_bytes(shape, FAR + 1, seq_len, policy=policy) - int(high.total)
    intercept = int(high.total) - slope * FAR
    below = largest(lambda batch: peak_bytes(shape, batch, seq_len, policy=policy) != slope * batch + intercept)
    parts = {name: linear_in(term, "batch") for name, term in high.terms}
    per_sequence = {name: one for name, (one, _) in parts.items() if one}
    fixed = {name: rest for name, (_, rest) in parts.items() if rest}
    words = f"{high.title}; {high.convention}"
    return Line(
        Bytes(slope),
        Bytes(intercept),
        below + 1,
        high.title,
        breakdown("peak for each sequence", Bytes, per_sequence, words),
        breakdown("peak whatever the batch", Bytes, fixed, words),
    )


@lru_cache(maxsize=64, typed=True)  # a report asks for the same peaks again, for the next card
def peak_bytes(
    shape: TransformerShape,
    batch_size: int,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
    layout: Layout | None = None,
) -> int:
    """Bytes at the peak of a training step: what everything here compares with device_bytes."""
    instance("shape", shape, TransformerShape, "SHAPES")
    if layout is None:
        return training_peak(shape, batch_size, seq_len, policy=policy)
    from accounting.cluster.memory import fullest

    return int(fullest(shape, layout, batch_size, seq_len, policy=policy).total)


def largest(fits: Callable[[int], bool], guess: int = 1, least: int = 1) -> int:
    """The largest n of at least `least` that fits, else least - 1; `fits` turns false once. A good guess is quick."""
    low, high = least - 1, max(least, guess)
    while fits(high):
        low, high = high, high + 1 if high == guess else 2 * high
    while high - low > 1:
        # just below a guess that failed is the likeliest place, and from there it is bisection
        middle = high - 1 if high == guess else (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
