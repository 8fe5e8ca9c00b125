"""Cross-entropy and its gradient in one kernel: logits are read twice and written once, where torch's operators for the
log-sum-exp, the softmax, the target and the conversions each go over them again.

A program has a row, and all of it is computed in float32, whatever logits are.
"""

from __future__ import annotations

import contextlib

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 8192  # columns at a time
COLUMNS_A_WARP = 512  # 16 a thread: two loads of 16 bytes in 16-bit numbers
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32, where -inf less -inf would be NaN


@triton.jit
def cross_entropy_kernel(
    logits, stride, columns, vocab_size, targets, ignore_index, nats,
    BLOCK: tl.constexpr, GRADIENT: tl.constexpr
):  # fmt: skip
    """Row by row of logits (rows, columns): nats = log-sum-exp - logits[target], and with GRADIENT, in place of the
    logits, their softmax less one at the target."""
    index = tl.program_id(0).to(tl.int64)
    row = logits + index * stride
    target = tl.load(targets + index)
    lane = tl.arange(0, BLOCK)
    if target == ignore_index:
        tl.store(nats + index, 0.0)
        if GRADIENT:
            for start in range(0, columns, BLOCK):
                column = start + lane
                tl.store(row + column, tl.zeros([BLOCK], logits.dtype.element_ty), mask=column < columns)
    else:
        # Read before the gradient overwrites it. A target outside the vocabulary gives NaN.
        is_one = (target >= 0) & (target < vocab_size)
        at_target = tl.load(row + target, mask=is_one, other=float("nan")).to(tl.float32)

        # Each lane has a maximum and a sum of exp(x - maximum) of its own, which meet after the last block. Masks end
        # at `columns`, often a multiple of 16 where vocab_size is not, so that loads stay wide.
        peaks = tl.full([BLOCK], LOWEST, tl.float32)
        sums = tl.zeros([BLOCK], tl.float32)
        for start in range(0, columns, BLOCK):
            column = start + lane
            x = tl.load(row + column, mask=column < columns, other=float("-inf")).to(tl.float32)
            x = tl.where(column < vocab_size, x, float("-inf"))
            smaller = tl.exp(-tl.abs(x - peaks))  # of exp(x - maximum) and exp(peaks - maximum); the other is 1
            sums = tl.where(x > peaks, sums * smaller + 1.0, sums + smaller)
            peaks = tl.maximum(peaks, x)
        peak = tl.max(peaks, 0)
        total = tl.sum(sums * tl.exp(peaks - peak), 0)
        tl.store(nats + index, tl.log(total) + (peak - at_target))

        if GRADIENT:
            scale = 1.0 / total
            for start in range(0, columns, BLOCK):
                column = start + lane
                x = tl.load(row + column, mask=column < columns, other=0.0).to(tl.float32)
                p = tl.exp(x - peak) * scale - tl.where(column == target, 1.0, 0.0)
                p = tl.where(column < vocab_size, p, 0.0)
                tl.store(row + column, p.to(logits.dtype.element_ty), mask=column < columns)


def cross_entropy(
    logits: Tensor, targets: Tensor, *, vocab_size: int, ignore_index: int, gradient: bool = True
) -> Tensor:
    """Nats of each target, (rows,) float32, 0 for one that is ignored and NaN for one outside the vocabulary; with
    gradient, that of their sum in place of the logits.

    logits (rows, columns) float16, bfloat16 or float32, the columns of a row side by side; those from vocab_size on do
    not count and have no gradient. targets (rows,) int64.
    """
    rows, columns = logits.shape
    nats = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(BLOCK, int(triton.next_power_of_2(columns)))
    # launches go to the current device, which need not be that of the tensors
    with torch.cuda.device(logits.device) if logits.is_cuda else contextlib.nullcontext():
        cross_entropy_kernel[(rows,)](
            logits, logits.stride(0), columns, vocab_size, targets.contiguous(), ignore_index, nats,
            BLOCK=block, GRADIENT=gradient, num_warps=max(1, block // COLUMNS_A_WARP),
        )  # fmt: skip
    return nats
