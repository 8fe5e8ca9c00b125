"""Weights and optimizer, put into a model that may be sharded and made without memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

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
    """ValueError: a configuration is many times larger than the tensors of these shapes, with the size and its bound.

    It is raised before anything of its size is allocated. Smaller mistakes are named by their tensor when it is read.
    """
    largest = 16 * max((size for shape in shapes.values() for size in shape), default=0)
    elements = sum(map(math.prod, shapes.values()))
    context = min(LONGEST_CONTEXT, max(LARGEST_ROTATIONS, elements) // max(1, config.head_width))
    experts = sum(max(shape) if len(shape) > 2 else 1 for shape in shapes.values())  # by name or in one tensor
    fields = {name: value for name, value in vars(config).items() if isinstance(value, int)}
    bounds = {
        "num_layers": (config.num_layers, len(shapes)),
        **{name: (value, min(experts, MOST_EXPERTS)) for name, value in fields.items() if name in EXPERTS},
        **{name: (getattr(config, name), largest) for name in ("vocab_size", "d_model", "d_ff")},
        "num_heads": (config.num_heads, largest),
        "head_dim": (config.head_width, largest),
        "context_length": (config.context_length, context),
        "vocab_multiple": (config.vocab_multiple, largest),
    }
    for name, (value, most) in bounds.items():
        if value > most:
            raise ValueError(f"{source}: {name} is {value:,}, damaged: the tensors beside it allow {most:,} at most")


def on_meta(config: ModelConfig) -> Transformer:
    """A model whose weights have shapes and no memory."""
    with torch.device("meta"):
        return build(config)


def with_adapters(model: Transformer, config: TrainConfig) -> Transformer:
    """The model with the adapters of a training beside its matrices, in place."""
    return lora.add(
        model,
        config.lora_rank,
        config.lora_alpha,
        targets=config.lora_targets,
        dropout=config.lora_dropout,
        rslora=config.lora_rslora,
        dora=config.lora_dora,
    )


def from_weights(
    config: ModelConfig, weights: Mapping[str, Tensor], source: object = "config.toml", train: TrainConfig | None = None
) -> Transformer:
    """A model with these weights, on the CPU; none is drawn at random first. ValueError: they are not the model's.

    train: its training, where the weights have that one's adapters among them.
    """
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in weights.items()}, source)
    model = on_meta(config) if train is None or not train.lora_rank else with_adapters(on_meta(config), train)
    check_weights(model, weights)
    model.to_empty(device="cpu")
    fill(model, weights)
    return model


@torch.no_grad()
def draw(model: Transformer, seed: int) -> None:
    """Give a sharded model the weights of train.random_model, with at most one whole block in memory."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        plain = on_meta(model.config)
        for child in plain.children():  # torch's layers draw when they are made, before the model does
            if child is plain.blocks:
                for layer in range(model.config.num_layers):
                    plain.block(layer)
            elif hasattr(child, "reset_parameters"):
                cast(Any, child).to_empty(device="cpu").reset_parameters()
                child.to("meta")
        for name, parameter in model.named_parameters():
            whole = plain.initialise(torch.empty(parameter.shape, dtype=parameter.dtype), name)
            parameter.copy_(own_part(whole, parameter))


@torch.no_grad()
def fill(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model, whose own may be sharded over processes that all have the whole weights.

    ValueError: as check_weights.
    """
    check_weights(model, weights)
    for name, tensor in model.state_dict().items():
        tensor.copy_(own_part(weights[name], tensor))


def check_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """ValueError: a weight is missing, not the model's, or of another shape; by name."""
    own = model.state_dict()
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"the weights {'lack' if name in own else 'have'} {name!r}, and the model says otherwise")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shapes = tuple(tensor.shape), tuple(weights[name].shape)
            raise ValueError("expected the weight {!r} to have the shape {}, got {}".format(name, *shapes))


def load_optimizer(optimizer: torch.optim.Optimizer, model: Transformer, saved: Checkpoint) -> None:
    """Puts the optimizer's state of a checkpoint into an optimizer of this model, sharded as the model's weights are.

    What the optimizer is set to (rate, betas, weight decay) stays: that is the configuration's.
    """
    parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = saved.optimizer["state"]
    if saved.is_sharded:
        places = {id(parameter): index for index, parameter in enumerate(parameters)}
        by_weight = saved.optimizer["state"]
        state = {places[id(p)]: by_weight[name] for name, p in model.named_parameters() if name in by_weight}
    for index, values in state.items():
        for key, value in values.items():
            if not 0 <= index < len(parameters) or value.numel() > parameters[index].numel():
                shape = tuple(value.shape)
                raise ValueError(f"{saved.path} has {key} of shape {shape} for weight {index}, which is not its own")
    own = {
        index: {
            key: own_part(value, parameters[index]) if value.shape == parameters[index].shape else value
            for key, value in values.items()
        }
        for index, values in state.items()
    }
    optimizer.load_state_dict({"state": own, "param_groups": optimizer.state_dict()["param_groups"]})
