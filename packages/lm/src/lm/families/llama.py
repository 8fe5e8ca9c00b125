"""Llama and Mistral beyond lm.model.Transformer's shapes, Mixtral, SmolLM 3, Phi 3, Granite 3, GLM 4, StarCoder 2."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from lm.config import Count, FrozenTable, Norm, Positive
from lm.families.experts import Experts
from lm.families.parts import (
    LLAMA_NAMES,
    SILU,
    UNBIASED,
    BiaslessOutputAttention,
    FamilyConfig,
    FamilyModel,
    LlamaBlock,
    SandwichBlock,
    scale_embedding,
)
from lm.model import MLP, SwiGLU

if TYPE_CHECKING:
    from accounting import TransformerShape


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(FamilyConfig):
    """The shape of a Llama."""

    mlp_bias: bool = False  # of the feed-forward; bias: of attention

    renamed = {"attention_bias": "bias"}
    ignored = ("sliding_window", "use_sliding_window", "max_window_layers")


class Llama(FamilyModel):
    """Llama with yarn, dynamic or longrope scaling of its rotation; with others lm.model.Transformer is a Llama."""

    def feed_forward(self, layer: int) -> nn.Module:
        return SwiGLU(self.config.d_model, self.config.d_ff, self.config.mlp_bias)


@dataclass(frozen=True, kw_only=True)
class MistralConfig(FamilyConfig):
    """The shape of a Mistral."""

    sliding_window: int | None = 4096
    num_kv_heads: int | None = 8

    renamed = {"sliding_window": "sliding_window"}
    ignored = ("use_sliding_window", "max_window_layers")


class Mistral(FamilyModel):
    """Mistral with windows in some layers, or a scaled rotation. (Jiang et al. 2023, arXiv:2310.06825)"""


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(FamilyConfig):
    """The shape of a Mixtral."""

    norm_eps: float = 1e-5
    num_kv_heads: int | None = 8
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2  # experts that a token passes
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed = {"sliding_window": "sliding_window"}
    default_theta = 1e6


class Mixtral(FamilyModel):
    """Mixtral: Llama's shape with experts; a token passes two of them. (Jiang et al. 2024, arXiv:2401.04088)"""

    names = LLAMA_NAMES | {
        "blocks.*.ffn.router": "model.layers.*.block_sparse_moe.gate",
        "blocks.*.ffn.experts.*.gate_up": tuple(f"model.layers.*.block_sparse_moe.experts.*.{w}" for w in ("w1", "w3")),
        "blocks.*.ffn.experts.*.down": "model.layers.*.block_sparse_moe.experts.*.w2",
    }

    def feed_forward(self, layer: int) -> nn.Module:
        return Experts(self.config, self.config.num_local_experts, self.config.d_ff)


@dataclass(frozen=True, kw_only=True)
class SmolLM3Config(FamilyConfig):
    """The shape of a SmolLM 3."""

    num_kv_heads: int | None = 4
    tied_embeddings: bool = True
    use_sliding_window: bool = False
    no_rope_layers: tuple[int, ...] = ()  # of each layer: 0 for one without rotation
    no_rope_layer_interval: Count = 4  # every layer of this number is without, where no_rope_layers is ()

    renamed = {"sliding_window": "sliding_window"}
    fixed = {**SILU, **UNBIASED, "mlp_bias": (False,)}
    ignored = ("max_window_layers",)
    default_theta = 2e6

    def __post_init__(self) -> None:
        if not self.no_rope_layers:
            rotated = (int((layer + 1) % self.no_rope_layer_interval != 0) for layer in range(self.num_layers))
            object.__setattr__(self, "no_rope_layers", tuple(rotated))
        super().__post_init__()

    def window(self, layer: int) -> int | None:
        return super().window(layer) if self.use_sliding_window and self.layer_types else None

    def rope_of(self, layer: int) -> FrozenTable | None:
        return super().rope_of(layer) if self.no_rope_layers[layer] else None


class SmolLM3(FamilyModel):
    """SmolLM 3: Llama's shape with a layer in four that is not rotated. (Yang et al. 2025, arXiv:2501.18795)"""


@dataclass(frozen=True, kw_only=True)
class Phi3Config(FamilyConfig):
    """The shape of a Phi 3 or Phi 4."""

    norm_eps: float = 1e-5
    original_max_position_embeddings: int = 4096  # beyond it, rotations have longrope's long_factor

    renamed = {"sliding_window": "sliding_window"}
    ignored = ("full_attn_mod", "interpolate_factor")
    rope_renamed = {"su": "longrope", "yarn": "longrope"}  # rope_type of older files


class Phi3(FamilyModel):
    """Phi 3 and 4: fused matrices, heads rotated in part, and longrope scaling.
    (Abdin et al. 2024, arXiv:2404.14219; Ding et al. 2024, arXiv:2402.13753)"""

    names = LLAMA_NAMES | {
        "blocks.*.attention.qkv": "model.layers.*.self_attn.qkv_proj",
        "blocks.*.ffn.gate_up": "model.layers.*.mlp.gate_up_proj",
    }


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(FamilyConfig):
    """The shape of a Granite."""

    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0  # of scores, in place of 1 / √head_dim
    residual_multiplier: float = 1.0  # of what a sublayer adds to the residual stream
    logits_scaling: Positive = 1.0  # logits are divided by it

    fixed = {**SILU, **UNBIASED, "mlp_bias": (False,)}

    @property
    def query_scale(self) -> float:
        return self.attention_multiplier * math.sqrt(self.head_width)


class GraniteBlock(LlamaBlock):
    """Llama's block, whose sublayers add a multiple of their output."""

    def __init__(self, model: FamilyModel, layer: int) -> None:
        super().__init__(model, layer)
        self.multiplier = model.config.residual_multiplier

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        x = x + self.multiplier * self.dropout(self.attention(self.attention_norm(x), *context))
        return x + self.multiplier * self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class Granite(FamilyModel):
    """Granite 3: Llama with factors; that of logits is part of hidden(), for the loss. (Granite Team 2024)"""

    block_type = GraniteBlock

    def __init__(self, config: GraniteConfig) -> None:
        super().__init__(config)
        scale_embedding(self, config.embedding_multiplier)

    def hidden(self, *ids: Any, **places: Any) -> Tensor:
        return super().hidden(*ids, **places) / self.config.logits_scaling  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Glm4Config(FamilyConfig):
    """The shape of a GLM 4."""

    norm_eps: float = 1.5625e-7
    bias: bool = True  # of queries, keys and values
    num_kv_heads: int | None = 2
    head_dim: int | None = 128

    renamed = {"attention_bias": "bias"}
    default_partial = 0.5
    rotates_neighbours = True


class Glm4(FamilyModel):
    """GLM 4: norms after sublayers too; neighbours rotated in half of each head. (GLM Team 2024, arXiv:2406.12793)"""

    names = LLAMA_NAMES | {
        "blocks.*.attention_post_norm": "model.layers.*.post_self_attn_layernorm",
        "blocks.*.ffn_post_norm": "model.layers.*.post_mlp_layernorm",
        "blocks.*.ffn.gate_up": "model.layers.*.mlp.gate_up_proj",
    }
    block_type = SandwichBlock
    attention_type = BiaslessOutputAttention


@dataclass(frozen=True, kw_only=True)
class Starcoder2Config(FamilyConfig):
    """The shape of a StarCoder 2."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    bias: bool = True  # of norms
    use_bias: bool = True  # of matrices
    tied_embeddings: bool = True

    renamed = {"norm_epsilon": "norm_eps", "sliding_window": "sliding_window"}
    fixed = {"hidden_act": ("gelu_pytorch_tanh",)}

    def has_bias(self, part: Literal["qkv", "output", "ffn"]) -> bool:
        return self.use_bias

    def shape(self) -> TransformerShape:
        return replace(super().shape(), norm_bias=True)


class Starcoder2(FamilyModel):
    """StarCoder 2: a window, LayerNorm, an MLP of GELU, and biases. (Lozhkov et al. 2024, arXiv:2402.19173)"""

    names = LLAMA_NAMES | {
        "blocks.*.ffn.up": "model.layers.*.mlp.c_fc",
        "blocks.*.ffn.down": "model.layers.*.mlp.c_proj",
    }

    def feed_forward(self, layer: int) -> nn.Module:
        return MLP(self.config.d_model, self.config.d_ff, "gelu", self.config.use_bias)
