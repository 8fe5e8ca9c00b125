"""Qwen 3 with experts: norms of query and key heads, and many small experts in all or some layers.

(Qwen Team 2025, arXiv:2505.09388)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from lm.families.experts import Experts
from lm.families.parts import LLAMA_NAMES, QK_NORM_NAMES, SILU, UNBIASED, FamilyConfig, FamilyModel, LlamaBlock
from lm.model import SwiGLU

ARCHITECTURE = "Qwen3MoeForCausalLM"
NAMES = (
    LLAMA_NAMES
    | QK_NORM_NAMES
    | {
        "blocks.*.ffn.router": "model.layers.*.mlp.gate",
        "blocks.*.ffn.experts.*.gate_up": (
            "model.layers.*.mlp.experts.*.gate_proj",
            "model.layers.*.mlp.experts.*.up_proj",
        ),
        "blocks.*.ffn.experts.*.down": "model.layers.*.mlp.experts.*.down_proj",
    }
)


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Qwen 3 with experts; d_ff is that of layers without."""

    num_kv_heads: int | None = 4
    qk_norm: bool = True
    use_sliding_window: bool = False
    moe_intermediate_size: int = 768  # width inside an expert
    num_experts: int = 128
    num_experts_per_tok: int = 8  # experts that a token passes
    norm_topk_prob: bool = False  # their weights add up to 1
    decoder_sparse_step: int = 1  # every layer of this number has experts
    mlp_only_layers: tuple[int, ...] = ()  # layers without, counted from 0
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}
    ignored: ClassVar[tuple[str, ...]] = ("max_window_layers",)
    aliases: ClassVar[Mapping[str, str]] = {"num_local_experts": "num_experts"}
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, **UNBIASED}

    def window(self, layer: int) -> int | None:
        return self.sliding_window if self.use_sliding_window else None


class Block(LlamaBlock):
    """Llama's block, with experts in the layers that have them."""

    def feed_forward(self, config: Any, layer: int) -> nn.Module:
        if layer in config.mlp_only_layers or (layer + 1) % config.decoder_sparse_step:
            return SwiGLU(config.d_model, config.d_ff)
        number, per_token, normalised = config.num_experts, config.num_experts_per_tok, config.norm_topk_prob
        width, balance = config.moe_intermediate_size, config.router_aux_loss_coef
        return Experts(config.d_model, width, number, per_token, normalised, balance)


class Model(FamilyModel):
    """A Qwen 3 with experts."""

    block_type = Block
