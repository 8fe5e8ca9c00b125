"""The Transformer, top to bottom: ids → embedding → blocks of attention and feed-forward → norm → logits.

One model builds the Llama shape (RMSNorm, SwiGLU, rotary positions, no biases), the GPT-2 shape (LayerNorm, GELU,
learned positions, biases, tied embeddings) and what people change in either to see what it does: see ModelConfig.
docs/design/model.md walks through it. What is only faster is in lm.ops, and tested against the modules here.

Weights are (out, in). The query, key and value projections are one matrix, and so are the two halves of SwiGLU: one
large product is faster than two small ones.
"""

from __future__ import annotations

import functools
import math
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.activation_checkpointing import recomputed
from lm.attention import attention
from lm.config import ModelConfig, RopeScaling
from lm.documents import positions_of


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, over the last dimension. (Zhang and Sennrich 2019, arXiv:1910.07467)

    x (…, width), any float dtype; computed in the dtype of the weight, given back in x's.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps).to(x.dtype)


def norm(config: ModelConfig) -> nn.Module:
    """The norm that a configuration asks for, as wide as the model."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, config.norm_eps)
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias)
    return nn.Identity()


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """How far each pair rotates from one position to the next: theta^(-2j / head_dim), float64 (head_dim / 2,).

    scaling divides all by a factor (Chen et al. 2023, arXiv:2306.15595), or the slow ones (Llama 3.1): see ModelConfig.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd, and rotary embeddings rotate pairs: make it even")
    frequencies: Tensor = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return frequencies
    factor, low, high, original = scaling
    if original is None:
        return frequencies / factor
    kept = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # 1: stays as it is
    return kept * frequencies + (1 - kept) * frequencies / factor


@functools.lru_cache(maxsize=8)
def rope_cache(
    length: int,
    head_dim: int,
    theta: float,
    scaling: RopeScaling | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """cos and sin of position · frequency, for positions 0 … length - 1: (length, head_dim / 2, 2).

    In float32 at least, from angles in float64: at position 100,000 a float32 one is off by 0.004. Kept for next time.
    """
    with torch.inference_mode(False):  # the table outlives the call, and a later one may want gradients through it
        angles = torch.arange(length)[:, None] * rope_frequencies(head_dim, theta, scaling)  # (length, head_dim / 2)
        return torch.stack((angles.cos(), angles.sin()), -1).to(torch.promote_types(dtype, torch.float32)).to(device)


def rope_at(config: ModelConfig, positions: Tensor | slice, like: Tensor) -> Tensor | None:
    """The rows of rope_cache at positions (seq,) or (batch, seq), one for all heads: (…, seq, 1, head_dim / 2, 2)."""
    if config.position != "rope":
        return None
    size = (config.context_length, config.head_width)
    table = rope_cache(*size, config.rope_theta, config.rope_scaling, like.dtype, like.device)
    return table[positions].unsqueeze(-3)


def apply_rotary_emb(x: Tensor, rope: Tensor) -> Tensor:
    """Rotary embedding: rotates the pairs (2i, 2i + 1) of x (…, head_dim). (Su et al. 2021, arXiv:2104.09864)

    rope (…, head_dim / 2, 2): cos and sin, broadcast against x; computed in its dtype, given back in x's.
    """
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)  # (…, head_dim / 2)
    cos, sin = rope.unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class LayerCache(Protocol):
    """Key/value cache of one layer (see generation.kv_cache)."""

    length: int  # positions that it holds

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None) -> Tensor:
        """Append k, v (batch, kv_heads, seq, head_dim) and return attention of q to all positions so far."""
        ...


class Attention(nn.Module):
    """Causal self-attention with grouped queries: x (batch, seq, d_model) → (batch, seq, d_model).

    (Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245)
    qkv.weight holds the query heads, then the key heads, then the value heads, each head_dim rows.
    """

    def __init__(self, config: ModelConfig, value_embedding: bool = False) -> None:
        super().__init__()
        self.config = config
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.kv_heads, config.head_width
        self.recompute = False  # see activation_checkpointing.py
        self.qkv = nn.Linear(config.d_model, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=config.bias)
        self.output = nn.Linear(self.heads * self.head_dim, config.d_model, bias=config.bias)
        self.q_norm = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else None
        self.value_embedding: nn.Embedding | None = None
        if value_embedding:
            self.value_embedding = nn.Embedding(config.vocab_rows, self.kv_heads * self.head_dim)
            self.value_gate = nn.Linear(config.d_model, self.kv_heads, bias=False)

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """rope: rope_at() of x's positions; None: they are counted from 0, or from what the cache holds.

        ids (batch, seq): the tokens, for a value embedding.
        """
        qkv = self.qkv(x)
        if self.value_embedding is not None and ids is not None:
            qkv = self.add_value_embedding(qkv, self.value_gate(x), ids)
        return self.output(self.attend(qkv, rope, document_ids, cache))  # type: ignore[no-any-return]

    def add_value_embedding(self, qkv: Tensor, gate: Tensor, ids: Tensor) -> Tensor:
        """Adds each token's own embedding to its values, times 2 sigmoid(gate), which begins at 1.

        (Zhou et al. 2024, arXiv:2410.17897; gated as in nanochat) gate (…, kv_heads).
        """
        more = cast(nn.Embedding, self.value_embedding)(ids).unflatten(-1, (self.kv_heads, self.head_dim))
        more = (2 * gate.sigmoid().unsqueeze(-1) * more).flatten(-2).to(qkv.dtype)  # (…, kv_heads · head_dim)
        qk, v = qkv.tensor_split((qkv.shape[-1] - more.shape[-1],), dim=-1)
        return torch.cat((qk, v + more), dim=-1)

    def attend(self, qkv: Tensor, rope: Tensor | None, document_ids: Tensor | None, cache: LayerCache | None) -> Tensor:
        """What the heads gather: qkv (batch, seq, qkv's rows) → (batch, seq, heads · head_dim)."""
        qkv = qkv.view(*qkv.shape[:2], -1, self.head_dim)  # (batch, seq, heads, head_dim)
        qk, v = qkv.split_with_sizes((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if self.q_norm is not None and self.k_norm is not None:
            qk = torch.cat((self.q_norm(qk[:, :, : self.heads]), self.k_norm(qk[:, :, self.heads :])), dim=2)
        if rope is None and self.config.position == "rope":  # called alone, not by a Transformer
            start = 0 if cache is None else cache.length
            rope = rope_at(self.config, positions_of(document_ids, start, qk.shape[1]), qk)
        if rope is not None:
            qk = apply_rotary_emb(qk, rope)  # queries and keys alike
        q, k = qk.transpose(1, 2).split_with_sizes((self.heads, self.kv_heads), dim=1)
        v = v.transpose(1, 2)  # each (batch, heads or kv_heads, seq, head_dim)
        attend = recomputed(attention) if self.recompute else attention
        if cache is not None:
            y = cache.attend(q, k, v, self.config.sliding_window)
        else:
            y = attend(q, k, v, sliding_window=self.config.sliding_window, document_ids=document_ids)
        return y.transpose(1, 2).flatten(2)


class SwiGLU(nn.Module):
    """down(silu(gate x) · up x): x (…, d_model) → (…, d_model). (Shazeer 2020, arXiv:2002.05202)

    gate_up.weight holds the d_ff rows of the gate, then those of up.
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (…, d_ff)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class MLP(nn.Module):
    """down(f(up x)): x (…, d_model) → (…, d_model).

    f: GELU, in its tanh form (as GPT-2) or exact, SiLU, or ReLU squared.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str, bias: bool = False) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.up(x)))  # type: ignore[no-any-return]

    def activate(self, x: Tensor) -> Tensor:
        """f(x)."""
        if self.activation == "gelu":
            return F.gelu(x, approximate="tanh")
        if self.activation == "gelu_exact":
            return F.gelu(x)
        return F.silu(x) if self.activation == "silu" else F.relu(x).square()


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in; a norm stands before each, or after each sum."""

    def __init__(self, config: ModelConfig, value_embedding: bool = False) -> None:
        super().__init__()
        self.post = config.norm_placement == "post"
        self.dropout = 0.0  # see Transformer.set_dropout
        self.attention_norm = norm(config)
        self.attention = Attention(config, value_embedding)
        self.ffn_norm = norm(config)
        if config.ffn == "swiglu":
            self.ffn: nn.Module = SwiGLU(config.d_model, config.d_ff, config.bias)
        else:
            self.ffn = MLP(config.d_model, config.d_ff, config.ffn, config.bias)

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """x (batch, seq, d_model) → the same; the others are Attention's."""
        if self.post:
            x = self.attention_norm(x + self.drop(self.attention(x, rope, document_ids, cache, ids)))
            return self.ffn_norm(x + self.drop(self.ffn(x)))  # type: ignore[no-any-return]
        x = x + self.drop(self.attention(self.attention_norm(x), rope, document_ids, cache, ids))
        return x + self.drop(self.ffn(self.ffn_norm(x)))

    def drop(self, x: Tensor) -> Tensor:
        """What a sublayer adds, with the share of dropout zeroed in training. (Srivastava et al. 2014)"""
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Transformer(nn.Module):
    """A decoder-only Transformer: ids (batch, seq), integers below vocab_size → logits (batch, seq, vocab_size)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_rows, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model) if config.position == "learned" else None
        layers = range(config.num_layers)
        self.blocks = nn.ModuleList(Block(config, config.has_value_embedding(layer)) for layer in layers)
        self.final_norm = norm(config)
        self.head = None if config.tied_embeddings else nn.Linear(config.d_model, config.vocab_rows, bias=False)
        self.recompute = False  # see activation_checkpointing.py
        self.dropout = 0.0  # see set_dropout
        for name, parameter in self.named_parameters():
            initialise(parameter, name, config)

    def forward(
        self,
        ids: Tensor,
        document_ids: Tensor | None = None,
        *,
        start: int | Tensor = 0,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """Logits of each next token, in the dtype of the weights.

        document_ids (batch, seq): a token sees only its own document, a contiguous run with positions of its own.
        start: the position of ids[:, 0], for a cache that holds the tokens before it; or, for one token of each of
            several sequences, their positions (batch,), which are not checked against the context.
        """
        return self.logits(self.hidden(ids, document_ids, start=start, cache=cache))

    def hidden(
        self,
        ids: Tensor,
        document_ids: Tensor | None = None,
        *,
        start: int | Tensor = 0,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """Input of the head: (batch, seq, d_model). ValueError: a sequence longer than the context."""
        context = self.config.context_length
        if isinstance(start, int) and start + ids.shape[1] > context:
            raise ValueError(f"a sequence of {start + ids.shape[1]} tokens is longer than the context of {context}")
        positions = positions_of(document_ids, start, ids.shape[1])
        x = self.embedding(ids)  # (batch, seq, d_model)
        if self.positions is not None:
            x = x + self.positions.weight[positions]  # a slice, which keeps no index for the backward pass
        x = F.dropout(x, self.dropout, self.training)
        rope = rope_at(self.config, positions, x)
        for layer, block in enumerate(self.blocks):
            run = recomputed(block, is_random=self.dropout > 0) if self.recompute else block
            x = run(x, rope, document_ids, None if cache is None else cache[layer], ids)
        return self.final_norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, d_model) → (…, vocab_size): the rows that pad the vocabulary are left out."""
        logits = F.linear(hidden, self.embedding.weight) if self.head is None else self.head(hidden)
        return softcapped(logits[..., : self.config.vocab_size], self.config.logit_softcap)

    @property
    def head_weight(self) -> Tensor:
        """(vocab_rows, d_model): the embedding itself where it is tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def set_dropout(self, share: float) -> None:
        """Zeroes this share of the embedding, and of what each sublayer adds, in training, at random."""
        self.dropout = share
        for block in self.blocks:
            cast(Block, block).dropout = share


def softcapped(logits: Tensor, cap: float | None) -> Tensor:
    """Logits bent into (-cap, cap) by cap tanh(logits / cap), or as they are. (Gemma 2, arXiv:2408.00118)"""
    return logits if cap is None else cap * torch.tanh(logits / cap)


@torch.no_grad()
def initialise(parameter: Tensor, name: str, config: ModelConfig) -> Tensor:
    """A weight before the first step, in place, by its name in the model; from torch's global generator.

    Learned positions mark the GPT-2 shape, and it gets GPT-2's recipe: N(0, 0.02²), for positions N(0, 0.01²), and
    the matrices that write to the residual stream divided by √(2 · layers). (Radford et al. 2019)
    All others: matrices N(0, 2 / (in + out)) (Glorot and Bengio 2010), embedding N(0, 1), or N(0, 0.02²) where it is
    the head too, value embeddings N(0, 1 / d_model); all cut at three standard deviations.
    Biases and gates are 0, norms 1.
    """
    if name.endswith("bias"):
        return parameter.zero_()
    if parameter.ndim == 1:
        return parameter.fill_(1.0)
    if name.endswith("value_gate.weight"):
        return parameter.zero_()
    if config.position == "learned":
        deviation = 0.01 if name == "positions.weight" else 0.02
        if name.endswith(("attention.output.weight", "ffn.down.weight")):
            deviation /= math.sqrt(2 * config.num_layers)
        return parameter.normal_(0.0, deviation)
    deviation = math.sqrt(2.0 / sum(parameter.shape))
    if name.endswith("value_embedding.weight"):
        deviation = 1 / math.sqrt(config.d_model)
    if name == "embedding.weight":
        deviation = 0.02 if config.tied_embeddings else 1.0
    return nn.init.trunc_normal_(parameter, 0.0, deviation, -3 * deviation, 3 * deviation)
