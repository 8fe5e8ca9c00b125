"""OLMo 2: each sublayer's output is normalised, not its input, and queries and keys over all heads together.

(OLMo Team 2024, arXiv:2501.00656)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from lm.families.parts import (
    LLAMA_NAMES,
    QK_NORM_NAMES,
    SILU,
    UNBIASED,
    FamilyAttention,
    FamilyConfig,
    FamilyModel,
    LlamaBlock,
    WideNormAttention,
)

ARCHITECTURE = "Olmo2ForCausalLM"
NAMES = (
    LLAMA_NAMES
    | QK_NORM_NAMES
    | {
        "blocks.*.attention_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.ffn_norm": "model.layers.*.post_feedforward_layernorm",
    }
)


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of an OLMo 2."""

    norm_eps: float = 1e-5

    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, **UNBIASED}


class Block(LlamaBlock):
    """Attention, then feed-forward, the output of each normalised and added to its input."""

    attention_type: ClassVar[type[FamilyAttention]] = WideNormAttention

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        x = x + self.dropout(self.attention_norm(self.attention(x, *context)))
        return x + self.dropout(self.ffn_norm(self.ffn(x)))  # type: ignore[no-any-return]


class Model(FamilyModel):
    """An OLMo 2."""

    block_type = Block
