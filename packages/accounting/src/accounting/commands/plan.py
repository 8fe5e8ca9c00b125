"""`accounting plan`: the layouts of a cluster that a training run fits on, ranked by time."""

from __future__ import annotations

from dataclasses import replace

from accounting.commands import report as reports
from accounting.commands.answer import Answer
from accounting.commands.answers import GB, policy
from accounting.hardware.devices import Device, device
from accounting.hardware.interconnect import INTERCONNECTS, Interconnect
from accounting.models.files import find
from accounting.planning.layouts import BATCH_TOKENS, plan
from accounting.planning.step_time import EFFICIENCY
from accounting.units import ByteRate, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from accounting.planning.layouts import Plan


def cluster(words: str) -> tuple[Device, int]:
    """ "64xH100" as the device and how many; ValueError for what is neither."""
    count, separator, name = words.lower().partition("x")
    if not separator or not count.isascii() or not count.isdigit() or not int(count):
        raise ValueError(f"--devices is a number and a device, such as 64xh100, and {words!r} is not")
    return device(name), int(count)


def joined_by(machine: Device, options: argparse.Namespace) -> Interconnect:
    """The maker's interconnect, with what the options say otherwise."""
    known = INTERCONNECTS.get(machine.name)
    given = {"node_size": options.node_size, "link": options.link, "network": options.network}
    missing = [name for name, value in given.items() if value is None]
    if known is None and missing:
        raise ValueError(
            f"no interconnect of {machine.name} is known: give {', '.join('--' + name.replace('_', '-') for name in missing)}"
        )
    rates: dict[str, Any] = {
        name: ByteRate(value * GB) for name, value in (("link", options.link), ("network", options.network)) if value
    }
    if options.node_size is not None:
        rates["node_size"] = options.node_size
    if known is None:
        return Interconnect(**rates, source="given")
    return replace(known, **rates, source=f"{known.source}; {', '.join(rates)} given") if rates else known


def answer(options: argparse.Namespace) -> Answer:
    """The ranked layouts, in words and as records."""
    shape, (machine, count) = find(options.shape), cluster(options.cluster)
    joined = joined_by(machine, options)
    efficiency = EFFICIENCY if options.efficiency is None else options.efficiency
    found = plan(
        shape,
        machine,
        count,
        options.tokens,
        joined_by=joined,
        seq_len=options.context,
        batch_tokens=BATCH_TOKENS if options.batch_tokens is None else options.batch_tokens,
        policy=policy(options),
        efficiency=efficiency,
        price=options.price,
        memory_limit=None if options.memory is None else int(options.memory * GB),
        most=options.most,
    )
    if not found:
        raise ValueError(
            f"{options.shape} fits no layout of {count:,} × {machine.name}: give more devices, a shorter --context, "
            "a smaller --batch-tokens or another --optimizer"
        )
    columns = (
        "data",
        "zero",
        "tensor",
        "pipeline",
        "micro-batch",
        "recomputed",
        "memory",
        "step",
        "bound by",
        "MFU",
        "days",
    )
    table = [(*columns, "cost") if options.price is not None else columns]
    details = []
    for number, one in enumerate(found, 1):
        row = (
            f"{one.layout.data:,}",
            str(one.layout.zero),
            f"{one.layout.tensor:,}",
            f"{one.layout.pipeline:,}",
            f"{one.micro_batch_size:,} × {one.layout.micro_batches:,}",
            one.policy.activation_checkpointing,
            human(one.memory),
            human(one.step.total),
            one.step.bound,
            f"{one.mfu:.1%}",
            f"{float(one.seconds) / 86400:,.1f}",
        )
        table.append((*row, f"{one.cost:,.0f}") if one.cost is not None else row)
        parts = " + ".join(f"{name} {human(seconds)}" for name, seconds in one.step.parts.items() if float(seconds))
        details.append(
            f"{number}: {parts}; a device sends {human(one.step.link_bytes)} in its node and "
            f"{human(one.step.network_bytes)} to others a step"
        )
    best = found[0]
    note = (
        f"{best.steps:,} steps of {int(best.tokens) // best.steps:,} tokens; matrix multiplications at {efficiency:.0%} of "
        f"the dense peak ({machine.source}); {joined.node_size} devices a node, {human(joined.link)} inside it and "
        f"{human(joined.network)} outside, each way and device ({joined.source}); an estimate, off by 9% in the "
        "mean and at most 25% over twenty published runs"
    )
    text = "\n".join(
        [
            f"{options.shape} on {count:,} × {machine.name}, {options.tokens:,} tokens",
            reports.columns(table),
            *(details if options.explain else []),
            reports.wrapped(note),
        ]
    )
    return Answer(text, [record(one) for one in found])


def record(one: Plan) -> dict[str, Any]:
    """A plan as flat figures: seconds, bytes."""
    return {
        "data": one.layout.data,
        "zero": one.layout.zero,
        "tensor": one.layout.tensor,
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
        "cost": one.cost,
    }
