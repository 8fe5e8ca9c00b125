"""A solution of the exercises of chapter 8."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from recorded import Runs
from torch import Tensor


def fit_power_law(x: list[float], y: list[float]) -> tuple[float, float]:
    b, log_a = np.polyfit(np.log(x), np.log(y), 1)
    return float(np.exp(log_a)), float(b)


def isoflop_optimum(sizes: list[float], losses: list[float]) -> float:
    a, b, _ = np.polyfit(np.log(sizes), losses, 2)
    return float(np.exp(-b / (2 * a)))


def compute_optimal(flops: float, E: float, A: float, B: float, alpha: float, beta: float) -> tuple[float, float]:
    # alpha A / N^alpha = beta B / D^beta, and D = flops / (6 N)
    N = (alpha * A / (beta * B) * (flops / 6) ** beta) ** (1 / (alpha + beta))
    return N, flops / (6 * N)


def predict(runs: Runs, flops: float) -> tuple[float, float, float]:
    cheapest, middle = runs.budgets[0], runs.widths[2]
    rate = min(runs.learning_rates, key=lambda rate: runs.loss(middle, rate, cheapest))
    best, lowest = [], []
    for budget in runs.budgets:
        sizes = [runs.parameters(width) for width in runs.widths]
        losses = [runs.loss(width, rate, budget) for width in runs.widths]
        best.append(isoflop_optimum(sizes, losses))
        lowest.append(float(np.polyval(np.polyfit(np.log(sizes), losses, 2), np.log(best[-1]))))
    (a, b), (c, d) = fit_power_law(runs.budgets, best), fit_power_law(runs.budgets, lowest)
    return a * flops**b, rate, c * flops**d


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    there = column < columns
    numbers = tl.load(x + row * columns + column, mask=there, other=float("-inf"))
    exponentials = tl.exp(numbers - tl.max(numbers, 0))
    tl.store(out + row * columns + column, exponentials / tl.sum(exponentials, 0), mask=there)


def softmax(x: Tensor) -> Tensor:
    rows, columns = x.shape
    out = torch.full_like(x, float("nan"))
    softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


@triton.jit
def load_rows(base, head, row, length, D: tl.constexpr):
    """Rows of a (heads, length, D) tensor; zeros beyond the end."""
    place = (head * length + row)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(base + place, mask=(row < length)[:, None], other=0.0)


@triton.jit
def store_rows(base, numbers, head, row, length, D: tl.constexpr):
    place = (head * length + row)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(base + place, numbers, mask=(row < length)[:, None])


@triton.jit
def visible(query, key, keys, CAUSAL: tl.constexpr):
    return key[None, :] <= query[:, None] if CAUSAL else key[None, :] < keys


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def attention_kernel(
    q, k, v, out, logs, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    own_q = load_rows(q, head, query, queries, D)
    largest = tl.full((QUERIES, 1), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES, 1), tl.float32)
    gathered = tl.zeros((QUERIES, D), tl.float32)
    for at in range(0, (tl.program_id(0) + 1) * QUERIES if CAUSAL else keys, KEYS):
        key = at + tl.arange(0, KEYS)
        scores = product(own_q, tl.trans(load_rows(k, head, key, keys, D))) * scale
        scores = tl.where(visible(query, key, keys, CAUSAL), scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1)[:, None])
        weights = tl.exp(scores - higher)
        shrink = tl.exp(largest - higher)
        total = total * shrink + tl.sum(weights, 1)[:, None]
        gathered = gathered * shrink + product(weights, load_rows(v, head, key, keys, D))
        largest = higher
    store_rows(out, gathered / total, head, query, queries, D)
    store_rows(logs, largest + tl.log(total), head, query, queries, 1)


def attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    heads, queries, D = q.shape
    out, logs = torch.full_like(q, float("nan")), q.new_full((heads, queries), float("nan"))
    grid = (triton.cdiv(queries, 16), heads)
    attention_kernel[grid](q, k, v, out, logs, queries, k.shape[1], D**-0.5, CAUSAL=is_causal, D=D, QUERIES=16, KEYS=32)
    return out, logs


@triton.jit
def weights_and_dscores(own_q, tile_k, tile_v, own_dout, logs, row_sums, seen, scale):
    weights = tl.where(seen, tl.exp(product(own_q, tl.trans(tile_k)) * scale - logs), 0.0)
    return weights, weights * (product(own_dout, tl.trans(tile_v)) - row_sums)


@triton.jit
def keys_kernel(
    q, k, v, dout, logs, row_sums, dk, dv, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    first = tl.program_id(0) * KEYS
    key = first + tl.arange(0, KEYS)
    own_k, own_v = load_rows(k, head, key, keys, D), load_rows(v, head, key, keys, D)
    sum_k = tl.zeros((KEYS, D), tl.float32)
    sum_v = tl.zeros((KEYS, D), tl.float32)
    for at in range(first if CAUSAL else 0, queries, QUERIES):
        query = at + tl.arange(0, QUERIES)
        tile_q, tile_dout = load_rows(q, head, query, queries, D), load_rows(dout, head, query, queries, D)
        tile_logs, tile_sums = load_rows(logs, head, query, queries, 1), load_rows(row_sums, head, query, queries, 1)
        seen = visible(query, key, keys, CAUSAL)
        weights, dscores = weights_and_dscores(tile_q, own_k, own_v, tile_dout, tile_logs, tile_sums, seen, scale)
        sum_v += product(tl.trans(weights), tile_dout)
        sum_k += product(tl.trans(dscores), tile_q)
    store_rows(dk, sum_k * scale, head, key, keys, D)
    store_rows(dv, sum_v, head, key, keys, D)


@triton.jit
def queries_kernel(
    q, k, v, dout, logs, row_sums, dq, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    own_q, own_dout = load_rows(q, head, query, queries, D), load_rows(dout, head, query, queries, D)
    own_logs, own_sums = load_rows(logs, head, query, queries, 1), load_rows(row_sums, head, query, queries, 1)
    sum_q = tl.zeros((QUERIES, D), tl.float32)
    for at in range(0, (tl.program_id(0) + 1) * QUERIES if CAUSAL else keys, KEYS):
        key = at + tl.arange(0, KEYS)
        tile_k, tile_v = load_rows(k, head, key, keys, D), load_rows(v, head, key, keys, D)
        seen = visible(query, key, keys, CAUSAL)
        _, dscores = weights_and_dscores(own_q, tile_k, tile_v, own_dout, own_logs, own_sums, seen, scale)
        sum_q += product(dscores, tile_k)
    store_rows(dq, sum_q * scale, head, query, queries, D)


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        out, logs = attention_forward(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, out, logs)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        q, k, v, out, logs = ctx.saved_tensors
        heads, queries, D = q.shape
        keys = k.shape[1]
        dq, dk, dv = (torch.full_like(t, float("nan")) for t in (q, k, v))
        dout = dout.contiguous()
        inputs = (q, k, v, dout, logs, (dout * out).sum(-1))
        lengths, tiles = (queries, keys, D**-0.5), {"CAUSAL": ctx.is_causal, "D": D, "QUERIES": 16, "KEYS": 32}
        keys_kernel[triton.cdiv(keys, 32), heads](*inputs, dk, dv, *lengths, **tiles)
        queries_kernel[triton.cdiv(queries, 16), heads](*inputs, dq, *lengths, **tiles)
        return dq, dk, dv, None
