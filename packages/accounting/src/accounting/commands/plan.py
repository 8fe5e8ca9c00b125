"""`accounting plan`: the layouts of a cluster that a training run fits on, ranked by time."""

from __future__ import annotations

from dataclasses import replace

from accounting.commands.answer import Answer
from accounting.commands.options import GB, name_of, policy_of, shape_of
from accounting.commands.tables import columns, wrapped
from accounting.hardware.devices import Device, device
from accounting.hardware.interconnect import INTERCONNECTS, Interconnect
from accounting.planning import layouts
from accounting.planning.layouts import BATCH_TOKENS
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
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise ValueError(f"no interconnect of {machine.name} is known: give {flags}")
    rates: dict[str, Any] = {
        name: ByteRate(value * GB) for name, value in (("link", options.link), ("network", options.network)) if value
    }
    if options.node_size is not None:
        rates["node_size"] = options.node_size
    if known is None:
        return Interconnect(**rates, source="given")
    return replace(known, **rates, source=f"{known.source}; {', '.join(rates)} given") if rates else known


def plan(options: argparse.Namespace) -> Answer:
    """The ranked layouts, in words and as records."""
    shape, (machine, count) = shape_of(options), cluster(options.cluster)
    joined = joined_by(machine, options)
    efficiency = EFFICIENCY if options.efficiency is None else options.efficiency
    found = layouts.plan(
        shape,
        machine,
        count,
        options.tokens,
        joined_by=joined,
        seq_len=options.context,
        batch_tokens=BATCH_TOKENS if options.batch_tokens is None else options.batch_tokens,
        policy=policy_of(options),
        efficiency=efficiency,
        price=options.price,
        memory_limit=None if options.memory is None else int(options.memory * GB),
        most=options.most,
    )
    if not found:
        raise ValueError(
            f"{name_of(options)} fits no layout of {count:,} × {machine.name}: give more devices, "
            "a shorter --context, a smaller --batch-tokens or another --optimizer"
        )
    rows = [row(one) for one in found]
    shown = [name for name in rows[0] if any(each[name] for each in rows)]
    table = [tuple(shown), *(tuple(each[name] or "1" for name in shown) for each in rows)]
    details = []
    for number, one in enumerate(found, 1):
        parts = " + ".join(f"{name} {human(seconds)}" for name, seconds in one.step.parts.items() if float(seconds))
        details.append(
            f"{number}: {parts}; a device sends {human(one.step.link_bytes)} in its node and "
            f"{human(one.step.network_bytes)} to others a step"
        )
    best = found[0]
    counted = "all" if best.policy.attention_kernel == "eager" else "causal"
    note = (
        f"{best.steps:,} steps of {int(best.tokens) // best.steps:,} tokens; matrix multiplications at "
        f"{efficiency:.0%} of the dense peak ({machine.source}); "
        f"{joined.node_size} devices a node, {human(joined.link)} inside it and "
        f"{human(joined.network)} outside, each way and device ({joined.source}); MFU over {counted} pairs; "
        "an estimate, off by 9% in the "
        "mean and at most 25% over twenty published runs"
    )
    text = "\n".join(
        [
            f"{name_of(options)} on {count:,} × {machine.name}, {options.tokens:,} tokens",
            columns(table),
            *(details if options.explain else []),
            wrapped(note),
        ]
    )
    return Answer(text, [record(one) for one in found])


def row(one: Plan) -> dict[str, str]:
    """A plan as a row of the table; a column that is empty in every row is left out."""
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
        "days": f"{float(one.seconds) / 86400:,.1f}",
        "cost": "" if one.cost is None else f"{one.cost:,.0f}",
    }


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
        "cost": one.cost,
    }
