"""`accounting fit`: the largest batch, context, depth and width that train in a device's memory."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.commands.answer import Answer
from accounting.commands.options import GB, layout_of, name_of, policy_of, shape_of
from accounting.commands.tables import listing, wrapped
from accounting.hardware.devices import device
from accounting.memory.training import training_memory
from accounting.models.resizing import deepened, lengthened, widened
from accounting.planning.fitting import (
    largest_shape,
    longest_context,
    max_batch_size,
    peak_bytes,
)
from accounting.units import Bytes, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from accounting.shape import TransformerShape


@dataclass(frozen=True)
class Most:
    """The most of something that fits: how many steps of it, what they come to, and the shape, batch and context of n
    steps."""

    name: str
    steps: int
    value: int
    unit: str
    at: Callable[[int], tuple[TransformerShape, int, int | None]]


def fit(options: argparse.Namespace) -> Answer:
    """What trains in so many bytes, with the peaks of the answer and of one more."""
    shape, where = shape_of(options), layout_of(options)
    limit = device(options.device).memory if options.device else Bytes(int(options.memory * GB))
    batch, length = options.batch, options.context
    known: dict[str, Any] = {"policy": policy_of(options), "layout": where}
    most = max_batch_size(shape, limit, length, **known)
    longest = longest_context(shape, limit, batch, **known)
    deep, wide = (largest_shape(shape, limit, batch, length, vary=vary, **known) for vary in ("layers", "width"))
    layers = deep.num_layers if deep else 0
    heads = f"wide, {wide.num_heads:,} heads" if wide else "wide"
    sequences = "micro-batch of a replica" if where else "batch"
    tried = [
        Most(
            f"largest {sequences} at context {shape.sequence(length):,}",
            most,
            most,
            "sequences",
            lambda n: (shape, n, length),
        ),
        Most(
            f"longest context at batch {batch:,}",
            longest,
            longest,
            "positions",
            lambda n: (lengthened(shape, n), batch, n),
        ),
        Most("deepest of its kind", layers, layers, "layers", lambda n: (deepened(shape, n), batch, length)),
        Most(
            "widest of its kind",
            wide.kv_heads if wide else 0,
            wide.d_model if wide else 0,
            heads,
            lambda n: (widened(shape, n), batch, length),
        ),
    ]
    rows, records = [], []
    for one in tried:
        taken = peak_bytes(*one.at(one.steps), **known) if one.steps else None
        beyond = peak_bytes(*one.at(one.steps + 1), **known) if one.steps or not where else None
        records.append(
            {"name": one.name, "value": one.value, "unit": one.unit, "bytes": taken, "bytes of one more": beyond}
        )
        next_one = "-" if beyond is None else human(Bytes(beyond))
        how = (
            f"{human(Bytes(taken))} at the peak, {next_one} with one more"
            if taken is not None
            else f"one takes {next_one}"
        )
        rows.append((one.name, f"{one.value:,} {one.unit}" if one.steps else "none fits", how))
    words = training_memory(shape, 1, 1, policy=policy_of(options)).convention
    if where:
        words = f"each of {where.words}, gradients there from the start and no buffers of collectives; {words}"
    title = f"{name_of(options)} in {human(limit)}, training"
    return Answer(listing(title, rows, explain=options.explain) + "\n" + wrapped(words), records)
