"""`accounting fit`: the largest batch, context, depth and width that train in a device's memory."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from accounting.commands.options import GB, layout_of, name_of, policy_of, shape_of
from accounting.commands.tables import Answer, listing, wrapped
from accounting.hardware.devices import device
from accounting.memory.training import training_memory
from accounting.models.resizing import deepened, lengthened, widened
from accounting.planning.fitting import largest_shape, longest_context, max_batch_size, peak_bytes
from accounting.shape import TransformerShape
from accounting.units import Bytes, human


def fit(options: argparse.Namespace) -> Answer:
    """The largest that trains in a device's memory, with the peaks of the answer and of one more."""
    shape, layout, policy = shape_of(options), layout_of(options), policy_of(options)
    limit = device(options.device).memory if options.device else Bytes(int(options.memory * GB))
    batch, length = options.batch, options.context
    fixed: dict[str, Any] = {"policy": policy, "layout": layout}
    sequences = max_batch_size(shape, limit, length, **fixed)
    positions = longest_context(shape, limit, batch, **fixed)
    deep, wide = (largest_shape(shape, limit, batch, length, vary=vary, **fixed) for vary in ("layers", "width"))
    layers, key_heads = deep.num_layers if deep else 0, wide.kv_heads if wide else 0
    width = f"wide, {wide.num_heads:,} heads" if wide else "wide"
    named = "micro-batch of a replica" if layout else "batch"
    # name, largest n, unit, and the shape, batch and context of n
    sizes: list[tuple[str, int, str, Callable[[int], tuple[TransformerShape, int, int | None]]]] = [
        (
            f"largest {named} at context {shape.sequence(length):,}",
            sequences,
            "sequences",
            lambda n: (shape, n, length),
        ),
        (f"longest context at batch {batch:,}", positions, "positions", lambda n: (lengthened(shape, n), batch, n)),
        ("deepest of its kind", layers, "layers", lambda n: (deepened(shape, n), batch, length)),
        ("widest of its kind", key_heads, width, lambda n: (widened(shape, n), batch, length)),
    ]
    rows, records = [], []
    for name, most, unit, at in sizes:
        value = wide.d_model if wide and unit == width else most
        peak = peak_bytes(*at(most), **fixed) if most else None
        beyond = peak_bytes(*at(most + 1), **fixed) if most or not layout else None
        records.append({"name": name, "value": value, "unit": unit, "bytes": peak, "bytes of one more": beyond})
        next_one = "-" if beyond is None else human(Bytes(beyond))
        how = f"one takes {next_one}" if peak is None else f"{human(Bytes(peak))} at the peak, {next_one} with one more"
        rows.append((name, f"{value:,} {unit.removesuffix('s') if value == 1 else unit}" if most else "none fits", how))
    words = training_memory(shape, 1, 1, policy=policy).convention
    if layout:
        words = f"each of {layout.words}, gradients there from the start and no buffers of collectives; {words}"
    title = f"{name_of(options)} in {human(limit)}, training"
    return Answer(listing(title, rows, explain=options.explain) + "\n" + wrapped(words), records)
