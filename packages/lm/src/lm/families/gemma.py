"""Gemma: Llama's shape with GeGLU, a scaled embedding that is the head too, and norms that begin at zero."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.attention import attention
from lm.config import Count, PositiveOrNone
from lm.families.parts import (
    LLAMA_NAMES,
    QK_NORM_NAMES,
    UNBIASED,
    FamilyAttention,
    FamilyConfig,
    FamilyModel,
    SandwichBlock,
    scale_embedding,
)
from lm.model import Attend, RMSNorm, SwiGLU


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(FamilyConfig):
    """The shape of a Gemma."""

    head_dim: int = 256
    tied_embeddings: bool = True

    fixed = {
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),  # of a Gemma, "gelu" is the tanh form too
        "hidden_activation": (None, "gelu_pytorch_tanh"),
        **UNBIASED,
        "use_bidirectional_attention": (None, False),
    }


class GemmaNorm(RMSNorm):
    """RMSNorm by 1 + weight."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(self.weight.dtype, torch.float32))
        return F.rms_norm(wide, self.weight.shape, 1 + self.weight.to(wide.dtype), self.eps).to(x.dtype)


class GeGLU(SwiGLU):
    """down(gelu(gate x) · up x), with the tanh form of GELU. (Shazeer 2020, arXiv:2002.05202)"""

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (…, d_ff)
        return self.down(F.gelu(gate, approximate="tanh") * up)  # type: ignore[no-any-return]


class Gemma(FamilyModel):
    """A Gemma; its embedding is multiplied by √d_model. (Gemma Team 2024, arXiv:2403.08295)"""

    def __init__(self, config: FamilyConfig) -> None:
        super().__init__(config)
        self.final_norm = self.norm()
        self.initialise(self.final_norm.weight, "final_norm.weight")
        scale_embedding(self, math.sqrt(config.d_model))

    def norm(self) -> GemmaNorm:
        return GemmaNorm(self.config.d_model, self.config.norm_eps)

    def feed_forward(self, layer: int) -> nn.Module:
        return GeGLU(self.config.d_model, self.config.d_ff)

    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        return super().initialise(parameter, name) if parameter.ndim > 1 else nn.init.zeros_(parameter)  # also of norms


@dataclass(frozen=True, kw_only=True)
class Gemma2Config(FamilyConfig):
    """The shape of a Gemma 2."""

    head_dim: int | None = 256
    tied_embeddings: bool = True
    sliding_window: int | None = 4096
    logit_softcap: float | None = 30.0
    query_pre_attn_scalar: Count = 256  # scores are divided by its root
    attn_logit_softcapping: PositiveOrNone = 50.0  # scores are bent into ±this, by its tanh

    renamed = {"sliding_window": "sliding_window", "final_logit_softcapping": "logit_softcap"}
    fixed = {
        "hidden_activation": ("gelu_pytorch_tanh",),
        "hidden_act": (None, "gelu_pytorch_tanh"),  # of older files, and not read
        "attention_bias": (False,),
        "use_bidirectional_attention": (None, False),
    }
    full_every = 2

    @property
    def query_scale(self) -> float:
        return math.sqrt(self.head_width / self.query_pre_attn_scalar)


class Gemma2Attention(FamilyAttention):
    """Attention with soft-capped scores."""

    def __init__(self, config: Gemma2Config, layer: int) -> None:
        super().__init__(config, layer)
        self.softcap = config.attn_logit_softcapping

    @property
    def attend(self) -> Attend:
        return attention if self.softcap is None else functools.partial(attention, softcap=self.softcap)


class Gemma2(Gemma):
    """Gemma, normed after sublayers too, with soft caps and windows. (Gemma Team 2024, arXiv:2408.00118)"""

    names = LLAMA_NAMES | {
        "blocks.*.attention_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.ffn_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.ffn_post_norm": "model.layers.*.post_feedforward_layernorm",
    }
    block_type = SandwichBlock
    attention_type = Gemma2Attention


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Gemma2Config):
    """The shape of a Gemma 3."""

    logit_softcap: float | None = None
    attn_logit_softcapping: float | None = None

    full_every = 6
    default_theta = 1e6  # of layers that see all
    local_theta = ("rope_local_base_freq", 10000.0)  # of those with a window
    fixed = {**Gemma2Config.fixed, "use_bidirectional_attention": (False, None)}


class Gemma3Attention(Gemma2Attention):
    """Attention with Gemma's norms of queries and keys."""

    def __init__(self, config: Gemma2Config, layer: int) -> None:
        super().__init__(config, layer)
        self.q_norm = GemmaNorm(self.head_dim, config.norm_eps)
        self.k_norm = GemmaNorm(self.head_dim, config.norm_eps)


class Gemma3(Gemma2):
    """Gemma 3, of text: norms of queries and keys for soft caps, and windows with their own rotation in five of six
    layers. (Gemma Team 2025, arXiv:2503.19786)"""

    names = Gemma2.names | QK_NORM_NAMES
    attention_type = Gemma3Attention
