"""The backward pass: three launches; no program adds to another's output, so that the bits never change.

With scores s = scale q·k, weights p = exp(s - lse), output o = p v and the gradient do of the output:

    delta = Σ o do                      for each query                                    (delta_kernel)
    dv = pᵀ do,  dk = scale dsᵀ q       for each block of keys, over the queries of its group that see it
    dq = scale ds k                     for each block of queries, over the keys it sees

where ds = p (do vᵀ - delta), times the slope of the soft cap if there is one. Of a sink, whose weight is
p = exp(sink - lse) and whose value is zero, ds = -p delta, summed over all queries. The weights are recomputed from q,
k and the log-sum-exp in both passes: seven products of matrices for the five of a single pass, which would have to add
up dq atomically, in any order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lm.ops.triton.problem import LOG2E as LOG2_OF_E
from lm.ops.triton.problem import Problem
from lm.ops.triton.tile_sizes import tiles_for
from lm.ops.triton.tiles import (
    block_and_head,
    key_run,
    load_tile,
    query_run,
    seen,
    softcap_slope,
    softcapped,
    store_tile,
)

LOG2E = tl.constexpr(LOG2_OF_E)


@triton.jit
def delta_kernel(
    out, grad, delta, out_strides, grad_strides, heads, queries,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """delta = Σ out grad for each row: (batch, heads, queries)."""
    blocks = tl.cdiv(queries, QUERIES)
    program = tl.program_id(0)
    block, head, batch = program % blocks, program // blocks % heads, program // blocks // heads
    first = block * QUERIES
    o = load_tile(out, out_strides, batch, head, first, queries, HEAD, QUERIES, WIDTH, True, "far")
    do = load_tile(grad, grad_strides, batch, head, first, queries, HEAD, QUERIES, WIDTH, True, "far")
    query = first + tl.arange(0, QUERIES)
    row = tl.sum(o.to(WIDE) * do.to(WIDE), 1)
    tl.store(delta + (tl.cast(batch, tl.int64) * heads + head) * queries + query, row, mask=query < queries)


@triton.jit
def gather_keys(
    dk, dv, own_k, own_v, q, grad, lse, delta, q_strides, grad_strides, document_ids, document_strides, batch, head,
    heads, first, low, high, queries, keys, sliding_window, factor, cap,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """The hot loop: what query tiles low … high of one head add to dk and dv of keys. Scores stand transposed."""
    key = first + tl.arange(0, KEYS)
    row = (tl.cast(batch, tl.int64) * heads + head) * queries
    for at in tl.range(low, high, QUERIES):
        query = at + tl.arange(0, QUERIES)
        tile_q = load_tile(q, q_strides, batch, head, at, queries, HEAD, QUERIES, WIDTH, MASKED, COPY)
        scores = tl.dot(own_k, tile_q.T, input_precision="ieee", out_dtype=WIDE)  # (keys, queries)
        if MASKED:
            level = tl.load(lse + row + query, mask=query < queries, other=0.0)
            shift = tl.load(delta + row + query, mask=query < queries, other=0.0)
        else:
            level = tl.load(lse + row + query)
            shift = tl.load(delta + row + query)
        if CAPPED:
            scores = softcapped(scores, cap)
        weights = tl.exp2(scores * factor - (level * LOG2E)[None, :])
        if MASKED:
            visible = seen(
                query[None, :], key[:, None], queries, keys, sliding_window, document_ids, document_strides, batch,
                CAUSAL, WINDOWED, DOCUMENTS,
            )  # fmt: skip
            weights = tl.where(visible, weights, 0.0)
        tile_do = load_tile(grad, grad_strides, batch, head, at, queries, HEAD, QUERIES, WIDTH, MASKED, COPY)
        dv = tl.dot(weights.to(tile_do.dtype), tile_do, dv, input_precision="ieee", out_dtype=WIDE)
        dweights = tl.dot(own_v, tile_do.T, input_precision="ieee", out_dtype=WIDE)
        dscores = weights * (dweights - shift[None, :])
        if CAPPED:
            dscores *= softcap_slope(scores, cap)
        dk = tl.dot(dscores.to(tile_q.dtype), tile_q, dk, input_precision="ieee", out_dtype=WIDE)
    return dk, dv


@triton.jit
def keys_kernel(
    q, k, v, grad, dk, dv, lse, delta, document_ids, runs, q_strides, k_strides, v_strides, grad_strides, dk_strides,
    dv_strides, document_strides, heads, group, queries, keys, sliding_window, factor, cap, together, scale,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr
):  # fmt: skip
    """dk and dv of a block of keys: over the query heads of its group in turn, so that their sum has one order."""
    blocks, kv_heads = tl.cdiv(keys, KEYS), heads // group
    block, kv = block_and_head(blocks, together)
    kv, batch = kv % kv_heads, kv // kv_heads
    first = block * KEYS  # with causality the first keys are seen by the most queries
    own_k = load_tile(k, k_strides, batch, kv, first, keys, HEAD, KEYS, WIDTH, True, COPY)
    own_v = load_tile(v, v_strides, batch, kv, first, keys, HEAD, KEYS, WIDTH, True, COPY)
    sum_k = tl.zeros([KEYS, WIDTH], WIDE)
    sum_v = tl.zeros([KEYS, WIDTH], WIDE)
    run = query_run(
        block, queries, keys, sliding_window, runs, batch, blocks, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS
    )
    for head in range(kv * group, (kv + 1) * group):
        for part in tl.static_range(3):  # masked, full, masked: see tiles.py
            if part > 0 or CAUSAL or DOCUMENTS:
                sum_k, sum_v = gather_keys(
                    sum_k, sum_v, own_k, own_v, q, grad, lse, delta, q_strides, grad_strides, document_ids,
                    document_strides, batch, head, heads, first, run[part], run[part + 1], queries, keys,
                    sliding_window, factor, cap,
                    HEAD, WIDTH, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS, CAPPED, COPY, WIDE, MASKED=part != 1,
                )  # fmt: skip
    store_tile(dk, dk_strides, batch, kv, first, keys, sum_k * scale, HEAD, KEYS, WIDTH)
    store_tile(dv, dv_strides, batch, kv, first, keys, sum_v, HEAD, KEYS, WIDTH)


@triton.jit
def gather_queries(
    dq, own_q, own_do, level, shift, k, v, k_strides, v_strides, document_ids, document_strides, batch, kv, first,
    low, high, queries, keys, sliding_window, factor, cap,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """The hot loop: what key tiles low … high add to dq of a block of queries."""
    query = first + tl.arange(0, QUERIES)
    for at in tl.range(low, high, KEYS):
        tile_k = load_tile(k, k_strides, batch, kv, at, keys, HEAD, KEYS, WIDTH, MASKED, COPY)
        scores = tl.dot(own_q, tile_k.T, input_precision="ieee", out_dtype=WIDE)
        if CAPPED:
            scores = softcapped(scores, cap)
        weights = tl.exp2(scores * factor - level[:, None])
        if MASKED:
            i, j = query[:, None], (at + tl.arange(0, KEYS))[None, :]
            visible = seen(
                i, j, queries, keys, sliding_window, document_ids, document_strides, batch, CAUSAL, WINDOWED, DOCUMENTS
            )
            weights = tl.where(visible, weights, 0.0)
        tile_v = load_tile(v, v_strides, batch, kv, at, keys, HEAD, KEYS, WIDTH, MASKED, COPY)
        dweights = tl.dot(own_do, tile_v.T, input_precision="ieee", out_dtype=WIDE)
        dscores = weights * (dweights - shift[:, None])
        if CAPPED:
            dscores *= softcap_slope(scores, cap)
        dq = tl.dot(dscores.to(tile_k.dtype), tile_k, dq, input_precision="ieee", out_dtype=WIDE)
    return dq


@triton.jit
def queries_kernel(
    q, k, v, grad, dq, lse, delta, document_ids, runs, q_strides, k_strides, v_strides, grad_strides, dq_strides,
    document_strides, heads, group, queries, keys, sliding_window, factor, cap, together, scale,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr
):  # fmt: skip
    """dq of a block of queries."""
    blocks = tl.cdiv(queries, QUERIES)
    block, head = block_and_head(blocks, together)
    head, batch = head % heads, head // heads
    if CAUSAL:
        block = blocks - 1 - block
    first, kv = block * QUERIES, head // group
    own_q = load_tile(q, q_strides, batch, head, first, queries, HEAD, QUERIES, WIDTH, True, COPY)
    own_do = load_tile(grad, grad_strides, batch, head, first, queries, HEAD, QUERIES, WIDTH, True, COPY)
    query = first + tl.arange(0, QUERIES)
    row = (tl.cast(batch, tl.int64) * heads + head) * queries + query
    level = tl.load(lse + row, mask=query < queries, other=0.0) * LOG2E
    shift = tl.load(delta + row, mask=query < queries, other=0.0)
    total = tl.zeros([QUERIES, WIDTH], WIDE)
    run = key_run(block, queries, keys, sliding_window, runs, batch, blocks, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS)
    for part in tl.static_range(3):  # masked, full, masked: see tiles.py
        if part > 0 or WINDOWED or DOCUMENTS:
            total = gather_queries(
                total, own_q, own_do, level, shift, k, v, k_strides, v_strides, document_ids, document_strides, batch,
                kv, first, run[part], run[part + 1], queries, keys, sliding_window, factor, cap,
                HEAD, WIDTH, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS, CAPPED, COPY, WIDE, MASKED=part != 1,
            )  # fmt: skip
    store_tile(dq, dq_strides, batch, head, first, queries, total * scale, HEAD, QUERIES, WIDTH)


def backward(problem: Problem, out: Tensor, lse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv, laid out as q, k and v, and the gradient of the sinks, from the gradient of the output."""
    q, k, v, sinks = problem.q, problem.k, problem.v, problem.sinks
    of_sinks = q.new_zeros(0) if sinks is None else torch.zeros_like(sinks)
    if problem.empty:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), of_sinks
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty(q.shape[:3], dtype=problem.wide, device=q.device)
    of_rows = {"lse": lse, "delta": delta, "scale": problem.scale}
    with problem.device():
        rows = 64 if problem.width <= 128 else 32
        delta_kernel[(triton.cdiv(problem.queries, rows) * problem.heads * problem.batch,)](
            out, grad, delta, out.stride(), grad.stride(), problem.heads, problem.queries,
            HEAD=problem.head_dim, WIDTH=problem.width, QUERIES=rows, WIDE=problem.wide_name,
        )  # fmt: skip
        own = {"dk": dk, "dv": dv}
        problem.launch(keys_kernel, tiles_for("keys", problem), "keys", {"grad": grad}, own, **of_rows)
        problem.launch(queries_kernel, tiles_for("queries", problem), "queries", {"grad": grad}, {"dq": dq}, **of_rows)
    if sinks is not None:
        of_sinks -= ((sinks[:, None] - lse).exp() * delta).sum((0, 2)).to(sinks.dtype)
    return dq, dk, dv, of_sinks
