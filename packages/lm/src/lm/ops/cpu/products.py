"""Matrix products by oneDNN where MKL, which torch multiplies by, is slow: on AMD's processors that have AVX-512.

On a Zen 5 MKL ran its code for AVX2 at 100 GFLOP/s a core in float32, where oneDNN, which the same torch carries, made
200 to 240. On a Zen 3, which has no AVX-512, MKL was as fast or faster (68 to 91 GFLOP/s for 47 to 81: `nox -s bench --
products`). The choice depends on the maker and the features alone, so that a machine always computes the same bits.
"""

from __future__ import annotations

import functools
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from lm.device import cpuinfo


def has_fast_onednn() -> bool:
    """True if oneDNN multiplies on this machine."""
    return torch.backends.mkldnn.is_available() and is_amd_with_avx512()  # type: ignore[no-untyped-call]


@functools.cache
def is_amd_with_avx512() -> bool:
    """True if the processor is AMD's and has AVX-512, by what Linux says of it."""
    about = cpuinfo()
    return about.get("vendor_id") == "AuthenticAMD" and "avx512f" in about.get("flags", "").split()


def takes(x: Tensor, weight: Tensor) -> bool:
    """True if oneDNN computes x weightᵀ: on this machine, in float32, without autocast, not compiled by torch."""
    if torch.compiler.is_compiling():
        return False
    plain = type(weight) in (Tensor, nn.Parameter) and x.device.type == weight.device.type == "cpu"
    whole = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and whole and x.numel() > 0 and has_fast_onednn()


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias: x (…, in), weight (out, in), either in any order of memory → (…, out)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x: grad (rows, out), x (rows, in) → (out, in); oneDNN wants its first in order: the smaller is copied."""
    if grad.shape[1] <= x.shape[1]:
        return product(grad.T, x.T)
    return product(x.T, grad.T).T


class FusedLinear(nn.Linear):
    """nn.Linear, both ways by oneDNN where that is chosen."""

    def forward(self, x: Tensor) -> Tensor:
        if takes(x, self.weight):
            return _Linear.apply(x, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(x)


def is_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """True for torch's own layer and its twin, which weight and bias describe."""
    return type(layer) in (nn.Linear, FusedLinear)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        for_bias = rows.sum(0) if ctx.has_bias else None
        return product(grad, weight.T), weight_gradient(rows, x.flatten(0, -2)).contiguous(), for_bias


def _flops(x: torch.Size, weight: torch.Size, *_: object, **__: object) -> int:
    """FLOPs, for torch's counters: x (…, in), weight (out, in)."""
    return 2 * x.numel() * weight[0]


if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
    register_flop_formula(torch.ops.mkldnn._linear_pointwise)(_flops)
