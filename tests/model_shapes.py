"""Models to hold a budget against: random ones of lm, and one with experts, which lm does not have."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch
from torch import Tensor, nn

from lm.config import ModelConfig
from lm.model import MLP, SwiGLU, Transformer


def random_config(rng: random.Random, *, value_embeddings: bool = False) -> ModelConfig:
    kv_heads, group, head_dim = rng.choice([1, 2, 3]), rng.choice([1, 2, 3]), rng.choice([2, 4, 8])
    given = rng.random() < 0.7
    return ModelConfig(
        rng.randint(2, 70),
        rng.randint(2, 24),
        rng.randint(1, 3),
        rng.randint(2, 30) if given else kv_heads * group * head_dim,
        kv_heads * group,
        rng.randint(1, 50),
        num_kv_heads=kv_heads,
        head_dim=head_dim if given else None,
        ffn=rng.choice(["swiglu", "gelu", "gelu_exact", "silu", "relu2"]),
        norm=(norm := rng.choice(["rmsnorm", "layernorm", "none"])),
        norm_placement=rng.choice(["pre"] * 2 if norm == "none" else ["pre", "post"]),  # one draw either way
        position=rng.choice(["rope", "learned", "none"]),
        tied_embeddings=rng.random() < 0.5,
        bias=rng.random() < 0.5,
        qk_norm=rng.random() < 0.3,
        vocab_multiple=rng.choice([1, 8, 64]),
        sliding_window=rng.choice([None, None, 3]),
        logit_softcap=5.0 if value_embeddings and rng.random() < 0.5 else None,
        value_embeddings=value_embeddings,
    )


class Experts(nn.Module):
    """A mixture of feed-forward layers, each token through the `active` likeliest, their weights made to add up to one.

    x (batch, seq, d_model) → the same. (Shazeer et al. 2017; Mixtral, Jiang et al. 2024)
    """

    def __init__(self, config: ModelConfig, experts: int, active: int) -> None:
        super().__init__()
        self.active = active
        self.router = nn.Linear(config.d_model, experts, bias=False)
        self.experts = nn.ModuleList(
            SwiGLU(config.d_model, config.d_ff, config.bias)
            if config.ffn == "swiglu"
            else MLP(config.d_model, config.d_ff, config.ffn, config.bias)
            for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])  # (tokens, d_model)
        weights, chosen = self.router(flat).softmax(-1).topk(self.active)  # (tokens, active)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, slot = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(flat[token]) * weights[token, slot, None])
        return out.reshape(x.shape)


def mixture(config: ModelConfig, experts: int, active: int) -> tuple[Transformer, Any]:
    """lm's model with such layers in its blocks, and its shape."""
    model = Transformer(config)
    for block in model.blocks:
        block.ffn = Experts(config, experts, active)
    return model, dataclasses.replace(config.shape(), experts=experts, experts_per_token=active)
