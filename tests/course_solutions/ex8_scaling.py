"""A solution of the exercises of chapter 8."""

import numpy as np
import torch
import triton
import triton.language as tl
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
def attention_kernel(q, k, v, out, seq, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    first = tl.program_id(0) * QUERIES
    head = tl.program_id(1) * seq * D
    feature = tl.arange(0, D)
    query = first + tl.arange(0, QUERIES)
    mine = head + query[:, None] * D + feature[None, :]
    there = (query < seq)[:, None]
    own_q = tl.load(q + mine, mask=there, other=0.0)
    largest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    gathered = tl.zeros((QUERIES, D), tl.float32)
    for at in range(0, first + QUERIES, KEYS):
        key = at + tl.arange(0, KEYS)
        tile = head + key[:, None] * D + feature[None, :]
        tile_k = tl.load(k + tile, mask=(key < seq)[:, None], other=0.0)
        tile_v = tl.load(v + tile, mask=(key < seq)[:, None], other=0.0)
        scores = tl.dot(own_q, tl.trans(tile_k), input_precision="ieee") * scale
        scores = tl.where(key[None, :] <= query[:, None], scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(largest - higher)
        total = total * shrink + tl.sum(weights, 1)
        gathered = gathered * shrink[:, None] + tl.dot(weights, tile_v, input_precision="ieee")
        largest = higher
    tl.store(out + mine, gathered / total[:, None], mask=there)


def attention_forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads, seq, D = q.shape
    out = torch.full_like(q, float("nan"))
    grid = (triton.cdiv(seq, 16), heads)
    attention_kernel[grid](q, k, v, out, seq, D**-0.5, D=D, QUERIES=16, KEYS=32)
    return out
