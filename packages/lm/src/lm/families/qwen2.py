"""Qwen 2 whose upper layers alone have a window, or whose rotation is scaled; others are lm.model.Transformer.

(Qwen Team 2024, arXiv:2407.10671)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lm.families.parts import (
    FULL,
    LLAMA_NAMES,
    SLIDING,
    BiaslessOutputAttention,
    FamilyAttention,
    FamilyConfig,
    FamilyModel,
    LlamaBlock,
)

ARCHITECTURE = "Qwen2ForCausalLM"
NAMES = LLAMA_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a Qwen 2."""

    bias: bool = True  # of queries, keys and values
    num_kv_heads: int | None = 32
    sliding_window: int | None = 4096
    use_sliding_window: bool = False
    max_window_layers: int = 28  # layers without a window, where layer_types is ()

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}

    def __post_init__(self) -> None:
        if not self.layer_types and self.use_sliding_window and self.sliding_window is not None:
            kinds = (SLIDING if layer >= self.max_window_layers else FULL for layer in range(self.num_layers))
            object.__setattr__(self, "layer_types", tuple(kinds))
        super().__post_init__()

    def window(self, layer: int) -> int | None:
        return super().window(layer) if self.use_sliding_window else None


class Block(LlamaBlock):
    """Llama's block, in which attention has no bias of its output."""

    attention_type: ClassVar[type[FamilyAttention]] = BiaslessOutputAttention


class Model(FamilyModel):
    """A Qwen 2."""

    block_type = Block
