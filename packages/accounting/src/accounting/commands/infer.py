"""`accounting infer`: memory, prefill and decoding of a model that generates, by a roofline."""

from __future__ import annotations

import argparse
from typing import Any

from accounting.commands.answer import Answer
from accounting.commands.options import shape_of
from accounting.commands.tables import columns, wrapped
from accounting.hardware.devices import Device, device
from accounting.memory.inference import FORMATS
from accounting.planning.inference import (
    Generation,
    Storage,
    device_inference_memory,
    generation_time,
    longest_generation,
    max_sequences,
    requests_at_once,
)
from accounting.shape import TransformerShape
from accounting.units import Bytes, human

STORED = ("fp32", "bf16", "fp8", "int8", "mxfp4", "int4")  # the weights that are compared
UNBOUNDED = 1 << 39  # positions or sequences: a window, or no cache, ends what they take
OUTPUT = 256  # new tokens, unless the context is too short for them


def infer(options: argparse.Namespace) -> Answer:
    """What each way of storing the weights needs and reaches."""
    shape, machine = shape_of(options), device(options.device)
    prompt, output = lengths(shape, options.prompt, options.output)
    head = ["weights", "memory", "fits", "most sequences", "longest context", "prefill", "bound by"]
    head += ["decoding a step", "bound by", "tokens/s"]
    if options.price is not None:
        head += ["cost/M prompt", "cost/M output"]
    limits = {"first_token": options.first_token, "each_token": options.each_token}
    limits = {name: value for name, value in limits.items() if value is not None}
    if limits:
        head.append("requests at once")
    table, records, how = [tuple(head)], [], []
    for weights in STORED:
        if FORMATS[weights].stores == "experts" and shape.most_experts == 1:
            continue
        storage = Storage(weights, options.cache, options.devices, options.page, options.hybrid_pages)
        found = generation_time(shape, machine, prompt, output, options.batch, storage=storage)
        record = figures(shape, machine, found, storage, options.price)
        row = cells(weights, found, record)
        if limits:
            record["requests at once"] = requests_at_once(shape, machine, prompt, output, storage=storage, **limits)
            row = (*row, f"{record['requests at once']:,}")
        records.append({"weights": weights, **record})
        table.append(row)
        how += explained(shape, found, storage)
    pages = "of layers with a window no more than the window"
    if options.page:
        alike = "of a window those that it touches" if options.hybrid_pages else "for every layer alike"
        pages = f"in pages of {options.page:,} positions, {alike}"
    cache = device_inference_memory(shape, options.batch, prompt + output, storage=storage)["kv cache"]
    note = (
        f"{options.batch:,} × {prompt:,} positions of prompt and {output:,} new tokens on {options.devices:,} × "
        f"{machine.name} ({machine.source}); {options.cache} cache of {human(cache)} "
        f"on a device at the end, {pages}; most sequences and longest context "
        "are what fits the memory; prefill is the time to the first token, a decoding step that of each further one: "
        "a lower bound of time, arithmetic and memory traffic overlapping "
        "perfectly, every expert that the batch can choose read"
    )
    if prompt + output > shape.context_length:
        note += f"; {prompt + output:,} positions are more than the {shape.context_length:,} of the model's own context"
    if limits:
        words = [f"{'first' if name == 'first_token' else 'further'} token {limits[name]:g} s" for name in limits]
        note += f"; requests at once have their {' and each '.join(words)} after the last at most"
    if options.devices > 1:
        sent = human(generation_time(shape, machine, prompt, output, options.batch, storage=storage).last_step.sent)
        note += f"; each device sends {sent} a step to the others, whose time is not in it"
    page = [columns(table), *(f"  {line}" for line in how if options.explain), wrapped(note)]
    return Answer("\n".join(page), records)


def lengths(shape: TransformerShape, prompt: int | None, output: int | None) -> tuple[int, int]:
    """Positions of the prompt and new tokens; what is not given fills the context, up to OUTPUT new tokens."""
    if output is None:
        room = shape.context_length - (prompt or 0)
        output = max(2, min(OUTPUT, room if prompt else shape.context_length // 2))
    return prompt or max(1, shape.context_length - output), output


def figures(
    shape: TransformerShape, machine: Device, found: Generation, storage: Storage, price: float | None
) -> dict[str, Any]:
    """One row as plain data."""
    context = found.prompt + found.output
    memory = int(device_inference_memory(shape, found.batch_size, context, storage=storage))
    return {
        "bytes": memory,
        "fits": memory <= machine.memory,
        "most sequences": max_sequences(shape, machine, context, storage=storage),
        "longest context": longest_generation(shape, machine, found.batch_size, storage=storage),
        "prefill seconds": float(found.prefill.seconds),
        "prefill bound by": found.prefill.bound,
        "decoding seconds a step": float(found.last_step.seconds),
        "decoding bound by": found.last_step.bound,
        "tokens a second": found.tokens_per_second,
        "cost of a million prompt tokens": None if price is None else found.cost_per_million_prompt_tokens(price),
        "cost of a million output tokens": None if price is None else found.cost_per_million_output_tokens(price),
    }


def cells(weights: str, found: Generation, record: dict[str, Any]) -> tuple[str, ...]:
    """The same in words."""
    row = [
        weights,
        human(Bytes(record["bytes"])),
        "yes" if record["fits"] else "no",
        f"{record['most sequences']:,}" if record["most sequences"] < UNBOUNDED else "any",
        f"{record['longest context']:,}" if record["longest context"] < UNBOUNDED else "any",
        human(found.prefill.seconds),
        found.prefill.bound,
        human(found.last_step.seconds),
        found.last_step.bound,
        f"{found.tokens_per_second:,.0f}",
    ]
    for name in ("cost of a million prompt tokens", "cost of a million output tokens"):
        row += [] if record[name] is None else [f"{record[name]:,.4f}"]
    return tuple(row)


def explained(shape: TransformerShape, found: Generation, storage: Storage) -> list[str]:
    """What the figures of a row are made of."""
    memory = device_inference_memory(shape, found.batch_size, found.prompt + found.output, storage=storage)
    parts = " + ".join(f"{name} {value}" for name, value in memory.items() if value)
    lines = [f"{storage.weights}: memory = {parts}"]
    for name, one in (("prefill", found.prefill), ("the last step", found.last_step)):
        taken = f"{human(one.arithmetic)} for {human(one.flops)}, {human(one.traffic)} for {human(one.moved)} moved"
        lines.append(f"{storage.weights}: {name} = the longer of {taken}")
    return lines
