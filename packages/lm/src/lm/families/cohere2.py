"""Cohere's Command R7B and A: Command R with a window in three of four layers, of which alone queries and keys are
rotated. (Cohere 2025, arXiv:2504.00698)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lm.config import FrozenTable
from lm.families import cohere

ARCHITECTURE = "Cohere2ForCausalLM"
NAMES = cohere.NAMES


@dataclass(frozen=True, kw_only=True)
class Config(cohere.Config):
    """The shape of a Command R7B."""

    sliding_window: int | None = 4096

    renamed: ClassVar[Mapping[str, str]] = {**cohere.Config.renamed, "sliding_window": "sliding_window"}
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {  # those beginning with None of older files
        **cohere.Config.fixed,
        "position_embedding_type": (None, "rope_gptj"),
        "rotary_pct": (None, 1.0),
        "use_embedding_sharing": (None, True),
        "use_gated_activation": (None, True),
        "use_parallel_block": (None, True),
        "use_qk_norm": (None, False),
    }
    ignored: ClassVar[tuple[str, ...]] = ("layer_switch", "order_of_interleaved_layers")
    absent: ClassVar[tuple[str, ...]] = ("use_qk_norm",)
    full_every: ClassVar[int | None] = 4
    default_theta: ClassVar[float] = 10000.0

    def rope_of(self, layer: int) -> FrozenTable | None:
        return None if self.window(layer) is None else super().rope_of(layer)


Model = cohere.Model
