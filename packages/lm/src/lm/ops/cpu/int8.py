"""Weights as int8, for generation on a CPU: decoding reads a quarter of the bytes, and reading them is most of what it
takes; prompts are multiplied as integers, by VNNI, where the processor has it."""

from __future__ import annotations

import copy
import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.device import cpuinfo, use_huge_pages
from lm.model import Transformer
from lm.ops.cpu.products import is_linear

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


@functools.cache
def multiplies_int8() -> bool:
    """True if the processor has instructions for sums of products of int8, by what Linux says of it.

    Without them oneDNN, which torch multiplies int8 by, is not exact on x86, and torch slow elsewhere.
    """
    has = {"avx512_vnni", "avx_vnni", "amx_int8"} & set(cpuinfo().get("flags", "").split())
    return bool(has) and hasattr(torch, "_int_mm") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def quantized(model: Transformer) -> Transformer:
    """A copy of a model on the CPU with its linear layers and its head as int8, to decode and to score with.

    The embedding and the norms stay as they are; a head that was tied to the embedding becomes one of its own.
    ValueError: the model is on another device.
    """
    if model.embedding.weight.device.type != "cpu":
        raise ValueError(f"int8 weights are for a CPU, and the model is on {model.embedding.weight.device}")
    result = copy.deepcopy(model).requires_grad_(False).eval()
    head = result.head_weight.detach().clone()
    for module in list(result.modules()):
        for name, child in list(module.named_children()):
            if is_linear(child):
                setattr(module, name, Int8Linear(child.weight, child.bias))
    result.head = Int8Linear(head)  # type: ignore[assignment]
    use_huge_pages(result)
    return result
