"""flash_attention as PyTorch sees it: an operator with its shapes and its gradient; and attention over a cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lm.ops.triton import backward, decode, forward
from lm.ops.triton.problem import INTERPRETING, Problem


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """lm.attention.attention, with no score matrix in memory: the arguments, shapes and result are its own.

    head_dim at most 256; float16, bfloat16, or float32, in full precision; any strides. Tensors on a CUDA device, or on
    the CPU where TRITON_INTERPRET=1 was set before this was imported, there float64 too.

    The same inputs give the same bits, forward and backward. Under autocast the inputs are cast as for torch's own
    attention. The gradient has no gradient.
    """
    if q.device.type != ("cpu" if INTERPRETING else "cuda"):
        raise ValueError(
            f"flash attention runs on CUDA devices, and q is on {q.device}: use backend='sdpa' "
            "(or, to try it out slowly on the CPU, set TRITON_INTERPRET=1 before it is imported)"
        )
    if q.dtype == torch.float64 and q.is_cuda:
        raise TypeError("float64 is for checking gradients in Triton's interpreter: use backend='sdpa'")
    if torch.is_autocast_enabled(q.device.type):  # float64 stays, as in torch's own attention
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = (x.to(dtype) if x.is_floating_point() and x.itemsize <= 4 else x for x in (q, k, v))
    masks = (document_ids, causal, sliding_window, softcap, sinks)
    out: Tensor = torch.ops.groundup.flash_attention(q, k, v, *masks)[0]
    return out


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    page: int,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """flash_attention for few queries and many keys of each text, which lie in the pages of a cache.

    Its launches depend on the shapes alone, so that a CUDA graph of them serves texts of any length. No gradient, no
    autocast, and nothing is checked that would ask the device. heads / kv_heads · queries is at most 128.

    Args:
        q: (batch, heads, queries, head_dim), the last `queries` positions of each text.
        keys: (kv_heads, slots, head_dim), all pages one after another.
        values: As keys.
        table: (batch, pages), int32 or int64 with columns side by side: which page holds keys i * page … of a text.
        lengths: (batch,), integers: how many keys each text has.
        page: Keys of a page, a power of two and at least 16.
        sliding_window: As for flash_attention, and so are softcap and sinks.

    Returns:
        As q.
    """
    k, v = (x.expand(len(q), *x.shape) for x in (keys, values))
    return decode.decode(Problem(q, k, v, None, True, sliding_window, softcap, sinks), lengths, table, page)


@torch.library.custom_op("groundup::flash_attention", mutates_args=())
def _flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    document_ids: Tensor | None,
    causal: bool,
    sliding_window: int | None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    return forward.forward(Problem(q, k, v, document_ids, causal, sliding_window, softcap, sinks))


@_flash.register_fake
def _(q: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=wide)


@torch.library.custom_op("groundup::flash_attention_backward", mutates_args=())
def _flash_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    document_ids: Tensor | None,
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor,
    grad: Tensor,
    causal: bool,
    sliding_window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    problem = Problem(q, k, v, document_ids, causal, sliding_window, softcap, sinks)
    return backward.backward(problem, out, lse, grad)


@_flash_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, ids: Any, sinks: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    of_sinks = q.new_empty(0) if sinks is None else torch.empty_like(sinks)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), of_sinks


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, document_ids, ctx.causal, ctx.sliding_window, ctx.softcap, sinks = inputs
    ctx.save_for_backward(q, k, v, document_ids, sinks, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *_, sinks, _, _ = saved = ctx.saved_tensors
    settings = ctx.causal, ctx.sliding_window, ctx.softcap
    dq, dk, dv, of_sinks = torch.ops.groundup.flash_attention_backward(*saved, grad, *settings)
    return dq, dk, dv, None, None, None, None, None if sinks is None else of_sinks


_flash.register_autograd(_differentiate, setup_context=_save)
