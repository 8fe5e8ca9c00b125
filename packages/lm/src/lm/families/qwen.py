"""Qwen 2 and 3 where they are beyond lm.model.Transformer's shapes, and Qwen 3 with experts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lm.config import Count
from lm.families.experts import Experts
from lm.families.parts import (
    FULL,
    LLAMA_NAMES,
    QK_NORM_NAMES,
    SILU,
    SLIDING,
    UNBIASED,
    BiaslessOutputAttention,
    FamilyConfig,
    FamilyModel,
)


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(FamilyConfig):
    """The shape of a Qwen 2."""

    bias: bool = True  # of queries, keys and values
    num_kv_heads: int | None = 32
    sliding_window: int | None = 4096
    use_sliding_window: bool = False
    max_window_layers: int = 28  # layers without a window, where layer_types is ()

    renamed = {"sliding_window": "sliding_window"}

    def __post_init__(self) -> None:
        if not self.layer_types and self.use_sliding_window and self.sliding_window is not None:
            kinds = (SLIDING if layer >= self.max_window_layers else FULL for layer in range(self.num_layers))
            object.__setattr__(self, "layer_types", tuple(kinds))
        super().__post_init__()

    def window(self, layer: int) -> int | None:
        return super().window(layer) if self.use_sliding_window else None


class Qwen2(FamilyModel):
    """Qwen 2 with windows in its upper layers, or a scaled rotation. (Qwen Team 2024, arXiv:2407.10671)"""

    attention_type = BiaslessOutputAttention


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(Qwen2Config):
    """The shape of a Qwen 3."""

    bias: bool = False
    qk_norm: bool = True
    head_dim: int | None = 128

    renamed = {"sliding_window": "sliding_window", "attention_bias": "bias"}


class Qwen3(FamilyModel):
    """Qwen 3 of the same kind, with norms of query and key heads. (Qwen Team 2025, arXiv:2505.09388)"""

    names = LLAMA_NAMES | QK_NORM_NAMES


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(FamilyConfig):
    """The shape of a Qwen 3 with experts; d_ff is that of layers without."""

    num_kv_heads: int | None = 4
    qk_norm: bool = True
    use_sliding_window: bool = False
    moe_intermediate_size: Count = 768  # width inside an expert
    num_experts: Count = 128
    num_experts_per_tok: Count = 8  # experts that a token passes
    norm_topk_prob: bool = False  # their weights add up to 1
    decoder_sparse_step: Count = 1  # every layer of this number has experts
    mlp_only_layers: tuple[int, ...] = ()  # layers without, counted from 0
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed = {"sliding_window": "sliding_window"}
    ignored = ("max_window_layers",)
    aliases = {"num_local_experts": "num_experts"}
    fixed = {**SILU, **UNBIASED}

    def window(self, layer: int) -> int | None:
        return self.sliding_window if self.use_sliding_window else None


class Qwen3Moe(FamilyModel):
    """Qwen 3 with many small experts in all or some layers. (Qwen Team 2025, arXiv:2505.09388)"""

    names = Qwen3.names | {
        "blocks.*.ffn.router": "model.layers.*.mlp.gate",
        "blocks.*.ffn.experts.*.gate_up": tuple(f"model.layers.*.mlp.experts.*.{w}_proj" for w in ("gate", "up")),
        "blocks.*.ffn.experts.*.down": "model.layers.*.mlp.experts.*.down_proj",
    }

    def feed_forward(self, layer: int) -> nn.Module:
        c = self.config
        if layer in c.mlp_only_layers or (layer + 1) % c.decoder_sparse_step:
            return super().feed_forward(layer)
        return Experts(c, c.num_experts, c.moe_intermediate_size, normalised=c.norm_topk_prob)
