"""Attention and the loss of a training step on a CPU, in C: torch's operators read and write memory again for each
operation. Each function takes first the library for such numbers, `compiled(x)`."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lm.ops.cpu.build import Unavailable, built

Pointer, Count = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS = {  # after the number of threads, of rows, and of columns
    "cross_entropy": (Pointer, Count, Pointer, Pointer),
    "attend": (Count, Count, Count, Pointer, Count, Pointer, Count, ctypes.c_double, *(Pointer,) * 6),
}


def compiled(x: Tensor) -> ctypes.CDLL | None:
    """The library for numbers like those of x; None where there is none, or x is no plain tensor on the CPU."""
    if type(x) not in (Tensor, nn.Parameter) or x.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    library = checked(x.dtype)
    return None if isinstance(library, Unavailable) else library


def in_bfloat16(device: torch.device) -> bool:
    """True where autocast multiplies in bfloat16 on a CPU, and the passes between matmuls are compiled for it."""
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    return torch.get_autocast_dtype("cpu") == torch.bfloat16 and not isinstance(checked(torch.bfloat16), Unavailable)


def suits(x: Tensor) -> bool:
    """True if what stands between matmuls of x is compiled: in float32 or float64, or by autocast in bfloat16."""
    if compiled(x) is None:
        return False
    return in_bfloat16(x.device) if torch.is_autocast_enabled("cpu") else x.dtype != torch.bfloat16


def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The library for numbers of this type. Unavailable: there is none."""
    result = checked(dtype)
    if isinstance(result, Unavailable):
        raise result
    return result


def backend_name(device: torch.device) -> str:
    """Name of the backend in float32 on a device: "C" or "PyTorch", which agree to rounding."""
    return "C" if device.type == "cpu" and not isinstance(checked(torch.float32), Unavailable) else "PyTorch"


class Heads(NamedTuple):
    """The tensors that attend() reads. qkv (batch, length, heads + 2 kv_heads, width); cosines and sines (…, length, 1,
    width / 2, 2), by which queries and keys are rotated; and the first key of each query, (length,) or (batch, length)
    int64, the last being its own."""

    qkv: Tensor
    heads: int
    rope: Tensor | None
    first: Tensor


def attend(by: ctypes.CDLL, inputs: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention, (batch, length, heads, width); and e^(score - the largest) and 1 / their sums, kept."""
    batch, length, _, width = inputs.qkv.shape
    out = inputs.qkv.new_empty(batch, length, inputs.heads, width)
    powers = inputs.qkv.new_empty(batch, inputs.heads, by.weights_of(length))
    inverse = out.new_empty(batch, inputs.heads, length, dtype=real(out.dtype))
    call_attend(by, inputs, out, powers, inverse)
    return out, powers, inverse


def attend_back(by: ctypes.CDLL, grad: Tensor, inputs: Heads, powers: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of attend's qkv, from that of its first result, and what it gave."""
    out = torch.empty_like(inputs.qkv)
    call_attend(by, inputs, out, powers, inverse, grad.contiguous())
    return out


def call_attend(
    by: ctypes.CDLL, inputs: Heads, out: Tensor, powers: Tensor, inverse: Tensor, grad: Tensor | None = None
) -> None:
    """attend() or, with a gradient, attend_back(), into `out`."""
    (qkv, heads, rope, first), threads = inputs, torch.get_num_threads()
    batch, length, all_heads, width = qkv.shape
    space = inverse.new_empty(threads * by.workspace(width, length))
    rotation = (None, 0) if rope is None else (rope.data_ptr(), length * width if rope.numel() > length * width else 0)
    masks = first.data_ptr(), length if first.ndim == 2 else 0
    addresses = (x.data_ptr() for x in (qkv, out, powers, inverse))
    shape = batch, width, length, heads, (all_heads - heads) // 2
    upstream = None if grad is None else grad.data_ptr()
    by.attend(threads, *shape, *rotation, *masks, 1 / math.sqrt(width), *addresses, upstream, space.data_ptr())


def cross_entropy(by: ctypes.CDLL | None, logits: Tensor, vocab_size: int, targets: Tensor, counts: Tensor) -> Tensor:
    """Nats of each target, (rows,), 0 for one that does not count; in place of logits (rows, columns), one after
    another in memory, their gradient: their softmax, less one at the target if it counts. Columns from vocab_size on
    get 0. by=None: PyTorch's operators.
    """
    fit = targets.dtype == torch.int64 and targets.device == logits.device
    # PyTorch takes or refuses other targets.
    if by is not None and fit and bool((~counts | (targets >= 0) & (targets < vocab_size)).all()):
        marks, nats = targets.where(counts, -1), logits.new_empty(len(logits), dtype=real(logits.dtype))
        shape = torch.get_num_threads(), logits.shape[0], vocab_size
        by.cross_entropy(*shape, logits.data_ptr(), logits.shape[1], marks.data_ptr(), nats.data_ptr())
        return nats
    if vocab_size < logits.shape[1]:
        logits[:, vocab_size:] = -torch.inf
    target = targets.where(counts, 0).unsqueeze(-1)
    # log-sum-exp from the softmax, wanted anyway: its largest entry, exp(largest - log-sum-exp), is never 0.
    largest, at_target = logits.amax(-1, keepdim=True), logits.gather(1, target)
    p = torch.softmax(logits, -1, out=logits)
    log_sum = largest - p.amax(-1, keepdim=True).log()
    p.scatter_add_(1, target, -counts.to(p.dtype).unsqueeze(-1))
    return (log_sum - at_target).squeeze(-1).where(counts, 0.0)


def real(dtype: torch.dtype) -> torch.dtype:
    """The dtype that numbers of this one are computed in."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


@functools.cache
def checked(dtype: torch.dtype) -> ctypes.CDLL | Unavailable:
    """The library for numbers of this type, after it has computed as torch's operators do: a compiler may be wrong."""
    library = built("passes", dtype)
    if isinstance(library, Unavailable):
        return library
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = None, (ctypes.c_int, Count, Count, *arguments)
    library.weights_of.restype, library.weights_of.argtypes = Count, (Count,)
    library.workspace.restype, library.workspace.argtypes = Count, (Count, Count)
    near = 1e-5 if dtype == real(dtype) else 0.02
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        pairs = zip(sample(library, dtype), sample(None, dtype), strict=True)
        right = all(torch.allclose(own.to(real(dtype)), exact, rtol=near, atol=near) for own, exact in pairs)
    return library if right else Unavailable("what was compiled does not compute what it should")


def sample(by: ctypes.CDLL | None, dtype: torch.dtype) -> list[Tensor]:
    """Results of each function on a few small numbers; by=None: of its definition, in PyTorch's operators."""
    generator, shapes = torch.Generator().manual_seed(0), [(5, 74), (1, 40, 6, 6), (1, 40, 2, 6)]
    randoms = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    logits, qkv, upstream = (z if by is not None else z.to(real(dtype)) for z in randoms)
    targets = torch.tensor([0, 69, 1, 2, 3])
    nats = cross_entropy(by, logits, 70, targets, targets != 2)
    if by is not None:
        inputs = Heads(qkv, 2, None, torch.zeros(40, dtype=torch.int64))
        out, *rest = attend(by, inputs)
        return [nats, logits, out, attend_back(by, upstream, inputs, *rest)]
    q, k, v = qkv.transpose(1, 2).chunk(3, dim=1)
    hidden, above = torch.ones(40, 40, dtype=torch.bool).triu(1), upstream.transpose(1, 2)
    p = (q @ k.mT / math.sqrt(6)).masked_fill(hidden, -torch.inf).softmax(-1)
    s = p * (above @ v.mT)
    s = (s - p * s.sum(-1, keepdim=True)) / math.sqrt(6)
    slopes = torch.cat((s @ k, s.mT @ q, p.mT @ above), dim=1)
    return [nats, logits, (p @ v).transpose(1, 2), slopes.transpose(1, 2)]
