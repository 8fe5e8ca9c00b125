"""Gemma: Llama's shape with GeGLU, a scaled embedding that is the head too, and norms that begin at zero.

(Gemma Team 2024, arXiv:2403.08295)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.families.parts import LLAMA_NAMES, UNBIASED, FamilyConfig, FamilyModel, LlamaBlock, scale_embedding
from lm.model import RMSNorm, SwiGLU

ARCHITECTURE = "GemmaForCausalLM"
NAMES = LLAMA_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Gemma."""

    head_dim: int = 256
    tied_embeddings: bool = True

    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {
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


class Block(LlamaBlock):
    """Llama's block with Gemma's norms and GeGLU."""

    def norm(self, config: FamilyConfig) -> nn.Module:
        return GemmaNorm(config.d_model, config.norm_eps)

    def feed_forward(self, config: FamilyConfig, layer: int) -> nn.Module:
        return GeGLU(config.d_model, config.d_ff)


class Model(FamilyModel):
    """A Gemma; its embedding is multiplied by √d_model."""

    block_type = Block

    def __init__(self, config: FamilyConfig) -> None:
        super().__init__(config)
        self.final_norm = GemmaNorm(config.d_model, config.norm_eps)
        self.initialise(self.final_norm.weight, "final_norm.weight")
        scale_embedding(self, math.sqrt(config.d_model))

    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        return super().initialise(parameter, name) if parameter.ndim > 1 else nn.init.zeros_(parameter)  # also of norms
