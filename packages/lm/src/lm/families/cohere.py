"""Cohere's Command R: attention and feed-forward of one input, LayerNorm, neighbours rotated, a factor of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.config import FrozenTable, Norm
from lm.families.parts import (
    LLAMA_NAMES,
    QK_NORM_NAMES,
    SILU,
    UNBIASED,
    FamilyAttention,
    FamilyConfig,
    FamilyModel,
    LlamaBlock,
)


@dataclass(frozen=True, kw_only=True)
class CohereConfig(FamilyConfig):
    """The shape of a Command R."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    tied_embeddings: bool = True
    logit_scale: float = 0.0625  # logits are multiplied by it
    use_qk_norm: bool = False

    renamed = {"layer_norm_eps": "norm_eps"}
    fixed = {**SILU, **UNBIASED}
    default_theta = 500000.0
    rotates_neighbours = True


class HeadNorm(nn.Module):
    """LayerNorm of each head of x (…, heads, head_dim), by weights of its own and without biases."""

    def __init__(self, heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (F.layer_norm(wide, wide.shape[-1:], eps=self.eps) * self.weight).to(x.dtype)


class CohereAttention(FamilyAttention):
    """Attention of queries and keys that may be normalised."""

    def __init__(self, config: CohereConfig, layer: int) -> None:
        super().__init__(config, layer)
        if config.use_qk_norm:
            self.q_norm = HeadNorm(self.num_heads, self.head_dim, config.norm_eps)
            self.k_norm = HeadNorm(self.num_kv_heads, self.head_dim, config.norm_eps)


class CohereBlock(LlamaBlock):
    """Attention and feed-forward of one normalised input, both added to it."""

    def __init__(self, model: FamilyModel, layer: int) -> None:
        super().__init__(model, layer)
        del self.ffn_norm

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y = self.attention_norm(x)
        return x + self.dropout(self.attention(y, *context)) + self.dropout(self.ffn(y))  # type: ignore[no-any-return]


class Cohere(FamilyModel):
    """Command R and R+; the factor of its logits is part of hidden(), so that the loss has it too. (Cohere 2024)"""

    names = LLAMA_NAMES | QK_NORM_NAMES
    block_type = CohereBlock
    attention_type = CohereAttention

    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        is_norm = name.endswith("_norm.weight")
        return nn.init.ones_(parameter) if is_norm else super().initialise(parameter, name)

    def hidden(self, *ids: Any, **places: Any) -> Tensor:
        return super().hidden(*ids, **places) * self.config.logit_scale  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Cohere2Config(CohereConfig):
    """The shape of a Command R7B."""

    sliding_window: int | None = 4096

    renamed = {**CohereConfig.renamed, "sliding_window": "sliding_window"}
    fixed = {  # those beginning with None of older files
        **CohereConfig.fixed,
        "position_embedding_type": (None, "rope_gptj"),
        "rotary_pct": (None, 1.0),
        "use_embedding_sharing": (None, True),
        "use_gated_activation": (None, True),
        "use_parallel_block": (None, True),
        "use_qk_norm": (None, False),
    }
    ignored = ("layer_switch", "order_of_interleaved_layers")
    absent = ("use_qk_norm",)
    full_every = 4
    default_theta = 10000.0

    def rope_of(self, layer: int) -> FrozenTable | None:
        return None if self.window(layer) is None else super().rope_of(layer)


class Cohere2(Cohere):
    """Command R7B and A: a window in three of four layers; only these are rotated. (Cohere 2025, arXiv:2504.00698)"""
