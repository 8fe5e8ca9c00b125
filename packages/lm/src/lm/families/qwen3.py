"""Qwen 3 whose upper layers alone have a window, or whose rotation is scaled; others are lm.model.Transformer.

(Qwen Team 2025, arXiv:2505.09388)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lm.families import qwen2
from lm.families.parts import LLAMA_NAMES, QK_NORM_NAMES, FamilyModel

ARCHITECTURE = "Qwen3ForCausalLM"
NAMES = LLAMA_NAMES | QK_NORM_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(qwen2.Config):
    """The shape of a Qwen 3."""

    bias: bool = False
    qk_norm: bool = True
    head_dim: int | None = 128

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window", "attention_bias": "bias"}


class Model(FamilyModel):
    """A Qwen 3."""
