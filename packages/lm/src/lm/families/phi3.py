"""Phi 3: Llama's shape with one matrix for queries, keys and values and one for gate and up, in part rotated, with
longrope scaling. (Abdin et al. 2024, arXiv:2404.14219; Ding et al. 2024, arXiv:2402.13753)
"""

from __future__ import annotations

from dataclasses import dataclass

from lm.families.parts import LLAMA_NAMES, FamilyConfig, FamilyModel


@dataclass(frozen=True, kw_only=True)
class Phi3Config(FamilyConfig):
    """The shape of a Phi 3 or Phi 4."""

    norm_eps: float = 1e-5
    original_max_position_embeddings: int = 4096  # beyond it, rotations have longrope's long_factor

    renamed = {"sliding_window": "sliding_window"}
    ignored = ("full_attn_mod", "interpolate_factor")
    rope_renamed = {"su": "longrope", "yarn": "longrope"}  # rope_type of older files


class Phi3(FamilyModel):
    """A Phi 3."""

    names = LLAMA_NAMES | {
        "blocks.*.attention.qkv": "model.layers.*.self_attn.qkv_proj",
        "blocks.*.ffn.gate_up": "model.layers.*.mlp.gate_up_proj",
    }
    config_type = Phi3Config
