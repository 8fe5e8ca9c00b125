"""Llama with yarn, dynamic or longrope scaling of its rotation; with others lm.model.Transformer is a Llama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from lm.families.parts import LLAMA_NAMES, SILU, FamilyConfig, FamilyModel, LlamaBlock
from lm.model import SwiGLU

ARCHITECTURE = "LlamaForCausalLM"
NAMES = LLAMA_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Llama."""

    mlp_bias: bool = False  # of the feed-forward; bias: of attention

    renamed: ClassVar[Mapping[str, str]] = {"attention_bias": "bias"}
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, "pretraining_tp": (None, 1)}


class Block(LlamaBlock):
    """Llama's block, of which the feed-forward may have biases."""

    def feed_forward(self, config: Any, layer: int) -> nn.Module:
        return SwiGLU(config.d_model, config.d_ff, config.mlp_bias)


class Model(FamilyModel):
    """A Llama."""

    block_type = Block
