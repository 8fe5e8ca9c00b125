"""Gemma 3, of text: Gemma 2 with norms of queries and keys in place of bent scores, and five layers with a window and a
rotation of their own to each that sees all. (Gemma Team 2025, arXiv:2503.19786)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lm.families import gemma2
from lm.families.gemma import GemmaNorm
from lm.families.parts import QK_NORM_NAMES, FamilyAttention

ARCHITECTURE = "Gemma3ForCausalLM"
NAMES = gemma2.NAMES | QK_NORM_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(gemma2.Config):
    """The shape of a Gemma 3."""

    logit_softcap: float | None = None
    attn_logit_softcapping: float | None = None

    full_every: ClassVar[int | None] = 6
    default_theta: ClassVar[float] = 1e6  # of layers that see all
    local_theta: ClassVar[tuple[str, float] | None] = ("rope_local_base_freq", 10000.0)  # of those with a window
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **gemma2.Config.fixed,
        "use_bidirectional_attention": (False, None),
    }


class Attention(gemma2.Attention):
    """Attention with Gemma's norms of queries and keys."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.q_norm = GemmaNorm(self.head_dim, config.norm_eps)
        self.k_norm = GemmaNorm(self.head_dim, config.norm_eps)


class Block(gemma2.Block):
    """Gemma 2's block with this attention."""

    attention_type: ClassVar[type[FamilyAttention]] = Attention


class Model(gemma2.Model):
    """A Gemma 3."""

    block_type = Block
