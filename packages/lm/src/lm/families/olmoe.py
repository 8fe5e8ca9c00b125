"""OLMoE: Llama's shape with norms of queries and keys over all heads together, and 64 experts, of which a token passes
eight. (Muennighoff et al. 2024, arXiv:2409.02060)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from lm.families import qwen3_moe
from lm.families.experts import Experts
from lm.families.parts import SILU, UNBIASED, FamilyAttention, FamilyConfig, FamilyModel, LlamaBlock, WideNormAttention

ARCHITECTURE = "OlmoeForCausalLM"
NAMES = qwen3_moe.NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of an OLMoE; d_ff is that of an expert."""

    norm_eps: float = 1e-5
    num_experts: int = 64
    num_experts_per_tok: int = 8  # experts that a token passes
    norm_topk_prob: bool = False  # their weights add up to 1
    router_aux_loss_coef: float = 0.01  # of the loss that spreads the tokens over the experts

    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, **UNBIASED, "clip_qkv": (None,)}


class Block(LlamaBlock):
    """Llama's block with wide norms and experts."""

    attention_type: ClassVar[type[FamilyAttention]] = WideNormAttention

    def feed_forward(self, config: Any, layer: int) -> nn.Module:
        number, per_token, normalised = config.num_experts, config.num_experts_per_tok, config.norm_topk_prob
        return Experts(config.d_model, config.d_ff, number, per_token, normalised, config.router_aux_loss_coef)


class Model(FamilyModel):
    """An OLMoE."""

    block_type = Block
