"""gpt-oss: experts, windows, biases, and sinks: one more score for each head. (OpenAI 2025, arXiv:2508.10925)"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lm.attention import attention
from lm.config import Count
from lm.families.experts import Experts
from lm.families.parts import LLAMA_NAMES, SILU, FamilyAttention, FamilyConfig, FamilyModel
from lm.model import Attend, SwiGLU


@dataclass(frozen=True, kw_only=True)
class GptOssConfig(FamilyConfig):
    """The shape of a gpt-oss; d_ff is that of an expert."""

    norm_eps: float = 1e-5
    num_kv_heads: int | None = 8
    head_dim: int | None = 64
    bias: bool = True
    sliding_window: int | None = 128
    num_local_experts: Count = 128
    num_experts_per_tok: Count = 4  # experts that a token passes
    swiglu_alpha: float = 1.702  # slope of the gate's sigmoid
    swiglu_limit: float = 7.0  # gate and up are cut at ±this, the gate only above
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed = {"sliding_window": "sliding_window"}
    ignored = ("initial_context_length",)
    aliases = {"experts_per_token": "num_experts_per_tok"}
    fixed = {**SILU, "attention_bias": (True,)}
    full_every = 2
    default_theta = 150000.0


class GptOssAttention(FamilyAttention):
    """Attention with sinks, which take a share of each softmax and give nothing."""

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.sinks = nn.Parameter(torch.zeros(self.num_heads))

    @property
    def attend(self) -> Attend:
        return functools.partial(attention, sinks=self.sinks)


class ClampedSwiGLU(SwiGLU):
    """down(gate · σ(alpha gate) · (up + 1)), with biases, gate and up cut at a limit."""

    def __init__(self, d_model: int, d_ff: int, alpha: float, limit: float) -> None:
        super().__init__(d_model, d_ff, bias=True)
        self.alpha, self.limit = alpha, limit

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (…, d_ff)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return self.down(gate * torch.sigmoid(self.alpha * gate) * (up + 1))  # type: ignore[no-any-return]


class GptOss(FamilyModel):
    """A gpt-oss."""

    names = LLAMA_NAMES | {
        "blocks.*.attention.sinks": "model.layers.*.self_attn.sinks",
        "blocks.*.ffn.router": "model.layers.*.mlp.router",
        "blocks.*.ffn.experts.*.gate_up": "model.layers.*.mlp.experts.*.gate_up_proj",  # see from_hf
        "blocks.*.ffn.experts.*.down": "model.layers.*.mlp.experts.*.down_proj",
    }
    attention_type = GptOssAttention

    def feed_forward(self, layer: int) -> nn.Module:
        c = self.config
        expert = functools.partial(ClampedSwiGLU, alpha=c.swiglu_alpha, limit=c.swiglu_limit)
        return Experts(c, c.num_local_experts, c.d_ff, bias=True, expert=expert)

    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        return nn.init.zeros_(parameter) if name.endswith("sinks") else super().initialise(parameter, name)

    @staticmethod
    def from_hf(tensors: dict[str, Tensor], config: GptOssConfig) -> dict[str, Tensor]:
        """Split tensors of all experts, (in, out) and with gate and up in turns, into tensors of each expert."""
        split = {}
        for name, tensor in unpacked(tensors).items():
            match = FUSED.fullmatch(name)
            if match is None:
                split[name] = tensor
                continue
            layer, part, bias = match.groups()
            for number, matrix in enumerate(tensor):
                rows = matrix if bias else matrix.T
                if part == "gate_up":
                    rows = torch.cat((rows[0::2], rows[1::2]))
                split[f"{layer}.{number}.{part}_proj.{'bias' if bias else 'weight'}"] = rows
        return split

    @staticmethod
    def to_hf(tensors: dict[str, Tensor], config: GptOssConfig) -> dict[str, Tensor]:
        """The inverse of from_hf."""
        fused: dict[str, Any] = {}
        for name, tensor in tensors.items():
            match = SPLIT.fullmatch(name)
            if match is None:
                fused[name] = tensor
                continue
            part, is_bias = match[2], match[3] == "bias"
            rows = torch.stack(tensor.chunk(2), 1).flatten(0, 1) if part == "gate_up_proj" else tensor
            own = fused.setdefault(f"{match[1]}.{part}" + "_bias" * is_bias, [])
            own.append(rows if is_bias else rows.T)
        return {name: torch.stack(value) if isinstance(value, list) else value for name, value in fused.items()}


FP4 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)])
FUSED = re.compile(r"(.*\.experts)\.(gate_up|down)_proj(_bias)?")
SPLIT = re.compile(r"(.*\.experts)\.\d+\.((?:gate_up|down)_proj)\.(weight|bias)")


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, MXFP4 (OCP Microscaling Formats, 2023) in fp32, (experts, in, out). NAME_blocks (experts,
    out, in / 32, 16) has bytes of two numbers, the lower bits first; NAME_scales (experts, out, in / 32) the power of
    two of each 32 numbers, plus 127."""
    tensors = dict(tensors)
    for name in [name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks")]:
        if f"{name}_scales" in tensors:
            blocks, scales = tensors.pop(f"{name}_blocks"), tensors.pop(f"{name}_scales")
            numbers = FP4[torch.stack((blocks & 15, blocks >> 4), -1).long()].flatten(-2)  # (…, in / 32, 32)
            tensors[name] = torch.ldexp(numbers, scales[..., None].int() - 127).flatten(-2).transpose(1, 2)
    return tensors
