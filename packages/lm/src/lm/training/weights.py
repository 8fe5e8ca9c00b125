"""Weights and optimizer, put into a model that may be sharded and made without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.families import build
from lm.model import Transformer
from lm.sharding import own_part
from lm.training.checkpoint import Checkpoint


def on_meta(config: ModelConfig) -> Transformer:
    """A model whose weights have shapes and no memory."""
    with torch.device("meta"):
        return build(config)


def from_weights(config: ModelConfig, weights: Mapping[str, Tensor]) -> Transformer:
    """A model with these weights, on the CPU; none is drawn at random first."""
    model = on_meta(config).to_empty(device="cpu")
    fill(model, weights)
    return model


@torch.no_grad()
def draw(model: Transformer, seed: int) -> None:
    """Gives a sharded model the weights of train.random_model, of which one block is whole in memory at most."""
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
    """Copy weights into a model, of which each may be sharded over processes that all have the whole weights.

    ValueError: a weight is missing, not the model's, or of another shape; by name.
    """
    own = model.state_dict()
    for name in sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"the weights {'lack' if name in own else 'have'} {name!r}, and the model says otherwise")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            shapes = tuple(tensor.shape), tuple(weights[name].shape)
            raise ValueError("expected the weight {!r} to have the shape {}, got {}".format(name, *shapes))
        tensor.copy_(own_part(weights[name], tensor))


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
    own = {
        index: {
            key: own_part(value, parameters[index]) if value.shape == parameters[index].shape else value
            for key, value in values.items()
        }
        for index, values in state.items()
    }
    optimizer.load_state_dict({"state": own, "param_groups": optimizer.state_dict()["param_groups"]})
