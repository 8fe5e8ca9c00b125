"""Triton's interpreter, which runs kernels on the CPU where TRITON_INTERPRET=1 was set before Triton was imported."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def square_kernel(x, y):
    """y = x x, of 16 × 16, rounded to y's dtype."""
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x + at)
    tl.store(y + at, tl.dot(tile, tile).to(y.dtype.element_ty))


INTERPRETING = type(square_kernel).__name__ == "InterpretedFunction"  # a constant, for torch.compile cannot trace this


def check_dtype(dtype: torch.dtype) -> None:
    """TypeError: the dtype is bfloat16, in an interpreter that computes it wrongly."""
    if dtype == torch.bfloat16 and INTERPRETING and not rounds_bfloat16():
        raise TypeError(
            "expected float16, float32 or float64 in Triton's interpreter, got torch.bfloat16, whose bits it "
            "multiplies as integers: cast to float32"
        )


@functools.cache
def rounds_bfloat16() -> bool:
    """True if products of bfloat16 are right in this interpreter, and rounded to the nearest."""
    x = torch.eye(16, dtype=torch.bfloat16) * (1 + 11 / 128)
    y = torch.zeros_like(x)
    square_kernel[(1,)](x, y)  # 1.17932 lies between 150 / 128 and 151 / 128, and nearer to the second
    return bool(y[0, 0] == 151 / 128)
