"""Exercises of chapter 8: scaling and what comes after. Fill in the bodies, then run `python grade.py 8`.

The kernels are Triton's. Without a GPU they run in Triton's interpreter, slowly and with the same results: there you
can print() in them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from recorded import Runs
from torch import Tensor


def fit_power_law(x: list[float], y: list[float]) -> tuple[float, float]:
    """(a, b) of y = a · x^b, by least squares on the logarithms: log y = log a + b · log x is a straight line."""


def isoflop_optimum(sizes: list[float], losses: list[float]) -> float:
    """The size at which the loss is least, of models trained with the same compute.

    Fit a parabola to the losses over log(size) by least squares (numpy.polyfit). Return the size at its lowest point.
    """


def compute_optimal(flops: float, E: float, A: float, B: float, alpha: float, beta: float) -> tuple[float, float]:
    """Parameters N and tokens D with 6·N·D = flops for which E + A / N^alpha + B / D^beta is least.

    Put D = flops / (6·N) into the loss, and set its derivative by N to zero.
    """


def predict(runs: Runs, flops: float) -> tuple[float, float, float]:
    """The best number of parameters for a budget of `flops`, its learning rate, and the loss that it will reach.

    Runs of that size are not for sale, only smaller ones (see recorded.py), and runs.remaining pays for less than half
    of them. Choose the learning rate with runs of one width, at the smallest budget. Then find the best size, and the
    loss there, at each of runs.budgets: the lowest point of a parabola. Lay a power law through the sizes, and another
    through the losses.
    """


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    """Softmax of row tl.program_id(0) of a contiguous matrix. BLOCK is a power of two, at least columns."""


def softmax(x: Tensor) -> Tensor:
    """Softmax over the rows of x (rows, columns), a program for each row. (This is how a kernel is launched: done.)"""
    rows, columns = x.shape
    out = torch.full_like(x, float("nan"))
    softmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


@triton.jit
def attention_kernel(
    q, k, v, out, logs, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Attention of QUERIES queries: those from tl.program_id(0) · QUERIES on, of head tl.program_id(1).

    q, out: contiguous (heads, queries, D); k, v: (heads, keys, D), float32. Scores are multiplied by scale. If CAUSAL,
    a query sees the keys up to its own position, and tiles of keys behind it need not be read. logs: (heads, queries),
    the logarithm of the sum of exp(score) of each query, which the backward pass needs.

    Keys and values are read in tiles of KEYS rows. Keep for each query the largest score so far, the sum of exp(score -
    largest), and the sum of these times the values; when the largest grows, multiply both sums by exp(old - new). The
    last tile may reach beyond the end: give tl.load a mask, and hide these keys. tl.dot(a, b, input_precision="ieee")
    multiplies tiles.
    """


def attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """The output and logs. q, k, v: (heads, queries or keys, D), D a power of two of at least 16. (Done.)"""
    heads, queries, D = q.shape
    out, logs = torch.full_like(q, float("nan")), q.new_full((heads, queries), float("nan"))
    grid = (triton.cdiv(queries, 16), heads)
    attention_kernel[grid](q, k, v, out, logs, queries, k.shape[1], D**-0.5, CAUSAL=is_causal, D=D, QUERIES=16, KEYS=32)
    return out, logs


@triton.jit
def keys_kernel(
    q, k, v, dout, logs, row_sums, dk, dv, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The gradients dk and dv of KEYS keys: those from tl.program_id(0) · KEYS on, of head tl.program_id(1).

    dout: the gradient of the output; row_sums: (heads, queries), the sum of dout · out of each query. Go through the
    queries in tiles of QUERIES: P = exp(scores - logs) is 0 where a query does not see a key, dv is the sum of Pᵀ dout,
    and dk that of dSᵀ q · scale, with dS = P · (dout vᵀ - row_sums). Chapter 9 derives this.
    """


@triton.jit
def queries_kernel(
    q, k, v, dout, logs, row_sums, dq, queries, keys, scale,
    CAUSAL: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The gradient dq of QUERIES queries, as in keys_kernel: the sum of dS k · scale over tiles of KEYS keys."""


class FlashAttention(torch.autograd.Function):
    """softmax(q kᵀ / √D) v by the three kernels; contiguous tensors as in attention_forward. (Done.)"""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        out, logs = attention_forward(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, out, logs)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
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
