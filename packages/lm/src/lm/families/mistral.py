"""Mistral and Ministral whose layers have windows of their own, or whose rotation is scaled; others are
lm.model.Transformer. (Jiang et al. 2023, arXiv:2310.06825)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel

ARCHITECTURE = "MistralForCausalLM"
NAMES = LLAMA_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Mistral."""

    sliding_window: int | None = 4096
    num_kv_heads: int | None = 8

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}


class Model(FamilyModel):
    """A Mistral."""
