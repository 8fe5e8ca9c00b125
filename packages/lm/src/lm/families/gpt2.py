"""The config.json of a GPT-2, whose model is lm.model.Transformer alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lm.config import FFN, Norm, Position, one_of
from lm.families.parts import FamilyConfig

# Hugging Face's names of activations, and lm's; of one activation the first is written.
ACTIVATIONS: dict[str, FFN] = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_exact",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
}


@dataclass(frozen=True, kw_only=True)
class GPT2Config(FamilyConfig):
    """The shape of a GPT-2."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    position: Position = "learned"
    bias: bool = True
    tied_embeddings: bool = True
    d_ff: int = 0  # 0: four times d_model
    activation_function: str = "gelu_new"

    renamed = {
        "n_positions": "context_length",
        "n_layer": "num_layers",
        "n_embd": "d_model",
        "n_head": "num_heads",
        "n_inner": "d_ff",
        "layer_norm_epsilon": "norm_eps",
    }
    absent = ("num_kv_heads", "head_dim", "layer_types")
    ignored = ("reorder_and_upcast_attn",)  # how it rounds, not what it computes
    fixed = {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)}

    def __post_init__(self) -> None:
        one_of("activation_function", self.activation_function, tuple(ACTIVATIONS))
        object.__setattr__(self, "d_ff", self.d_ff or 4 * self.d_model)
        super().__post_init__()

    def to_huggingface(self) -> dict[str, Any]:
        no_dropout = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)  # transformers' defaults are 0.1
        n_inner = None if self.d_ff == 4 * self.d_model else self.d_ff
        return {**super().to_huggingface(), **no_dropout, "n_inner": n_inner}
