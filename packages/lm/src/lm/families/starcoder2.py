"""StarCoder 2: rotated grouped queries with a window, LayerNorm, an MLP of GELU, and biases.

(Lozhkov et al. 2024, arXiv:2402.19173)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from lm.config import Norm
from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel, LlamaBlock
from lm.model import MLP

ARCHITECTURE = "Starcoder2ForCausalLM"
NAMES = LLAMA_NAMES | {"blocks.*.ffn.up": "model.layers.*.mlp.c_fc", "blocks.*.ffn.down": "model.layers.*.mlp.c_proj"}


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a StarCoder 2."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    bias: bool = True
    tied_embeddings: bool = True

    renamed: ClassVar[Mapping[str, str]] = {
        "norm_epsilon": "norm_eps",
        "use_bias": "bias",
        "sliding_window": "sliding_window",
    }
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {"hidden_act": ("gelu_pytorch_tanh",)}


class Block(LlamaBlock):
    """Llama's block with an MLP."""

    def feed_forward(self, config: FamilyConfig, layer: int) -> nn.Module:
        return MLP(config.d_model, config.d_ff, "gelu", config.bias)


class Model(FamilyModel):
    """A StarCoder 2."""

    block_type = Block
