"""What each command answers: words for a person, and the same figures as records for a program."""

from __future__ import annotations

import os
from dataclasses import fields, replace

from accounting.cluster.layout import Layout
from accounting.commands import report as reports
from accounting.commands.answer import Answer
from accounting.commands.machine import machine_of
from accounting.hardware.devices import DEVICES, device
from accounting.memory.training import training_memory
from accounting.models.files import find
from accounting.planning.fitting import (
    deepened,
    largest_shape,
    lengthened,
    longest_context,
    max_batch_size,
    memory_line,
    peak_bytes,
    widened,
)
from accounting.planning.scaling import LAWS, compute_optimal, formula
from accounting.planning.training_time import affordable_tokens, mfu, training_time
from accounting.policy import Policy
from accounting.shape import positive
from accounting.units import Bytes, FLOPs, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from accounting.shape import TransformerShape

    # name, how many there are, what that comes to and its unit, and the shape, batch and context of n of them
    Tried = tuple[str, int, int, str, Callable[[int], tuple[TransformerShape, int, int | None]]]

GB = 10**9
FORMATS = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8")


def policy(options: argparse.Namespace) -> Policy:
    """How the step is computed."""
    return Policy(
        **{field.name: getattr(options, field.name) for field in fields(Policy) if hasattr(options, field.name)}
    )


def layout(options: argparse.Namespace) -> Layout:
    """The devices to share the work; ValueError for an option that would change nothing, or devices that do not add up."""
    others = options.tensor * options.pipeline * options.context_parallel
    data = options.data_parallel
    if options.gpus is not None and data is None:
        if options.gpus % others:
            raise ValueError(
                f"--gpus {options.gpus} is no multiple of context {options.context_parallel} × tensor {options.tensor} × "
                f"pipeline {options.pipeline} = {others}: replicas take as many each"
            )
        data = options.gpus // others
    found = Layout(
        data or 1,
        options.tensor,
        options.pipeline,
        options.zero,
        options.sequence_parallel,
        options.micro_batches,
        options.context_parallel,
        options.expert,
    )
    if options.gpus not in (None, found.gpus):
        raise ValueError(f"--gpus {options.gpus} is not {found.words}: leave one of them out")
    if options.zero and found.replicas == 1:
        raise ValueError(
            "--zero shards over devices that hold the same weights, and there is one: give --data-parallel"
        )
    if options.sequence_parallel and options.tensor == 1:
        raise ValueError("--sequence-parallel shares over the devices of --tensor, and there is one: give more")
    return found


def report(options: argparse.Namespace) -> Answer:
    """Everything about a shape; with --html a page is written."""
    shape, limits = find(options.shape), reports.LIMITS
    if options.device:
        limits = ((options.device, int(device(options.device).memory)), *limits)
    sections = reports.report(
        shape,
        options.context,
        options.batch,
        pairs=options.pairs,
        layout=layout(options),
        limits=limits,
        policy=policy(options),
    )
    if options.html:
        if (
            os.path.exists(options.html)
            and os.path.exists(options.shape)
            and os.path.samefile(options.html, options.shape)
        ):
            raise ValueError(f"--html {options.html} is the file that the shape is read from: name another")
        from accounting.commands.page import page  # here, because nothing but a page needs it

        drawn = limits[:1] if options.device else limits
        words = page(
            options.shape,
            shape,
            sections,
            options.context,
            options.batch,
            limits=drawn,
            explain=options.explain,
            pairs=options.pairs,
            policy=policy(options),
        )
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(words)
        return Answer(f"wrote {options.html}", [])
    text = reports.text(sections, binary=options.gib, explain=options.explain)
    return Answer(text, reports.records(sections), reports.as_json(sections))


def compare(options: argparse.Namespace) -> Answer:
    """Two shapes, part by part."""
    first, second = (
        reports.report(find(name), options.context, options.batch, pairs=options.pairs, policy=policy(options))
        for name in (options.first, options.second)
    )
    text = reports.compare(first, second, (options.first, options.second), binary=options.gib, explain=options.explain)
    return Answer(text, reports.compared(first, second))


def fit(options: argparse.Namespace) -> Answer:
    """What trains in so many bytes, with the peaks of the answer and of one more."""
    shape, where = find(options.shape), layout(options)
    limit = device(options.device).memory if options.device else Bytes(int(options.memory * GB))
    batch, length = options.batch, options.context
    several = where.gpus > 1 or where.micro_batches > 1
    known: dict[str, Any] = {"policy": policy(options), "layout": where if several else None}
    most = max_batch_size(shape, limit, length, **known)
    longest = longest_context(shape, limit, batch, **known)
    deep, wide = (largest_shape(shape, limit, batch, length, vary=vary, **known) for vary in ("layers", "width"))
    tried: list[Tried] = [
        (
            f"largest {'micro-batch of a replica' if several else 'batch'} at context {shape.sequence(length):,}",
            most,
            most,
            "sequences",
            lambda n: (shape, n, length),
        ),
        (
            f"longest context at batch {batch:,}",
            longest,
            longest,
            "positions",
            lambda n: (lengthened(shape, n), batch, n),
        ),
        (
            "deepest of its kind",
            deep.num_layers if deep else 0,
            deep.num_layers if deep else 0,
            "layers",
            lambda n: (deepened(shape, n), batch, length),
        ),
        (
            "widest of its kind",
            wide.kv_heads if wide else 0,
            wide.d_model if wide else 0,
            f"wide, {wide.num_heads:,} heads" if wide else "wide",
            lambda n: (widened(shape, n), batch, length),
        ),
    ]
    rows, records = [], []
    for name, count, value, unit, made in tried:
        taken = peak_bytes(*made(count), **known) if count else None
        beyond = peak_bytes(*made(count + 1), **known) if count or not several else None
        records.append({"name": name, "value": value, "unit": unit, "bytes": taken, "bytes of one more": beyond})
        rows.append((name, f"{value:,} {unit}" if count else "none fits"))
        if options.explain:
            here = f"{human(Bytes(taken))} at the peak, {{}} with one more" if taken is not None else "one takes {}"
            rows.append(("", "= " + here.format("-" if beyond is None else human(Bytes(beyond)))))
    words = training_memory(shape, 1, 1, policy=policy(options)).convention
    if several:
        words = f"each of {where.words}, gradients there from the start and no buffers of collectives; {words}"
    return Answer(lines(f"{options.shape} in {human(limit)}, training", rows) + "\n" + reports.wrapped(words), records)


def time(options: argparse.Namespace) -> Answer:
    """Hours and money of a training run, or the tokens that hours are good for."""
    shape = find(options.shape)
    machine, dtype = machine_of(options)
    common: dict[str, Any] = {
        "seq_len": options.context,
        "devices": options.devices,
        "dtype": dtype,
        "pairs": options.pairs,
    }
    part = options.mfu
    if part is None:
        part = mfu(shape, options.tokens_per_second, machine, **common)
        if part > 1:
            raise ValueError(
                f"--tokens-per-second {options.tokens_per_second:,.0f} would be {part:.0%} of the peak: "
                "measure it again, or give all of the --devices that reached it"
            )
    tokens = options.tokens
    if tokens is None:
        tokens = int(affordable_tokens(shape, options.hours, machine, part, **common))
        if not tokens:
            raise ValueError(f"hours {options.hours:g} are not enough for one sequence: give more, or a smaller shape")
    run = training_time(shape, tokens, machine, part, price=options.price, **common)
    length, flops, count = shape.sequence(options.context), int(run.flops.total), int(run.tokens)
    each = flops / count
    peak, rate = human(machine.peak(dtype)), float(run.tokens_per_second)
    # name, value and unit, in words, and how it follows from the others
    rows: list[tuple[str, float, str, str, str]] = [
        ("tokens", count, "tokens", f"{count:,}", f"whole sequences of {length:,}"),
        ("model FLOPs", flops, "FLOP", human(FLOPs(flops)), f"tokens·FLOPs a token = {count:,}·{each:,.0f}"),
        (
            "MFU",
            part,
            "",
            f"{part:.1%}",
            "given" if options.mfu else f"tokens a second·FLOPs a token/peak = {rate:,.0f}·{each:,.0f}/{peak}",
        ),
        ("rate", float(run.rate), "FLOP/s", human(run.rate), f"devices·peak·MFU = {options.devices:,}·{peak}·{part:g}"),
        ("tokens a second", rate, "tokens/s", f"{rate:,.0f}", "tokens/wall clock"),
        (
            "wall clock",
            float(run.seconds),
            "s",
            human(run.seconds),
            f"tokens·FLOPs a token/rate = {flops:,}/{float(run.rate):,.0f}",
        ),
        (
            "device hours",
            run.device_hours,
            "h",
            f"{run.device_hours:,.2f}",
            f"devices·wall clock = {options.devices:,}·{run.hours:,.4f}",
        ),
    ]
    if options.batch is not None:
        steps = count // (positive("batch", options.batch) * length)
        how = f"tokens//(batch·context) = {count:,}//({options.batch:,}·{length:,})"
        rows.append(("steps", steps, "", f"{steps:,}", how))
    if run.cost is not None:
        how = f"device hours·price = {run.device_hours:,.4f}·{options.price:g}"
        rows.append(("cost", run.cost, "", f"{run.cost:,.2f}", how))
    shown = [
        row
        for name, _, _, words, how in rows
        for row in ([(name, words), ("", f"= {how}")] if options.explain else [(name, words)])
    ]
    records = [{"name": name, "value": value, "unit": unit, "how": how} for name, value, unit, _, how in rows]
    return Answer(lines(f"{options.shape}, training", shown) + "\n" + reports.wrapped(run.convention), records)


def peak(options: argparse.Namespace) -> Answer:
    """The peak as a line in the batch, of several shapes, and the largest batch in common cards."""
    how_run = policy(options)
    table = [("shape", "a, bytes a sequence", "b, bytes", "from batch", *(name for name, _ in reports.LIMITS))]
    records, how = [], []
    for name in options.shapes:
        shape = find(name)
        line = memory_line(shape, options.context, policy=how_run)
        batches = {
            card: max_batch_size(shape, limit, options.context, policy=how_run) for card, limit in reports.LIMITS
        }
        numbers = (int(line.slope), int(line.intercept), line.first, *batches.values())
        table.append((name, *(f"{number:,}" for number in numbers)))
        phases = training_memory(shape, line.first, options.context, policy=replace(how_run, allocator="exact")).phases
        row = next(reports.whole_row(name, phase) for phase in phases if phase.title == line.phase)
        how.append(f"  {name}, {line.phase}: {row.formula} = {row.numbers}")
        records.append({"shape": name, "a": numbers[0], "b": numbers[1], "from batch": line.first, **batches})
    words = training_memory(find(options.shapes[0]), 1, options.context, policy=how_run).convention
    note = reports.wrapped(f"peak = a · batch + b; the largest batch in each; {words}")
    return Answer("\n".join([reports.columns(table), *(how if options.explain else []), note]), records)


def optimal(options: argparse.Namespace) -> Answer:
    """Parameters and tokens that compute is best spent on, by every law."""
    answers = [compute_optimal(options.compute, parameters=options.parameters, law=law) for law in LAWS]
    table = [("law", "FLOPs", "parameters", "tokens", "tokens/parameter", "loss")]
    table += [
        (
            answer.law,
            f"{float(answer.compute):.3g}",
            f"{float(answer.parameters):.3g}",
            f"{float(answer.tokens):.3g}",
            f"{answer.tokens_per_parameter:.1f}",
            "" if answer.loss is None else f"{answer.loss:.3f}",
        )
        for answer in answers
    ]
    records = [
        {
            "law": answer.law,
            "FLOPs": int(answer.compute),
            "parameters": int(answer.parameters),
            "tokens": int(answer.tokens),
            "loss": answer.loss,
            "warning": answer.warning,
            "convention": answer.convention,
        }
        for answer in answers
    ]
    page = [reports.columns(table), *(f"warning: {one.warning}" for one in answers if one.warning)]
    if options.explain:
        page += [reports.wrapped(f"{one.law}: {formula(one.law)}; {one.convention}") for one in answers]
    return Answer("\n".join(page), records)


def devices(options: argparse.Namespace) -> Answer:
    """The table of devices: peaks in TFLOP/s, and the document each is from."""
    chosen = [device(name) for name in options.names] or list(DEVICES.values())
    table: list[tuple[str, ...]] = [("device", *FORMATS, "memory", "bandwidth")]
    records = []
    for one in chosen:
        cells = [f"{float(one.peaks[dtype]) / 1e12:.4g}" if dtype in one.peaks else "" for dtype in FORMATS]
        table.append((one.name, *cells, human(one.memory), human(one.bandwidth)))
        peaks = {dtype: float(one.peaks[dtype]) if dtype in one.peaks else None for dtype in FORMATS}
        sizes = {"memory": int(one.memory), "bandwidth": float(one.bandwidth)}
        records.append({"device": one.name, **peaks, **sizes, "source": one.source})
    note = reports.wrapped("dense peaks in TFLOP/s, accumulated in fp32; GB is 10^9 bytes")
    sources = [f"{one.name}: {one.source}" for one in chosen]
    return Answer("\n".join([reports.columns(table), note, *sources]), records)


def lines(title: str, rows: list[tuple[str, str]]) -> str:
    """Names to the left, values to the right; what has no name is about the value above it."""
    named = [row for row in rows if row[0]]
    width, right = max(len(name) for name, _ in named), max(len(value) for _, value in named)
    body = [f"  {name:<{width}}  {value:>{right}}" if name else f"      {value}" for name, value in rows]
    return "\n".join([title, "─" * len(title), *body])
