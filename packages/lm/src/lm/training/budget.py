"""accounting's counts of a run on this machine, and the number of sequences that fit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from lm.attention import MATMUL_KEYS
from lm.config import ModelConfig, TrainConfig
from lm.device import device_name, memory_of
from lm.loss import chunk_bytes_on, kernel_on
from lm.ops.cpu.passes import backend_name

if TYPE_CHECKING:
    from accounting import Policy, TransformerShape

# What torch says, in words alone, where a CPU or MPS has no memory left.
OUT_OF_MEMORY = ("DefaultCPUAllocator", "MPS backend out of memory")


def trained_shape(model: ModelConfig, config: TrainConfig) -> TransformerShape:
    """The model as a run trains it: with adapters beside every matrix of the blocks where it has a lora_rank."""
    shape = model.shape()
    if not config.lora_rank:
        return shape
    names = ("qkv", "output", "gate_up" if shape.gated else "up", "down")
    targets = tuple(name for name in names if not config.lora_targets or name in config.lora_targets)
    return dataclasses.replace(shape, lora_rank=config.lora_rank, lora_targets=targets)


def memory_is_counted(model: ModelConfig, config: TrainConfig) -> bool:
    """True if accounting has the memory of a step here: not of families, value embeddings or adapters."""
    is_counted = type(model) is ModelConfig and model.shape().plain
    return is_counted and not model.value_embeddings and not config.lora_rank


def policy(model: ModelConfig, config: TrainConfig, device: torch.device, *, accumulate: bool = False) -> Policy:
    """Return the accounting.Policy of a step here."""
    from accounting import Policy  # here, because nothing but a budget needs it

    cpu, wide = device.type == "cpu", config.precision not in ("bf16", "fp16")
    whole = "blocks" if wide and backend_name(device) == "C" else "eager"
    products = torch.float32 if wide else torch.float16 if config.precision == "fp16" else torch.bfloat16
    return Policy(
        precision="fp32" if wide else "autocast",
        optimizer="adamw" if config.optimizer == "adamw" else "muon",  # NorMuon keeps one number a row more
        attention_kernel=whole if cpu and model.context_length <= MATMUL_KEYS else "fused",
        norm_kernel="composite" if cpu else "fused",
        activation_checkpointing=config.activation_checkpointing,
        loss="chunked",
        loss_kernel=kernel_on(device, products, model.logit_softcap),
        logits_chunk_bytes=chunk_bytes_on(device),
        gradient_accumulation=accumulate,
    )


def largest_micro_batch(model: ModelConfig, config: TrainConfig, device: torch.device, **change: Any) -> int:
    """The most sequences that accounting says fit one pass on the device; 0: not even one."""
    from accounting import max_batch_size  # here, because nothing but a budget needs it

    counted = dataclasses.replace(policy(model, config, device, accumulate=True), **change)
    return int(max_batch_size(model.shape(), memory_of(device), policy=counted))


def beyond(model: ModelConfig, config: TrainConfig, device: torch.device, own: int) -> str | None:
    """what_fits where `own` sequences cannot fit a CPU's memory, for which it has no error of its own; else None."""
    if device.type != "cpu" or config.lora_rank:
        return None
    from accounting import parameters, training_memory  # here, because nothing but a budget needs it

    micro, shape = config.micro_batch_size or own, model.shape()
    needed = 16 * int(parameters(shape).total)  # weights, gradients and moments
    if type(model) is ModelConfig and shape.plain:
        plain = dataclasses.replace(shape, value_embeddings=0)
        counted = policy(model, config, device, accumulate=micro < own)
        needed += int(training_memory(plain, micro, policy=counted).total) - 16 * int(parameters(plain).total)
    return None if needed <= memory_of(device) else what_fits(model, config, device, own, "not enough memory on")


def what_fits(
    model: ModelConfig, config: TrainConfig, device: torch.device, own: int, what: str = "out of memory on"
) -> str:
    """Describe the setting to lower if `own` sequences a step in this process are too many."""
    micro = config.micro_batch_size or own

    def most(**change: Any) -> int:
        fits = min(largest_micro_batch(model, config, device, **change), micro - 1)
        return max((n for n in range(1, fits + 1) if own % n == 0), default=0)

    room = f"{device_name(device)} ({memory_of(device) / 1e9:.1f} GB)"
    message = f"{what} {room} with {micro} sequences at a time: "
    if not memory_is_counted(model, config):
        return f"{message}lower --train.micro_batch_size"
    if fitting := most():
        return f"{message}by accounting's count {fitting} fit: write --train.micro_batch_size {fitting}"
    if config.activation_checkpointing != "full" and (
        fitting := most(activation_checkpointing="full") or (1 if micro == 1 else 0)
    ):
        return f"{message}write --train.activation_checkpointing full --train.micro_batch_size {fitting}"
    return f"{message}not even one fits: choose a smaller model or a shorter context_length"


def ran_out(error: BaseException) -> bool:
    """True if an error says that no memory is left."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(sign in words for sign in OUT_OF_MEMORY)
