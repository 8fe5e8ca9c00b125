"""LoRA: a model whose matrices stay as they are, each with a small product beside it that is trained. (Hu et al. 2021)

    y = W x + (alpha / rank) B A x        A (rank, in), random at first; B (out, rank), zero at first

`add` puts adapters beside every projection of the blocks, in place; `merge` adds them to the weights, in place, and
`merged` does so with weights by name. arXiv:2106.09685
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model import Transformer

A, B = "lora_a", "lora_b"


class LoRALinear(nn.Linear):
    """A linear layer with an adapter beside it, which does nothing where `enabled` is False."""

    lora_a: nn.Parameter  # (rank, in)
    lora_b: nn.Parameter  # (out, rank)
    scale: float
    enabled: bool

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale if self.enabled else y


def add(model: Transformer, rank: int, alpha: float = 16.0) -> Transformer:
    """Freezes a model's weights and puts adapters beside the linear layers of its blocks, in place.

    Args:
        model: The model; fused or not, and on any device.
        rank: Rows of A and columns of B.
        alpha: The product is multiplied by alpha / rank.

    Returns:
        The same model, which computes what it did: every B is zero.

    Raises:
        ValueError: The rank is less than 1, or the model has adapters already.

    >>> import lm
    >>> model = lm.lora.add(lm.Transformer(lm.ModelConfig(50, 8, 1, 16, 2, 24)), rank=2)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    400
    """
    if rank < 1:
        raise ValueError(f"the rank of an adapter must be at least 1, and {rank} is not")
    if any(isinstance(module, LoRALinear) for module in model.modules()):
        raise ValueError("the model has adapters already: merge them first")
    model.requires_grad_(False)
    for module in model.blocks.modules():
        if isinstance(module, nn.Linear):  # or a faster twin of it
            weight = module.weight
            module.lora_a = nn.Parameter(
                weight.new_empty(rank, module.in_features).normal_(0, initial_deviation(weight))
            )
            module.lora_b = nn.Parameter(weight.new_zeros(module.out_features, rank))
            module.__class__ = LoRALinear
            assert isinstance(module, LoRALinear)
            module.scale, module.enabled = alpha / rank, True
    return model


def initial_deviation(weight: Tensor) -> float:
    """Of the numbers of A: what A x adds up to is then as large as x is."""
    return 1 / math.sqrt(weight.shape[1])


def drawn(model: Transformer, seed: int) -> dict[str, Tensor]:
    """The adapters of a model as they are before the first step, by name, on the CPU; the seed decides A."""
    made: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith(f".{A}"):
            made[name] = torch.empty(p.shape).normal_(0, initial_deviation(p), generator=generator)
        elif name.endswith(f".{B}"):
            made[name] = torch.zeros(p.shape)
    return made


@torch.no_grad()
def merge(model: Transformer) -> Transformer:
    """Adds every adapter to the weight that it stands beside, in place: a plain model again, as fast as before."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.weight += module.scale * (module.lora_b @ module.lora_a)
            del module.lora_a, module.lora_b
            module.__class__ = nn.Linear  # type: ignore[assignment]
    return model.requires_grad_(True)


def merged(weights: Mapping[str, Tensor], rank: int, alpha: float) -> dict[str, Tensor]:
    """Weights by name with every adapter among them added to its weight: those of the plain model."""
    plain = {name: tensor for name, tensor in weights.items() if not name.endswith((f".{A}", f".{B}"))}
    for name, a in weights.items():
        if name.endswith(f".{A}"):
            layer = name.removesuffix(A)
            plain[f"{layer}weight"] = plain[f"{layer}weight"] + alpha / rank * (weights[layer + B] @ a)
    return plain


def enable(model: nn.Module, on: bool) -> None:
    """Turns every adapter of a model on or off: off, it is the model that they were added to."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.enabled = on
