"""What the page asks, answered by this package's functions: one question as plain values, and each part of its answer.

The page runs the translation of this file, and the tests hold both to the same questions.
"""

from __future__ import annotations

from typing import Any

from accounting.breakdown import Breakdown
from accounting.cluster.layout import Layout
from accounting.cluster.memory import fullest
from accounting.counting.flops import forward_flops, training_flops
from accounting.counting.parameters import parameters
from accounting.hardware.devices import DEVICES, Device, device
from accounting.hardware.interconnect import INTERCONNECTS, Interconnect
from accounting.memory.inference import inference_memory
from accounting.models.families import from_config
from accounting.models.published import SHAPES
from accounting.planning.accuracy import accuracy
from accounting.planning.fitting import longest_context, max_batch_size
from accounting.planning.inference import max_sequences
from accounting.planning.step_time import step_time
from accounting.policy import ATTENTION_KERNELS, CHECKPOINTINGS, OPTIMIZERS, PRECISIONS, Policy
from accounting.shape import TransformerShape, named
from accounting.units import ByteRate, Bytes, Count, human

QUESTION: dict[str, Any] = {  # every name of a question, and its value unless given
    "model": "llama-3-8b",
    "config": None,  # the contents of a config.json, instead of a model
    "device": "h100",
    "devices": 8,
    "zero": 3,
    "precision": "bf16",
    "optimizer": "adamw",
    "attention": "fused",
    "checkpointing": "full",
    "batch": 1,  # sequences of a micro-batch on each device
    "micro_batches": 8,  # of an optimizer step
    "context": 4096,
    "tokens": 1_000_000_000_000,
    "price": 2.0,  # money for one device and hour
}
CHOICES: dict[str, list[Any]] = {
    "model": list(SHAPES),
    "device": list(DEVICES),
    "zero": [0, 1, 2, 3],
    "precision": list(PRECISIONS),
    "optimizer": list(OPTIMIZERS),
    "attention": list(ATTENTION_KERNELS),
    "checkpointing": list(CHECKPOINTINGS),
}
ALONE = Interconnect(1, ByteRate(1.0), ByteRate(1.0), "a single device sends nothing")


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the answer by name, each with its rows, or with the reason why it has none.

    Args:
        question: Values by the names of QUESTION; those that are missing have its values.

    Returns:
        "parameters", "flops", "memory", "largest", "time", "serving": each a dict with "rows", of which each has a
        name, a value, the value in words, a formula and the formula with its numbers; or with "refused".
    """
    asked = QUESTION | question
    parts = {"flops": _flops, "memory": _memory, "largest": _largest, "time": _time, "serving": _serving}
    try:
        shape = from_config(asked["config"]) if asked["config"] else named("model", asked["model"], SHAPES)
        answered: dict[str, Any] = {"parameters": _parameters(shape, asked)}
    except (ValueError, TypeError, KeyError) as error:
        return {"parameters": {"refused": str(error.args[0])}}
    for name, part in parts.items():
        try:
            answered[name] = part(shape, asked)
        except (ValueError, TypeError, KeyError) as error:
            answered[name] = {"refused": str(error.args[0])}
    return answered


def _row(name: str, value: float, words: str, formula: str = "", numbers: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "words": words, "formula": formula, "numbers": numbers}


def _rows(counted: Breakdown) -> list[dict[str, Any]]:
    """The components of a breakdown, and their sum."""
    unit = counted.unit
    rows = [
        _row(name, int(term), human(unit(int(term))), term.text(), term.text(values=True))
        for name, term in counted.terms
        if int(term)
    ]
    return [*rows, _row("total", int(counted.total), human(counted.total))]


def _policy(asked: dict[str, Any]) -> Policy:
    return Policy(
        precision=asked["precision"],
        optimizer=asked["optimizer"],
        attention_kernel=asked["attention"],
        activation_checkpointing=asked["checkpointing"],
        gradient_accumulation=asked["micro_batches"] > 1,
    )


def _layout(asked: dict[str, Any]) -> Layout | None:
    """Replicas of the model; None for one device, which needs no layout."""
    if asked["devices"] == 1:
        return None
    return Layout(data=asked["devices"], zero=asked["zero"], micro_batches=asked["micro_batches"])


def _parameters(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    counted = parameters(shape)
    rows = _rows(counted)
    active = int(parameters(shape, active=True).total)
    if active != int(counted.total):
        rows.append(_row("active for a token", active, human(counted.unit(active))))
    return {"rows": rows, "convention": counted.convention}


def _flops(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    context, pairs = asked["context"], "full" if asked["attention"] == "eager" else "causal"
    forward = forward_flops(shape, context, pairs=pairs)
    sequences = asked["batch"] * asked["devices"] * asked["micro_batches"]
    step = training_flops(shape, context, sequences, pairs=pairs)
    rows = _rows(forward)
    rows.append(_row("training, an optimizer step", int(step.total), human(step.total)))
    return {"rows": rows, "convention": f"forward pass of one sequence of {context:,}; {forward.convention}"}


def _machine(asked: dict[str, Any]) -> Device:
    return device(asked["device"])


def _memory(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    layout = _layout(asked) or Layout(micro_batches=asked["micro_batches"])
    peak = fullest(shape, layout, asked["batch"], asked["context"], policy=_policy(asked))
    groups = [{"name": group.value, "value": int(size)} for group, size in peak.by_group().items() if int(size)]
    room = int(_machine(asked).memory)
    return {
        "rows": _rows(peak),
        "groups": groups,
        "limit": room,
        "fits": int(peak.total) <= room,
        "convention": f"the fullest device at its peak, {peak.moment}; {peak.convention}",
    }


def _largest(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    room, policy = int(_machine(asked).memory), _policy(asked)
    layout = _layout(asked) or Layout(micro_batches=asked["micro_batches"])
    batch = max_batch_size(shape, room, asked["context"], policy=policy, layout=layout)
    length = longest_context(shape, room, asked["batch"], policy=policy, layout=layout)
    return {
        "rows": [
            _row("sequences of a micro-batch", batch, f"{batch:,}", "largest batch whose peak fits"),
            _row("positions of a sequence", length, f"{length:,}", "longest context whose peak fits"),
        ],
        "convention": f"{human(Bytes(room))} of the device's memory, everything else as asked",
    }


def _time(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    machine, layout = _machine(asked), _layout(asked) or Layout(micro_batches=asked["micro_batches"])
    joined = ALONE if asked["devices"] == 1 else INTERCONNECTS.get(machine.name)
    if joined is None:
        raise ValueError(f"the links of several {machine.name} are not known: ask for one device, or for another")
    pairs = "full" if asked["attention"] == "eager" else "causal"
    policy, context = _policy(asked), asked["context"]
    step = step_time(shape, layout, machine, joined, asked["batch"], context, policy=policy, pairs=pairs)
    sequences = asked["batch"] * asked["devices"] * asked["micro_batches"]
    flops = int(training_flops(shape, context, sequences, pairs=pairs).total)
    steps = -(-asked["tokens"] // (sequences * context))
    seconds, errors = float(step.total), accuracy(shape)
    peak = float(machine.peak("fp32" if asked["precision"] == "fp32" else "bf16"))
    mfu = flops / (seconds * asked["devices"] * peak)
    rows = [_row(f"step: {name}", float(part), human(part)) for name, part in step.parts.items() if float(part)]
    rate = sequences * context / seconds
    rows += [
        _row("an optimizer step", seconds, human(step.total), "sum of the parts above"),
        _row("tokens a second", rate, f"{rate:,.0f}", "tokens of a step/seconds of a step"),
        _row("MFU", mfu, f"{mfu:.1%}", "model FLOPs/(devices·peak·seconds)"),
        _row("steps", steps, f"{steps:,}", "tokens/tokens of a step, rounded up"),
    ]
    for name, factor in (("shortest", errors.shortest), ("wall clock", 1.0), ("longest", errors.longest)):
        took = seconds * steps * factor
        cost = took / 3600 * asked["devices"] * asked["price"]
        how = "steps·seconds of a step" if factor == 1.0 else f"{factor:g}·wall clock: nine runs in ten lie between"
        rows.append(_row(name, took, human(type(step.total)(took)), how))
        rows.append(_row(f"cost, {name}", cost, f"{cost:,.0f}", "hours·devices·price"))
    return {"rows": rows, "convention": f"bound by {step.bound}; {errors.words}"}


def _serving(shape: TransformerShape, asked: dict[str, Any]) -> dict[str, Any]:
    weights = "fp32" if asked["precision"] == "fp32" else "bf16"
    memory = inference_memory(shape, 1, asked["context"], weights=weights, cache=weights)
    most: Count | int = max_sequences(shape, _machine(asked), asked["context"])
    rows = [*_rows(memory), _row("sequences at once, bf16", int(most), f"{int(most):,}", "most whose memory fits")]
    return {"rows": rows, "convention": f"one device; {memory.convention}"}
