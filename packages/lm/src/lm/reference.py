"""Every part of a language model from tensors alone, with plain arguments: the specification that lm is tested against.

The names are those of Stanford's CS336, assignment 1, so that a part can be compared with one's own: the state dict of
TransformerLM is the course's, and model_state_dict() makes that of lm.Transformer of it. Nothing here is fast: it calls
no operator of torch.nn.functional, fuses nothing and imports nothing of lm.

    ids → token_embeddings → (x + attn(ln1(x)), then x + ffn(ln2(x))) · num_layers → ln_final → lm_head
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

File = str | os.PathLike[str] | IO[bytes]


def normal(*shape: int, deviation: float, device: Any = None, dtype: torch.dtype | None = None) -> nn.Parameter:
    """N(0, deviation²), cut at three deviations."""
    empty = torch.empty(shape, device=device, dtype=dtype)
    return nn.Parameter(nn.init.trunc_normal_(empty, 0.0, deviation, -3 * deviation, 3 * deviation))


class Linear(nn.Module):
    """y = x Wᵀ, without a bias: x (…, d_in) → (…, d_out); weight (d_out, d_in), N(0, 2 / (d_in + d_out))."""

    def __init__(self, d_in: int, d_out: int, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = normal(d_out, d_in, deviation=math.sqrt(2 / (d_in + d_out)), device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Embedding(nn.Module):
    """The row of each id: ids (…) → (…, d_model); weight (vocab_size, d_model), N(0, 1)."""

    def __init__(self, vocab_size: int, d_model: int, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = normal(vocab_size, d_model, deviation=1.0, device=device, dtype=dtype)

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.weight[token_ids]


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) over a dimension; the largest is taken off first, so that no exponential overflows."""
    exponentials = torch.exp(x - x.amax(dim, keepdim=True))
    return exponentials / exponentials.sum(dim, keepdim=True)


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x)."""
    return x / (1 + torch.exp(-x))


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, over the last dimension, in float32 at least: (…, d_model) → the same."""

    def __init__(self, d_model: int, eps: float = 1e-5, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class RoPE(nn.Module):
    """Rotates the pair (2j, 2j + 1) of a vector at position i by the angle i · theta^(-2j / d_k).

    x (…, seq, d_k), token_positions (…, seq), integers below max_seq_len → (…, seq, d_k).
    """

    def __init__(self, theta: float, d_k: int, max_seq_len: int, device: Any = None) -> None:
        super().__init__()
        frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angles = torch.arange(max_seq_len)[:, None] * frequencies  # (max_seq_len, d_k / 2)
        self.register_buffer("cos", angles.cos().to(device), persistent=False)
        self.register_buffer("sin", angles.sin().to(device), persistent=False)

    cos: Tensor
    sin: Tensor

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        cos, sin = self.cos[token_positions].to(x.dtype), self.sin[token_positions].to(x.dtype)  # (…, seq, d_k / 2)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √d_k) v over the keys that a query may see.

    q (…, queries, d_k), k (…, keys, d_k), v (…, keys, d_v).
    mask (…, queries, keys): True where a query sees a key.
    """
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores) @ v


class FlashAttention(torch.autograd.Function):
    """attention(q, k, v) in tiles of `TILE` keys, so that no matrix of all scores exists (Dao 2023, arXiv:2307.08691).

    FlashAttention.apply(q, k, v, is_causal) with q (batch, queries, d), k and v (batch, keys, d) → (batch, queries, d).
    Saved for the backward pass are q, k, v, the output and log Σ exp(scores), (batch, queries).
    """

    TILE = 16

    @staticmethod
    def tiles(q: Tensor, k: Tensor, is_causal: bool) -> Iterator[tuple[slice, Tensor]]:
        """Each tile of keys with its scores, (batch, queries, TILE)."""
        queries = torch.arange(q.shape[1], device=q.device)[:, None]
        for start in range(0, k.shape[1], FlashAttention.TILE):
            tile = slice(start, min(start + FlashAttention.TILE, k.shape[1]))
            scores = q @ k[:, tile].transpose(1, 2) / math.sqrt(q.shape[-1])
            if is_causal:
                keys = torch.arange(tile.start, tile.stop, device=q.device)
                scores = scores.masked_fill(keys > queries, -math.inf)
            yield tile, scores

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        largest, total, out = q.new_full(q.shape[:2], -math.inf), q.new_zeros(q.shape[:2]), torch.zeros_like(q)
        for tile, scores in FlashAttention.tiles(q, k, is_causal):
            new = torch.maximum(largest, scores.amax(-1))
            weights, shrink = torch.exp(scores - new[..., None]), torch.exp(largest - new)
            total = total * shrink + weights.sum(-1)
            out = out * shrink[..., None] + weights @ v[:, tile]
            largest = new
        out = out / total[..., None]
        ctx.save_for_backward(q, k, v, out, largest + total.log())
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, log_total = ctx.saved_tensors
        row_sums = (gradient * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for tile, scores in FlashAttention.tiles(q, k, ctx.is_causal):
            weights = torch.exp(scores - log_total[..., None])
            dv[:, tile] = weights.transpose(1, 2) @ gradient
            slope = weights * (gradient @ v[:, tile].transpose(1, 2) - row_sums) / math.sqrt(q.shape[-1])
            dq += slope @ k[:, tile]
            dk[:, tile] = slope.transpose(1, 2) @ q
        return dq, dk, dv, None


class MultiHeadAttention(nn.Module):
    """Causal self-attention: x (…, seq, d_model) → the same; without theta (of RoPE) nothing rotates."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        max_seq_len: int | None = None,
        theta: float | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        projections = (Linear(d_model, d_model, device, dtype) for _ in range(4))
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = projections
        self.rope: RoPE | None = None
        if theta is not None and max_seq_len is not None:
            self.rope = RoPE(theta, d_model // num_heads, max_seq_len, device)

    def forward(self, x: Tensor, token_positions: Tensor | None = None) -> Tensor:
        seq = x.shape[-2]
        projected = (layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3) for t in projected)  # (…, heads, seq, d_k)
        if self.rope is not None:
            positions = torch.arange(seq, device=x.device) if token_positions is None else token_positions
            q, k = self.rope(q, positions), self.rope(k, positions)
        causal = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
        return self.output_proj(attention(q, k, v, causal).transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


class SwiGLU(nn.Module):
    """w2(silu(w1 x) · w3 x): x (…, d_model) → the same."""

    def __init__(self, d_model: int, d_ff: int, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each of a norm and added to what came in: x (…, seq, d_model) → the same."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        max_seq_len: int | None = None,
        theta: float | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.ln1 = RMSNorm(d_model, device=device, dtype=dtype)
        self.attn = MultiHeadAttention(d_model, num_heads, max_seq_len, theta, device, dtype)
        self.ln2 = RMSNorm(d_model, device=device, dtype=dtype)
        self.ffn = SwiGLU(d_model, d_ff, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.ffn(self.ln2(x))  # type: ignore[no-any-return]


class TransformerLM(nn.Module):
    """The whole model: ids (…, seq) → logits (…, seq, vocab_size)."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float = 10000.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.token_embeddings = Embedding(vocab_size, d_model, device, dtype)
        self.layers = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, context_length, rope_theta, device, dtype)
            for _ in range(num_layers)
        )
        self.ln_final = RMSNorm(d_model, device=device, dtype=dtype)
        self.lm_head = Linear(d_model, vocab_size, device, dtype)

    def forward(self, token_ids: Tensor) -> Tensor:
        x = self.token_embeddings(token_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_final(x))  # type: ignore[no-any-return]


def cross_entropy(inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(inputs)[target]: inputs (…, vocab_size), targets (…) int64 → a scalar in nats."""
    largest = inputs.amax(-1, keepdim=True)
    log_sum = (inputs - largest).exp().sum(-1, keepdim=True).log() + largest
    return (log_sum - inputs.gather(-1, targets[..., None])).mean()


def entropy(logits: Tensor) -> Tensor:
    """-Σ p log p of softmax(logits), in nats: (…, vocab) → (…)."""
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    return -(log_p.exp() * log_p).sum(-1)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The mean of the values where the mask is 1, along a dimension or over all; NaN where no mask is 1."""
    return torch.where(mask.bool(), values, 0).sum(dim) / mask.sum(dim)


def masked_normalize(values: Tensor, mask: Tensor, constant: float, dim: int | None = None) -> Tensor:
    """The sum of the values where the mask is 1, divided by a constant, along a dimension or over all."""
    return torch.where(mask.bool(), values, 0).sum(dim) / constant


class AdamW(torch.optim.Optimizer):
    """Adam with bias correction folded into the rate, and weights that decay apart. (Loshchilov and Hutter 2017)"""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * p.grad
                v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * p.grad * p.grad
                p *= 1 - lr * group["weight_decay"]
                corrected = v.sqrt() / math.sqrt(1 - beta2**t)
                p -= lr / (1 - beta1**t) * m / (corrected + group["eps"])
        return loss


def cosine_schedule(t: int, a_max: float, a_min: float, T_w: int, T_c: int) -> float:
    """The rate of step t: a line up to a_max at T_w, half a cosine down to a_min at T_c, then a_min."""
    if t < T_w:
        return t / T_w * a_max
    if t > T_c:
        return a_min
    return a_min + 0.5 * (1 + math.cos(math.pi * (t - T_w) / max(1, T_c - T_w))) * (a_max - a_min)


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_l2_norm: float, eps: float = 1e-6) -> None:
    """Scales all gradients, in place, so that their joint L2 norm is at most max_l2_norm."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    if norm > max_l2_norm:
        for g in gradients:
            g *= max_l2_norm / (norm + eps)


def get_batch(
    dataset: NDArray[Any], batch_size: int, context_length: int, device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor]:
    """Windows that begin at random, none past the end: inputs and targets, (batch_size, context_length) int64 each."""
    starts = torch.randint(len(dataset) - context_length, (batch_size,)).tolist()
    rows = np.stack([dataset[start : start + context_length + 1] for start in starts]).astype(np.int64)
    both = torch.from_numpy(rows).to(device)
    return both[:, :-1], both[:, 1:]


def save(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, out: File) -> None:
    """Writes model, optimizer and iteration to a path or an open file."""
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}, out)


def load(src: File, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Puts back what save() wrote; gives the iteration."""
    saved = torch.load(src, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["iteration"])


def model_state_dict(state: Mapping[str, Tensor], num_heads: int) -> dict[str, Tensor]:
    """The course's state dict as that of lm.Transformer, whose projections of one input are one matrix.

    Rows of queries and keys change places within their head: RoPE rotates the pairs (2j, 2j + 1) here, as in the paper
    and in the course, and the pairs (j, j + d_k / 2) there, as in published weights.
    """
    ours = {"token_embeddings": "embedding", "ln_final": "final_norm", "lm_head": "head"}
    renamed = {f"{ours[name]}.weight": state[f"{name}.weight"] for name in ours}
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    for n in range(layers):

        def part(*names: str, layer: str = f"layers.{n}") -> Tensor:
            return torch.cat([state[f"{layer}.{name}.weight"] for name in names])

        q, k = (
            part(name).unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)  # type: ignore[no-untyped-call]
            for name in ("attn.q_proj", "attn.k_proj")
        )

        renamed |= {
            f"blocks.{n}.attention_norm.weight": part("ln1"),
            f"blocks.{n}.attention.qkv.weight": torch.cat((q, k, part("attn.v_proj"))),
            f"blocks.{n}.attention.output.weight": part("attn.output_proj"),
            f"blocks.{n}.ffn_norm.weight": part("ln2"),
            f"blocks.{n}.ffn.gate_up.weight": part("ffn.w1", "ffn.w3"),
            f"blocks.{n}.ffn.down.weight": part("ffn.w2"),
        }
    return renamed
