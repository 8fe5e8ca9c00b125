"""Mixtral: Llama's shape with experts, of which a token passes two. (Jiang et al. 2024, arXiv:2401.04088)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from lm.families.experts import Experts
from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel, LlamaBlock

ARCHITECTURE = "MixtralForCausalLM"
NAMES = LLAMA_NAMES | {
    "blocks.*.ffn.router": "model.layers.*.block_sparse_moe.gate",
    "blocks.*.ffn.experts.*.gate_up": (
        "model.layers.*.block_sparse_moe.experts.*.w1",
        "model.layers.*.block_sparse_moe.experts.*.w3",
    ),
    "blocks.*.ffn.experts.*.down": "model.layers.*.block_sparse_moe.experts.*.w2",
}


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Mixtral."""

    norm_eps: float = 1e-5
    num_kv_heads: int | None = 8
    num_local_experts: int = 8
    num_experts_per_tok: int = 2  # experts that a token passes
    router_aux_loss_coef: float = 0.001  # of the loss that spreads the tokens over the experts

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}
    default_theta: ClassVar[float] = 1e6


class Block(LlamaBlock):
    """Llama's block with experts."""

    def feed_forward(self, config: Any, layer: int) -> nn.Module:
        number, per_token = config.num_local_experts, config.num_experts_per_tok
        return Experts(config.d_model, config.d_ff, number, per_token, True, config.router_aux_loss_coef)


class Model(FamilyModel):
    """A Mixtral."""

    block_type = Block
