"""Models to hold a budget against, and steps of them: random ones of lm, and one with experts, which it lacks."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import Any

import torch
from live_bytes import Live
from torch import Tensor, nn

from lm.config import ModelConfig
from lm.loss import chunked_cross_entropy, cross_entropy
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


# wide vocabulary, deep, tiny batch, long sequence: each has its peak in another phase
PEAKS = {
    "loss": (ModelConfig(4000, 128, 2, 64, 4, 256), 4, 128),
    "blocks": (ModelConfig(300, 128, 6, 64, 4, 256), 4, 128),
    "ungated": (
        ModelConfig(300, 128, 6, 64, 4, 256, ffn="gelu", norm="layernorm", position="learned", bias=True),
        4,
        128,
    ),
    "embedding": (ModelConfig(4000, 128, 2, 64, 4, 256), 1, 8),
    "tied": (ModelConfig(4000, 128, 2, 64, 4, 256, tied_embeddings=True), 1, 8),
    "long": (ModelConfig(300, 256, 3, 64, 4, 96), 2, 256),
    "grouped": (ModelConfig(300, 256, 3, 64, 4, 96, num_kv_heads=2, qk_norm=True), 2, 256),
}


def some_batch(config: ModelConfig, batch: int, length: int) -> list[Tensor]:
    """Ids and targets."""
    return [torch.randint(0, config.vocab_size, (batch, length)) for _ in range(2)]


def step_loss(model: Transformer, ids: Tensor, targets: Tensor, loss: str, precision: str = "fp32") -> Any:
    """The loss of a step, plain or chunked; under autocast where that is the precision."""
    with torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext():
        if loss == "plain":
            return cross_entropy(model(ids), targets, reduction="sum")
        hidden, vocab = model.hidden(ids), model.config.vocab_size
        return chunked_cross_entropy(hidden, model.head_weight, targets, vocab_size=vocab, reduction="sum")


def peak_of_step(
    model: Transformer, optimizer: Any, batch: int, length: int, loss: str, precision: str = "fp32", block: int = 1
) -> int:
    """The most bytes alive in the second step, whose optimizer has its state."""
    ids, targets = some_batch(model.config, batch, length)
    live = Live(block, known=[*model.parameters(), ids, targets])
    with live:
        for _ in range(2):
            live.most = 0
            step_loss(model, ids, targets, loss, precision).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return live.most
