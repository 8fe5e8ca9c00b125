"""Llama, Mistral, Mixtral and SmolLM 3 where they are beyond lm.model.Transformer's shapes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lm.config import FrozenTable
from lm.families.experts import Experts
from lm.families.parts import LLAMA_NAMES, SILU, UNBIASED, FamilyConfig, FamilyModel
from lm.model import SwiGLU


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(FamilyConfig):
    """The shape of a Llama."""

    mlp_bias: bool = False  # of the feed-forward; bias: of attention

    renamed = {"attention_bias": "bias"}
    ignored = ("sliding_window", "use_sliding_window", "max_window_layers")


class Llama(FamilyModel):
    """Llama with yarn, dynamic or longrope scaling of its rotation; with others lm.model.Transformer is a Llama."""

    config_type = LlamaConfig

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
    """Mistral and Ministral whose layers have windows of their own, or whose rotation is scaled; others are
    lm.model.Transformer. (Jiang et al. 2023, arXiv:2310.06825)
    """

    config_type = MistralConfig


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(FamilyConfig):
    """The shape of a Mixtral."""

    norm_eps: float = 1e-5
    num_kv_heads: int | None = 8
    num_local_experts: int = 8
    num_experts_per_tok: int = 2  # experts that a token passes
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed = {"sliding_window": "sliding_window"}
    default_theta = 1e6


class Mixtral(FamilyModel):
    """Mixtral: Llama's shape with experts; a token passes two of them. (Jiang et al. 2024, arXiv:2401.04088)"""

    names = LLAMA_NAMES | {
        "blocks.*.ffn.router": "model.layers.*.block_sparse_moe.gate",
        "blocks.*.ffn.experts.*.gate_up": (
            "model.layers.*.block_sparse_moe.experts.*.w1",
            "model.layers.*.block_sparse_moe.experts.*.w3",
        ),
        "blocks.*.ffn.experts.*.down": "model.layers.*.block_sparse_moe.experts.*.w2",
    }
    config_type = MixtralConfig

    def feed_forward(self, layer: int) -> nn.Module:
        return Experts(self.config, self.config.num_local_experts, self.config.d_ff)


@dataclass(frozen=True, kw_only=True)
class SmolLM3Config(FamilyConfig):
    """The shape of a SmolLM 3."""

    num_kv_heads: int | None = 4
    tied_embeddings: bool = True
    use_sliding_window: bool = False
    no_rope_layers: tuple[int, ...] = ()  # of each layer: 0 for one without rotation
    no_rope_layer_interval: int = 4  # every layer of this number is without, where no_rope_layers is ()

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

    config_type = SmolLM3Config
