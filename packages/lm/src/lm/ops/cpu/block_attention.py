"""Causal self-attention on a CPU by score matrices, a block of queries at a time: keys that no query of it sees are
left out.

For a few hundred positions a batched product is faster than a tiled kernel, and half of what it would compute is
masked. In blocks of 64 of 256 positions five eighths of the scores are left, to compute, to take the softmax of and to
keep. Queries and keys are rotated (rotary positions) on their way into the order in which the products read them, and
their gradients on the way back, so that neither takes a pass over memory of its own. In bfloat16 C does this for one
head after another, in the processor's cache (attention.c), by blocks of 32.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lm.documents import positions_in
from lm.ops.cpu import passes

BLOCK = 64


class QueryBlock(NamedTuple):
    """Queries first … last - 1, which see no keys but start … last - 1."""

    first: int
    last: int
    start: int


def query_blocks(length: int, sliding_window: int | None = None) -> list[QueryBlock]:
    """The blocks of so many queries, each of which sees the keys up to its own, the last sliding_window of them."""
    return [
        QueryBlock(
            first, min(first + BLOCK, length), 0 if sliding_window is None else max(0, first + 1 - sliding_window)
        )
        for first in range(0, length, BLOCK)
    ]


def attend(qkv: Tensor, heads: int, rope: Tensor | None, seen: Tensor, sliding_window: int | None = None) -> Tensor:
    """Causal attention, softmax(q kᵀ / √head_dim) v of rotated q and k: (batch, length, heads, head_dim).

    qkv (batch, length, heads + 2 · kv_heads, head_dim): the heads of queries, of keys, of values; float32 or float64,
        or bfloat16 where passes has a library for it.
    rope: complex (length, 1, head_dim / 2), or with the batch before it, what pairs are multiplied by.
    seen: what is added to scores, (length, length) or (batch, 1, length, length): 0, or the least finite number where a
        query does not see a key. In bfloat16: first_keys().
    sliding_window: query i sees at most the keys i - sliding_window + 1 … i.
    """
    if qkv.dtype == torch.bfloat16:
        turns = None if rope is None else torch.view_as_real(rope).float().mT.contiguous()
        return _NarrowAttend.apply(qkv.contiguous(), heads, turns, seen)  # type: ignore[no-untyped-call, no-any-return]
    if torch.compiler.is_compiling():
        return _attend(qkv, heads, rope, seen, sliding_window)[0]  # type: ignore[no-any-return]
    return _Attend.apply(qkv, heads, rope, seen, sliding_window)  # type: ignore[no-untyped-call, no-any-return]


def first_keys(length: int, sliding_window: int | None, document_ids: Tensor | None) -> Tensor:
    """The first key that each query sees: (length,), or (batch, length) with documents; int64."""
    index = torch.arange(length)
    first = torch.zeros_like(index) if document_ids is None else index - positions_in(document_ids)
    return first if sliding_window is None else first.maximum(index + 1 - sliding_window)


class _NarrowAttend(torch.autograd.Function):
    """In bfloat16, a head at a time in C."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int, rope: Tensor | None, first: Tensor) -> Tensor:
        out, *rest = passes.attend(passes.library(qkv.dtype), passes.Heads(qkv, heads, rope, first))
        ctx.heads = heads
        ctx.save_for_backward(qkv, rope, first, *rest)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, rope, first, powers, inverse = ctx.saved_tensors
        inputs = passes.Heads(qkv, ctx.heads, rope, first)
        return passes.attend_back(passes.library(qkv.dtype), grad, inputs, powers, inverse), None, None, None


# With s = q kᵀ / √d, p = softmax s and o = p v:
#     dv = pᵀ do, ds = p (do vᵀ - rowsum), dq = ds k / √d, dk = dsᵀ q / √d.
# Queries are kept divided by √d, so that of these divisions only one is left to do, when dq is rotated back.


def forward(qkv: Tensor, heads: int, rope: Tensor | None, bias: Tensor, sliding_window: int | None) -> list[Tensor]:
    """The result, then what the way back needs: q / √d and k, rotated, v, and each block's p."""
    batch, length, all_heads, width = qkv.shape
    kv_heads = (all_heads - heads) // 2
    group, both = heads // kv_heads, batch * kv_heads
    q, k, v = (qkv.new_empty(batch, count, length, width) for count in (heads, kv_heads, kv_heads))
    sources = qkv.transpose(1, 2).split_with_sizes((heads, kv_heads, kv_heads), dim=1)
    rope = None if rope is None else rope.transpose(-3, -2)  # (…, 1, length, head_dim / 2)
    rotate_into(q, sources[0], rope, 1 / math.sqrt(width))
    rotate_into(k, sources[1], rope)
    v.copy_(sources[2])
    rows, k, v = q.view(both, group, length, width), k.view(both, length, width), v.view(both, length, width)
    out, saved = qkv.new_empty(batch, length, heads, width), []
    by_head = out.view(batch, length, kv_heads, group, width).permute(0, 2, 3, 1, 4)
    for first, last, start in query_blocks(length, sliding_window):
        p = torch.bmm(rows[:, :, first:last].reshape(both, -1, width), k[:, start:last].transpose(1, 2))
        hide(p.view(batch, kv_heads, group, last - first, last - start), bias, first, last, start, sliding_window)
        torch.softmax(p, -1, out=p)
        by_head[:, :, :, first:last] = torch.bmm(p, v[:, start:last]).view(batch, kv_heads, group, -1, width)
        saved.append(p)
    return [out, rows, k, v, *saved]


def backward(grad: Tensor, saved: list[Tensor], heads: int, rope: Tensor | None, sliding_window: int | None) -> Tensor:
    """The gradient of qkv, from that of the result and what forward kept."""
    rows, k, v, *scores = saved
    batch, length, _, width = grad.shape
    kv_heads = k.shape[0] // batch
    group, both = heads // kv_heads, batch * kv_heads
    upstream = grad.view(batch, length, kv_heads, group, width).permute(0, 2, 3, 1, 4)
    back = None if rope is None else rope.transpose(-3, -2).conj().resolve_conj()
    for_qkv = grad.new_empty(batch, length, heads + 2 * kv_heads, width)
    to_q, to_k, to_v = for_qkv.transpose(1, 2).split_with_sizes((heads, kv_heads, kv_heads), dim=1)
    for_k, for_v = torch.empty_like(k), torch.empty_like(v)
    blocks = list(zip(query_blocks(length, sliding_window), scores, strict=True))
    for (first, last, start), p in reversed(blocks):  # the last sees the most keys
        block = rows[:, :, first:last].reshape(both, -1, width)
        above = upstream[:, :, :, first:last].reshape(both, -1, width)
        add_product(for_v, p, above, start, last)
        s = torch.bmm(above, v[:, start:last].transpose(1, 2))
        torch.ops.aten._softmax_backward_data.out(s, p, -1, p.dtype, grad_input=s)
        add_product(for_k, s, block, start, last)
        rotated = torch.bmm(s, k[:, start:last]).view(batch, heads, -1, width)
        to = to_q[:, :, first:last]
        rotate_into(to, rotated, None if back is None else back[..., first:last, :], 1 / math.sqrt(width))
    apart = [part.view(batch, kv_heads, length, width) for part in (for_k, for_v)]
    rotate_into(to_k, apart[0], back)
    to_v.copy_(apart[1])
    return for_qkv


class _Attend(torch.autograd.Function):
    """Both ways one by one, with a tenth of a millisecond less to do around them than operators have."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, heads: int, rope: Tensor | None, bias: Tensor, sliding_window: int | None
    ) -> Tensor:
        out, *saved = forward(qkv, heads, rope, bias, sliding_window)
        ctx.heads, ctx.sliding_window = heads, sliding_window
        ctx.save_for_backward(rope, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rope, *saved = ctx.saved_tensors
        return backward(grad, saved, ctx.heads, rope, ctx.sliding_window), None, None, None, None


# For torch.compile they are operators, which it leaves as they are: what it makes of the definition is slower.
_attend = torch.library.custom_op("groundup::score_blocks", forward, mutates_args=())
_attend_backward = torch.library.custom_op("groundup::score_blocks_backward", backward, mutates_args=())


@_attend.register_fake
def _(qkv: Tensor, heads: int, rope: Tensor | None, bias: Tensor, sliding_window: int | None) -> list[Tensor]:
    batch, length, all_heads, width = qkv.shape
    kv_heads = (all_heads - heads) // 2
    group, both = heads // kv_heads, batch * kv_heads
    sizes = [(batch, length, heads, width), (both, group, length, width), *[(both, length, width)] * 2]
    sizes += [
        (both, group * (last - first), last - start) for first, last, start in query_blocks(length, sliding_window)
    ]
    return [qkv.new_empty(size) for size in sizes]


@_attend_backward.register_fake
def _(grad: Tensor, saved: list[Tensor], heads: int, rope: Tensor | None, sliding_window: int | None) -> Tensor:
    batch, length, _, width = grad.shape
    return grad.new_empty(batch, length, heads + 2 * (saved[1].shape[0] // batch), width)


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, ctx.heads, rope, _, ctx.sliding_window = inputs
    ctx.save_for_backward(rope, *output[1:])
    ctx.set_materialize_grads(False)  # zeros for what is kept, which has none


def _differentiate(ctx: Any, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    rope, *saved = ctx.saved_tensors
    return _attend_backward(grads[0].contiguous(), saved, ctx.heads, rope, ctx.sliding_window), None, None, None, None


_attend.register_autograd(_differentiate, setup_context=_save)


def rotate_into(out: Tensor, x: Tensor, rope: Tensor | None, scale: float = 1.0) -> None:
    """Writes x (batch, heads, length, head_dim), scaled, into out.

    rope: complex (…, 1, length, head_dim / 2), what its pairs are multiplied by.
    """
    if rope is None:
        torch.mul(x, scale, out=out)
    else:
        torch.mul(in_pairs(x), rope if scale == 1.0 else rope * scale, out=in_pairs(out))


def in_pairs(x: Tensor) -> Tensor:
    """The numbers (2i, 2i + 1) of the last dimension as one complex number, in the same storage."""
    return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))


def add_product(total: Tensor, left: Tensor, right: Tensor, start: int, last: int) -> None:
    """Adds leftᵀ right to total[:, start:last]. The keys' last block comes first, and finds nothing to add to."""
    if last < total.shape[1]:
        total[:, start:last] += torch.bmm(left.transpose(1, 2), right)
    elif start == 0:
        torch.bmm(left.transpose(1, 2), right, out=total)
    else:
        total[:, :start] = 0.0
        total[:, start:] = torch.bmm(left.transpose(1, 2), right)


def hide(scores: Tensor, bias: Tensor, first: int, last: int, start: int, sliding_window: int | None) -> None:
    """Adds the bias to the scores of a block, (batch, kv_heads, group, queries, keys), as far as it may not be 0."""
    if bias.ndim == 4:
        scores += bias[:, :, None, first:last, start:last]
    elif sliding_window is None:  # all that stands before the block is seen
        scores[..., first:] += bias[first:last, first:last]
    else:
        scores += bias[first:last, start:last]
