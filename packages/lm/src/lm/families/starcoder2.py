"""StarCoder 2: rotated grouped queries with a window, LayerNorm, an MLP of GELU, and biases.

(Lozhkov et al. 2024, arXiv:2402.19173)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from torch import nn

from lm.config import Norm
from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel
from lm.model import MLP

if TYPE_CHECKING:
    from accounting import TransformerShape


@dataclass(frozen=True, kw_only=True)
class Starcoder2Config(FamilyConfig):
    """The shape of a StarCoder 2."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    bias: bool = True  # of norms
    use_bias: bool = True  # of matrices
    tied_embeddings: bool = True

    renamed = {
        "norm_epsilon": "norm_eps",
        "sliding_window": "sliding_window",
    }
    fixed = {"hidden_act": ("gelu_pytorch_tanh",)}

    def has_bias(self, part: Literal["qkv", "output", "ffn"]) -> bool:
        return self.use_bias

    def shape(self) -> TransformerShape:
        return replace(super().shape(), norm_bias=True)


class Starcoder2(FamilyModel):
    """A StarCoder 2."""

    names = LLAMA_NAMES | {
        "blocks.*.ffn.up": "model.layers.*.mlp.c_fc",
        "blocks.*.ffn.down": "model.layers.*.mlp.c_proj",
    }
    config_type = Starcoder2Config

    def feed_forward(self, layer: int) -> nn.Module:
        return MLP(self.config.d_model, self.config.d_ff, "gelu", self.config.use_bias)
