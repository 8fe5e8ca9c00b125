"""SmolLM 3: Llama's shape with a layer in four that is not rotated. (Yang et al. 2025, arXiv:2501.18795)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lm.config import FrozenTable
from lm.families.parts import LLAMA_NAMES, SILU, UNBIASED, FamilyConfig, FamilyModel

ARCHITECTURE = "SmolLM3ForCausalLM"
NAMES = LLAMA_NAMES


@dataclass(frozen=True, kw_only=True)
class Config(FamilyConfig):
    """The shape of a SmolLM 3."""

    num_kv_heads: int | None = 4
    tied_embeddings: bool = True
    use_sliding_window: bool = False
    no_rope_layers: tuple[int, ...] = ()  # of each layer: 0 for one without rotation
    no_rope_layer_interval: int = 4  # every layer of this number is without, where no_rope_layers is ()

    renamed: ClassVar[Mapping[str, str]] = {"sliding_window": "sliding_window"}
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = {**SILU, **UNBIASED, "mlp_bias": (False,)}
    ignored: ClassVar[tuple[str, ...]] = ("max_window_layers", "pretraining_tp")
    default_theta: ClassVar[float] = 2e6

    def __post_init__(self) -> None:
        if not self.no_rope_layers:
            rotated = (int((layer + 1) % self.no_rope_layer_interval != 0) for layer in range(self.num_layers))
            object.__setattr__(self, "no_rope_layers", tuple(rotated))
        super().__post_init__()

    def window(self, layer: int) -> int | None:
        return super().window(layer) if self.use_sliding_window and self.layer_types else None

    def rope_of(self, layer: int) -> FrozenTable | None:
        return super().rope_of(layer) if self.no_rope_layers[layer] else None


class Model(FamilyModel):
    """A SmolLM 3."""
