"""Granite 3: Llama's shape with four factors, of the embedding, of scores, of what each sublayer adds and of logits.

(Granite Team 2024, Granite 3.0 Language Models)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lm.families.parts import SILU, UNBIASED, FamilyConfig, FamilyModel, LlamaBlock, scale_embedding


@dataclass(frozen=True, kw_only=True)
class GraniteConfig(FamilyConfig):
    """The shape of a Granite."""

    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0  # of scores, in place of 1 / √head_dim
    residual_multiplier: float = 1.0  # of what a sublayer adds to the residual stream
    logits_scaling: float = 1.0  # logits are divided by it

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
    """A Granite. The factor of its logits is part of hidden(), so that the loss has it too."""

    config_type = GraniteConfig
    block_type = GraniteBlock

    def __init__(self, config: GraniteConfig) -> None:
        super().__init__(config)
        scale_embedding(self, config.embedding_multiplier)

    def hidden(self, *ids: Any, **places: Any) -> Tensor:
        return super().hidden(*ids, **places) / self.config.logits_scaling  # type: ignore[no-any-return]
