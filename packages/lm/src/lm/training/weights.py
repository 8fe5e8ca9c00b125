"""Weights and optimizer, put into a model; their sizes are compared before memory is taken for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lm import lora
from lm.config import ModelConfig, TrainConfig
from lm.families import build
from lm.model import Transformer
from lm.sharding import own_part
from lm.training.checkpoint import Checkpoint

LONGEST_CONTEXT = 1 << 24  # positions
EXPERTS, MOST_EXPERTS = ("num_experts", "num_local_experts"), 1 << 16
LARGEST_ROTATIONS = 1 << 26  # positions times width of a head: the table of rotations that any model may have


def check_sizes(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], source: object) -> None:
    """ValueError: a configuration is many times larger than the tensors of these shapes; before memory is taken."""
    largest = 16 * max((size for shape in shapes.values() for size in shape), default=0)
    elements = sum(map(math.prod, shapes.values()))
    context = min(LONGEST_CONTEXT, max(LARGEST_ROTATIONS, elements) // max(1, config.head_width))
    experts = sum(max(shape) if len(shape) > 2 else 1 for shape in shapes.values())  # by name or in one tensor
    bounds = {
        "num_layers": len(shapes),
        **dict.fromkeys(EXPERTS, min(experts, MOST_EXPERTS)),
        **dict.fromkeys(("vocab_size", "d_model", "d_ff", "num_heads", "head_dim", "vocab_multiple"), largest),
        "context_length": context,
    }
    for name, most in bounds.items():
        value = config.head_width if name == "head_dim" else getattr(config, name, None)
        if isinstance(value, int) and value > most:
            raise ValueError(f"{source}: {name} is {value:,}, damaged: the tensors beside it allow {most:,} at most")


def from_weights(
    config: ModelConfig, weights: Mapping[str, Tensor], source: object = "config.toml", train: TrainConfig | None = None
) -> Transformer:
    """A model with these weights, on the CPU; none is drawn at random first. ValueError: they are not the model's.

    train: its training, whose adapters the model has; before the first step they are not among the weights.
    """
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in weights.items()}, source)
    with torch.device("meta"):  # a model whose weights have shapes and no memory
        model = build(config)
    if train is not None and train.lora_rank:
        settings: dict[str, Any] = {"dropout": train.lora_dropout, "rslora": train.lora_rslora, "dora": train.lora_dora}
        lora.add(model, train.lora_rank, train.lora_alpha, targets=train.lora_targets, **settings)
        if not any(name.endswith(f".{lora.A}") for name in weights):
            weights = {**lora.drawn(model, train.seed, weights), **weights}
    check_weights(model, weights)
    model.to_empty(device="cpu").load_state_dict(weights)
    return model


def check_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """ValueError: a weight is missing, not the model's, or of another shape; by name."""
    own = model.state_dict()
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"the weights {'lack' if name in own else 'have'} {name!r}, and the model says otherwise")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shapes = tuple(tensor.shape), tuple(weights[name].shape)
            raise ValueError("expected the weight {!r} to have the shape {}, got {}".format(name, *shapes))


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Checkpoint) -> None:
    """Put the optimizer's state of a checkpoint into an optimizer, sharded as its weights are; its settings stay."""
    parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for index, values in saved.optimizer["state"].items():
        for key, value in values.items():
            if not 0 <= index < len(parameters) or value.numel() > parameters[index].numel():
                shape = tuple(value.shape)
                raise ValueError(f"{saved.path} has {key} of shape {shape} for weight {index}, which is not its own")
            weight = parameters[index]
            state.setdefault(index, {})[key] = own_part(value, weight) if value.shape == weight.shape else value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
