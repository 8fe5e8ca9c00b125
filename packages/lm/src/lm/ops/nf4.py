"""Frozen matrices in 4 bits, beside which QLoRA trains adapters: NF4 with doubly quantized scales.

    weight = VALUES[4 bits] · scale          a scale for 64 weights, the largest magnitude among them
    scale = LEVELS[8 bits] · step + offset   a step for 256 scales; the offset is the mean of the matrix's scales

That is 4.127 bits a weight. (Dettmers et al. 2023, arXiv:2305.14314) VALUES are the paper's; bitsandbytes has the
same LEVELS, which are dense near 0, and the same order of bits.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# The paper's appendix E: quantiles of the normal distribution, scaled to [-1, 1], with a 0.
NEGATIVE = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635)
MIDDLE = (-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725)
POSITIVE = (0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
BLOCK, SCALES = 64, 256  # weights that share a scale, scales that share a step
PARTS = ("codes", "scales", "steps", "offset")


def quantize(weight: Tensor) -> tuple[Tensor, ...]:
    """Return what stands for a matrix: pairs of 4 bits and scales, uint8; steps and their offset, float32."""
    values, _, levels = tables(weight.device)
    four, scales = rounded(weight.detach().float().flatten(), BLOCK, values)
    offset = scales.mean()
    eight, steps = rounded(scales - offset, SCALES, levels)
    pairs = four.view(-1, 2)
    return pairs[:, 0] << 4 | pairs[:, 1], eight.flatten()[: len(scales)], steps, offset


def rounded(numbers: Tensor, size: int, values: Tensor) -> tuple[Tensor, Tensor]:
    """Number of the value nearest to each number over the largest of its block, uint8 (blocks, size); the largest."""
    rows = F.pad(numbers, (0, -len(numbers) % size)).view(-1, size)
    largest = rows.abs().amax(1)
    shares = rows / largest.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    return torch.bucketize(shares, (values[1:] + values[:-1]) / 2).to(torch.uint8), largest


@functools.cache
def tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """VALUES, (16,); their pairs, (256, 2); LEVELS, (256,)."""
    with torch.inference_mode(False), torch.device("cpu"):  # they outlive the call
        values = torch.tensor(NEGATIVE + MIDDLE + POSITIVE)
        # Seven decades up to 1, each of twice as many numbers as the one below it: the middles of equal steps.
        edges = [torch.linspace(0.1, 1, 2**decade + 1) for decade in range(7)]
        decades = [10.0 ** (number - 6) * ((edge[1:] + edge[:-1]) / 2) for number, edge in enumerate(edges)]
        levels = torch.cat([*decades, *(-decade for decade in decades), torch.tensor([0.0, 1.0])]).sort().values
        return values.to(device), torch.cartesian_prod(values, values).to(device), levels.to(device)


def dequantize(rows: int, columns: int, codes: Tensor, scales: Tensor, steps: Tensor, offset: Tensor) -> Tensor:
    """Return the matrix that the results of quantize stand for, (rows, columns) float32."""
    _, pairs, levels = tables(codes.device)
    step_of_scale = steps.float().repeat_interleave(SCALES)[: len(scales)]
    largest = levels.index_select(0, scales.int()) * step_of_scale + offset.float()
    blocks = pairs.index_select(0, codes.int()).view(-1, BLOCK).mul_(largest[:, None])
    return blocks.flatten()[: rows * columns].view(rows, columns)


class NF4Linear(nn.Linear):
    """A linear layer whose frozen matrix is 4 bits a weight; each product dequantizes it, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        parts = map(self.get_parameter, PARTS)
        y: Tensor = _Product.apply(x.to(dtype), self.out_features, self.in_features, *parts)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.to(dtype)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """(out, in), float32, dequantized anew."""
        return dequantize(self.out_features, self.in_features, *map(self.get_parameter, PARTS))


class _Product(torch.autograd.Function):
    """x Wᵀ, which keeps nothing but the 4 bits of W for the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int, columns: int, *parts: Tensor) -> Tensor:
        ctx.shape = rows, columns
        ctx.save_for_backward(*parts)
        return F.linear(x, dequantize(rows, columns, *parts).to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad @ dequantize(*ctx.shape, *ctx.saved_tensors).to(grad.dtype), *(None,) * 6


def store(module: nn.Linear) -> None:
    """Freeze the matrix of a linear layer in 4 bits, in place."""
    parts = quantize(module.weight)
    del module.weight
    module.__class__ = NF4Linear
    for name, tensor in zip(PARTS, parts, strict=True):
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
