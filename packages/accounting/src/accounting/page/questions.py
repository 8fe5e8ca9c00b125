"""A question with its answer as plain data: what the page computes, translated from here.

It has a value for each key of CHOICES; whole "batch", "devices", "tensor", "pipeline", "micro_batches", "tokens" and
"output"; a "price" of a device and hour; and, or None, a "config", the contents of a config.json in place of the
model, a "context", of generation that of the prompt, and a "lora_rank". Devices are data × tensor × pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from accounting.breakdown import Breakdown, symbols
from accounting.checks import positive
from accounting.cluster.layout import Layout
from accounting.cluster.memory import fullest
from accounting.counting.flops import decode_flops, prefill_flops, training_flops
from accounting.counting.parameters import parameters
from accounting.hardware.devices import DEVICES, Device
from accounting.hardware.interconnect import ALONE, INTERCONNECTS
from accounting.memory.inference import BITS, FORMATS
from accounting.memory.training import training_memory
from accounting.models.families import from_config
from accounting.models.published import SHAPES
from accounting.planning.accuracy import accuracy
from accounting.planning.fitting import largest_shape, longest_context, max_batch_size
from accounting.planning.inference import (
    Storage,
    device_inference_memory,
    engine_for,
    free_cache,
    generation_time,
    longest_generation,
    max_sequences,
    reached,
)
from accounting.planning.step_time import step_time
from accounting.policy import SETTINGS, Policy
from accounting.shape import TransformerShape
from accounting.units import Seconds, human

UNBOUNDED = 1 << 39  # positions or sequences: a window, or no cache, ends what they take
OF_POLICY = (
    *("precision", "optimizer", "activation_checkpointing", "attention_kernel", "loss", "gradient_dtype"),
    *("moment_dtype", "offload", "frozen_dtype", "model_code"),
)
CHOICES: dict[str, tuple[str, ...]] = {
    "purpose": ("train", "generate"),
    "model": tuple(SHAPES),
    "device": tuple(DEVICES),
    **{name: SETTINGS[name] for name in OF_POLICY},
    "zero": ("0", "1", "2", "3"),
    "weights": tuple(FORMATS),
    "cache": tuple(BITS),
}


def choices() -> dict[str, Any]:
    """The values that a question chooses from, and the meaning of each name in formulas."""
    return {"choices": CHOICES, "symbols": symbols()}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Tables, each of them of named figures with their formulas; ValueError or KeyError for what cannot be."""
    shape, machine = _shape(question), DEVICES[question["device"]]
    tables = [_table("parameters", parameters(shape))]
    if shape.most_experts > 1:
        tables.append(_table("parameters of a token", parameters(shape, active=True)))
    rest = _training if question["purpose"] == "train" else _generation
    return {"tables": [*tables, *rest(question, shape, machine)]}


def largest(question: Mapping[str, Any]) -> dict[str, Any]:
    """The largest of each size that fits the device, the others as they are; None if none does."""
    shape, machine = _shape(question), DEVICES[question["device"]]
    memory, batch, context = int(machine.memory), question["batch"], question["context"]
    if question["purpose"] == "generate":
        storage, positions = _storage(question), _prompt(question, shape) + question["output"]
        engine = engine_for(machine)
        rows: list[tuple[str, Callable[[], int | None]]] = [
            ("sequences at once", lambda: max_sequences(shape, machine, positions, storage=storage, engine=engine)),
            ("positions of each", lambda: longest_generation(shape, machine, batch, storage=storage, engine=engine)),
        ]
        free = free_cache(shape, machine, engine, storage=storage)
        how = f"the most whose cache takes at most the {free:,} bytes that vLLM leaves of a device by its defaults"
        return {"rows": [_searched(name, search, how) for name, search in rows]}
    policy, layout = _policy(question), _layout(question)

    def size(vary: str) -> int | None:
        most = largest_shape(shape, memory, batch, context, vary=vary, policy=policy, layout=layout)
        return None if most is None else most.num_layers if vary == "layers" else most.d_model

    rows = [
        ("sequences of a micro-batch", lambda: max_batch_size(shape, memory, context, policy=policy, layout=layout)),
        ("positions of a sequence", lambda: longest_context(shape, memory, batch, policy=policy, layout=layout)),
        ("layers", lambda: size("layers")),
        ("width (d_model), in proportion", lambda: size("width")),
    ]
    how = f"the most whose peak in a step takes at most {memory:,} bytes of a device; one more does not fit"
    return {"rows": [_searched(name, search, how) for name, search in rows]}


def _searched(name: str, search: Callable[[], int | None], how: str) -> dict[str, Any]:
    try:
        value = search()
    except ValueError as error:
        return {"name": name, "value": None, "shown": "not counted", "formula": str(error)}
    shown = "none" if not value else "any number" if value >= UNBOUNDED else f"{value:,}"
    return {"name": name, "value": value, "shown": shown, "formula": how}


def _shape(question: Mapping[str, Any]) -> TransformerShape:
    shape = SHAPES[question["model"]] if question["config"] is None else from_config(question["config"])
    adapted = question["purpose"] == "train" and question["lora_rank"]
    return replace(shape, lora_rank=question["lora_rank"]) if adapted else shape


def _policy(question: Mapping[str, Any]) -> Policy:
    return Policy(**{name: question[name] for name in OF_POLICY})


def _layout(question: Mapping[str, Any]) -> Layout | None:
    """The devices of a training run; None for one device and one micro-batch."""
    devices, tensor, pipeline = question["devices"], question["tensor"], question["pipeline"]
    if devices % (tensor * pipeline):
        raise ValueError(f"expected devices as a multiple of tensor × pipeline {tensor * pipeline}, got {devices}")
    data = devices // (tensor * pipeline)
    zero = int(question["zero"]) if data > 1 else 0
    layout = Layout(data, tensor, pipeline, zero, tensor > 1, question["micro_batches"])
    return layout if layout.gpus > 1 or layout.micro_batches > 1 else None


def _storage(question: Mapping[str, Any]) -> Storage:
    return Storage(question["weights"], question["cache"], question["devices"])


def _prompt(question: Mapping[str, Any], shape: TransformerShape) -> int:
    return int(question["context"] or max(1, shape.context_length - question["output"]))


def _training(question: Mapping[str, Any], shape: TransformerShape, machine: Device) -> list[dict[str, Any]]:
    policy, batch, devices = _policy(question), question["batch"], question["devices"]
    layout, context = _layout(question), shape.sequence(question["context"])
    if layout is None:
        memory = _table("memory", training_memory(shape, batch, context, policy=policy).peak)
    else:
        memory = _table("memory", fullest(shape, layout, batch, context, policy=policy))
    memory |= {"device": int(machine.memory), "device shown": human(machine.memory)}
    layout = layout or Layout()
    sequences = batch * layout.micro_batches * layout.data
    flops = training_flops(shape, context, sequences, pairs="causal")
    joined = INTERCONNECTS.get(machine.name) if devices > 1 else ALONE
    if joined is None:
        raise ValueError(f"expected a device whose links are listed, or one device, got {devices} × {machine.name}")
    pairs = "full" if policy.attention_kernel == "eager" else "causal"
    step = step_time(shape, layout, machine, joined, batch, context, policy=policy, pairs=pairs)
    kind = "fp8" if policy.precision == "fp8" else "bf16"
    each, errors = float(step.total), accuracy(shape, machine, devices, context, precision=kind)
    steps = -(-positive("tokens", question["tokens"]) // (sequences * context))
    whole = each * steps
    peak = float(machine.peak("fp32" if policy.precision == "fp32" else "bf16"))
    run = [
        _figure("steps", steps, "", "tokens // (sequences of a step · context), rounded up"),
        _figure("time", whole, "s", f"{human(step.total)} of a step · {steps:,} steps"),
        _figure("at best", whole * errors.shortest, "s", f"time · {errors.shortest}"),
        _figure("at worst", whole * errors.longest, "s", f"time · {errors.longest}"),
        _figure("MFU", int(flops.total) / (each * devices * peak), "", "FLOPs / (step · devices · dense peak)"),
        _figure("cost", question["price"] * devices * whole / 3600, "", "price · devices · hours of time"),
    ]
    return [
        memory,
        _table("FLOPs of a step", flops),
        {
            "title": "time of a step",
            "note": f"the slowest stage of {layout.words}; matmuls as measured on {machine.name}",
            "total": each,
            "shown": human(step.total),
            "rows": [_figure(name, float(part), "s", CAUSES[name]) for name, part in step.parts.items() if float(part)],
        },
        {"title": "the run", "note": f"the range is that of {errors.words}", "total": None, "shown": "", "rows": run},
    ]


CAUSES = {
    "matmul": "FLOPs, recomputed ones included / (dense peak · part that matmuls reach)",
    "memory": "bytes that elementwise work reads and writes / bandwidth",
    "tensor": "bytes to the devices of a layer / rate of the link",
    "context": "keys and values of the other parts of a sequence / rate of the link",
    "expert": "tokens to their experts and back / rate of the link",
    "bubble": "(stages - 1) · time of a micro-batch",
    "data": "gradients and parameters / rate of the link or network, less what the backward hides",
    "optimizer": "bytes of weights, gradients and optimizer state / bandwidth",
}


def _generation(question: Mapping[str, Any], shape: TransformerShape, machine: Device) -> list[dict[str, Any]]:
    batch, prompt, output = question["batch"], _prompt(question, shape), question["output"]
    storage, price = _storage(question), question["price"]
    memory = _table("memory", device_inference_memory(shape, batch, prompt + output, storage=storage))
    memory |= {"device": int(machine.memory), "device shown": human(machine.memory)}
    time = generation_time(shape, machine, prompt, output, batch, storage=storage)
    rate, (least, most) = time.tokens_per_second, reached(batch, question["devices"])
    run = []
    for name, one in (("time to the first token", time.prefill), ("time of the last token", time.last_step)):
        how = f"the longer of {int(one.flops):,} FLOP / peak and {int(one.moved):,} B / bandwidth: {one.bound}"
        run.append(_figure(name, float(one.seconds), "s", how))
    run += [
        _figure("time", float(time.seconds), "s", "first token + every further token"),
        _figure("tokens a second", rate, "", "batch · (output - 1) / time after the first token"),
        _figure("tokens a second, slowest engine", least * rate, "", f"{least} of it, which measured engines reach"),
        _figure("tokens a second, fastest engine", most * rate, "", f"{most} of it"),
        _figure("cost of 1M prompt tokens", time.cost_per_million_prompt_tokens(price), "", "price · devices · hours"),
        _figure("cost of 1M output tokens", time.cost_per_million_output_tokens(price), "", "price · devices · hours"),
    ]
    note = "a roofline, hence lower bounds: arithmetic and memory traffic overlap, the longer decides"
    return [
        memory,
        _table("FLOPs of the prompt", prefill_flops(shape, prompt, batch)),
        _table("FLOPs of the last token", decode_flops(shape, prompt + output - 1, batch)),
        {"title": "the run", "note": note, "total": None, "shown": "", "rows": run},
    ]


def _figure(name: str, value: float, unit: str, formula: str) -> dict[str, Any]:
    shown = human(Seconds(value)) if unit == "s" else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return {"name": name, "value": value, "shown": f"{value:.1%}" if name == "MFU" else shown, "formula": formula}


def _table(title: str, one: Breakdown) -> dict[str, Any]:
    """A breakdown as plain data, without components that are nothing."""
    rows = [
        {
            "name": name,
            "value": int(term),
            "shown": human(one.unit(int(term))),
            "formula": term.text(),
            "numbers": term.text(values=True),
        }
        for name, term in one.terms
        if term
    ]
    note = one.convention if one.title == title else f"{one.title}; {one.convention}"
    return {"title": title, "note": note, "total": int(one.total), "shown": human(one.total), "rows": rows}
