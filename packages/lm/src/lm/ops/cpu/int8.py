"""Weights as int8 or 4 bits, for generation on a CPU: decoding reads a quarter or a seventh of the bytes, and reading
them is most of what it takes; prompts of int8 are multiplied as integers, by VNNI, where the processor has it."""

from __future__ import annotations

import copy
import functools
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.device import cpuinfo, use_huge_pages
from lm.model import Transformer
from lm.ops.cpu.products import is_linear

GROUP = 32  # weights of 4 bits that share a scale, as llama.cpp's Q4_0 has it; decode_step.c has the same
LARGEST = 127 * 256  # of the integers that a vector is rounded to: two int8, of 256 and of 1


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 with a scale for each output; x (…, in) → (…, out) in x's float dtype.

    Where the processor multiplies int8 (VNNI), x is rounded to 16 bits, by the largest of each vector, and multiplied
    as two int8: their products are exact, and nearer to those of x than bfloat16's. Elsewhere the weight becomes floats
    for the product.
    """

    whole: Tensor  # (out, in), int8
    scale: Tensor  # (out,), bfloat16
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        largest = weight.detach().float().abs().amax(dim=1, keepdim=True)
        scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny).bfloat16()
        whole = (weight.detach().float() / scale.float()).round().clamp(-127, 127).to(torch.int8)
        self.outputs, self.inputs = weight.shape
        self.register_buffer("whole", whole)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if not multiplies_int8() or self.inputs == 1:  # one column, and torch takes its order for another
            return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))
        rows = x.reshape(-1, self.inputs)
        step = rows.abs().amax(1, keepdim=True).float() / LARGEST  # (rows, 1)
        words = (rows / step.clamp(min=torch.finfo(torch.float32).tiny)).round_().to(torch.int32)
        high = (words + 128) >> 8
        halves = torch.cat((high, words - (high << 8))).to(torch.int8)  # (2 rows, in)
        large, small = torch._int_mm(halves, self.whole.T).float().chunk(2)
        y = (large.mul_(256).add_(small) * (step * self.scale.float())).to(x.dtype)
        y = y.reshape(*x.shape[:-1], self.outputs)
        return y if self.bias is None else y + self.bias

    @property
    def weight(self) -> Tensor:
        """The weight that the int8 stand for, in float32."""
        return self.whole.float() * self.scale.float()[:, None]


class Int4Linear(nn.Module):
    """A linear layer whose weight is of 4 bits with a scale for each GROUP of a row, 4.5 bits in all.

    The number of a group that is farthest from zero is -8 times its scale. x (…, in) → (…, out) in x's dtype.
    """

    whole: Tensor  # (out, groups * GROUP / 2), uint8: weight j of a group + 8, and 16 times weight j + GROUP / 2, + 8
    scale: Tensor  # (out, groups), bfloat16
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        padded = F.pad(weight.detach().float(), (0, -self.inputs % GROUP))
        groups = padded.view(self.outputs, -1, GROUP)  # (out, groups, GROUP)
        largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
        scale = (largest / -8).bfloat16()  # (out, groups, 1)
        steps = torch.where(scale == 0, torch.ones_like(scale), scale).float()
        low, high = ((groups / steps).round().clamp(-8, 7) + 8).to(torch.uint8).chunk(2, dim=2)
        self.register_buffer("whole", (low | high << 4).flatten(1))
        self.register_buffer("scale", scale[:, :, 0].contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    @property
    def weight(self) -> Tensor:
        """The weight that the 4 bits stand for, in float32."""
        whole = self.whole.view(self.outputs, -1, GROUP // 2)
        groups = torch.cat((whole & 15, whole >> 4), dim=2).float() - 8
        return (groups * self.scale.float()[:, :, None]).flatten(1)[:, : self.inputs]


@functools.cache
def multiplies_int8() -> bool:
    """True if the processor has instructions for sums of products of int8, by what Linux says of it.

    Without them oneDNN, which torch multiplies int8 by, is not exact on x86, and torch slow elsewhere.
    """
    has = {"avx512_vnni", "avx_vnni", "amx_int8"} & set(cpuinfo().get("flags", "").split())
    return bool(has) and hasattr(torch, "_int_mm") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def quantized(model: Transformer, bits: Literal[4, 8] = 8) -> Transformer:
    """A copy of a model on the CPU with its linear layers of this number of bits and its head as int8, to decode and to
    score with, not to train.

    The embedding and the norms stay as they are; a head that was tied to the embedding becomes one of its own.
    ValueError: the model is on another device.
    """
    if model.embedding.weight.device.type != "cpu":
        raise ValueError(f"int{bits} weights are for a CPU, and the model is on {model.embedding.weight.device}")
    result = copy.deepcopy(model).requires_grad_(False).eval()
    head = result.head_weight.detach().clone()
    for module in list(result.modules()):
        for name, child in list(module.named_children()):
            if is_linear(child):
                setattr(module, name, (Int8Linear if bits == 8 else Int4Linear)(child.weight, child.bias))
    result.head = Int8Linear(head)  # type: ignore[assignment]
    use_huge_pages(result)
    return result
