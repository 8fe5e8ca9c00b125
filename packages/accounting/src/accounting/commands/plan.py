"""`accounting plan`: the layouts of a cluster that a training run fits on, ranked by predicted time."""

from __future__ import annotations

import argparse
from typing import Any

from accounting.commands.options import GB, energy_of, joined_by, name_of, policy_of, shape_of
from accounting.commands.tables import Answer, columns, wrapped
from accounting.hardware.devices import Device, device
from accounting.planning import layouts
from accounting.planning.layouts import BATCH_TOKENS, Plan
from accounting.planning.step_time import matmul_efficiency
from accounting.units import Seconds, human


def cluster(words: str) -> tuple[Device, int]:
    """Device and number of devices of "64xH100"; ValueError for anything else."""
    count, separator, name = words.lower().partition("x")
    if not separator or not count.isascii() or not count.isdigit() or not int(count):
        raise ValueError(f"expected --devices as a number and a device, such as 64xh100, got {words!r}")
    return device(name), int(count)


def plan(options: argparse.Namespace) -> Answer:
    """The ranked layouts, in words and as records."""
    shape, (machine, count) = shape_of(options), cluster(options.cluster)
    joined = joined_by(machine, count, options)
    plans = layouts.plan(
        shape,
        machine,
        count,
        options.tokens,
        joined_by=joined,
        seq_len=options.context,
        batch_tokens=BATCH_TOKENS if options.batch_tokens is None else options.batch_tokens,
        policy=policy_of(options),
        pairs=options.pairs,
        efficiency=options.efficiency,
        price=options.price,
        memory_limit=None if options.memory is None else int(options.memory * GB),
        most=options.most,
    )
    if not plans:
        raise ValueError(
            f"{name_of(options)} fits no layout of {count:,} × {machine.name}: give more devices, "
            "a shorter --context, a smaller --batch-tokens or another --optimizer"
        )
    rows = [{**row(one), **spent(options, one, count)} for one in plans]
    shown = [name for name in rows[0] if any(each[name] for each in rows)]
    table = [tuple(shown), *(tuple(each[name] or "1" for name in shown) for each in rows)]
    details = []
    for number, one in enumerate(plans, 1):
        parts = " + ".join(f"{name} {human(seconds)}" for name, seconds in one.step.parts.items() if float(seconds))
        details.append(
            f"{number}: {parts}; a device sends {human(one.step.link_bytes)} in its node and "
            f"{human(one.step.network_bytes)} to others a step"
        )
    best = plans[0]
    efficiency = matmul_efficiency(machine) if options.efficiency is None else options.efficiency
    source = "the least of its maker's measured devices, as it was not measured"
    if machine.matmul:
        source = f"measured: {machine.matmul_source}"
    links = f"{joined.node_size} devices a node, {human(joined.link)} inside it and {human(joined.network)} outside, "
    links = f"{links}each way and device ({joined.source}); " if count > 1 else ""
    beyond = ", those that a mask or a window leaves out too" if options.pairs == "full" else ""
    note = (
        f"{best.steps:,} steps of {int(best.tokens) // best.steps:,} tokens; matmuls at {efficiency:.0%} of the dense "
        f"peak ({machine.source}; {source if options.efficiency is None else 'given'}); "
        f"{links}MFU counts {options.pairs} pairs{beyond}; "
        f"the first time is predicted for a tuned run, and 'range' is that of {best.published.words}"
    )
    title = f"{name_of(options)} on {count:,} × {machine.name}, {options.tokens:,} tokens"
    lines = [title, columns(table), *(details if options.explain else []), wrapped(note)]
    records = []
    for one in plans:
        energy, carbon = energy_of(options, float(one.seconds) * count / 3600)
        records.append({**record(one), "energy kWh": energy, "carbon dioxide kg": carbon})
    return Answer("\n".join(lines), records)


def spent(options: argparse.Namespace, one: Plan, devices: int) -> dict[str, str]:
    """Energy and carbon dioxide of a plan with the range of its time, as further columns."""
    cells: dict[str, str] = {}
    range_of = (energy_of(options, float(seconds) * devices / 3600) for seconds in (one.shortest, one.longest))
    for name, low, high in zip(("energy, MWh", "CO2, t"), *range_of, strict=True):
        if low is not None and high is not None:
            cells[name] = f"{low / 1000:,.1f}–{high / 1000:,.1f}"
    return cells


def row(one: Plan) -> dict[str, str]:
    """A plan as a row of the table, from which the caller leaves out columns that are empty in every row."""
    layout = one.layout
    return {
        "data": f"{layout.data:,}",
        "zero": str(layout.zero),
        "tensor": f"{layout.tensor:,}",
        "context": f"{layout.context:,}" if layout.context > 1 else "",
        "expert": f"{layout.expert:,}" if layout.expert > 1 else "",
        "pipeline": f"{layout.pipeline:,}",
        "micro-batch": f"{one.micro_batch_size:,} × {layout.micro_batches:,}",
        "recomputed": one.policy.activation_checkpointing,
        "memory": human(one.memory),
        "step": human(one.step.total),
        "bound by": one.step.bound,
        "MFU": f"{one.mfu:.1%}",
        "time": human(one.seconds),
        "range": between(one.shortest, one.longest),
        "cost": "" if one.cost is None else f"{one.cost:,.0f}",
    }


def between(shortest: Seconds, longest: Seconds) -> str:
    """A range with its unit once: "14.0–20.7 days"."""
    low, high = human(shortest).split(), human(longest).split()
    return f"{low[0]}–{high[0]} {high[1]}" if low[1] == high[1] else f"{' '.join(low)} – {' '.join(high)}"


def record(one: Plan) -> dict[str, Any]:
    """A plan as flat figures: seconds, bytes."""
    return {
        "data": one.layout.data,
        "zero": one.layout.zero,
        "tensor": one.layout.tensor,
        "context": one.layout.context,
        "expert": one.layout.expert,
        "pipeline": one.layout.pipeline,
        "sequence parallel": one.layout.sequence_parallel,
        "micro-batch": one.micro_batch_size,
        "micro-batches": one.layout.micro_batches,
        "activation checkpointing": one.policy.activation_checkpointing,
        "bytes a device": int(one.memory),
        "step seconds": float(one.step.total),
        **{f"{name} seconds": float(seconds) for name, seconds in one.step.parts.items()},
        "bound by": one.step.bound,
        "bytes in node": int(one.step.link_bytes),
        "bytes to other nodes": int(one.step.network_bytes),
        "MFU": one.mfu,
        "steps": one.steps,
        "seconds": float(one.seconds),
        "shortest seconds": float(one.shortest),
        "longest seconds": float(one.longest),
        "cost": one.cost,
    }
