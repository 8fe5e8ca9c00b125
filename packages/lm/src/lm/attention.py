"""Attention: softmax(q kᵀ / √head_dim) v over what each query may see, in the implementation for the device."""

from __future__ import annotations

import functools
import logging
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lm.ops import triton as kernels

BACKENDS = ("auto", "flash", "flex", "sdpa", "matmul", "reference")
log = logging.getLogger(__name__)

# Up to this many keys, two batched matrix products are faster on a CPU than torch's tiled kernel, forward and backward
# together: at 8 × 4 heads of 32 and 128 positions 2.4 ms against 3.1 on two Zen 3 cores.
MATMUL_KEYS = 256

# Few queries against at least this many keys are decoding, which shares the keys out among programs.
DECODING_QUERIES, DECODING_KEYS = 16, 256

# torch's own kernels, the fastest first. Of those that a device launches, torch takes the first that suits the inputs.
SDPA_KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = True,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """What each query gathers from the values it may see.

    q (batch, heads, queries, head_dim); k, v (batch, kv_heads, keys, head_dim), where kv_heads divides heads and query
    head h reads key head h // (heads / kv_heads). Gives (batch, heads, queries, head_dim) in q's dtype.

    The queries are the last of the keys' positions: with `causal`, query i of Q sees the keys up to i + K - Q, and with
    `sliding_window` only the last so many of those. document_ids (batch, keys), integers: a query sees only keys of its
    own document.
    A query that sees nothing gives zeros. q, k and v without a batch, (heads, positions, head_dim), give the same
    without one.

    mask, booleans broadcast to (batch, heads, queries, keys): True where a query may see a key, beside what the others
    say. It goes with every backend but "flash".

    backend: "flash" is this package's own kernel (CUDA, Triton), "sdpa" torch's, "flex" torch's FlexAttention (without
    gradients on a CPU), "matmul" holds whole score matrices, "reference" is the definition, one query at a time. "auto"
    takes what suits the device: see choose(). ValueError: shapes that do not fit, an unknown backend, "flash" where
    something it needs is lacking, or "flex" where gradients are asked for and torch has none.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is unknown: use one of {', '.join(BACKENDS)}")
    if q.ndim == k.ndim == v.ndim == 3:
        documents = document_ids if document_ids is None else document_ids.reshape(1, -1)
        masks = {"mask": mask, "causal": causal, "sliding_window": sliding_window, "document_ids": documents}
        return attention(q[None], k[None], v[None], **masks, backend=backend)[0]  # type: ignore[arg-type]
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
    if sliding_window is not None and (sliding_window < 1 or not causal):
        raise ValueError(f"sliding_window {sliding_window} must be at least 1, and goes with causal=True")
    if document_ids is not None and document_ids.shape != (q.shape[0], keys):
        raise ValueError(
            f"document_ids is {tuple(document_ids.shape)}, and it names a document for each key: {(q.shape[0], keys)}"
        )

    if mask is not None:
        return _masked(q, k, v, mask, causal, sliding_window, document_ids, backend)

    allowed: tuple[str, ...] = ()
    if backend == "auto" and q.device.type == "cpu":
        backend = "matmul" if queries > 1 and keys <= MATMUL_KEYS else "sdpa"
    elif backend == "auto":
        # torch's fused kernels know no documents, no windows, and causality only from the top left corner.
        special = document_ids is not None or sliding_window is not None or queries != keys
        real = q.device.type != "meta"  # of which autocast does not know
        mixed = real and torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64
        dtype = torch.get_autocast_dtype(q.device.type) if mixed else q.dtype
        backend, allowed = chosen(str(q.device), dtype, q.shape[3], special)
    if backend == "flash":
        return _flash(q, k, v, causal, sliding_window, document_ids)
    if backend == "flex":
        return _flex(q, k, v, causal, sliding_window, document_ids)
    if backend == "reference":
        return _reference(q, k, v, causal, sliding_window, document_ids)

    if sliding_window is not None and queries == 1 and document_ids is None:
        # What lies before the window need not be masked, nor read.
        k, v, sliding_window = k[:, :, -sliding_window:], v[:, :, -sliding_window:], None
    elif sliding_window is not None and sliding_window >= keys:
        sliding_window = None
    if document_ids is not None:
        seen = visible(
            queries, keys, causal=causal, sliding_window=sliding_window, document_ids=document_ids, device=q.device
        )
        bias = as_bias(seen, q.dtype)
    elif not causal or (queries == 1 and sliding_window is None):
        bias = None
    elif backend == "sdpa" and queries == keys and sliding_window is None:
        return _sdpa(q, k, v, None, allowed, is_causal=True)
    else:
        bias = kept_bias(queries, keys, sliding_window, q.dtype, q.device)
    out = _matmul(q, k, v, bias) if backend == "matmul" else _sdpa(q, k, v, bias, allowed)
    if document_ids is not None:
        out = out.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    elif causal and queries > keys:  # the first ones stand before every key
        out = torch.cat((torch.zeros_like(out[:, :, : queries - keys]), out[:, :, queries - keys :]), dim=2)
    return out


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    causal: bool,
    sliding_window: int | None,
    document_ids: Tensor | None,
    backend: str,
) -> Tensor:
    """attention() with a mask of the caller's, by torch's operator, by score matrices or by the definition."""
    size = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if mask.dtype != torch.bool or torch.broadcast_shapes(mask.shape, size) != size:  # type: ignore[no-untyped-call]
        raise ValueError(f"mask is {mask.dtype} {tuple(mask.shape)}: it is torch.bool and broadcast to {size}")
    if backend == "flash":
        raise ValueError("backend 'flash' takes no mask: use 'auto' or 'sdpa', or sliding_window and document_ids")
    seen = visible(
        q.shape[2],
        k.shape[2],
        causal=causal,
        sliding_window=sliding_window,
        document_ids=document_ids,
        device=q.device,
    )
    seen = (mask & seen).expand(size)
    if backend == "reference":
        repeated = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        keys, values = repeated
        scores = (q @ keys.transpose(-1, -2) / math.sqrt(q.shape[3])).masked_fill(~seen, -math.inf)
        out = scores.masked_fill(~seen.any(-1, keepdim=True), 0.0).softmax(-1) @ values
    elif backend == "flex":
        return _flex(q, k, v, causal, sliding_window, document_ids, mask.expand(size))
    else:
        bias = as_bias(seen, q.dtype)
        out = _matmul(q, k, v, bias) if backend == "matmul" else _sdpa(q, k, v, bias)
    return out.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def causal_self_bias(q: Tensor, sliding_window: int | None, document_ids: Tensor | None) -> Tensor:
    """as_bias of causal self-attention for q (batch, seq, …): (seq, seq), or (batch, 1, seq, seq) with documents."""
    seq = q.shape[1]
    if document_ids is None:
        return kept_bias(seq, seq, sliding_window, q.dtype, q.device)
    return as_bias(
        visible(seq, seq, causal=True, sliding_window=sliding_window, document_ids=document_ids, device=q.device),
        q.dtype,
    )


def as_bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to the scores so that softmax leaves only what is seen: 0, or the least finite number.

    Not -inf, whose softmax over a row that sees nothing is NaN, in the gradient too.
    """
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def kept_bias(queries: int, keys: int, sliding_window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """causal_bias, made once for all layers and steps; a compiled caller, which sees no caches, makes its own."""
    made = causal_bias.__wrapped__ if torch.compiler.is_compiling() else causal_bias
    return made(queries, keys, sliding_window, dtype, device)


@functools.lru_cache(maxsize=8)
def causal_bias(
    queries: int, keys: int, sliding_window: int | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """as_bias of what causality lets each query see: (queries, keys)."""
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
    """Which keys each query sees: booleans (queries, keys), or (batch, 1, queries, keys) with documents."""
    key = torch.arange(keys, device=device)
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if causal:
        seen = key <= query
        if sliding_window is not None:
            seen = seen & (key > query - sliding_window)
    if document_ids is not None:
        own = (
            document_ids[:, keys - queries :] if queries <= keys else F.pad(document_ids, (queries - keys, 0), value=-1)
        )
        seen = seen & (own[:, :, None] == document_ids[:, None, :]) & (query >= 0)
        seen = seen[:, None]
    return seen


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, allowed: tuple[str, ...] = (), is_causal: bool = False
) -> Tensor:
    """torch's attention, by one of the kernels that `allowed` names, or by any."""
    grouped = q.shape[1] != k.shape[1]
    if not allowed:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=grouped)
    with sdpa_kernel([SDPA_KERNELS[name] for name in allowed]):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=grouped)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, sliding_window: int | None, document_ids: Tensor | None
) -> Tensor:
    lacking = flash_lacks()
    if lacking is not None:
        raise ValueError(f"backend 'flash' is not to be had: {lacking}")
    from lm.ops.triton.flash import decode_attention, flash_attention

    queries, keys = q.shape[2], k.shape[2]
    rows = q.shape[1] // k.shape[1] * queries
    learning = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    few = queries <= DECODING_QUERIES and keys >= DECODING_KEYS and rows <= 128
    if few and document_ids is None and not learning:
        return decode_attention(q, k, v, causal=causal, sliding_window=sliding_window)  # type: ignore[return-value]
    if document_ids is not None and document_ids.dtype not in (torch.int32, torch.int64):
        document_ids = document_ids.long()
    out = flash_attention(q, k, v, causal=causal, sliding_window=sliding_window, document_ids=document_ids)
    return out  # type: ignore[return-value]


def _flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    sliding_window: int | None,
    document_ids: Tensor | None,
    mask: Tensor | None = None,
) -> Tensor:
    from lm.ops import flex  # which imports torch's compiler

    masks = {"causal": causal, "sliding_window": sliding_window, "document_ids": document_ids, "mask": mask}
    return flex.attention(q, k, v, **masks)  # type: ignore[arg-type]


class Choice(NamedTuple):
    """What "auto" takes on a device: a backend, which of torch's kernels that may use, and why not the others."""

    backend: str
    sdpa_kernels: tuple[str, ...]
    refused: tuple[str, ...]

    def __str__(self) -> str:
        taken = f"{self.backend} by {', '.join(self.sdpa_kernels)}" if self.backend == "sdpa" else self.backend
        return f"attention by {taken}" + "".join(f"; {reason}" for reason in self.refused)


# A compiled caller has it decided once, and not in its graph; a Choice could not be unpacked there by torch 2.11.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def chosen(device: str, dtype: torch.dtype, head_dim: int, special: bool) -> tuple[str, tuple[str, ...]]:
    """The backend of choose(), and which of torch's kernels that may use."""
    return choose(device, dtype, head_dim, special)[:2]


def choose(device: str, dtype: torch.dtype, head_dim: int, special: bool) -> Choice:
    """What "auto" takes on a CUDA device: the first that launches there and is right, forward and backward. Logged
    once.

    special: attention that torch's fused kernels do not have (documents, windows, more keys than queries). For it this
        package's kernel goes first, and so it does where deterministic algorithms are asked for, as its bits never
        change. Otherwise torch's go first: on an H100 cuDNN's is the fastest, both passes
        together. What is tried is tried once in a process.
    """
    if torch.device(device).type == "cuda" and torch.cuda.is_current_stream_capturing():
        return Choice("sdpa", (), ())  # a graph is being recorded, into which a trial would go
    return _choose(device, dtype, head_dim, special or torch.are_deterministic_algorithms_enabled())


def decodes(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether decode_attention is what one more token for each text is to be computed by, on such a device."""
    return device.type == "cuda" and choose(str(device), dtype, head_dim, True).backend == "flash"


@functools.cache
def _choose(device: str, dtype: torch.dtype, head_dim: int, own_first: bool) -> Choice:
    refused = []
    launching = []
    for name in SDPA_KERNELS:
        reason = probe(f"sdpa {name}", device, dtype, head_dim)
        if reason is None:
            launching.append(name)
        else:
            refused.append(reason)
    reason = probe("flash", device, dtype, head_dim)
    if reason is not None:
        refused.append(reason)
    backend = "sdpa" if launching else "matmul"
    if reason is None and (own_first or not launching):
        backend = "flash"
    choice = Choice(backend, tuple(launching), tuple(refused))
    log.info("%s, %s, head_dim %d: %s", device, dtype, head_dim, choice)
    return choice


@functools.cache
def probe(what: str, device: str, dtype: torch.dtype, head_dim: int) -> str | None:
    """Launches "flash" or "sdpa KERNEL", both ways, on a small problem: None where the result is right, else why
    not."""
    heads, length = 2, 48
    made = torch.Generator().manual_seed(0)
    exact = [torch.randn(1, heads, length, head_dim, generator=made, dtype=torch.float64) for _ in range(4)]

    def results(run: Callable[..., Tensor], where: str, kind: torch.dtype) -> list[Tensor]:
        q, k, v, upstream = (x.to(where, kind) for x in exact)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        out = run(*leaves)
        return [x.to("cpu", torch.float64) for x in (out.detach(), *torch.autograd.grad(out, leaves, upstream))]

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if what == "flash":
            return _flash(q, k, v, True, None, None)
        return _sdpa(q, k, v, None, (what.removeprefix("sdpa "),), is_causal=True)

    bias = as_bias(visible(length, length, causal=True), torch.float64)
    bound = {torch.bfloat16: 0.1, torch.float16: 0.02}.get(dtype, 0.01)  # float32 may be multiplied as TF32
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(torch.device(device).type, enabled=False),
            # or a checkpoint around the caller would take what is saved here for its own
            torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch says by warnings why a kernel does not suit
            wanted = results(lambda q, k, v: _matmul(q, k, v, bias), "cpu", torch.float64)
            error = max(float((x - y).abs().max()) for x, y in zip(results(run, device, dtype), wanted, strict=True))
    except Exception as refusal:  # whatever a driver, a compiler or an absent package may say
        return f"not {what}: {(str(refusal) or repr(refusal)).splitlines()[0]}"
    return None if error <= bound else f"not {what}: its results are off by {error:.2g}"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def flash_lacks() -> str | None:
    """What the backend "flash" needs and this installation does not have; None where it has all, now imported."""
    lacking = kernels.lacking()
    if lacking is None:
        import lm.ops.triton.flash  # noqa: F401 (so that a compiled caller finds it imported)
    return lacking


def _matmul(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Whole score matrices, the queries of a group side by side so that keys and values are read once and never
    repeated."""
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


def _reference(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, sliding_window: int | None, document_ids: Tensor | None
) -> Tensor:
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
                    and (sliding_window is None or j > position - sliding_window)
                    and (
                        document_ids is None
                        or (position >= 0 and bool(document_ids[b, j] == document_ids[b, position]))
                    )
                ]
                scores = own_k[seen] @ q[b, h, i] / math.sqrt(width)
                rows.append(scores.softmax(0) @ own_v[seen])
    return torch.stack(rows).view(batch, heads, queries, width) if rows else torch.zeros_like(q)
