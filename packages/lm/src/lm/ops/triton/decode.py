"""Decoding: a few queries against a long cache of keys and values, which several programs share out among them.

One query has no work for a device full of programs, so each takes a span of the keys (decode_kernel) and a second
launch adds up what they gathered, weighted by their log-sum-exps (merge_kernel). The query heads of a group stand as
rows of one tile, so that each key is read once for all of them. (Flash-Decoding: Dao, Haziza, Massa and Sizov 2023)
"""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from lm.ops.triton.forward import finish, gather
from lm.ops.triton.problem import Problem, sources
from lm.ops.triton.tile_sizes import tiles_for

MOST_SPLITS = 128
KEYS_A_SPLIT = 256  # at the least: below it, starting a program costs more than it reads


@triton.jit
def decode_kernel(
    q, k, v, partial, partial_lse, lengths, table, table_stride, q_strides, k_strides, v_strides, heads, group,
    queries, keys, sliding_window, factor, cap, splits,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, LENGTHS: tl.constexpr, PAGE: tl.constexpr, CAPPED: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr
):  # fmt: skip
    """One span of keys → partial (batch, heads, queries, splits, HEAD) and partial_lse, without HEAD."""
    split, kv_heads = tl.program_id(0) % splits, heads // group
    kv, batch = tl.program_id(0) // splits % kv_heads, tl.program_id(0) // splits // kv_heads
    if LENGTHS:
        keys = tl.minimum(tl.load(lengths + batch), keys).to(tl.int32)
    if PAGE > 0:
        table += tl.cast(batch, tl.int64) * table_stride

    # Row r is query r % queries of head r // queries of the group.
    row = tl.arange(0, QUERIES)
    query, head = row % queries, kv * group + row // queries
    column = tl.arange(0, WIDTH)
    own = q + tl.cast(batch, tl.int64) * q_strides[0] + column.to(tl.int64)[None, :] * q_strides[3]
    own += (head.to(tl.int64) * q_strides[1] + query.to(tl.int64) * q_strides[2])[:, None]
    there = (row < group * queries)[:, None] & (column < HEAD)[None, :]
    own_q = tl.load(own, mask=there, other=0.0)

    # The keys that any query sees are shared out in whole tiles; those that all see need no mask.
    low, full, rest = 0, 0, keys
    if CAUSAL:
        rest = tl.maximum(0, tl.minimum(keys, keys - queries + 1))
    if WINDOWED:
        low = tl.maximum(0, keys - queries - sliding_window + 1)
        full = tl.maximum(0, keys - sliding_window)
    span = tl.cdiv(tl.cdiv(keys, KEYS) - low // KEYS, splits) * KEYS
    start = low // KEYS * KEYS + split * span
    end = tl.minimum(start + span, keys)
    full = tl.maximum(tl.cdiv(full, KEYS) * KEYS, start)
    rest = tl.minimum(rest, end) // KEYS * KEYS
    if rest <= full:
        full = start
        rest = start

    peak = tl.full([QUERIES], float("-inf"), WIDE)
    total = tl.zeros([QUERIES], WIDE)
    gathered = tl.zeros([QUERIES, WIDTH], WIDE)
    run = (start, full, rest, end)
    for part in tl.static_range(3):  # masked, full, masked: see tiles.py
        if part > 0 or WINDOWED:
            gathered, total, peak = gather(
                gathered, total, peak, own_q, k, v, k_strides, v_strides, None, (0, 0), table, batch, kv, query,
                run[part], run[part + 1], queries, keys, sliding_window, factor, cap,
                HEAD, WIDTH, QUERIES, KEYS, CAUSAL, WINDOWED, False, CAPPED, COPY, WIDE, MASKED=part != 1, PAGE=PAGE,
            )  # fmt: skip

    gathered, level = finish(gathered, total, peak)
    at = ((tl.cast(batch, tl.int64) * heads + head) * queries + query) * splits + split
    tl.store(partial + at[:, None] * HEAD + column[None, :], gathered, mask=there)
    tl.store(partial_lse + at, level, mask=row < group * queries)


@triton.jit
def merge_kernel(
    partial, partial_lse, out, sinks, out_strides, heads, queries, splits,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, SINKS: tl.constexpr
):  # fmt: skip
    """out = Σ exp(lse_s) partial_s / Σ exp(lse_s) over a row's splits; SINKS: the divisor has exp(sinks[head]) too."""
    row = tl.program_id(0).to(tl.int64)
    query, head, batch = row % queries, row // queries % heads, row // queries // heads
    split, column = tl.arange(0, SPLITS), tl.arange(0, WIDTH)
    levels = tl.load(partial_lse + row * splits + split, mask=split < splits, other=float("-inf"))
    peak = tl.max(levels, 0)
    if SINKS:
        sink = tl.load(sinks + head).to(levels.dtype)
        peak = tl.maximum(peak, sink)
    shares = tl.exp(levels - tl.where(peak == float("-inf"), 0.0, peak))
    total = tl.sum(shares, 0)
    if SINKS:
        total += tl.exp(sink - peak)
    there = (split < splits)[:, None] & (column < HEAD)[None, :]
    parts = tl.load(partial + (row * splits + split)[:, None] * HEAD + column[None, :], mask=there, other=0.0)
    total = tl.where(total == 0.0, 1.0, total)
    gathered = tl.sum(parts * shares[:, None], 0) / total
    at = out + batch * out_strides[0] + head * out_strides[1] + query * out_strides[2]
    tl.store(at + column.to(tl.int64) * out_strides[3], gathered.to(out.dtype.element_ty), mask=column < HEAD)


def decode(problem: Problem, lengths: Tensor | None, table: Tensor | None = None, page: int = 0) -> Tensor:
    """The output, laid out as q; lengths, table and page: as for flash.paged_attention, None where keys lie as k."""
    q, k, v, sinks = problem.q, problem.k, problem.v, problem.sinks
    out = torch.empty_like(q)
    if problem.empty:
        return out.zero_()
    with problem.device():
        splits = splits_for(problem, problem.keys if table is None else table.shape[1] * page)
        tiles = tiles_for("decode", problem)
        if table is not None:  # a tile lies in one page
            tiles = replace(tiles, keys=min(tiles.keys, page))
        rows = (*q.shape[:3], splits)
        partial = torch.empty((*rows, problem.head_dim), dtype=problem.wide, device=q.device)
        partial_lse = torch.empty(rows, dtype=problem.wide, device=q.device)
        named = problem.arguments(tiles, "queries")
        for name in ("document_ids", "runs", "document_strides", "DOCUMENTS", "together"):
            del named[name]
        group = problem.heads // problem.kv_heads
        named["QUERIES"] = max(16, triton.next_power_of_2(group * problem.queries))
        named |= sources(tiles, problem.width, k=k, v=v) | {"table_stride": 0 if table is None else table.stride(0)}
        decode_kernel[(splits * problem.kv_heads * problem.batch,)](
            **named, q=q, q_strides=q.stride(), partial=partial, partial_lse=partial_lse, lengths=lengths, table=table,
            splits=splits, LENGTHS=lengths is not None, PAGE=page,
        )  # fmt: skip
        sizes = {"HEAD": problem.head_dim, "WIDTH": problem.width, "SPLITS": triton.next_power_of_2(splits)}
        merge_kernel[(problem.batch * problem.heads * problem.queries,)](
            partial, partial_lse, out, sinks, out.stride(), problem.heads, problem.queries, splits,
            **sizes, SINKS=sinks is not None,
        )  # fmt: skip
    return out


def splits_for(problem: Problem, keys: int) -> int:
    """As many spans as give each multiprocessor two programs, of at least KEYS_A_SPLIT keys each."""
    seen = keys if problem.sliding_window is None else min(keys, problem.sliding_window + problem.queries - 1)
    splits = -(-2 * processors(problem.q.device) // (problem.batch * problem.kv_heads))
    return max(1, min(splits, MOST_SPLITS, seen // KEYS_A_SPLIT))


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device; 2 stand for the interpreter's, so that it splits too."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
