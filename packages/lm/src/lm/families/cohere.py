"""Cohere's Command R: attention and feed-forward both of one normalised input, LayerNorm without biases, neighbouring
pairs rotated, and a factor of logits. Command R+ normalises queries and keys too. (Cohere 2024)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.config import Norm
from lm.families.parts import LLAMA_NAMES, QK_NORM_NAMES, SILU, UNBIASED, FamilyAttention, FamilyConfig, FamilyModel
from lm.families.rope import rotate_neighbours
from lm.model import SwiGLU, norm

ARCHITECTURE = "CohereForCausalLM"
NAMES = LLAMA_NAMES | QK_NORM_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Command R."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    tied_embeddings: bool = True
    logit_scale: float = 0.0625  # logits are multiplied by it
    use_qk_norm: bool = False

    renamed: ClassVar[Mapping[str, str]] = {"layer_norm_eps": "norm_eps"}
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, **UNBIASED}
    default_theta: ClassVar[float] = 500000.0


class HeadNorm(nn.Module):
    """LayerNorm of each head of x (…, heads, head_dim), by weights of its own and without biases."""

    def __init__(self, heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (F.layer_norm(wide, wide.shape[-1:], eps=self.eps) * self.weight).to(x.dtype)


class Attention(FamilyAttention):
    """Attention that rotates neighbouring pairs, of queries and keys that may be normalised."""

    rotation = staticmethod(rotate_neighbours)

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        if config.use_qk_norm:
            self.q_norm = HeadNorm(self.num_heads, self.head_dim, config.norm_eps)
            self.k_norm = HeadNorm(self.num_kv_heads, self.head_dim, config.norm_eps)


class Block(nn.Module):
    """Attention and feed-forward of one normalised input, both added to it.

    x (batch, seq, d_model) → the same; context: the arguments of Attention after x.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.attention_norm = norm(config)
        self.attention = Attention(config, layer)
        self.ffn = SwiGLU(config.d_model, config.d_ff)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y = self.attention_norm(x)
        return x + self.dropout(self.attention(y, *context)) + self.dropout(self.ffn(y))  # type: ignore[no-any-return]


class Model(FamilyModel):
    """A Command R. The factor of its logits is part of hidden(), so that the loss has it too."""

    config: Config
    block_type = Block

    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        is_norm = name.endswith("_norm.weight")
        return nn.init.ones_(parameter) if is_norm else super().initialise(parameter, name)

    def hidden(self, *ids: Any, **places: Any) -> Tensor:
        return super().hidden(*ids, **places) * self.config.logit_scale
