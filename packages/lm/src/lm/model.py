"""The Transformer, top to bottom: ids → embedding → blocks of attention and feed-forward → norm → logits.

One model builds the Llama shape (RMSNorm, SwiGLU, rotary positions, no biases), the GPT-2 shape (LayerNorm, GELU, learned
positions, biases, tied embeddings) and what people change in either to see what it does: see ModelConfig.
Weights are (out, in). Query, key and value projections are one matrix, and so are the two halves of SwiGLU: one large
product is faster than two small ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from lm.attention import MATMUL_KEYS, attention, hidden_keys
from lm.config import ActivationCheckpointing, ModelConfig, one_of
from lm.ops.cpu import passes
from lm.ops.cpu.block_attention import attend


class LayerCache(Protocol):
    """What one layer's attention asks of a key/value cache (see generation)."""

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends k, v (batch, kv_heads, seq, head_dim) and gives all that were appended so far."""
        ...


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, over the last dimension. (Zhang and Sennrich 2019, arXiv:1910.07467)

    x (…, width), any float dtype; the mean is taken in float32 where the dtype is a narrower one.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or torch.compiler.is_compiling() or x.dtype not in (torch.float32, torch.float64):
            wide = torch.promote_types(x.dtype, self.weight.dtype)  # torch's fused norm wants one dtype
            return F.rms_norm(x.to(wide), self.weight.shape, self.weight.to(wide), self.eps).to(x.dtype)
        if not torch.is_grad_enabled():  # for the row of one token, entering an autograd.Function costs more than this
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt_() * self.weight
        return _RMSNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call, no-any-return]


class _RMSNorm(torch.autograd.Function):
    """The same in fewer passes over memory than F.rms_norm makes on a CPU: 0.30 ms for 0.40, both ways, at 1,024 × 128.

    With n = x / rms(x): dweight = Σ g n and dx = (g weight - n mean(g weight n)) / rms(x).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        _, normal, inverse = passes.normalise(passes.compiled(x), x, eps)
        ctx.save_for_backward(normal, weight, inverse)
        scaled: Tensor = normal * weight
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, weight, inverse = ctx.saved_tensors
        for_x = passes.normalise_back(passes.compiled(grad), grad * weight, normal, inverse)
        return for_x, (grad * normal).flatten(0, -2).sum(0), None


def in_full_precision(x: Tensor) -> bool:
    """Whether x is on a CPU and computed with as it is: what the operators of this package are for."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    return not torch.is_autocast_enabled("cpu")


def unweighed(
    norm: nn.Module, x: Tensor, reader: nn.Module | None, more: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """x + more, or x; the norm of that; and None. Or the norm without its weight, and that, which the product that reads it
    then takes: see `weighed`.
    """
    apart = torch.is_grad_enabled() and not torch.compiler.is_compiling() and in_full_precision(x)
    if apart and isinstance(norm, RMSNorm) and type(reader) is nn.Linear:
        if more is None:
            return x, _Normalise.apply(x, norm.eps), norm.weight  # type: ignore[no-untyped-call]
        return *_AddNormalise.apply(x, more, norm.eps), norm.weight  # type: ignore[no-untyped-call]
    total = x if more is None else x + more
    return total, norm(total), None


def weighed(layer: nn.Module, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """layer(x · weight), the weight (in,) multiplied into the layer's matrix rather than into every position."""
    if weight is not None:
        y = _Weighed.apply(x, layer.weight, weight)  # type: ignore[no-untyped-call]
    elif type(layer) is nn.Linear and layer.out_features > layer.in_features and in_full_precision(x):
        y = _Wide.apply(x, layer.weight) if torch.is_grad_enabled() else F.linear(x, layer.weight)  # type: ignore[no-untyped-call]
    else:
        return layer(x)  # type: ignore[no-any-return]
    return y if layer.bias is None else y + layer.bias  # type: ignore[no-any-return]


def product_of(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x of grad (rows, out) and x (rows, in), (out, in), as the library is faster at it: by tall times wide."""
    if grad.shape[1] > x.shape[1]:
        return (x.T @ grad).T.contiguous()
    return grad.T @ x


class _Wide(torch.autograd.Function):
    """y = x matrixᵀ of a matrix with more rows than columns, whose gradient is product_of()."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return F.linear(x, matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, matrix = ctx.saved_tensors
        return grad @ matrix, product_of(grad.flatten(0, -2), x.flatten(0, -2))


class _Normalise(torch.autograd.Function):
    """x / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        _, normal, inverse = passes.normalise(passes.compiled(x), x, eps)
        ctx.save_for_backward(normal, inverse)
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return passes.normalise_back(passes.compiled(grad), grad, *ctx.saved_tensors), None


class _AddNormalise(torch.autograd.Function):
    """x + y, and that divided by its rms: one pass over memory for two, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total, normal, inverse = passes.normalise(passes.compiled(x), x, eps, y)
        ctx.save_for_backward(normal, inverse)
        return total, normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, inverse = ctx.saved_tensors
        slope = passes.normalise_back(passes.compiled(grad), grad, normal, inverse, own)
        return slope, slope, None


class _Weighed(torch.autograd.Function):
    """y = x (matrix · weight)ᵀ: with G = gᵀ x, dmatrix = G · weight and dweight = Σ G · matrix over the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
        both = matrix * weight
        ctx.save_for_backward(x, matrix, weight, both)
        return F.linear(x, both)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, matrix, weight, both = ctx.saved_tensors
        product = product_of(grad.flatten(0, -2), x.flatten(0, -2))
        return grad @ both, product * weight, (product * matrix).sum(0)


Scaling = tuple[float, float, float, int | None]  # ModelConfig.rope_scaling


@functools.lru_cache(maxsize=8)
def turns(
    length: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device, scaling: Scaling | None = None
) -> Tensor:
    """e^(i·position·frequency_j) for positions 0 … length - 1: complex (length, head_dim / 2). See frequencies().

    Angles are taken in float64: at position 100,000 a float32 one is off by 0.004.
    """
    with torch.inference_mode(False):  # the table outlives the call, and a later one may want gradients through it
        return _turns(torch.arange(length), head_dim, theta, dtype, scaling).to(device)  # MPS has no float64


def frequencies(head_dim: int, theta: float, scaling: Scaling | None = None) -> Tensor:
    """How far each pair turns from one position to the next: theta^(-2j/head_dim), float64 (head_dim / 2,).

    scaling, see ModelConfig: divided by a factor, all (Chen et al. 2023, arXiv:2306.15595) or the slow ones (Llama 3.1).
    """
    plain: Tensor = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return plain
    factor, low, high, original = scaling
    if original is None:
        return plain / factor
    share = ((original * plain / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # 1 for those that stay as they are
    return share * plain + (1 - share) * plain / factor


def _turns(
    positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype, scaling: Scaling | None = None
) -> Tensor:
    places = positions.cpu() if positions.device.type == "mps" else positions
    angles = places[..., None] * frequencies(head_dim, theta, scaling).to(places.device)  # (…, head_dim / 2)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return torch.complex(angles.cos().to(wide), angles.sin().to(wide)).to(positions.device)


def turn(x: Tensor, by: Tensor) -> Tensor:
    """Turns each pair (2i, 2i + 1) of x (…, head_dim) by a complex number of modulus one, (…, head_dim / 2), broadcast.

    The product of complex numbers is the rotation, in one pass over memory; written with sines it takes six, and torch.compile,
    which makes one pass of those six, makes none of complex numbers.
    """
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    pairs = wide.reshape(*x.shape[:-1], -1, 2)
    if torch.compiler.is_compiling():
        (a, b), (c, s) = pairs.unbind(-1), (by.real, by.imag)
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).to(x.dtype)
    return torch.view_as_real(torch.view_as_complex(pairs) * by).flatten(-2).to(x.dtype)


def rotary(x: Tensor, positions: Tensor, theta: float = 10000.0) -> Tensor:
    """Rotary position embedding: pair (2i, 2i + 1) of x turned by position · theta^(-2i / head_dim).

    (Su et al. 2021, arXiv:2104.09864) x (…, seq, head_dim) with an even head_dim; positions (…, seq), integers, whose
    leading dimensions are broadcast against x's.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim {x.shape[-1]} is odd, and rotary embeddings turn pairs: make it even")
    return turn(x, _turns(positions, x.shape[-1], theta, x.dtype))


class Attention(nn.Module):
    """Causal self-attention with grouped queries: x (batch, seq, d_model) → (batch, seq, d_model).

    (Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245)
    qkv.weight holds the query heads, then the key heads, then the value heads, each head_dim rows.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.kv_heads, config.head_width
        self.sliding_window = config.sliding_window
        self.recompute = (
            False  # the inside of attention, in the backward pass: see Transformer.activation_checkpointing
        )
        self.qkv = nn.Linear(config.d_model, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=config.bias)
        self.output = nn.Linear(self.heads * self.head_dim, config.d_model, bias=config.bias)
        self.q_norm = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, config.norm_eps) if config.qk_norm else None

    def forward(
        self,
        x: Tensor,
        by: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """by: each position's turns, complex (seq, 1, head_dim / 2) or (batch, seq, 1, head_dim / 2); None turns nothing.

        weight: see `weighed`.
        """
        batch, seq, _ = x.shape
        qkv = weighed(self.qkv, x, weight).view(batch, seq, self.heads + 2 * self.kv_heads, self.head_dim)
        if in_full_precision(x) and cache is None and seq <= MATMUL_KEYS:
            if self.q_norm is not None and self.k_norm is not None:
                q, k, v = qkv.split_with_sizes((self.heads, self.kv_heads, self.kv_heads), dim=2)
                qkv = torch.cat((self.q_norm(q), self.k_norm(k), v), dim=2)
            arguments = (qkv, self.heads, by, hidden_keys(qkv, self.sliding_window, document_ids), self.sliding_window)
            y = again(attend, *arguments) if self.recompute and torch.is_grad_enabled() else attend(*arguments)
            return self.output(y.flatten(2))  # type: ignore[no-any-return]
        qk, v = qkv.split_with_sizes((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if self.q_norm is not None and self.k_norm is not None:
            qk = torch.cat((self.q_norm(qk[:, :, : self.heads]), self.k_norm(qk[:, :, self.heads :])), dim=2)
        if by is not None:
            qk = turn(qk, by)
        qk = qk.transpose(1, 2)  # (batch, heads + kv_heads, seq, head_dim)
        q, k = qk.split_with_sizes((self.heads, self.kv_heads), dim=1)
        v = v.transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)  # (batch, kv_heads, all seq so far, head_dim)
        if self.recompute and torch.is_grad_enabled():
            y = again(attention, q, k, v, sliding_window=self.sliding_window, document_ids=document_ids)
        else:
            y = attention(q, k, v, sliding_window=self.sliding_window, document_ids=document_ids)
        return self.output(y.transpose(1, 2).reshape(batch, seq, self.heads * self.head_dim))  # type: ignore[no-any-return]


class SwiGLU(nn.Module):
    """down(silu(gate x) · up x): x (…, d_model) → (…, d_model). (Shazeer 2020, arXiv:2002.05202)

    gate_up.weight holds the d_ff rows of the gate, then those of up.
    """

    def __init__(self, d_model: int, d_ff: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    @property
    def reader(self) -> nn.Module:
        """The first product."""
        return self.gate_up

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """weight: see `weighed`."""
        return self.down(gated(weighed(self.gate_up, x, weight)))  # type: ignore[no-any-return]


def gated(both: Tensor) -> Tensor:
    """silu(gate) · up of both (…, 2 · d_ff), the gate's half first: (…, d_ff)."""
    if both.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _Gated.apply(both)  # type: ignore[no-untyped-call, no-any-return]
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up


class _Gated(torch.autograd.Function):
    """The same, whose backward writes both halves where they belong. What is kept is what autograd would keep."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        out, active = passes.gated(passes.compiled(both), both)
        ctx.save_for_backward(both, active)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return passes.gated_back(passes.compiled(grad), grad, *ctx.saved_tensors)


class MLP(nn.Module):
    """down(f(up x)): x (…, d_model) → (…, d_model). f is GELU, in its tanh form (as GPT-2) or exact, SiLU, or ReLU squared."""

    def __init__(self, d_model: int, d_ff: int, activation: str, bias: bool = False) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    @property
    def reader(self) -> nn.Module:
        """The first product."""
        return self.up

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """weight: see `weighed`."""
        return self.down(self.activate(weighed(self.up, x, weight)))  # type: ignore[no-any-return]

    def activate(self, x: Tensor) -> Tensor:
        """f(x)."""
        if self.activation == "gelu":
            return F.gelu(x, approximate="tanh")
        if self.activation == "gelu_exact":
            return F.gelu(x)
        return F.silu(x) if self.activation == "silu" else F.relu(x).square()


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in; a norm stands before each, or after each sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post = config.norm_placement == "post"
        self.attention_norm = norm(config)
        self.attention = Attention(config)
        self.ffn_norm = norm(config)
        if config.ffn == "swiglu":
            self.ffn: nn.Module = SwiGLU(config.d_model, config.d_ff, config.bias)
        else:
            self.ffn = MLP(config.d_model, config.d_ff, config.ffn, config.bias)

    def forward(
        self, x: Tensor, by: Tensor | None = None, document_ids: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        if self.post:
            x = self.attention_norm(x + self.attention(x, by, document_ids, cache))
            return self.ffn_norm(x + self.ffn(x))  # type: ignore[no-any-return]
        x, y, weight = unweighed(self.attention_norm, x, self.attention.qkv)
        y = self.attention(y, by, document_ids, cache, weight)
        x, y, weight = unweighed(self.ffn_norm, x, getattr(self.ffn, "reader", None), y)
        return x + (self.ffn(y) if weight is None else self.ffn(y, weight))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A decoder-only Transformer: ids (batch, seq), integers below vocab_size → logits (batch, seq, vocab_size)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_rows, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model) if config.position == "learned" else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = norm(config)
        self.head = None if config.tied_embeddings else nn.Linear(config.d_model, config.vocab_rows, bias=False)
        self.recompute = False
        initialise(self)

    def activation_checkpointing(self, what: str) -> None:
        """What the forward pass does not keep and the backward computes again, to the same bit.

        "none"; "selective": the inside of attention (Korthikanti et al. 2022, arXiv:2205.05198); "full": all but what
        enters each block (Chen et al. 2016, arXiv:1604.06174).
        """
        one_of("activation_checkpointing", what, get_args(ActivationCheckpointing))
        self.recompute = what == "full"
        for block in self.blocks:
            cast(Block, block).attention.recompute = what == "selective"

    def forward(
        self,
        ids: Tensor,
        document_ids: Tensor | None = None,
        *,
        start: int = 0,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """Logits of each next token, in the dtype of the weights.

        document_ids (batch, seq), integers: tokens see only their own document, a contiguous run in which positions restart.
        start: the position of ids[:, 0], for a cache that holds the tokens before it.
        """
        return self.logits(self.hidden(ids, document_ids, start=start, cache=cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, d_model) → (…, vocab_size): the rows that pad the vocabulary are left out."""
        return F.linear(hidden, self.head_weight)[..., : self.config.vocab_size]

    @property
    def head_weight(self) -> Tensor:
        """(vocab_rows, d_model): the embedding itself where it is tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def hidden(
        self,
        ids: Tensor,
        document_ids: Tensor | None = None,
        *,
        start: int = 0,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """What the head reads: (batch, seq, d_model). ValueError: a sequence longer than the context."""
        config, seq = self.config, ids.shape[1]
        if start + seq > config.context_length:
            raise ValueError(
                f"a sequence of {start + seq} tokens is longer than the context of {config.context_length}"
            )
        if document_ids is None:
            places: slice | Tensor = slice(start, start + seq)
        else:
            places = positions_in(document_ids)
        x = self.embedding(ids)  # (batch, seq, d_model)
        if self.positions is not None:
            x = x + self.positions.weight[places]
        by = None
        if config.position == "rope":
            size, theta = (config.context_length, config.head_width), config.rope_theta
            table = turns(*size, theta, x.dtype, x.device, config.rope_scaling)
            by = table[places].unsqueeze(-2)  # one turn for all heads
        for i, block in enumerate(self.blocks):
            if self.recompute and torch.is_grad_enabled():
                x = again(block, x, by, document_ids)
            else:
                x = block(x, by, document_ids, None if cache is None else cache[i])
        return self.final_norm(x)  # type: ignore[no-any-return]


def again(function: Callable[..., Tensor], *arguments: Any, **keywords: Any) -> Tensor:
    """function(…), of which nothing but the arguments is kept: the backward pass calls it once more. Nothing here is random."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)  # type: ignore[no-any-return]


def document_ids_of(ids: Tensor, end_of_text: int) -> Tensor:
    """The document of each token of ids (batch, seq), int64, counted from the left of its row.

    An end-of-text token begins a document, so that the first of its tokens is predicted from it alone, as generation does,
    and the last predicts the next one: every target stays one.
    """
    return (ids == end_of_text).cumsum(dim=1)


def positions_in(document_ids: Tensor) -> Tensor:
    """How far each token is into its document: document_ids (batch, seq), each a contiguous run → int64 (batch, seq)."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand(document_ids.shape)
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


def norm(config: ModelConfig) -> nn.Module:
    """The norm that a configuration asks for, as wide as the model."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, config.norm_eps)
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias)
    return nn.Identity()


@torch.no_grad()
def initialise(model: Transformer) -> None:
    """The weights before the first step, from torch's global generator.

    Learned positions mark the GPT-2 shape, and it gets GPT-2's recipe: N(0, 0.02²), for positions N(0, 0.01²), and the
    matrices that write to the residual stream divided by √(2 · layers). (Radford et al. 2019) All others: matrices
    N(0, 2 / (in + out)) cut at three standard deviations (Glorot and Bengio 2010), embedding N(0, 1) cut likewise, or
    N(0, 0.02²) where it is the head too. Biases are 0, norms 1.
    """
    gpt2 = model.config.position == "learned"
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1.0)
        elif gpt2:
            deviation = 0.01 if name == "positions.weight" else 0.02
            if name.endswith(("attention.output.weight", "ffn.down.weight")):
                deviation /= math.sqrt(2 * model.config.num_layers)
            parameter.normal_(0.0, deviation)
        else:
            deviation = math.sqrt(2.0 / sum(parameter.shape))
            if name == "embedding.weight":
                deviation = 0.02 if model.head is None else 1.0
            nn.init.trunc_normal_(parameter, 0.0, deviation, -3 * deviation, 3 * deviation)
