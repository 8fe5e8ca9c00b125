"""GLM 4: Llama's shape with norms after sublayers too, biases of queries, keys and values alone, and half of each head
rotated, in neighbouring pairs. (GLM Team 2024, arXiv:2406.12793)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lm.families.parts import (
    LLAMA_NAMES,
    BiaslessOutputAttention,
    FamilyAttention,
    FamilyConfig,
    FamilyModel,
    SandwichBlock,
)
from lm.families.rope import rotate_neighbours

ARCHITECTURE = "Glm4ForCausalLM"
NAMES = LLAMA_NAMES | {
    "blocks.*.attention_post_norm": "model.layers.*.post_self_attn_layernorm",
    "blocks.*.ffn_post_norm": "model.layers.*.post_mlp_layernorm",
    "blocks.*.ffn.gate_up": "model.layers.*.mlp.gate_up_proj",
}


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a GLM 4."""

    norm_eps: float = 1.5625e-7
    bias: bool = True  # of queries, keys and values
    num_kv_heads: int | None = 2
    head_dim: int | None = 128

    renamed: ClassVar[Mapping[str, str]] = {"attention_bias": "bias"}
    default_partial: ClassVar[float] = 0.5


class Attention(BiaslessOutputAttention):
    """Attention that rotates neighbouring pairs."""

    rotation = staticmethod(rotate_neighbours)


class Block(SandwichBlock):
    """A block with four norms and this attention."""

    attention_type: ClassVar[type[FamilyAttention]] = Attention


class Model(FamilyModel):
    """A GLM 4."""

    block_type = Block
