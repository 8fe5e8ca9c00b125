"""`accounting time`: hours and money of a training run."""

from __future__ import annotations

import argparse
from typing import Any

from accounting.checks import positive
from accounting.commands.options import energy_of, machine_of, name_of, shape_of
from accounting.commands.tables import Answer, listing, wrapped
from accounting.hardware.devices import Device
from accounting.planning.training_time import mfu, recomputation, training_time
from accounting.shape import TransformerShape
from accounting.units import FLOPs, human

YEAR = 365.25 * 86_400  # seconds


def time(options: argparse.Namespace) -> Answer:
    """Every figure of a run, each with its formula."""
    shape = shape_of(options)
    machine, dtype = machine_of(options)
    common: dict[str, Any] = {"seq_len": options.context, "devices": options.devices, "dtype": dtype}
    common["pairs"] = options.pairs
    checkpointing = options.activation_checkpointing
    more = recomputation(shape, options.context, checkpointing=checkpointing, pairs=options.pairs)
    part = utilisation(options, shape, machine, more, common)
    if part <= 1 < part * more:
        raise ValueError(
            f"expected an MFU of at most {1 / more:.4g} with activation checkpointing {checkpointing}, got {part:g}: "
            f"with the recomputed FLOPs it is {part * more:.4g} of the peak"
        )
    run = training_time(shape, tokens_of(options, shape), machine, part, price=options.price, **common)
    length, flops, count = shape.sequence(options.context), int(run.flops.total), int(run.tokens)
    each, rate = flops / count, float(run.tokens_per_second)
    peak = human(machine.peak(dtype))
    source = "given"
    if options.hfu is not None:
        source = f"HFU·model FLOPs/hardware FLOPs = {options.hfu:g}/{more:.4f}"
    elif options.mfu is None:
        source = f"tokens a second·FLOPs a token/peak = {rate:,.0f}·{each:,.0f}/{peak}"
    seconds = float(run.seconds)
    figures: list[tuple[str, float, str, str, str]] = [  # name, value, unit, formatted, formula
        ("tokens", count, "tokens", f"{count:,}", f"whole sequences of {length:,}"),
        ("model FLOPs", flops, "FLOP", human(FLOPs(flops)), f"tokens·FLOPs a token = {count:,}·{each:,.0f}"),
        ("MFU", part, "", f"{part:.1%}", source),
    ]
    if checkpointing != "none":
        how = f"MFU·hardware FLOPs/model FLOPs = {part:g}·{more:.4f}, recomputing: {checkpointing}"
        figures.append(("HFU", part * more, "", f"{part * more:.1%}", how))
    how = f"devices·peak·MFU = {options.devices:,}·{peak}·{part:g}"
    figures += [
        ("rate", float(run.rate), "FLOP/s", human(run.rate), how),
        ("tokens a second", rate, "tokens/s", f"{rate:,.0f}", "tokens/wall clock"),
        ("wall clock", seconds, "s", human(run.seconds), f"model FLOPs/rate = {flops:,}/{float(run.rate):,.0f}"),
    ]
    if seconds >= YEAR / 2:
        figures.append(("in years", seconds / YEAR, "years", f"{seconds / YEAR:,.2f}", "of 365.25 days"))
    how = f"devices·wall clock = {options.devices:,}·{run.hours:,.4f}"
    figures.append(("device hours", run.device_hours, "h", f"{run.device_hours:,.2f}", how))
    if options.batch is not None:
        steps = count // (positive("batch", options.batch) * length)
        how = f"tokens//(batch·context) = {count:,}//({options.batch:,}·{length:,})"
        figures.append(("steps", steps, "", f"{steps:,}", how))
    if run.cost is not None:
        how = f"device hours·price = {run.device_hours:,.4f}·{options.price:g}"
        figures.append(("cost", run.cost, "", f"{run.cost:,.2f}", how))
    energy, carbon = energy_of(options, run.device_hours)
    if energy is not None:
        how = f"device hours·watts/1000 = {run.device_hours:,.4f}·{options.watts:g}/1000"
        figures.append(("energy", energy, "kWh", f"{energy:,.1f} kWh", how))
        if carbon is not None:
            how = f"energy·grams/1000 = {energy:,.4f}·{options.carbon:g}/1000"
            figures.append(("carbon dioxide", carbon, "kg", f"{carbon:,.1f} kg", how))
    shown = [(name, formatted, how) for name, _, _, formatted, how in figures]
    records = [{"name": name, "value": value, "unit": unit, "how": how} for name, value, unit, _, how in figures]
    page = listing(f"{name_of(options)}, training", shown, explain=options.explain)
    return Answer(page + "\n" + wrapped(run.convention), records)


def utilisation(
    options: argparse.Namespace, shape: TransformerShape, machine: Device, more: float, common: dict[str, Any]
) -> float:
    """The MFU of the options, or that of their HFU or measured tokens a second."""
    if options.mfu is not None:
        return float(options.mfu)
    if options.hfu is not None:
        if options.activation_checkpointing == "none":
            raise ValueError("expected --activation-checkpointing beside --hfu, which counts recomputed FLOPs")
        if not 0 < options.hfu <= 1:
            raise ValueError(f"expected --hfu above 0 and at most 1, got {options.hfu:g}: 0.4 means 40% of the peak")
        return float(options.hfu) / more
    part = mfu(shape, options.tokens_per_second, machine, **common)
    if part > 1:
        raise ValueError(
            f"expected --tokens-per-second below the peak, got {options.tokens_per_second:,.0f}, {part:.0%} of it: "
            "measure it again, or give all of the --devices that reached it"
        )
    return part


def tokens_of(options: argparse.Namespace, shape: TransformerShape) -> int:
    """The tokens of the run, by --tokens or --steps."""
    if options.tokens is not None:
        return int(options.tokens)
    if options.batch is None:
        raise ValueError("expected --batch, the sequences of a step, beside --steps")
    return int(options.steps) * int(options.batch) * shape.sequence(options.context)
