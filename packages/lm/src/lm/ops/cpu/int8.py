"""Weights as int8, for decoding on a CPU: a step reads a quarter of the bytes, and reading them is most of what it
takes."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model import Transformer
from lm.ops.cpu.products import is_linear

# torch's kernel checks no sizes: where they are no multiples of its vectors it reads, and now and then writes, beyond
# the end.
BLOCK = 32


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 with a scale for each output; x (…, in) → (…, out) in x's float dtype.

    The product takes x, rounded to bfloat16, and gives bfloat16: torch's int8 kernel has no other form that is fast on
    a CPU.
    """

    whole: Tensor  # (out, in), int8, both rounded up to BLOCK
    scale: Tensor  # (out,), bfloat16, rounded up likewise
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        largest = weight.detach().float().abs().amax(dim=1, keepdim=True)
        scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny).bfloat16()
        whole = (weight.detach().float() / scale.float()).round().clamp(-127, 127).to(torch.int8)
        self.outputs, self.inputs = weight.shape
        more_out, self.more_in = -self.outputs % BLOCK, -self.inputs % BLOCK
        self.register_buffer("whole", F.pad(whole, (0, self.more_in, 0, more_out)))
        self.register_buffer("scale", F.pad(scale[:, 0], (0, more_out)))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.inputs).bfloat16()
        if self.more_in:
            rows = F.pad(rows, (0, self.more_in))
        y = torch._weight_int8pack_mm(rows, self.whole, self.scale)[:, : self.outputs]
        y = y.to(x.dtype).reshape(*x.shape[:-1], self.outputs)
        return y if self.bias is None else y + self.bias

    @property
    def weight(self) -> Tensor:
        """The weight that the int8 stand for, in float32."""
        return (self.whole.float() * self.scale.float()[:, None])[: self.outputs, : self.inputs]


def quantized(model: Transformer) -> Transformer:
    """A copy of a model on the CPU with its linear layers and its head as int8, to decode and to score with, not to
    train.

    The embedding and the norms stay as they are; a head that was tied to the embedding becomes one of its own.
    ValueError: the model is on another device, or this torch has no int8 kernel.
    """
    if model.embedding.weight.device.type != "cpu":
        raise ValueError(f"int8 weights are for decoding on a CPU, and the model is on {model.embedding.weight.device}")
    if not hasattr(torch, "_weight_int8pack_mm"):
        raise ValueError(f"torch {torch.__version__} has no int8 kernel for a CPU: use 2.11 to 2.13")
    result = copy.deepcopy(model).requires_grad_(False).eval()
    head = result.head_weight.detach().clone()
    for module in list(result.modules()):
        for name, child in list(module.named_children()):
            if is_linear(child):
                setattr(module, name, Int8Linear(child.weight, child.bias))
    result.head = Int8Linear(head)  # type: ignore[assignment]
    return result
