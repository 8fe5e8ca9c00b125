"""LoRA: the matrices are frozen, and the product of two small ones beside each is trained. (Hu et al. 2021)

    y = W x + s B A x        A (rank, in), random at first; B (out, rank), zero at first
    s = alpha / rank         or alpha / √rank, which does not shrink with the rank: rsLoRA (Kalajdzievski 2023)
    y = m / ‖W + s B A‖ (W x + s B A x)    DoRA: m (out,), the norms of W's rows, is trained too (Liu et al. 2024)

`add` puts adapters beside the projections of the blocks, in place; `merge` adds them to the weights, in place, and
`merged` does so with weights by name. arXiv:2106.09685, 2312.03732, 2402.09353
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model import Transformer
from lm.ops.cpu.fused import TWINS
from lm.ops.cpu.products import FusedLinear

A, B, M = "lora_a", "lora_b", "lora_m"


class LoRALinear(nn.Linear):
    """A linear layer with an adapter beside it, which is left out unless `enabled`."""

    lora_a: nn.Parameter  # (rank, in)
    lora_b: nn.Parameter  # (out, rank)
    lora_m: nn.Parameter | None  # (out,) of DoRA
    scale: float
    dropout: float
    enabled: bool

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        if not self.enabled:
            return y
        dropped = F.dropout(x, self.dropout, self.training)
        added = F.linear(F.linear(dropped, self.lora_a), self.lora_b) * self.scale
        if self.lora_m is None:
            return y + added
        y = y if self.bias is None else y - self.bias
        norms = (self.weight + self.scale * (self.lora_b @ self.lora_a)).norm(dim=1).detach()  # as the paper, 4.3
        y = (y + added) * self.lora_m.div(norms)
        return y if self.bias is None else y + self.bias


class FusedLoRALinear(LoRALinear, FusedLinear):
    """LoRALinear, whose frozen matrix is multiplied as FusedLinear's."""


TWINS[LoRALinear] = FusedLoRALinear


def scale_of(rank: int, alpha: float, rslora: bool = False) -> float:
    """The factor of the product of an adapter."""
    return alpha / (math.sqrt(rank) if rslora else rank)


def add(
    model: Transformer,
    rank: int,
    alpha: float = 16.0,
    *,
    targets: Collection[str] = (),
    dropout: float = 0.0,
    rslora: bool = False,
    dora: bool = False,
) -> Transformer:
    """Freeze a model's weights and put adapters beside the linear layers of its blocks, in place.

    Args:
        model: The model; fused or not, and on any device.
        rank: Rows of A and columns of B.
        alpha: The product is multiplied by alpha / rank.
        targets: Names of layers, as "qkv" and "down"; none: all.
        dropout: The share of an adapter's input that is zeroed in training.
        rslora: The product is multiplied by alpha / √rank.
        dora: The norms of the rows are trained too.

    Returns:
        The same model, which computes what it did: every B is zero.

    Raises:
        ValueError: The rank is less than 1, the model has adapters already, or no layer has the name of a target.

    >>> import lm
    >>> model = lm.lora.add(lm.Transformer(lm.ModelConfig(50, 8, 1, 16, 2, 24)), rank=2)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    400
    """
    if rank < 1:
        raise ValueError(f"expected the rank of an adapter to be at least 1, got {rank}")
    if any(isinstance(module, LoRALinear) for module in model.modules()):
        raise ValueError("the model has adapters already: merge them first")
    layers = {name: module for name, module in model.blocks.named_modules() if isinstance(module, nn.Linear)}
    names = dict.fromkeys(name.rpartition(".")[2] for name in layers)
    for target in targets:
        if target not in names:
            raise ValueError(f"no layer of the blocks is named {target!r}: choose of {', '.join(names)}")
    model.requires_grad_(False)
    for name, module in layers.items():  # nn.Linear or its fused twin
        if not targets or name.rpartition(".")[2] in targets:
            weight = module.weight
            a = weight.new_empty(rank, module.in_features)
            a.normal_(0, 1 / math.sqrt(module.in_features))  # A x is then as large as x
            norms = weight.detach().norm(dim=1) if dora else None
            b = weight.new_zeros(module.out_features, rank)
            put_beside(module, a, b, norms, scale_of(rank, alpha, rslora)).dropout = dropout
    return model


def put_beside(module: nn.Linear, a: Tensor, b: Tensor, m: Tensor | None, scale: float) -> LoRALinear:
    """Put an adapter beside a linear layer, fused or not, in place."""
    module.__class__ = FusedLoRALinear if isinstance(module, FusedLinear) else LoRALinear
    assert isinstance(module, LoRALinear)
    module.lora_a, module.lora_b = nn.Parameter(a), nn.Parameter(b)
    module.lora_m = None if m is None else nn.Parameter(m)
    module.scale, module.dropout, module.enabled = scale, 0.0, True
    return module


def drawn(model: Transformer, seed: int, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapters of a model with these weights before the first step, by name, on the CPU; A depends on the seed."""
    adapters: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith(f".{A}"):
            adapters[name] = torch.empty(p.shape).normal_(0, 1 / math.sqrt(p.shape[1]), generator=generator)
        elif name.endswith(f".{B}"):
            adapters[name] = torch.zeros(p.shape)
        elif name.endswith(f".{M}"):
            adapters[name] = weights[name.removesuffix(M) + "weight"].norm(dim=1)
    return adapters


def sum_of(weight: Tensor, a: Tensor, b: Tensor, m: Tensor | None, scale: float) -> Tensor:
    """The matrix of the plain layer that computes what a matrix with its adapter does."""
    total = weight + scale * (b @ a)
    return total if m is None else total * (m / total.norm(dim=1))[:, None]


@torch.no_grad()
def merge(model: Transformer) -> Transformer:
    """Add every adapter to the weight beside it, in place: a plain model again, as fast as before."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.weight.copy_(sum_of(module.weight, module.lora_a, module.lora_b, module.lora_m, module.scale))
            del module.lora_a, module.lora_b, module.lora_m
            module.__class__ = FusedLinear if isinstance(module, FusedLinear) else nn.Linear  # type: ignore[assignment]
    return model.requires_grad_(True)


def merged(weights: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Weights by name with every adapter among them added to its weight. ValueError: an adapter fits no weight."""
    plain = {name: tensor for name, tensor in weights.items() if not name.endswith((f".{A}", f".{B}", f".{M}"))}
    for name, a in weights.items():
        if name.endswith(f".{A}"):
            layer = name.removesuffix(A)
            weight, b = plain.get(f"{layer}weight"), weights.get(layer + B)
            if weight is None or b is None or (*b.shape, *a.shape) != (len(weight), len(a), len(a), weight.shape[1]):
                raise ValueError(f"expected {name} to be the adapter of a matrix beside it")
            plain[f"{layer}weight"] = sum_of(weight, a, b, weights.get(layer + M), scale)
    return plain


def enable(model: nn.Module, on: bool) -> None:
    """Turn every adapter of a model on or off; off, it is the model that they were added to."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.enabled = on
