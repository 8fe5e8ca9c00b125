"""Exercises of chapter 8: scaling and what comes after. Fill in the bodies, then run `python grade.py 8`.

The kernels are Triton's. Without a GPU they run in Triton's interpreter, slowly and with the same results: there you
can print() in them.
"""

import torch
import triton
import triton.language as tl
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
def attention_kernel(q, k, v, out, seq, scale, D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """Causal attention of QUERIES queries: those from tl.program_id(0) · QUERIES on, of head tl.program_id(1).

    q, k, v, out: contiguous (heads, seq, D), float32. Scores are multiplied by scale.

    Keys and values are read in tiles of KEYS rows. Keep for each query the largest score so far, the sum of exp(score -
    largest), and the sum of these times the values; when the largest grows, multiply both sums by exp(old - new). The
    last tile may reach beyond seq: give tl.load a mask. tl.dot(a, b, input_precision="ieee") multiplies tiles.
    """


def attention_forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention: q, k, v (heads, seq, D), where D is a power of two of at least 16, to the same. (Done.)"""
    heads, seq, D = q.shape
    out = torch.full_like(q, float("nan"))
    grid = (triton.cdiv(seq, 16), heads)
    attention_kernel[grid](q, k, v, out, seq, D**-0.5, D=D, QUERIES=16, KEYS=32)
    return out
