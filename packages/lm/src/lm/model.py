"""The Transformer, top to bottom: ids → embedding → blocks of attention and feed-forward → norm → logits.

One model builds the Llama shape (RMSNorm, SwiGLU, rotary positions, no biases), the GPT-2 shape (LayerNorm, GELU,
learned positions, biases, tied embeddings) and what people change in either to see what it does: see ModelConfig.
docs/design/model.md walks through it. lm.ops has faster versions, tested against the modules here.

Weights are (out, in). The query, key and value projections are one matrix, and so are the two halves of SwiGLU: one
large product is faster than two small ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.activation_checkpointing import recomputed
from lm.attention import attention, positions_of, rope_at
from lm.config import ActivationCheckpointing, ModelConfig, one_of


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, over the last dimension. (Zhang and Sennrich 2019, arXiv:1910.07467)

    x (…, width), any float dtype; computed in the dtype of the weight, returned in x's.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps).to(x.dtype)


def norm(config: ModelConfig) -> nn.Module:
    """The configured norm of d_model elements."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, config.norm_eps)
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias)
    return nn.Identity()


def apply_rotary_emb(x: Tensor, rope: Tensor | None) -> Tensor:
    """Rotary embedding: rotates the pairs (i, i + width / 2) of x (…, head_dim). (Su et al. 2021, arXiv:2104.09864)

    rope (…, width / 2, 2): cos and sin, broadcast against x; computed in its dtype, returned in x's. None: no rotation.
    A rotation narrower than a head leaves the elements after its `width`.
    """
    if rope is None:
        return x
    width = 2 * rope.shape[-2]
    a, b = x[..., :width].chunk(2, dim=-1)  # (…, width / 2)
    cos, sin = rope.unbind(-1)
    return torch.cat(((a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype), x[..., width:]), -1)


class LayerCache(Protocol):
    """Key/value cache of one layer (see generation.kv_cache)."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None, attend: Attend = attention) -> Tensor:
        """Append k, v (batch, num_kv_heads, seq, head_dim) and return attention of q to all positions so far."""


Caches = Sequence[LayerCache]  # one for each layer
Attend = Callable[..., Tensor]  # attention(), or a function with its arguments


class Attention(nn.Module):
    """Causal self-attention with grouped queries: x (batch, seq, d_model) → (batch, seq, d_model).

    (Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245)
    qkv.weight holds the query heads, then the key heads, then the value heads, each head_dim rows.
    """

    def __init__(self, config: ModelConfig, value_embedding: bool = False) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.kv_heads, config.head_width
        self.sliding_window = config.sliding_window
        self.recompute = False  # see Transformer.set_activation_checkpointing
        width = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.qkv = nn.Linear(config.d_model, width, config.has_bias("qkv"))
        self.output = nn.Linear(self.num_heads * self.head_dim, config.d_model, config.has_bias("output"))
        self.q_norm: nn.Module = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm: nn.Module = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.value_embedding: nn.Embedding | None = None
        if value_embedding:
            self.value_embedding = nn.Embedding(config.vocab_rows, self.num_kv_heads * self.head_dim)
            self.value_gate = nn.Linear(config.d_model, self.num_kv_heads, bias=False)

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """rope: rope_at() of x's positions, None for a model without it; ids (batch, seq): for a value embedding."""
        q, k, v = self.project(x, ids)
        q, k = self.rotate(q, k, rope)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (batch, heads, seq, head_dim)
        if cache is not None:
            y = cache.attend(q, k, v, self.sliding_window, self.attend)
        else:
            attend = recomputed(self.attend) if self.recompute else self.attend
            y = attend(q, k, v, sliding_window=self.sliding_window, document_ids=document_ids)
        return self.output(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def project(self, x: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """q (batch, seq, num_heads, head_dim), k and v (batch, seq, num_kv_heads, head_dim), before rotation."""
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        q, k, v = heads.split_with_sizes((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=2)
        if self.value_embedding is not None:
            v = v + gated_value_embedding(self.value_embedding(ids), self.value_gate(x)).to(v.dtype)
        return self.q_norm(q), self.k_norm(k), v

    def rotate(self, q: Tensor, k: Tensor, rope: Tensor | None) -> tuple[Tensor, Tensor]:
        """q and k, turned to their positions."""
        return apply_rotary_emb(q, rope), apply_rotary_emb(k, rope)

    @property
    def attend(self) -> Attend:
        """Attention of q to k and v."""
        return attention


class SwiGLU(nn.Module):
    """down(silu(gate x) · up x): x (…, d_model) → (…, d_model). (Shazeer 2020, arXiv:2002.05202)

    gate_up.weight holds the d_ff rows of the gate, then the rows of up.
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (…, d_ff)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


ACTIVATIONS = {
    "gelu": functools.partial(F.gelu, approximate="tanh"),  # as GPT-2
    "gelu_exact": F.gelu,
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
}


class MLP(nn.Module):
    """down(f(up x)): x (…, d_model) → (…, d_model), with one of ACTIVATIONS as f."""

    def __init__(self, d_model: int, d_ff: int, activation: str, bias: bool = False) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(ACTIVATIONS[self.activation](self.up(x)))  # type: ignore[no-any-return, operator]


class Block(nn.Module):
    """Attention, then feed-forward, each added to its input; a norm stands before each, or after each sum."""

    def __init__(self, config: ModelConfig, value_embedding: bool = False) -> None:
        super().__init__()
        self.post_norm = config.norm_placement == "post"
        self.dropout = nn.Dropout(0.0)  # see Transformer.set_dropout
        self.attention_norm = norm(config)
        self.attention = Attention(config, value_embedding)
        self.ffn_norm = norm(config)
        self.ffn: SwiGLU | MLP
        if config.ffn == "swiglu":
            self.ffn = SwiGLU(config.d_model, config.d_ff, config.has_bias("ffn"))
        else:
            self.ffn = MLP(config.d_model, config.d_ff, config.ffn, config.has_bias("ffn"))

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """x (batch, seq, d_model) → the same; context: the arguments of Attention after x."""
        if self.post_norm:
            x = self.attention_norm(x + self.dropout(self.attention(x, *context)))
            return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]
        x = x + self.dropout(self.attention(self.attention_norm(x), *context))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


def gated_value_embedding(embedding: Tensor, gate: Tensor) -> Tensor:
    """Each token's own embedding, added to its values: times 2 sigmoid(gate), which begins at 1.

    (Zhou et al. 2024, arXiv:2410.17897; gated as in nanochat)
    embedding (batch, seq, num_kv_heads · head_dim), gate (batch, seq, num_kv_heads) → (batch, seq, num_kv_heads,
    head_dim).
    """
    return 2 * gate.sigmoid().unsqueeze(-1) * embedding.view(*gate.shape, -1)


class Transformer(nn.Module):
    """A decoder-only Transformer: ids (batch, seq), integers below vocab_size → logits (batch, seq, vocab_size)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_rows, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model) if config.position == "learned" else None
        self.dropout = nn.Dropout(0.0)  # see set_dropout
        layers = range(config.num_layers)
        self.blocks = nn.ModuleList(self.block(layer) for layer in layers)
        self.final_norm = norm(config)
        self.head = None if config.tied_embeddings else nn.Linear(config.d_model, config.vocab_rows, bias=False)
        self.recompute = False  # see set_activation_checkpointing
        for name, parameter in self.named_parameters():
            self.initialise(parameter, name)

    def block(self, layer: int) -> nn.Module:
        """A new block of this number, counted from 0."""
        return Block(self.config, self.config.has_value_embedding(layer))

    def forward(
        self, ids: Tensor, document_ids: Tensor | None = None, *, start: int | Tensor = 0, cache: Caches | None = None
    ) -> Tensor:
        """Logits of each next token, in the dtype of the weights.

        document_ids (batch, seq): a token sees only its own document, a contiguous run with positions of its own.
        start: the position of ids[:, 0], for a cache that holds the tokens before it; or the positions of all ids
            (batch, seq), or of one token of each row (batch,), which are not checked against the context.
        """
        return self.logits(self.hidden(ids, document_ids, start=start, cache=cache))

    def hidden(
        self, ids: Tensor, document_ids: Tensor | None = None, *, start: int | Tensor = 0, cache: Caches | None = None
    ) -> Tensor:
        """Input of the head: (batch, seq, d_model).

        Raises:
            TypeError: ids are not integers.
            ValueError: ids are not (batch, seq), not in the vocabulary, or longer than the context.
        """
        positions = positions_of(ids, document_ids, start, self.config.context_length)
        x = embed_checked(self.embedding, ids)  # (batch, seq, d_model)
        if self.positions is not None:
            x = x + self.positions.weight[positions]  # a slice keeps no index for the backward pass
        x = self.dropout(x)
        for layer, (block, rope) in enumerate(zip(self.blocks, self.ropes(positions, x), strict=True)):
            run = recomputed(block, is_random=self.dropout.p > 0) if self.recompute else block
            x = run(x, rope, document_ids, None if cache is None else cache[layer], ids)
        return self.final_norm(x)  # type: ignore[no-any-return]

    def ropes(self, positions: Tensor | slice, x: Tensor) -> list[Tensor | None]:
        """The rotation that each block is given: rope_at() of the positions."""
        return [rope_at(self.config, positions, x)] * len(self.blocks)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, d_model) → (…, vocab_size): the rows that pad the vocabulary are left out."""
        logits = F.linear(hidden, self.embedding.weight) if self.head is None else self.head(hidden)
        return softcapped(logits[..., : self.config.vocab_size], self.config.logit_softcap)

    @property
    def head_weight(self) -> Tensor:
        """(vocab_rows, d_model): the embedding itself if it is tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def set_dropout(self, share: float) -> None:
        """Zero this share of the embedding and of each sublayer's output, in training. (Srivastava et al. 2014)"""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = share

    def set_activation_checkpointing(self, what: ActivationCheckpointing) -> None:
        """Choose what the backward pass computes again, to the same bit, rather than keep from the forward pass.

        "none"; "selective": the inside of attention (Korthikanti et al. 2022, arXiv:2205.05198); "full": everything but
        the input of each block (Chen et al. 2016, arXiv:1604.06174). ValueError: any other.
        """
        one_of("activation_checkpointing", what, get_args(ActivationCheckpointing))
        self.recompute = what == "full"
        for module in self.modules():
            if isinstance(module, Attention):
                module.recompute = what == "selective"

    @torch.no_grad()
    def initialise(self, parameter: Tensor, name: str) -> Tensor:
        """Set a weight for the first step, in place, by its name in the model; from torch's global generator.

        Learned positions mark the GPT-2 shape, and it gets GPT-2's recipe: N(0, 0.02²), for positions N(0, 0.01²), and
        the matrices that write to the residual stream divided by √(2 · layers). (Radford et al. 2019)
        All others: matrices N(0, 2 / (in + out)) (Glorot and Bengio 2010), embedding N(0, 1), or N(0, 0.02²) where it
        is the head too, value embeddings N(0, 1 / d_model); all cut at three standard deviations.
        Biases and gates are 0, norms 1.
        """
        config = self.config
        if name.endswith(("bias", "value_gate.weight")):
            return parameter.zero_()
        if parameter.ndim == 1:
            return parameter.fill_(1.0)
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


def softcapped(logits: Tensor, cap: float | None) -> Tensor:
    """Logits bent into (-cap, cap) by cap tanh(logits / cap), or as they are. (Gemma 2, arXiv:2408.00118)"""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def embed_checked(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """embedding(ids). ValueError: an id has no row (on a CPU; CUDA's own assertion fails later)."""
    try:
        return embedding(ids)  # type: ignore[no-any-return]
    except IndexError:
        size, low, high = embedding.num_embeddings, int(ids.min()), int(ids.max())
        message = f"token ids from {low} to {high} are not all in the vocabulary of {size}"
        raise ValueError(f"{message}: use the model's own tokenizer") from None
