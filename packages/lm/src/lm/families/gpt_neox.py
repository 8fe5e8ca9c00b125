"""GPT-NeoX and Pythia. (Black et al. 2022, arXiv:2204.06745; Biderman et al. 2023, arXiv:2304.01373)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lm.config import Norm, one_of
from lm.families.gpt2 import ACTIVATIONS
from lm.families.parts import FamilyConfig, FamilyModel, LlamaBlock
from lm.model import MLP


@dataclass(frozen=True, kw_only=True)
class GPTNeoXConfig(FamilyConfig):
    """The shape of a GPT-NeoX."""

    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    bias: bool = True
    hidden_act: str = "gelu"
    use_parallel_residual: bool = True  # False: the feed-forward's input has attention's output already

    renamed = {"layer_norm_eps": "norm_eps"}
    absent = ("num_kv_heads",)
    fixed = {"attention_bias": (True,)}
    aliases = {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}
    default_partial = 0.25

    def __post_init__(self) -> None:
        one_of("hidden_act", self.hidden_act, tuple(ACTIVATIONS))
        super().__post_init__()


class GPTNeoXBlock(LlamaBlock):
    """Attention and feed-forward of the same input, each normalised by its own norm, both added to it."""

    def __init__(self, model: FamilyModel, layer: int) -> None:
        super().__init__(model, layer)
        self.parallel = model.config.use_parallel_residual

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        if not self.parallel:
            return super().forward(x, *context)
        y = self.dropout(self.attention(self.attention_norm(x), *context))
        return x + y + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class GPTNeoX(FamilyModel):
    """Attention and feed-forward of the same input, LayerNorm, and heads rotated in part."""

    names = {
        "embedding": "gpt_neox.embed_in",
        "blocks.*.attention_norm": "gpt_neox.layers.*.input_layernorm",
        "blocks.*.attention.qkv": "gpt_neox.layers.*.attention.query_key_value",
        "blocks.*.attention.output": "gpt_neox.layers.*.attention.dense",
        "blocks.*.ffn_norm": "gpt_neox.layers.*.post_attention_layernorm",
        "blocks.*.ffn.up": "gpt_neox.layers.*.mlp.dense_h_to_4h",
        "blocks.*.ffn.down": "gpt_neox.layers.*.mlp.dense_4h_to_h",
        "final_norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    }
    block_type = GPTNeoXBlock

    def feed_forward(self, layer: int) -> nn.Module:
        return MLP(self.config.d_model, self.config.d_ff, ACTIVATIONS[self.config.hidden_act], self.config.bias)

    @staticmethod
    def from_hf(tensors: dict[str, Tensor], config: GPTNeoXConfig) -> dict[str, Tensor]:
        """Reorder queries, keys and values, which the folder has head by head: all queries, all keys, all values."""
        return {
            name: swapped(tensor, config.num_heads, 3)
            if ".query_key_value." in name and len(tensor) == 3 * config.d_model
            else tensor
            for name, tensor in tensors.items()
        }

    @staticmethod
    def to_hf(tensors: dict[str, Tensor], config: GPTNeoXConfig) -> dict[str, Tensor]:
        """The inverse of from_hf."""
        return {
            name: swapped(tensor, 3, config.num_heads) if ".query_key_value." in name else tensor
            for name, tensor in tensors.items()
        }


def swapped(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Reorder rows (outer, inner, n) to (inner, outer, n)."""
    rows: Tensor = tensor.unflatten(0, (outer, inner, -1))  # type: ignore[no-untyped-call]
    return rows.transpose(0, 1).flatten(0, 2)
