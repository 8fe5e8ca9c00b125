"""OLMo 3: OLMo 2 with a window in three of four layers; only the others' rotation is scaled for longer contexts.

(OLMo Team 2025, arXiv:2512.13961)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lm.families import olmo2

ARCHITECTURE = "Olmo3ForCausalLM"
NAMES = olmo2.NAMES


@dataclass(frozen=True, kw_only=True)
class Config(olmo2.Config):
    """The shape of an OLMo 3."""

    sliding_window: int | None = 4096

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}
    full_every: ClassVar[int | None] = 4
    default_theta: ClassVar[float] = 500000.0
    local_theta: ClassVar[tuple[str, float] | None] = ("rope_theta", 500000.0)  # of layers with a window


Model = olmo2.Model
