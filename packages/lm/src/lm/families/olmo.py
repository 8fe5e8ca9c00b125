"""OLMo 2 and 3, and OLMoE with experts: queries and keys are normalised over all heads together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lm.config import Count
from lm.families.experts import Experts
from lm.families.parts import (
    LLAMA_NAMES,
    QK_NORM_NAMES,
    SILU,
    UNBIASED,
    FamilyConfig,
    FamilyModel,
    LlamaBlock,
    WideNormAttention,
)
from lm.families.qwen import Qwen3Moe


@dataclass(frozen=True, kw_only=True)
class Olmo2Config(FamilyConfig):
    """The shape of an OLMo 2."""

    norm_eps: float = 1e-5

    fixed = {**SILU, **UNBIASED}


class Olmo2Block(LlamaBlock):
    """Attention, then feed-forward, the output of each normalised and added to its input."""

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        x = x + self.dropout(self.attention_norm(self.attention(x, *context)))
        return x + self.dropout(self.ffn_norm(self.ffn(x)))  # type: ignore[no-any-return]


class Olmo2(FamilyModel):
    """OLMo 2: each sublayer's output is normalised, not its input. (OLMo Team 2024, arXiv:2501.00656)"""

    names = {
        **LLAMA_NAMES,
        **QK_NORM_NAMES,
        "blocks.*.attention_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.ffn_norm": "model.layers.*.post_feedforward_layernorm",
    }
    block_type = Olmo2Block
    attention_type = WideNormAttention


@dataclass(frozen=True, kw_only=True)
class Olmo3Config(Olmo2Config):
    """The shape of an OLMo 3."""

    sliding_window: int | None = 4096

    renamed = {"sliding_window": "sliding_window"}
    full_every = 4
    default_theta = 500000.0
    local_theta = ("rope_theta", 500000.0)  # of layers with a window


class Olmo3(Olmo2):
    """OLMo 2 with unscaled windows in three of four layers. (OLMo Team 2025, arXiv:2512.13961)"""


@dataclass(frozen=True, kw_only=True)
class OlmoeConfig(Olmo2Config):
    """The shape of an OLMoE; d_ff is that of an expert."""

    num_experts: Count = 64
    num_experts_per_tok: Count = 8  # experts that a token passes
    norm_topk_prob: bool = False  # their weights add up to 1
    router_aux_loss_coef: float = 0.01  # of the loss that spreads the tokens over the experts

    fixed = {**Olmo2Config.fixed, "clip_qkv": (None,)}


class Olmoe(FamilyModel):
    """Llama's shape with 64 experts; a token passes eight of them. (Muennighoff et al. 2024, arXiv:2409.02060)"""

    names = Qwen3Moe.names
    attention_type = WideNormAttention

    def feed_forward(self, layer: int) -> nn.Module:
        c = self.config
        return Experts(c, c.num_experts, c.d_ff, normalised=c.norm_topk_prob)
