"""Attention: softmax(q kᵀ / √head_dim) v over what each query may see, by the implementation that suits the machine."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

BACKENDS = ("auto", "sdpa", "matmul", "reference")

# Up to this many keys, two batched matrix products are faster on a CPU than torch's tiled kernel, forward and backward
# together: at 8 × 4 heads of 32 and 128 positions 2.4 ms against 3.1 on two Zen 3 cores.
MATMUL_KEYS = 256


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    window: int | None = None,
    documents: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """What each query gathers from the values it may see.

    q (batch, heads, queries, head_dim); k, v (batch, kv_heads, keys, head_dim), where kv_heads divides heads and query head h
    reads key head h // (heads / kv_heads). Gives (batch, heads, queries, head_dim) in q's dtype.

    The queries are the last of the keys' positions: with `causal`, query i of Q sees the keys up to i + K - Q, and with
    `window` only the last `window` of those. documents (batch, keys), integers: a query sees only keys of its own document.
    A query that sees nothing gives zeros. ValueError: shapes that do not fit, or an unknown backend.
    """
    if backend not in BACKENDS:
        if backend == "flash":
            raise ValueError("backend 'flash' needs a CUDA kernel that this version does not have: use 'auto'")
        raise ValueError(f"backend {backend!r} is unknown: use one of {', '.join(BACKENDS)}")
    heads, queries, keys = q.shape[1], q.shape[2], k.shape[2]
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit: "
            f"they are (batch, heads, positions, head_dim) and differ only in heads and positions, k and v not at all"
        )
    if heads % k.shape[1]:
        raise ValueError(
            f"{k.shape[1]} key heads do not divide {heads} query heads: each serves the same number of them"
        )
    if window is not None and (window < 1 or not causal):
        raise ValueError(f"window {window} must be at least 1, and goes with causal=True")
    if documents is not None and documents.shape != (q.shape[0], keys):
        raise ValueError(
            f"documents is {tuple(documents.shape)}, and it names a document for each key: {(q.shape[0], keys)}"
        )

    if backend == "auto":
        backend = "matmul" if q.device.type == "cpu" and queries > 1 and keys <= MATMUL_KEYS else "sdpa"
    if backend == "reference":
        return _reference(q, k, v, causal, window, documents)

    if window is not None and queries == 1 and documents is None:
        # What lies before the window need not be masked, nor read.
        k, v, window = k[:, :, -window:], v[:, :, -window:], None
    elif window is not None and window >= keys:
        window = None
    if documents is not None:
        seen = visible(queries, keys, causal=causal, window=window, documents=documents, device=q.device)
        bias = as_bias(seen, q.dtype)
    elif not causal or (queries == 1 and window is None):
        bias = None
    elif backend == "sdpa" and queries == keys and window is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != k.shape[1])
    else:
        made = causal_bias.__wrapped__ if torch.compiler.is_compiling() else causal_bias  # dynamo sees no caches
        bias = made(queries, keys, window, q.dtype, q.device)
    out = _matmul(q, k, v, bias) if backend == "matmul" else _sdpa(q, k, v, bias)
    if documents is not None:
        out = out.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    elif causal and queries > keys:  # the first ones stand before every key
        out = torch.cat((torch.zeros_like(out[:, :, : queries - keys]), out[:, :, queries - keys :]), dim=2)
    return out


def as_bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to the scores so that softmax leaves only what is seen: 0, or the least finite number.

    Not -inf, whose softmax over a row that sees nothing is NaN, in the gradient too.
    """
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


@functools.lru_cache(maxsize=8)
def causal_bias(queries: int, keys: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """as_bias of what causality lets each query see: (queries, keys), made once for all layers and steps."""
    with torch.inference_mode(False):  # it outlives the call, and a later one may want gradients beside it
        return as_bias(visible(queries, keys, causal=True, window=window, device=device), dtype)


def visible(
    queries: int,
    keys: int,
    *,
    causal: bool,
    window: int | None = None,
    documents: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Which keys each query sees: booleans (queries, keys), or (batch, 1, queries, keys) with documents."""
    key = torch.arange(keys, device=device)
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if causal:
        seen = key <= query
        if window is not None:
            seen = seen & (key > query - window)
    if documents is not None:
        own = documents[:, keys - queries :] if queries <= keys else F.pad(documents, (queries - keys, 0), value=-1)
        seen = seen & (own[:, :, None] == documents[:, None, :])
        seen = seen[:, None]
    return seen


def _sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=q.shape[1] != k.shape[1])


def _matmul(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Whole score matrices, the queries of a group side by side so that keys and values are read once and never repeated."""
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    group = heads // kv_heads
    rows = q.reshape(batch * kv_heads, group * queries, width)
    columns = k.reshape(batch * kv_heads, keys, width).transpose(1, 2)
    values = v.reshape(batch * kv_heads, keys, width)
    scale = 1.0 / math.sqrt(width)
    if bias is None:
        scores = torch.bmm(rows, columns) * scale  # (batch * kv_heads, group * queries, keys)
    else:
        if bias.ndim == 2:
            bias = bias.repeat(group, 1) if group > 1 else bias
        else:
            bias = bias.expand(batch, heads, queries, keys).reshape(batch * kv_heads, group * queries, keys)
        scores = torch.baddbmm(bias, rows, columns, alpha=scale)
    return torch.bmm(scores.softmax(-1), values).view(batch, heads, queries, width)


def _reference(q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, documents: Tensor | None) -> Tensor:
    """One query at a time, in the words of the definition."""
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    rows = []
    for b in range(batch):
        for h in range(heads):
            own_k, own_v = k[b, h // (heads // kv_heads)], v[b, h // (heads // kv_heads)]  # (keys, head_dim)
            for i in range(queries):
                position = i + keys - queries
                seen = [
                    j
                    for j in range(keys)
                    if (not causal or j <= position)
                    and (window is None or j > position - window)
                    and (documents is None or (position >= 0 and bool(documents[b, j] == documents[b, position])))
                ]
                scores = own_k[seen] @ q[b, h, i] / math.sqrt(width)
                rows.append(scores.softmax(0) @ own_v[seen])
    return torch.stack(rows).view(batch, heads, queries, width) if rows else torch.zeros_like(q)
