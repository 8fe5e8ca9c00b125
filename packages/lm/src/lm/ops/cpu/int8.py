"""Weights as int8, for generation on a CPU: decoding reads a quarter of the bytes, and reading them is most of what it
takes; prompts are multiplied as integers, by VNNI, where the processor has it."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.device import use_huge_pages
from lm.model import Transformer
from lm.ops.cpu.products import is_linear


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8 with a scale for each output; x (…, in) → (…, out) in x's float dtype. C
    rounds x to 16 bits, by the largest of each vector, and multiplies integers: nearer to the products of x than
    bfloat16's. In PyTorch the weight becomes floats for each product."""

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
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    @property
    def weight(self) -> Tensor:
        """The weight that the int8 stand for, in float32."""
        return self.whole.float() * self.scale.float()[:, None]


def quantized(model: Transformer) -> Transformer:
    """A copy of a model on the CPU with its linear layers and its head as int8, to decode and to score with. The
    embedding and the norms stay as they are; a head that was tied to the embedding becomes one of its own. ValueError:
    the model is on another device."""
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
