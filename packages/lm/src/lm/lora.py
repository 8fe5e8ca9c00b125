"""LoRA: a model with frozen matrices, beside each of which the product of two small ones is trained. (Hu et al. 2021)

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
from lm.ops.cpu.fused import TWINS
from lm.ops.cpu.products import FusedLinear

A, B = "lora_a", "lora_b"


class LoRALinear(nn.Linear):
    """A linear layer with an adapter beside it, which is left out unless `enabled`."""

    lora_a: nn.Parameter  # (rank, in)
    lora_b: nn.Parameter  # (out, rank)
    scale: float
    enabled: bool

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale if self.enabled else y


class FusedLoRALinear(LoRALinear, FusedLinear):
    """LoRALinear, whose frozen matrix is multiplied as FusedLinear's."""


TWINS[LoRALinear] = FusedLoRALinear


def add(model: Transformer, rank: int, alpha: float = 16.0) -> Transformer:
    """Freeze a model's weights and put adapters beside the linear layers of its blocks, in place.

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
        raise ValueError(f"expected the rank of an adapter to be at least 1, got {rank}")
    if any(isinstance(module, LoRALinear) for module in model.modules()):
        raise ValueError("the model has adapters already: merge them first")
    model.requires_grad_(False)
    for module in model.blocks.modules():
        if isinstance(module, nn.Linear):  # or its fused twin
            weight = module.weight
            a = weight.new_empty(rank, module.in_features)
            module.lora_a = nn.Parameter(a.normal_(0, initial_deviation(weight)))
            module.lora_b = nn.Parameter(weight.new_zeros(module.out_features, rank))
            module.__class__ = FusedLoRALinear if isinstance(module, FusedLinear) else LoRALinear
            assert isinstance(module, LoRALinear)
            module.scale, module.enabled = alpha / rank, True
    return model


def initial_deviation(weight: Tensor) -> float:
    """Standard deviation of A's elements, by which A x is as large as x."""
    return 1 / math.sqrt(weight.shape[1])


def drawn(model: Transformer, seed: int) -> dict[str, Tensor]:
    """The adapters of a model before the first step, by name, on the CPU; A depends on the seed."""
    adapters: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith(f".{A}"):
            adapters[name] = torch.empty(p.shape).normal_(0, initial_deviation(p), generator=generator)
        elif name.endswith(f".{B}"):
            adapters[name] = torch.zeros(p.shape)
    return adapters


@torch.no_grad()
def merge(model: Transformer) -> Transformer:
    """Add every adapter to the weight beside it, in place: a plain model again, as fast as before."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.weight += module.scale * (module.lora_b @ module.lora_a)
            del module.lora_a, module.lora_b
            module.__class__ = FusedLinear if isinstance(module, FusedLinear) else nn.Linear  # type: ignore[assignment]
    return model.requires_grad_(True)


def merged(weights: Mapping[str, Tensor], rank: int, alpha: float) -> dict[str, Tensor]:
    """Weights by name with every adapter among them added to its weight: those of the plain model.

    ValueError: an adapter does not go with its weight.
    """
    plain = {name: tensor for name, tensor in weights.items() if not name.endswith((f".{A}", f".{B}"))}
    for name, a in weights.items():
        if name.endswith(f".{A}"):
            layer = name.removesuffix(A)
            weight, b = plain.get(f"{layer}weight"), weights.get(layer + B)
            if weight is None or b is None or (*b.shape, *a.shape) != (weight.shape[0], rank, rank, weight.shape[1]):
                raise ValueError(f"expected {name} to be the adapter of rank {rank} of a matrix beside it")
            plain[f"{layer}weight"] = weight + alpha / rank * (b @ a)
    return plain


def enable(model: nn.Module, on: bool) -> None:
    """Turn every adapter of a model on or off; off, it is the model that they were added to."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.enabled = on
