"""Exact budgets of Transformers: parameters, FLOPs, memory, time and what fits. Pure Python, no dependency."""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accounting.breakdown import Breakdown
    from accounting.cluster.device import device_flops, device_parameters
    from accounting.cluster.layout import Layout, Place
    from accounting.cluster.memory import device_memory, device_state
    from accounting.cluster.traffic import device_traffic
    from accounting.counting.elementwise import elementwise_flops
    from accounting.counting.flops import decode_flops, forward_flops, prefill_flops, training_estimates, training_flops
    from accounting.counting.matmuls import matmul_flops
    from accounting.counting.optimizer import optimizer_flops
    from accounting.counting.parameters import parameters, trained_parameters
    from accounting.hardware.devices import DEVICES, Device, measured_device
    from accounting.hardware.interconnect import INTERCONNECTS, Interconnect
    from accounting.memory.activations import saved_activations
    from accounting.memory.inference import inference_memory, kv_cache, weight_bytes, weights_read
    from accounting.memory.optimizer_state import optimizer_state
    from accounting.memory.records import Group, Phase, PhaseKind
    from accounting.memory.training import TrainingMemory, training_memory
    from accounting.models.families import from_config
    from accounting.models.files import from_huggingface, from_run
    from accounting.models.published import SHAPES
    from accounting.planning.diagnosis import Diagnosis, diagnose
    from accounting.planning.fitting import largest_shape, longest_context, max_batch_size, memory_line
    from accounting.planning.inference import (
        Engine,
        Generation,
        Roofline,
        Storage,
        decode_time,
        engine_for,
        free_cache,
        generation_time,
        longest_generation,
        max_sequences,
        prefill_time,
        requests_at_once,
    )
    from accounting.planning.layouts import Plan, plan
    from accounting.planning.scaling import LAWS, ComputeOptimal, compute_optimal
    from accounting.planning.step_time import StepTime, step_time
    from accounting.planning.training_time import TrainingTime, mfu, training_time
    from accounting.policy import STACKS, Policy
    from accounting.shape import TransformerShape
    from accounting.units import ByteRate, Bytes, FLOPRate, FLOPs, Parameters, Seconds, TokenRate, Tokens, human

# Loaded when they are first asked for: a question about parameters then waits for nothing else.
_MODULES = {
    name: module
    for module, names in (
        ("breakdown", "Breakdown"),
        ("cluster.device", "device_flops device_parameters"),
        ("cluster.layout", "Layout Place"),
        ("cluster.memory", "device_memory device_state"),
        ("cluster.traffic", "device_traffic"),
        ("counting.elementwise", "elementwise_flops"),
        ("counting.flops", "decode_flops forward_flops prefill_flops training_estimates training_flops"),
        ("counting.matmuls", "matmul_flops"),
        ("counting.optimizer", "optimizer_flops"),
        ("counting.parameters", "parameters trained_parameters"),
        ("hardware.devices", "DEVICES Device measured_device"),
        ("hardware.interconnect", "INTERCONNECTS Interconnect"),
        ("memory.activations", "saved_activations"),
        ("memory.inference", "inference_memory kv_cache weight_bytes weights_read"),
        ("memory.optimizer_state", "optimizer_state"),
        ("memory.records", "Group Phase PhaseKind"),
        ("memory.training", "TrainingMemory training_memory"),
        ("models.families", "from_config"),
        ("models.files", "from_huggingface from_run"),
        ("models.published", "SHAPES"),
        ("planning.diagnosis", "Diagnosis diagnose"),
        ("planning.fitting", "largest_shape longest_context max_batch_size memory_line"),
        (
            "planning.inference",
            "Engine Generation Roofline Storage decode_time engine_for free_cache generation_time longest_generation "
            "max_sequences prefill_time requests_at_once",
        ),
        ("planning.layouts", "Plan plan"),
        ("planning.scaling", "LAWS ComputeOptimal compute_optimal"),
        ("planning.step_time", "StepTime step_time"),
        ("planning.training_time", "TrainingTime mfu training_time"),
        ("policy", "Policy STACKS"),
        ("shape", "TransformerShape"),
        ("units", "ByteRate Bytes FLOPRate FLOPs Parameters Seconds TokenRate Tokens human"),
    )
    for name in names.split()
}

# fmt: off
__all__ = [
    "DEVICES", "INTERCONNECTS", "LAWS", "SHAPES", "STACKS", "Breakdown", "ByteRate", "Bytes", "ComputeOptimal",
    "Device", "Diagnosis", "Engine", "FLOPRate", "FLOPs", "Generation", "Group", "Interconnect", "Layout", "Parameters",
    "Phase", "PhaseKind", "Place", "Plan", "Policy", "Roofline", "Seconds", "StepTime", "Storage", "TokenRate",
    "Tokens", "TrainingMemory", "TrainingTime", "TransformerShape", "compute_optimal", "decode_flops", "decode_time",
    "device_flops", "device_memory", "device_parameters", "device_state", "device_traffic", "diagnose",
    "elementwise_flops", "engine_for", "forward_flops", "free_cache", "from_config", "from_huggingface", "from_run",
    "generation_time", "human", "inference_memory", "kv_cache", "largest_shape", "longest_context",
    "longest_generation", "matmul_flops", "max_batch_size", "max_sequences", "measured_device", "memory_line", "mfu",
    "optimizer_flops", "optimizer_state", "parameters", "plan", "prefill_flops", "prefill_time", "requests_at_once",
    "saved_activations", "step_time", "trained_parameters", "training_estimates", "training_flops", "training_memory",
    "training_time", "weight_bytes", "weights_read",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"accounting has no {name!r}: it has {', '.join(__all__)}")
    value: object = getattr(importlib.import_module(f"accounting.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *(name for name in _MODULES if name not in globals())]
