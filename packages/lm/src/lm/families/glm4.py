"""GLM 4: Llama's shape with norms after sublayers too, biases of queries, keys and values alone, and half of each head
rotated, in neighbouring pairs. (GLM Team 2024, arXiv:2406.12793)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from lm.families.parts import LLAMA_NAMES, FamilyAttention, FamilyConfig, FamilyModel, LlamaBlock
from lm.families.rope import rotate_neighbours
from lm.model import LayerCache, RMSNorm

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


class Attention(FamilyAttention):
    """Attention that rotates neighbouring pairs, without a bias of its output."""

    rotate = staticmethod(rotate_neighbours)

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.output = nn.Linear(self.num_heads * self.head_dim, config.d_model, bias=False)


class Block(LlamaBlock):
    """Attention, then feed-forward, each between two norms and added to its input."""

    attention_type: ClassVar[type[FamilyAttention]] = Attention

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.attention_post_norm = RMSNorm(config.d_model, config.norm_eps)
        self.ffn_post_norm = RMSNorm(config.d_model, config.norm_eps)

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        y = self.attention(self.attention_norm(x), rope, document_ids, cache)
        x = x + self.dropout(self.attention_post_norm(y))
        return x + self.dropout(self.ffn_post_norm(self.ffn(self.ffn_norm(x))))  # type: ignore[no-any-return]


class Model(FamilyModel):
    """A GLM 4."""

    block_type = Block
