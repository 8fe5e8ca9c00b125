"""OLMo 2: each sublayer's output is normalised, not its input, and queries and keys over all heads together.

(OLMo Team 2024, arXiv:2501.00656)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel, WideNormAttention
from lm.model import LayerCache, RMSNorm, SwiGLU

ARCHITECTURE = "Olmo2ForCausalLM"
NAMES = LLAMA_NAMES | {
    "blocks.*.attention_norm": "model.layers.*.post_attention_layernorm",
    "blocks.*.attention.q_norm": "model.layers.*.self_attn.q_norm",
    "blocks.*.attention.k_norm": "model.layers.*.self_attn.k_norm",
    "blocks.*.ffn_norm": "model.layers.*.post_feedforward_layernorm",
}


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of an OLMo 2."""

    norm_eps: float = 1e-5

    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {"hidden_act": ("silu", "swish"), "attention_bias": (False,)}


class Block(nn.Module):
    """Attention, then feed-forward, the output of each normalised and added to its input."""

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.attention = WideNormAttention(config, layer)
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        self.ffn = SwiGLU(config.d_model, config.d_ff)
        self.ffn_norm = RMSNorm(config.d_model, config.norm_eps)

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """x (batch, seq, d_model) → the same; the others are Attention's."""
        x = x + self.dropout(self.attention_norm(self.attention(x, rope, document_ids, cache)))
        return x + self.dropout(self.ffn_norm(self.ffn(x)))  # type: ignore[no-any-return]


class Model(FamilyModel):
    """An OLMo 2."""

    block_type = Block
