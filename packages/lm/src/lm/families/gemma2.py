"""Gemma 2: Gemma with a norm after each sublayer too, scores and logits bent into a range, and every other layer with a
window. (Gemma Team 2024, arXiv:2408.00118)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lm.attention import attention, bent_attention
from lm.families import gemma
from lm.families.parts import LLAMA_NAMES, FamilyAttention, FamilyConfig, SandwichBlock, scale_of
from lm.model import Attend

ARCHITECTURE = "Gemma2ForCausalLM"
NAMES = LLAMA_NAMES | {
    "blocks.*.attention_post_norm": "model.layers.*.post_attention_layernorm",
    "blocks.*.ffn_norm": "model.layers.*.pre_feedforward_layernorm",
    "blocks.*.ffn_post_norm": "model.layers.*.post_feedforward_layernorm",
}


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Gemma 2."""

    head_dim: int | None = 256
    tied_embeddings: bool = True
    sliding_window: int | None = 4096
    logit_softcap: float | None = 30.0
    query_pre_attn_scalar: int = 256  # scores are divided by its root
    attn_logit_softcapping: float | None = 50.0  # scores are bent into ±this, by its tanh

    renamed: ClassVar[Mapping[str, str]] = {
        "sliding_window": "sliding_window",
        "final_logit_softcapping": "logit_softcap",
    }
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "hidden_activation": ("gelu_pytorch_tanh",),
        "hidden_act": (None, "gelu_pytorch_tanh"),  # of older files, and not read
        "attention_bias": (False,),
        "use_bidirectional_attention": (None, False),
    }
    full_every: ClassVar[int | None] = 2

    @property
    def query_scale(self) -> float:
        return scale_of(self.query_pre_attn_scalar, self.head_width)


class Attention(FamilyAttention):
    """Attention whose scores are bent into a range."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.softcap = config.attn_logit_softcapping

    @property
    def attend(self) -> Attend:
        return attention if self.softcap is None else functools.partial(bent_attention, softcap=self.softcap)


class Block(gemma.Block, SandwichBlock):
    """Gemma's norms and GeGLU, in a block with four norms."""

    attention_type: ClassVar[type[FamilyAttention]] = Attention


class Model(gemma.Model):
    """A Gemma 2."""

    block_type = Block
