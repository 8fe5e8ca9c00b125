"""`accounting infer`: memory, prefill and decoding of a model that generates, by a roofline."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from accounting.commands.options import GB, shape_of
from accounting.commands.tables import Answer, columns, wrapped
from accounting.counting.parameters import parameters
from accounting.hardware.devices import Device, device
from accounting.memory.inference import FORMATS
from accounting.planning import inference
from accounting.shape import TransformerShape
from accounting.units import Bytes, human

STORED = ("fp32", "bf16", "fp8", "int8", "mxfp4", "int4")  # the weights that are compared
UNBOUNDED = 1 << 39  # positions or sequences: a window, or no cache, ends what they take
OUTPUT = 256  # new tokens, unless the context is too short for them


def infer(options: argparse.Namespace) -> Answer:
    """Memory and times for each format of the weights."""
    shape, machine = shape_of(options), device(options.device)
    prompt, output, length = options.prompt, options.output, shape.context_length
    if output is None:  # what is not given fills the context
        output = max(2, min(OUTPUT, length - prompt if prompt else length // 2))
    prompt = prompt or max(1, length - output)
    head = ["weights", "memory", "fits", "most sequences", "longest context", "prefill", "bound by"]
    head += ["decoding a step", "bound by", "tokens/s at most", "reached"]
    if options.price is not None:
        head += ["cost/M prompt", "cost/M output"]
    engine = engine_of(options, machine)
    limits = {"first_token": options.first_token, "each_token": options.each_token}
    limits = {name: value for name, value in limits.items() if value is not None}
    if limits:
        head.append("requests at once")
    table, records, how = [tuple(head)], [], []
    for weights in STORED:
        if FORMATS[weights].stores == "experts" and shape.most_experts == 1:
            continue
        storage = inference.Storage(weights, options.cache, options.devices, options.page, options.hybrid_pages)
        generation = inference.generation_time(shape, machine, prompt, output, options.batch, storage=storage)
        row, record = figures(shape, machine, generation, storage, options.price, engine)
        if limits:
            record["requests at once"] = inference.requests_at_once(
                shape, machine, prompt, output, storage=storage, engine=engine, **limits
            )
            row = (*row, f"{record['requests at once']:,}")
        records.append(record)
        table.append(row)
        how += explained(shape, generation, storage)
    usable = "all of the datasheet's memory"
    if engine is not None:
        usable = f"what vLLM leaves with a utilization of {engine.utilization:g}, {engine.chunk:,} tokens of a prefill "
        usable += f"and {engine.sequences:,} sequences at once"
    pages = "of layers with a window no more than the window"
    if options.page:
        alike = "of a window those that it touches" if options.hybrid_pages else "for every layer alike"
        pages = f"in pages of {options.page:,} positions, {alike}"
    (least, most), (slowest, fastest) = inference.reached(options.batch, options.devices), inference.REACHED["prefill"]
    kind = "of one text on one device" if options.devices == 1 else "of one text on several"
    kind = "in batches" if options.batch > 1 else kind
    cache = inference.device_inference_memory(shape, options.batch, prompt + output, storage=storage)["kv cache"]
    note = (
        f"{options.batch:,} × {prompt:,} positions of prompt and {output:,} new tokens on {options.devices:,} × "
        f"{machine.name} ({machine.source}); {options.cache} cache of {human(cache)} "
        f"on a device at the end, {pages}; fits, most sequences and longest context are by {usable}; prefill "
        "is the time to the first token, a decoding step that of each further one, both at least: arithmetic and "
        "memory traffic overlap perfectly, every expert that the batch can choose is read. Reached is what measured "
        f"engines make of such a bound, {least:.0%} to {most:.0%} {kind}, {slowest:.0%} to {fastest:.0%} of "
        "prefill, by which costs are"
    )
    if prompt + output > shape.context_length:
        note += f"; {prompt + output:,} positions are more than the {shape.context_length:,} of the model's own context"
    if limits:
        words = [f"{'first' if name == 'first_token' else 'further'} token {limits[name]:g} s" for name in limits]
        note += f"; requests at once have their {' and each '.join(words)} after the last at most"
    if options.devices > 1:
        last = inference.generation_time(shape, machine, prompt, output, options.batch, storage=storage).last_step
        note += f"; each device sends {human(last.sent)} a step to the others, whose time is not in it"
    if options.shape and options.shape.endswith(".gguf"):
        from accounting.models.gguf import compute_buffer, stored  # other shapes have no such file

        parts = stored(options.shape, int(parameters(shape).total))
        records.append({"weights": "file", "bytes of tensors": sum(parts.values()), **parts})
        sizes = ", ".join(f"{name} {human(Bytes(size))}" for name, size in parts.items())
        note += f"; the file stores {human(Bytes(sum(parts.values())), binary=True)} of tensors: {sizes}"
        for flash, label in ((True, "compute buffer"), (False, "compute buffer without flash attention")):
            if buffer := compute_buffer(shape, prompt + output, flash=flash):
                note += f"; llama.cpp's {label} is {human(Bytes(buffer), binary=True)} more"
                records[-1][label] = buffer
    page = [columns(table), *(f"  {line}" for line in how if options.explain), wrapped(note)]
    return Answer("\n".join(page), records)


def engine_of(options: argparse.Namespace, machine: Device) -> inference.Engine | None:
    """The engine that the options describe, None for all of a device."""
    names = ("utilization", "chunk", "sequences", "overhead")
    changes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.engine == "none":
        if changes:
            raise ValueError(f"--{next(iter(changes))} is of an engine, and --engine is none: leave one of them out")
        return None
    if "overhead" in changes:
        changes["overhead"] = round(changes["overhead"] * GB)
    return replace(inference.engine_for(machine), **changes)


def figures(
    shape: TransformerShape,
    machine: Device,
    generation: inference.Generation,
    storage: inference.Storage,
    price: float | None,
    engine: inference.Engine | None,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One row of the table, and the same as plain data."""
    least, most = inference.reached(generation.batch_size, generation.devices)
    prefill, last, rate = generation.prefill, generation.last_step, generation.tokens_per_second
    context = generation.prompt + generation.output
    memory = inference.device_inference_memory(shape, generation.batch_size, context, storage=storage)
    longest = inference.longest_generation(shape, machine, generation.batch_size, storage=storage, engine=engine)
    sequences = inference.max_sequences(shape, machine, context, storage=storage, engine=engine)
    record: dict[str, Any] = {
        "weights": storage.weights,
        "bytes": int(memory),
        "free for the cache": None if engine is None else inference.free_cache(shape, machine, engine, storage=storage),
        "fits": longest >= context,
        "most sequences": sequences,
        "longest context": longest,
        "prefill seconds": float(prefill.seconds),
        "prefill bound by": prefill.bound,
        "decoding seconds a step": float(last.seconds),
        "decoding bound by": last.bound,
        "tokens a second": rate,
        "least reached tokens a second": least * rate,
        "most reached tokens a second": most * rate,
    }
    row = [storage.weights, human(Bytes(int(memory))), "yes" if longest >= context else "no"]
    row += ["any" if number >= UNBOUNDED else f"{number:,}" for number in (sequences, longest)]
    row += [human(prefill.seconds), prefill.bound, human(last.seconds), last.bound]
    row += [f"{rate:,.0f}", f"{least * rate:,.0f}–{most * rate:,.0f}"]
    for name, (low, high), cost in (
        ("prompt", inference.REACHED["prefill"], generation.cost_per_million_prompt_tokens),
        ("output", (least, most), generation.cost_per_million_output_tokens),
    ):
        money = None if price is None else cost(price)
        record[f"cost of a million {name} tokens"] = money
        row += [] if money is None else [f"{money / high:,.4f}–{money / low:,.4f}"]
    return tuple(row), record


def explained(shape: TransformerShape, generation: inference.Generation, storage: inference.Storage) -> list[str]:
    """The parts of the figures of a row."""
    memory = inference.device_inference_memory(
        shape, generation.batch_size, generation.prompt + generation.output, storage=storage
    )
    parts = " + ".join(f"{name} {value}" for name, value in memory.items() if value)
    lines = [f"{storage.weights}: memory = {parts}"]
    for name, one in (("prefill", generation.prefill), ("the last step", generation.last_step)):
        times = f"{human(one.arithmetic)} for {human(one.flops)}, {human(one.traffic)} for {human(one.moved)} moved"
        lines.append(f"{storage.weights}: {name} = the longer of {times}")
    return lines
