"""Attention: softmax(q kᵀ / √head_dim) v over what each query may see, in the implementation for the device; and rotary
positions, the angle of each pair of elements at each position (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.config import ModelConfig, RopeScaling, one_of
from lm.ops import triton as kernels

BACKENDS = ("auto", "flash", "flex", "sdpa", "matmul", "reference")
log = logging.getLogger(__name__)

# Up to this many keys, two batched matrix products are faster on a CPU than torch's tiled kernel, forward and backward
# together: at 8 × 4 heads of 32 and 128 positions 2.4 ms against 3.1 on two Zen 3 cores.
MATMUL_KEYS = 256


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = True,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attention of each query to the keys that it may see.

    q (batch, heads, queries, head_dim); k, v (batch, kv_heads, keys, head_dim), where kv_heads divides heads and query
    head h reads key head h // (heads / kv_heads). Gives (batch, heads, queries, head_dim) in q's dtype.

    The queries are the last of the keys' positions: with `causal`, query i of Q sees the keys up to i + K - Q, and with
    `sliding_window` only that number of them. document_ids (batch, keys), integers: a query sees only keys of its own
    document. A query that sees nothing gives zeros. Without a batch, (heads, positions, head_dim) gives the same.

    mask, booleans broadcast to (batch, heads, queries, keys): True where a query may see a key, if the others allow.
    Every backend takes it but "flash".

    softcap: scores s become softcap · tanh(s / softcap) (Gemma 2, arXiv:2408.00118). sinks (heads,): one more score of
    each query, whose share of the softmax goes to no value (gpt-oss, arXiv:2508.10925). Every backend takes both but
    "sdpa".

    backend: "flash" is this package's own kernel (CUDA, Triton), "sdpa" torch's, "flex" torch's FlexAttention (without
    gradients on a CPU), "matmul" computes whole score matrices, "reference" is the definition without a shortcut.
    "auto" on a CPU is "matmul" for few keys and "sdpa" for many; on CUDA it is "sdpa", and "flash" for documents,
    windows, caps, sinks, a cache, and where deterministic algorithms are asked for, as its bits never change.

    ValueError: shapes that do not fit, an unknown backend, "flash" without what it needs, or "flex" with gradients that
    torch does not have.
    """
    one_of("backend", backend, BACKENDS)
    masks: dict[str, Any] = {"causal": causal, "sliding_window": sliding_window, "document_ids": document_ids}
    scores: dict[str, Any] = {"softcap": softcap, "sinks": sinks}
    if q.ndim == k.ndim == v.ndim == 3:
        masks["document_ids"] = document_ids if document_ids is None else document_ids.reshape(1, -1)
        return attention(q[None], k[None], v[None], **masks, **scores, mask=mask, backend=backend)[0]
    check_shapes(q, k, v, causal, sliding_window, document_ids, softcap, sinks)
    changes_scores = softcap is not None or sinks is not None
    if changes_scores and backend == "sdpa":
        raise ValueError("backend 'sdpa' has neither softcap nor sinks: use 'auto', 'flash', 'flex' or 'matmul'")
    queries, keys = q.shape[2], k.shape[2]
    size = (*q.shape[:3], keys)
    if mask is not None:
        fits = torch.broadcast_shapes(mask.shape, size) == size  # type: ignore[no-untyped-call]
        if mask.dtype != torch.bool or not fits:
            raise ValueError(f"expected a torch.bool mask broadcast to {size}, got {mask.dtype} {tuple(mask.shape)}")
        if backend == "flash":
            raise ValueError("backend 'flash' takes no mask: use 'auto' or 'sdpa', or sliding_window and document_ids")
        mask = mask.expand(size)

    if backend == "auto":
        on_cpu = q.device.type == "cpu"
        is_short = on_cpu and mask is None and queries > 1 and keys <= MATMUL_KEYS
        backend = "matmul" if changes_scores or is_short else "sdpa"
        # torch's fused kernels support neither document masks nor windows, and align a causal mask top-left.
        special = changes_scores or document_ids is not None or sliding_window is not None or queries != keys
        if mask is None and not on_cpu and (special or torch.are_deterministic_algorithms_enabled()):
            real = q.device.type != "meta"  # autocast raises on the meta device
            mixed = real and torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64
            dtype = torch.get_autocast_dtype(q.device.type) if mixed else q.dtype
            backend = "flash" if has_flash(str(q.device), dtype, q.shape[3]) else backend
    if backend == "flash":
        return _flash(q, k, v, **masks, **scores)
    if backend == "flex":
        from lm.ops import flex  # which imports torch's compiler

        return flex.attention(q, k, v, **masks, **scores, mask=mask)

    is_whole = backend == "reference" or changes_scores
    if document_ids is not None or mask is not None or is_whole:
        seen = visible(queries, keys, **masks, device=q.device)
        seen = seen if mask is None else (mask & seen)
        if is_whole:
            out = _whole_scores(q, k, v, seen, softcap, sinks)
        else:
            bias = as_bias(seen, q.dtype)
            out = _matmul(q, k, v, bias) if backend == "matmul" else _sdpa(q, k, v, bias)
        return out.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    if sliding_window is not None and queries == 1:
        # What lies before the window need not be masked, nor read.
        k, v, sliding_window = k[:, :, -sliding_window:], v[:, :, -sliding_window:], None
    elif sliding_window is not None and sliding_window >= keys:
        sliding_window = None
    if not causal or (queries == 1 and sliding_window is None):
        cached_bias = None
    elif backend == "sdpa" and queries == keys and sliding_window is None:
        return _sdpa(q, k, v, None, is_causal=True)
    else:
        # A compiled caller, which cannot use the cache, computes its own.
        of_shape = causal_bias.__wrapped__ if torch.compiler.is_compiling() else causal_bias
        cached_bias = of_shape(queries, keys, sliding_window, q.dtype, q.device)
    out = _matmul(q, k, v, cached_bias) if backend == "matmul" else _sdpa(q, k, v, cached_bias)
    if causal and queries > keys:  # the first ones stand before every key
        out = torch.cat((torch.zeros_like(out[:, :, : queries - keys]), out[:, :, queries - keys :]), dim=2)
    return out


def _whole_scores(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, softcap: float | None, sinks: Tensor | None) -> Tensor:
    """The definition, with a soft cap or sinks: one more score for each head, with no value."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])  # (batch, heads, queries, keys)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if sinks is None:
        return scores.softmax(-1) @ v
    sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat((scores, sink), dim=-1).softmax(-1)[..., :-1] @ v


def as_bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias that hides unseen keys from softmax: 0, or the least finite number, as -inf makes NaN of empty rows."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


@functools.lru_cache(maxsize=8)
def causal_bias(
    queries: int, keys: int, sliding_window: int | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """as_bias of a causal mask, cached for all layers and steps: (queries, keys)."""
    with torch.inference_mode(False):  # it outlives the call, and a later one may want gradients beside it
        return as_bias(visible(queries, keys, causal=True, sliding_window=sliding_window, device=device), dtype)


def visible(
    queries: int,
    keys: int,
    *,
    causal: bool,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """True where a query sees a key: (queries, keys), or (batch, 1, queries, keys) with documents."""
    key = torch.arange(keys, device=device)
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if causal:
        seen = key <= query
        if sliding_window is not None:
            seen = seen & (key > query - sliding_window)
    if document_ids is not None:
        own = F.pad(document_ids, (queries - keys, 0), value=-1)  # of the queries; cut where the padding is negative
        seen = seen & (own[:, :, None] == document_ids[:, None, :]) & (query >= 0)
        seen = seen[:, None]
    return seen


def _sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, is_causal: bool = False) -> Tensor:
    """torch's attention, by the kernel that torch takes."""
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=grouped)


def _flash(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor | None = None, **options: Any) -> Tensor:
    """This package's own kernel; options: causal, sliding_window, softcap and sinks."""
    if (lacking := flash_lacks()) is not None:
        raise ValueError(f"backend 'flash' is not available: {lacking}")
    from lm.ops.triton.flash import flash_attention

    if document_ids is not None and document_ids.dtype not in (torch.int32, torch.int64):
        document_ids = document_ids.long()
    return flash_attention(q, k, v, document_ids=document_ids, **options)


# A compiled caller has it decided once, and not in its graph.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def has_flash(device: str, dtype: torch.dtype, head_dim: int) -> bool:
    """True if this package's kernel launches on a device and is right there, forward and backward: tried once."""
    if torch.device(device).type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False  # a graph is being recorded, into which a trial would go
    return probe(device, dtype, head_dim) is None


def decodes(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """True if decoding on this device uses paged_attention of this package's kernels."""
    return device.type == "cuda" and has_flash(str(device), dtype, head_dim)


@functools.cache
def probe(device: str, dtype: torch.dtype, head_dim: int) -> str | None:
    """Launch "flash", forward and backward, on a small problem: None, or the reason against it, which is logged."""
    size, generator = (1, 2, 48, head_dim), torch.Generator().manual_seed(0)
    exact = [torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(4)]

    def results(run: Callable[..., Tensor], where: str, kind: torch.dtype) -> list[Tensor]:
        q, k, v, upstream = (x.to(where, kind) for x in exact)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        out = run(*leaves)
        return [x.to("cpu", torch.float64) for x in (out.detach(), *torch.autograd.grad(out, leaves, upstream))]

    bias = as_bias(visible(size[2], size[2], causal=True), torch.float64)
    bound = {torch.bfloat16: 0.1, torch.float16: 0.02}.get(dtype, 0.01)  # float32 may be multiplied as TF32
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(torch.device(device).type, enabled=False),
            # Turn off the caller's saved-tensor hooks, which activation checkpointing installs.
            torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        ):
            expected = results(lambda q, k, v: _matmul(q, k, v, bias), "cpu", torch.float64)
            pairs = zip(results(_flash, device, dtype), expected, strict=True)
            error = max(float((x - y).abs().max()) for x, y in pairs)
        reason = f"its results are off by {error:.2g}" if error > bound else None
    except Exception as refusal:  # whatever a driver, a compiler or an absent package may say
        reason = (str(refusal) or repr(refusal)).splitlines()[0]
    log.info("%s, %s, head_dim %d: attention by %s", device, dtype, head_dim, "flash" if reason is None else reason)
    return reason


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def flash_lacks() -> str | None:
    """Return what this installation lacks for backend "flash"; None if nothing, and it is imported."""
    lacking = kernels.lacking()
    if lacking is None:
        import lm.ops.triton.flash  # noqa: F401 (so that a compiled caller finds it imported)
    return lacking


def _matmul(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Whole score matrices. The queries of a group are rows of one matrix, so that keys are not repeated."""
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


def check_shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    sliding_window: int | None,
    document_ids: Tensor | None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> None:
    """ValueError: shapes or a mask that do not go together (see lm.attention.attention)."""
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
        dimensions = "they are (batch, heads, positions, head_dim) and differ only in heads and positions"
        raise ValueError(f"{shapes} do not fit: {dimensions}, k and v not at all")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{k.shape[1]} key heads do not divide {q.shape[1]} query heads: each serves as many of them")
    if sliding_window is not None and (sliding_window < 1 or not causal):
        raise ValueError(f"sliding_window {sliding_window} must be at least 1, and goes with causal=True")
    if document_ids is not None and document_ids.shape != (keys := (q.shape[0], k.shape[2])):
        raise ValueError(f"document_ids is {tuple(document_ids.shape)}, and it names a document for each key: {keys}")
    if softcap is not None and not 0 < softcap < float("inf"):
        raise ValueError(f"expected softcap above 0, got {softcap}: None is attention without a cap")
    if sinks is not None and sinks.shape != q.shape[1:2]:
        raise ValueError(f"expected sinks of {tuple(q.shape[1:2])}, one for each query head, got {tuple(sinks.shape)}")


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """Angle of each pair between neighbouring positions: theta^(-2j / head_dim), float64 (head_dim / 2,).

    scaling divides all of them by a factor (Chen et al. 2023, arXiv:2306.15595), or the low ones (Llama 3.1): see
    ModelConfig.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd, and rotary embeddings rotate pairs: make it even")
    frequencies: Tensor = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return frequencies
    factor, low, high, original = scaling
    if original is None:
        return frequencies / factor
    share = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # 1: not scaled
    return share * frequencies + (1 - share) * frequencies / factor


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

    In float32 at least, from angles in float64: at position 100,000 a float32 angle is off by 0.004. Cached.
    """
    with torch.inference_mode(False):  # a later call may need gradients through the cached table
        angles = torch.arange(length)[:, None] * rope_frequencies(head_dim, theta, scaling)  # (length, head_dim / 2)
        return torch.stack((angles.cos(), angles.sin()), -1).to(torch.promote_types(dtype, torch.float32)).to(device)


def rope_at(config: ModelConfig, positions: Tensor | slice, like: Tensor) -> Tensor | None:
    """The rows of rope_cache at positions (seq,) or (batch, seq), one for all heads: (…, seq, 1, head_dim / 2, 2)."""
    if config.position != "rope":
        return None
    size = (config.context_length, config.head_width)
    table = rope_cache(*size, config.rope_theta, config.rope_scaling, like.dtype, like.device)
    return table[positions].unsqueeze(-3)


def positions_of(ids: Tensor, document_ids: Tensor | None, start: int | Tensor, context_length: int) -> slice | Tensor:
    """Positions of ids (batch, seq): from `start`, one or of each row (batch,), or of each token: `start` (batch, seq)
    itself, or in its document."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"expected a tensor of token ids, got {type(ids).__name__}: write torch.tensor(ids)[None]")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"expected token ids of an integer dtype, got {ids.dtype}")
    if ids.ndim != 2:
        raise ValueError(f"expected token ids (batch, seq), got {tuple(ids.shape)}: for one sequence pass ids[None]")
    if not ids.shape[1]:
        raise ValueError("expected at least one token, got none: begin with the end-of-text token")
    if isinstance(start, int) and start + ids.shape[1] > context_length:
        raise ValueError(f"a sequence of {start + ids.shape[1]} tokens is longer than the context of {context_length}")
    if document_ids is not None:
        if isinstance(start, Tensor) or start:
            raise ValueError(f"expected start 0 beside document_ids, got {start}: documents have their own positions")
        return positions_in(document_ids)
    if isinstance(start, Tensor):
        return start if start.ndim == 2 else start[:, None]
    return slice(start, start + ids.shape[1])


def positions_in(document_ids: Tensor) -> Tensor:
    """Position of each token in its document, a contiguous run of document_ids (batch, seq): int64 (batch, seq)."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand(document_ids.shape)
    is_first = torch.ones_like(document_ids, dtype=torch.bool)
    is_first[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(is_first, index, 0).cummax(dim=1).values
