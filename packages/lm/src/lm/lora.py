"""LoRA: the matrices are frozen, and the product of two small ones beside each is trained. (Hu et al. 2021)

    y = W x + s B A x        A (rank, in), random at first; B (out, rank), zero at first
    s = alpha / rank         or alpha / √rank, which does not shrink with the rank: rsLoRA (Kalajdzievski 2023)
    y = m / ‖W + s B A‖ (W x + s B A x)    DoRA: m (out,), the norms of W's rows, is trained too (Liu et al. 2024)

`add` puts adapters beside the projections of the blocks, in place, and may store these in 4 bits (QLoRA, see ops/nf4);
`merge` adds them to the weights, in place. arXiv:2106.09685, 2312.03732, 2402.09353
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model import Transformer
from lm.ops import nf4
from lm.ops.cpu.fused import TWINS
from lm.ops.cpu.products import FusedLinear

A, B, M = "lora_a", "lora_b", "lora_m"
NAMES = (f".{A}", f".{B}", f".{M}")  # ends of the names of adapters


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


class NF4LoRALinear(LoRALinear, nf4.NF4Linear):
    """LoRALinear, whose frozen matrix is in 4 bits."""


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
    base: Literal["fp32", "nf4"] = "fp32",
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
        base: "nf4" stores every linear layer of the blocks in 4 bits, with an adapter or without (QLoRA).

    Returns:
        The same model, which computes what it did, but for the rounding to nf4: every B is zero.

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
        if base == "nf4":
            nf4.store(module)
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
    classes = {nn.Linear: LoRALinear, FusedLinear: FusedLoRALinear, nf4.NF4Linear: NF4LoRALinear}
    module.__class__ = classes[type(module)]
    assert isinstance(module, LoRALinear)
    module.lora_a, module.lora_b = nn.Parameter(a), nn.Parameter(b)
    module.lora_m = None if m is None else nn.Parameter(m)
    module.scale, module.dropout, module.enabled = scale, 0.0, True
    return module


@torch.no_grad()
def draw(model: Transformer, seed: int) -> None:
    """Give the adapters of a model on the CPU their values before the first step; A depends on the seed."""
    generator = torch.Generator().manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, LoRALinear):
            layer.lora_a.normal_(0, 1 / math.sqrt(layer.in_features), generator=generator)
            layer.lora_b.zero_()
            if layer.lora_m is not None:
                layer.lora_m.copy_(layer.weight.norm(dim=1))


def quantized(model: Transformer, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by name, in 4 bits where the model's layers are and they are not yet."""
    result = dict(weights)
    for name, layer in model.named_modules():
        if isinstance(layer, nf4.NF4Linear) and f"{name}.weight" in result:
            tensors = nf4.quantize(result.pop(f"{name}.weight"))
            result.update(zip((f"{name}.{part}" for part in nf4.PARTS), tensors, strict=True))
    return result


def sum_of(weight: Tensor, a: Tensor, b: Tensor, m: Tensor | None, scale: float) -> Tensor:
    """The matrix of the plain layer that computes what a matrix with its adapter does."""
    total = weight + scale * (b @ a)
    return total if m is None else total * (m / total.norm(dim=1))[:, None]


@torch.no_grad()
def merge(model: Transformer) -> Transformer:
    """Add every adapter to the weight beside it, in place: a plain model again, as fast as before."""
    for module in model.modules():
        if not isinstance(module, LoRALinear | nf4.NF4Linear):
            continue
        weight: Tensor = module.weight
        if isinstance(module, LoRALinear):
            weight = sum_of(weight, module.lora_a, module.lora_b, module.lora_m, module.scale)
            del module.lora_a, module.lora_b, module.lora_m
        if isinstance(module, nf4.NF4Linear):
            for name in nf4.PARTS:
                delattr(module, name)
        module.__class__ = FusedLinear if isinstance(module, FusedLinear) else nn.Linear  # type: ignore[assignment]
        module.register_parameter("weight", nn.Parameter(weight))
    return model.requires_grad_(True)


def enable(model: nn.Module, on: bool) -> None:
    """Turn every adapter of a model on or off; off, it is the model that they were added to."""
    for module in model.modules():
        if isinstance(module, LoRALinear):
            module.enabled = on
