"""The options of a command as objects: shape, policy and devices."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from accounting.models.files import find
from accounting.models.resizing import deepened, lengthened
from accounting.policy import STACKS, Policy
from accounting.shape import TransformerShape

if TYPE_CHECKING:
    from accounting.cluster.layout import Layout
    from accounting.hardware.devices import Device
    from accounting.hardware.interconnect import Interconnect

GB = 10**9
# option, field of TransformerShape, what it is
SHAPE_OPTIONS = (
    ("layers", "num_layers", "layers"),
    ("d_model", "d_model", "width of the residual stream"),
    ("heads", "num_heads", "query heads"),
    ("kv_heads", "num_kv_heads", "key and value heads"),
    ("head_dim", "head_dim", "width of a head"),
    ("d_ff", "d_ff", "width of the feed-forward layer"),
    ("vocab", "vocab_size", "size of the vocabulary"),
    ("lora_rank", "lora_rank", "rank of adapters (LoRA) beside the matrices of the blocks, which alone are trained"),
)


def shape_of(options: argparse.Namespace, name: str | None = None) -> TransformerShape:
    """The named shape with what the options say otherwise, or the one that they alone describe: a modern block (SwiGLU,
    RMSNorm, RoPE, no biases, an untied head). A context beyond the shape's lengthens it, learned positions too."""
    values = {field: getattr(options, option, None) for option, field, _ in SHAPE_OPTIONS}
    changes: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
    if getattr(options, "lora_targets", None) is not None:
        changes["lora_targets"] = tuple(options.lora_targets.split(","))
    named, context = name if name is not None else getattr(options, "shape", None), getattr(options, "context", None)
    if named is None:
        missing = [f"--{option.replace('_', '-')}" for option in ("layers", "d_model", "heads", "vocab", "context")]
        needed = {"num_layers", "d_model", "num_heads", "vocab_size"}
        if not needed <= set(changes) or context is None:
            raise ValueError(f"give the name of a shape, a config.json, an lm run, or all of {', '.join(missing)}")
        changes.setdefault("d_ff", 4 * changes["d_model"])
        return TransformerShape(context_length=context, **changes)
    shape = find(named)
    if "num_layers" in changes:
        shape = deepened(shape, changes.pop("num_layers"))
    if "num_heads" in changes and "num_kv_heads" not in changes and shape.num_kv_heads == shape.num_heads:
        changes["num_kv_heads"] = changes["num_heads"]
    return lengthened(replace(shape, **changes), context or 1)


def name_of(options: argparse.Namespace, name: str | None = None) -> str:
    """The name of the shape, with what the options say otherwise."""
    changes = {option: getattr(options, option, None) for option, _, _ in SHAPE_OPTIONS}
    words = ", ".join(f"{option.replace('_', ' ')} {value:,}" for option, value in changes.items() if value is not None)
    named = name if name is not None else getattr(options, "shape", None)
    return f"{named} with {words}" if named and words else named or words


def policy_of(options: argparse.Namespace) -> Policy:
    """The policy that the options describe."""
    names = [field.name for field in fields(Policy) if hasattr(options, field.name)]
    settings = {name: getattr(options, name) for name in names}
    if getattr(options, "overhead", None) is not None:
        if not 0 <= options.overhead < 1e9:
            raise ValueError(f"--overhead must be a number of GB of at least 0, and {options.overhead:g} is not")
        settings["overhead_bytes"] = round(options.overhead * GB)
    return replace(STACKS[options.stack], **settings) if getattr(options, "stack", None) else Policy(**settings)


ALONE = {
    **dict.fromkeys(("tensor", "pipeline", "context_parallel", "expert", "micro_batches"), 1),
    **{"gpus": None, "data_parallel": None, "zero": 0, "sequence_parallel": False},
}


def layout_of(options: argparse.Namespace) -> Layout | None:
    """The devices to share the work, None for one; ValueError for options that change nothing or do not add up."""
    if all(getattr(options, name) == value for name, value in ALONE.items()):
        return None
    from accounting.cluster.layout import Layout  # a command of one device does not need it

    others = options.tensor * options.pipeline * options.context_parallel
    data = options.data_parallel
    if options.gpus is not None and data is None:
        if options.gpus % others:
            raise ValueError(
                f"--gpus {options.gpus} is no multiple of context {options.context_parallel} × "
                f"tensor {options.tensor} × pipeline {options.pipeline} = {others}: replicas take as many each"
            )
        data = options.gpus // others
    names = ("tensor", "pipeline", "zero", "sequence_parallel", "micro_batches", "context_parallel", "expert")
    layout = Layout(data or 1, *(getattr(options, name) for name in names))
    if options.gpus not in (None, layout.gpus):
        raise ValueError(f"--gpus {options.gpus} is not {layout.words}: leave one of them out")
    if options.zero and layout.replicas == 1:
        raise ValueError("--zero shards over devices with the same weights, and there is one: give --data-parallel")
    if options.sequence_parallel and options.tensor == 1:
        raise ValueError("--sequence-parallel shares over the devices of --tensor, and there is one: give more")
    return layout if layout.gpus > 1 or layout.micro_batches > 1 else None


def energy_of(options: argparse.Namespace, device_hours: float) -> tuple[float | None, float | None]:
    """kWh and kg of carbon dioxide of these device hours; None without --watts, the latter without --carbon."""
    for name in ("watts", "carbon"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"expected --{name} above 0, got {value:g}: leave it out if unknown")
    if options.watts is None:
        if options.carbon is not None:
            raise ValueError("expected --watts of a device beside --carbon, the grams for each kWh")
        return None, None
    energy = device_hours * options.watts / 1000
    return energy, None if options.carbon is None else energy * options.carbon / 1000


def machine_of(options: argparse.Namespace) -> tuple[Device, str]:
    """The device that was named, or whose rate was given, and the format whose peak is meant."""
    from accounting.hardware.devices import device, measured_device  # most commands name no device

    if options.device:
        return device(options.device), options.dtype or "bf16"
    dtype = options.dtype or "fp32"
    return measured_device("this machine", options.measured, dtype=dtype), dtype


def joined_by(machine: Device, devices: int, options: argparse.Namespace) -> Interconnect:
    """The interconnect of the maker's server, with the rates and node size of the options in place of its own."""
    from accounting.hardware.interconnect import ALONE, INTERCONNECTS, Interconnect  # nor do they join several
    from accounting.units import ByteRate

    listed = INTERCONNECTS.get(machine.name)
    own: dict[str, Any] = {"node_size": options.node_size}
    own |= {
        name: None if value is None else ByteRate(value * GB)
        for name, value in (("link", options.link), ("network", options.network))
    }
    missing = [name for name, value in own.items() if value is None]
    if listed is None and devices == 1 and len(missing) == len(own):
        return ALONE
    if listed is None and missing:
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise ValueError(f"expected {flags} for {machine.name}, whose interconnect is not listed")
    own = {name: value for name, value in own.items() if value is not None}
    if listed is None:
        return Interconnect(**own, source="given")
    if "link" in own:  # the listed measurement is of another link
        own["measured"] = ByteRate(0.0)
    rates = ", ".join(name for name in own if name != "measured")
    return replace(listed, **own, source=f"{listed.source}; {rates} given") if own else listed
