"""GLM 4: Llama's shape with norms after sublayers too, biases of queries, keys and values alone, and half of each head
rotated, in neighbouring pairs. (GLM Team 2024, arXiv:2406.12793)
"""

from __future__ import annotations

from dataclasses import dataclass

from lm.families.parts import LLAMA_NAMES, BiaslessOutputAttention, FamilyConfig, FamilyModel, SandwichBlock
from lm.families.rope import rotate_neighbours


@dataclass(frozen=True, kw_only=True)
class Glm4Config(FamilyConfig):
    """The shape of a GLM 4."""

    norm_eps: float = 1.5625e-7
    bias: bool = True  # of queries, keys and values
    num_kv_heads: int | None = 2
    head_dim: int | None = 128

    renamed = {"attention_bias": "bias"}
    default_partial = 0.5


class Glm4Attention(BiaslessOutputAttention):
    """Attention that rotates neighbouring pairs."""

    rotation = staticmethod(rotate_neighbours)


class Glm4(FamilyModel):
    """A GLM 4."""

    names = LLAMA_NAMES | {
        "blocks.*.attention_post_norm": "model.layers.*.post_self_attn_layernorm",
        "blocks.*.ffn_post_norm": "model.layers.*.post_mlp_layernorm",
        "blocks.*.ffn.gate_up": "model.layers.*.mlp.gate_up_proj",
    }
    config_type = Glm4Config
    block_type = SandwichBlock
    attention_type = Glm4Attention
