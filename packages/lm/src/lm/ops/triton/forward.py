"""The forward pass: each program takes a block of queries past its run of key tiles, and keeps a running softmax.

For each query the running maximum m, the sum l of exp2(s - m), and the sum of exp2(s - m) v, all in float32, are
rescaled when the maximum grows, so that no score matrix is ever held. (Milakov and Gimelshein 2018, arXiv:1805.02867;
Dao et al. 2022, arXiv:2205.14135; Dao 2023, arXiv:2307.08691) Scores are taken in powers of two: exp(x) = exp2(x log2
e).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lm.ops.triton.problem import LOG2E as LOG2_OF_E
from lm.ops.triton.problem import Problem
from lm.ops.triton.tile_sizes import tiles_for
from lm.ops.triton.tiles import block_and_head, key_run, load_tile, seen, softcapped, store_tile

LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(LOG2_OF_E)


@triton.jit
def gather(
    gathered, total, peak, own_q, k, v, k_strides, v_strides, document_ids, document_strides, table, batch, kv,
    query, low, high, queries, keys, sliding_window, factor, cap,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr, PAGE: tl.constexpr
):  # fmt: skip
    """The hot loop: what queries (QUERIES,) gather from key tiles low … high, added to what they have gathered.
    PAGE: 0, or the keys of a page of a cache; then table holds the number of each page of the text."""
    for at in tl.range(low, high, KEYS):
        place = at
        if PAGE > 0:
            place = tl.load(table + at // PAGE).to(tl.int32) * PAGE + at % PAGE
        end = place + (keys - at)
        tile_k = load_tile(k, k_strides, batch, kv, place, end, HEAD, KEYS, WIDTH, MASKED, COPY)
        scores = tl.dot(own_q, tile_k.T, input_precision="ieee", out_dtype=WIDE)
        if CAPPED:
            scores = softcapped(scores, cap)
        if MASKED:
            i, j = query[:, None], (at + tl.arange(0, KEYS))[None, :]
            visible = seen(
                i, j, queries, keys, sliding_window, document_ids, document_strides, batch, CAUSAL, WINDOWED, DOCUMENTS
            )
            scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1) * factor)
        level = higher
        if MASKED:  # a row that has seen nothing yet has no maximum to subtract
            level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores * factor - level[:, None])
        shrink = tl.exp2(peak - level)
        total = total * shrink + tl.sum(weights, 1)
        tile_v = load_tile(v, v_strides, batch, kv, place, end, HEAD, KEYS, WIDTH, MASKED, COPY)
        gathered = gathered * shrink[:, None]
        gathered = tl.dot(weights.to(tile_v.dtype), tile_v, gathered, input_precision="ieee", out_dtype=WIDE)
        peak = higher
    return gathered, total, peak


@triton.jit
def finish(gathered, total, peak):
    """Output and natural log-sum-exp of rows; zeros and -inf of those that saw nothing."""
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    return gathered / total[:, None], tl.where(nothing, float("-inf"), peak * LN2 + tl.log(total))


@triton.jit
def forward_kernel(
    q, k, v, out, lse, sinks, document_ids, runs, q_strides, k_strides, v_strides, out_strides, document_strides, heads,
    group, queries, keys, sliding_window, factor, cap, together,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, SINKS: tl.constexpr
):  # fmt: skip
    """q (batch, heads, queries, HEAD), k and v (batch, heads / group, keys, HEAD) → out as q, lse (batch, heads,
    queries). With SINKS each row begins as if it had seen one score, sinks[head], with a value of zeros."""
    blocks = tl.cdiv(queries, QUERIES)
    block, head = block_and_head(blocks, together)
    head, batch = head % heads, head // heads
    if CAUSAL:
        block = blocks - 1 - block  # the last queries see the most keys
    first = block * QUERIES
    kv = head // group
    query = first + tl.arange(0, QUERIES)

    peak = tl.full([QUERIES], float("-inf"), WIDE)
    total = tl.zeros([QUERIES], WIDE)
    if SINKS:
        peak = tl.zeros([QUERIES], WIDE) + tl.load(sinks + head).to(WIDE) * LOG2E
        total = total + 1.0
    gathered = tl.zeros([QUERIES, WIDTH], WIDE)
    run = key_run(block, queries, keys, sliding_window, runs, batch, blocks, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS)
    own_q = load_tile(q, q_strides, batch, head, first, queries, HEAD, QUERIES, WIDTH, True, COPY)
    for part in tl.static_range(3):  # masked, full, masked: see tiles.py
        if part > 0 or WINDOWED or DOCUMENTS:
            gathered, total, peak = gather(
                gathered, total, peak, own_q, k, v, k_strides, v_strides, document_ids, document_strides, None, batch,
                kv, query, run[part], run[part + 1], queries, keys, sliding_window, factor, cap,
                HEAD, WIDTH, QUERIES, KEYS, CAUSAL, WINDOWED, DOCUMENTS, CAPPED, COPY, WIDE, MASKED=part != 1, PAGE=0,
            )  # fmt: skip

    gathered, level = finish(gathered, total, peak)
    store_tile(out, out_strides, batch, head, first, queries, gathered, HEAD, QUERIES, WIDTH)
    tl.store(lse + (tl.cast(batch, tl.int64) * heads + head) * queries + query, level, mask=query < queries)


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """The output, laid out as q, and the natural log-sum-exp (batch, heads, queries): float32, of float64 float64."""
    q = problem.q
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=problem.wide, device=q.device)
    if problem.empty:
        lse.copy_(problem.sinks[:, None]) if problem.sinks is not None else lse.fill_(float("-inf"))
        return out.zero_(), lse
    with problem.device():
        sinks = {"sinks": problem.sinks, "SINKS": problem.sinks is not None}
        problem.launch(forward_kernel, tiles_for("forward", problem), "queries", {}, {"out": out}, lse=lse, **sinks)
    return out, lse
