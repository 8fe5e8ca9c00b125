"""Triton's interpreter as the tests run it finds what a device would not forgive, and computes bfloat16 as one does."""

from __future__ import annotations

import collections

import interpreter
import pytest
import torch
from interpreter import CUDA, MARKS

from lm.ops import triton as kernels

if kernels.lacking() is not None:
    pytest.skip(kernels.lacking(), allow_module_level=True)
if interpreter.LATE:
    raise ImportError("triton was imported before its interpreter was asked for: import tests/interpreter.py earlier")

import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from lm.ops.triton import backward, cross_entropy, decode, forward, problem
from lm.ops.triton.flash import flash_attention
from lm.ops.triton.problem import Problem

pytestmark = [*MARKS, pytest.mark.skipif(CUDA, reason="the interpreter is for machines without CUDA")]


@triton.jit
def copy_kernel(x, y, count, BLOCK: tl.constexpr, LOADS: tl.constexpr, STORES: tl.constexpr):
    """y = x, a block a program. LOADS, STORES: mask what lies past count."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + at, mask=(at < count) | (not LOADS), other=0.0)
    tl.store(y + at, tile, mask=(at < count) | (not STORES))


@triton.jit
def total_kernel(x, y):
    """Every program writes the one element of y."""
    tl.store(y, tl.load(x + tl.program_id(0)))


@triton.jit
def shift_kernel(x, count):
    """x[i + 1] = x[i], where another program may have been before."""
    index = tl.program_id(0)
    tl.store(x + index + 1, tl.load(x + index))


@triton.jit
def product_kernel(x, y, OPERATOR: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x + at)
    tl.store(y + at, tl.dot(tile, tile).to(y.dtype.element_ty) if OPERATOR == "dot" else tile * tile)


@triton.jit
def cast_kernel(x, y, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(y + at, tl.load(x + at).to(y.dtype.element_ty))


@pytest.mark.parametrize(("loads", "stores"), [(False, True), (True, False)])
def test_what_lies_outside_a_tensor_is_not_touched(loads, stores):
    x, y = torch.arange(40.0), torch.zeros(40)
    copy_kernel[(3,)](x, y, 40, BLOCK=16, LOADS=True, STORES=True)
    assert torch.equal(x, y)
    with pytest.raises(InterpreterError, match="over the end"):
        copy_kernel[(3,)](x, y, 40, BLOCK=16, LOADS=loads, STORES=stores)


def test_a_view_ends_where_it_ends_and_not_with_its_storage():
    x, y = torch.arange(100.0)[:40], torch.zeros(40)
    with pytest.raises(InterpreterError, match="what no tensor of the launch has"):
        copy_kernel[(3,)](x, y, 40, BLOCK=16, LOADS=False, STORES=True)


def test_programs_share_nothing_that_one_of_them_writes():
    x = torch.arange(8.0)
    with pytest.raises(InterpreterError, match="two programs"):
        total_kernel[(8,)](x, torch.zeros(1))
    with pytest.raises(InterpreterError, match="two programs"):
        shift_kernel[(7,)](x, 8)
    total_kernel[(1,)](x, torch.zeros(1))


@pytest.mark.parametrize("kernel", ["forward", "keys", "queries", "delta", "decode", "loss"])
def test_a_launch_that_is_wrong_about_a_length_is_caught(kernel, monkeypatch):
    q, k = torch.randn(1, 2, 20, 16), torch.randn(1, 1, 20, 16)
    longer = Problem(q, k, k, None, True, None)
    out, lse = forward.forward(longer)
    if kernel == "loss":
        wrong = torch.randn(2, 30)[:, :20]
        stride = wrong.stride(0)
        with pytest.raises(InterpreterError, match="touch"):
            cross_entropy.cross_entropy_kernel[(2,)](
                wrong, stride, 25, 25, torch.zeros(2, dtype=torch.int64), -100, torch.zeros(2), BLOCK=32, GRADIENT=True
            )
        return
    longer.keys += 13
    longer.queries += 13
    # Of the backward pass's three kernels the other two launch nothing.
    for name in {"delta", "keys", "queries"} - {kernel}:
        monkeypatch.setattr(backward, f"{name}_kernel", collections.defaultdict(lambda: lambda *_, **__: None))
    launches = {"forward": lambda: forward.forward(longer), "decode": lambda: decode.decode(longer, None)}
    with pytest.raises(InterpreterError, match=r"touch|over the end|outside every tensor"):
        launches.get(kernel, lambda: backward.backward(longer, out, lse, q))()


def test_bfloat16_is_rounded_and_multiplied_as_torch_does():
    tile = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    product = torch.zeros_like(tile)
    product_kernel[(1,)](tile, product, OPERATOR="dot")
    torch.testing.assert_close(product, (tile.float() @ tile.float()).bfloat16(), rtol=2**-8, atol=1e-6)
    with pytest.raises(InterpreterError, match="widen to float32"):
        product_kernel[(1,)](tile, product, OPERATOR="multiply")
    # halves between two neighbours go to the even one; the rest is large, small, zero and not a number
    x = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, 1e-40, 0.0, torch.inf, torch.nan])
    for source in (x, x.double(), x.half()):
        rounded = torch.zeros(8, dtype=torch.bfloat16)
        cast_kernel[(1,)](source, rounded, COUNT=8)
        assert torch.equal(rounded.view(torch.int16)[:7], source.bfloat16().view(torch.int16)[:7])
        assert rounded[7].isnan()
    back = torch.zeros(8)
    cast_kernel[(1,)](x.bfloat16(), back, COUNT=8)
    torch.testing.assert_close(back, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


def test_bfloat16_is_refused_where_the_interpreter_is_as_triton_leaves_it(monkeypatch):
    q = torch.randn(1, 1, 16, 16).bfloat16()
    flash_attention(q, q, q)
    monkeypatch.setattr(problem, "DTYPES", problem.DTYPES - {torch.bfloat16})
    with pytest.raises(TypeError, match=r"torch\.bfloat16.*: give them one dtype of torch.float16, torch.float32"):
        flash_attention(q, q, q)
