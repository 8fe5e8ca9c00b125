"""Exact budgets of Transformers: parameters, FLOPs, memory, time and what fits. Pure Python, no dependency."""

from __future__ import annotations

from accounting.activations import saved_activations
from accounting.breakdown import Breakdown
from accounting.flops import (
    decode_flops,
    elementwise_flops,
    forward_flops,
    optimizer_flops,
    training_estimates,
    training_flops,
)
from accounting.memory import TrainingMemory, training_memory
from accounting.models import SHAPES
from accounting.optimizers import optimizer_state
from accounting.parameters import parameters
from accounting.shape import TransformerShape
from accounting.units import ByteRate, Bytes, FLOPRate, FLOPs, Parameters, Seconds, TokenRate, Tokens, human

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accounting.hardware import DEVICES, Device, measured_device
    from accounting.inference import inference_memory, kv_cache, weight_bytes
    from accounting.model_parallel import Layout, Place, device_flops, device_memory, device_parameters, device_traffic
    from accounting.parallel import sharded_state, step_traffic
    from accounting.planning import largest_shape, longest_context, max_batch_size, memory_line
    from accounting.reading import from_config, from_huggingface, from_run
    from accounting.scaling import LAWS, ComputeOptimal, compute_optimal
    from accounting.time import Roofline, TrainingTime, affordable_tokens, decode_time, mfu, prefill_time, training_time

# Loaded when they are first asked for: a question about memory then waits for nothing else.
_LATER = {
    name: module
    for module, names in (
        ("hardware", "DEVICES Device measured_device"),
        ("inference", "inference_memory kv_cache weight_bytes"),
        ("model_parallel", "Layout Place device_flops device_memory device_parameters device_traffic"),
        ("parallel", "sharded_state step_traffic"),
        ("planning", "largest_shape longest_context max_batch_size memory_line"),
        ("reading", "from_config from_huggingface from_run"),
        ("scaling", "LAWS ComputeOptimal compute_optimal"),
        ("time", "Roofline TrainingTime affordable_tokens decode_time mfu prefill_time training_time"),
    )
    for name in names.split()
}

__all__ = [
    "DEVICES",
    "LAWS",
    "SHAPES",
    "Breakdown",
    "ByteRate",
    "Bytes",
    "ComputeOptimal",
    "Device",
    "FLOPRate",
    "FLOPs",
    "Layout",
    "Parameters",
    "Place",
    "Roofline",
    "Seconds",
    "TokenRate",
    "Tokens",
    "TrainingMemory",
    "TrainingTime",
    "TransformerShape",
    "affordable_tokens",
    "compute_optimal",
    "decode_flops",
    "decode_time",
    "device_flops",
    "device_memory",
    "device_parameters",
    "device_traffic",
    "elementwise_flops",
    "forward_flops",
    "from_config",
    "from_huggingface",
    "from_run",
    "human",
    "inference_memory",
    "kv_cache",
    "largest_shape",
    "longest_context",
    "max_batch_size",
    "measured_device",
    "memory_line",
    "mfu",
    "optimizer_flops",
    "optimizer_state",
    "parameters",
    "prefill_time",
    "saved_activations",
    "sharded_state",
    "step_traffic",
    "training_estimates",
    "training_flops",
    "training_memory",
    "training_time",
    "weight_bytes",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"accounting has no {name!r}: it has {', '.join(__all__)}")
    value: object = getattr(__import__(f"accounting.{_LATER[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value
