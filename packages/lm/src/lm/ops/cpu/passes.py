"""Passes of a training step on a CPU between its matmuls: in C, each in one pass over memory, or else by PyTorch's
operators.

Each function takes first what computes it: `compiled(x)`, the library for such numbers, or None. torch's operators read
and write memory again for each operation.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.ops.cpu.build import Unavailable, built

Pointer, Count = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS = {  # after the number of threads, of rows, and of columns
    "normalise": (Pointer, Pointer, Pointer, ctypes.c_double),
    "normalise_back": (Pointer, Pointer, Pointer, Pointer),
    "scaled_norm": (Pointer, Pointer, Pointer, Pointer, ctypes.c_double),
    "scaled_norm_back": (Count, Count, *(Pointer,) * 6),
    "swiglu": (Pointer, Pointer),
    "swiglu_back": (Pointer, Pointer, Pointer),
    "cross_entropy": (Pointer, Count, Pointer, Pointer),
    "add_weight_gradient": (Count, *(Pointer,) * 4),
    "attend": (Count, Count, Count, Pointer, Count, Pointer, Count, ctypes.c_double, *(Pointer,) * 6),
}


GROUP = 64  # rows whose gradients of a norm's weight are added up one after another


def compiled(x: Tensor) -> ctypes.CDLL | None:
    """The library for numbers like those of x; None where there is none, or x is no plain tensor in this machine's
    memory."""
    if type(x) not in (Tensor, nn.Parameter) or x.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    library = checked(x.dtype)
    return None if isinstance(library, Unavailable) else library


def has_bfloat16() -> bool:
    """True if there is a library for bfloat16."""
    return not isinstance(checked(torch.bfloat16), Unavailable)


def in_bfloat16(device: torch.device) -> bool:
    """True where autocast multiplies in bfloat16 on a CPU, and the passes between matmuls are compiled for it."""
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    return torch.get_autocast_dtype("cpu") == torch.bfloat16 and has_bfloat16()


def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The library for numbers of this type. Unavailable: there is none."""
    result = checked(dtype)
    if isinstance(result, Unavailable):
        raise result
    return result


def means(device: torch.device) -> str:
    """Name of the backend in float32 on a device: "C" or "PyTorch", which agree to rounding."""
    return "C" if device.type == "cpu" and not isinstance(checked(torch.float32), Unavailable) else "PyTorch"


def normalise(by: ctypes.CDLL | None, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x divided by its rms over the last dimension, eps added to the mean square; and 1 / rms, (…, 1)."""
    if by is None:
        inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        return x * inverse, inverse
    x, normal, inverse = x.contiguous(), x.new_empty(x.shape), x.new_empty(*x.shape[:-1], 1)
    by.normalise(*size(x), x.data_ptr(), normal.data_ptr(), inverse.data_ptr(), eps)
    return normal, inverse


def normalise_back(by: ctypes.CDLL | None, grad: Tensor, normal: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of x, from that of normalise()'s first result, n, and both results: (g - n mean(g n)) / rms."""
    if by is None:
        mean = (grad * normal).sum(-1, keepdim=True).div_(-normal.shape[-1])
        return torch.addcmul(grad, normal, mean).mul_(inverse)
    out = normal.new_empty(normal.shape)
    grad, normal, inverse = grad.contiguous(), normal.contiguous(), inverse.contiguous()
    by.normalise_back(*size(grad), grad.data_ptr(), normal.data_ptr(), inverse.data_ptr(), out.data_ptr())
    return out


def scaled_norm(by: ctypes.CDLL, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """RMSNorm of x with its weight, in the dtype of the library, and 1 / rms, (…, 1)."""
    x, out, inverse = x.contiguous(), x.new_empty(x.shape, dtype=dtype), x.new_empty(*x.shape[:-1], 1)
    by.scaled_norm(*size(x), x.data_ptr(), weight.data_ptr(), out.data_ptr(), inverse.data_ptr(), eps)
    return out, inverse


def scaled_norm_back(
    by: ctypes.CDLL, grad: Tensor, x: Tensor, weight: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of scaled_norm's x and weight, from that of its result and what it read and gave."""
    grad, x, out = grad.contiguous(), x.contiguous(), x.new_empty(x.shape)
    threads, rows, width = size(x)
    groups = x.new_empty(-(-rows // GROUP), width)
    addresses = (z.data_ptr() for z in (grad, x, weight, inverse, out, groups))
    by.scaled_norm_back(threads, len(groups), width, rows, GROUP, *addresses)
    return out, groups.sum(0)


def add_weight_gradient(by: ctypes.CDLL | None, total: Tensor, grad: Tensor, x: Tensor) -> None:
    """total (out, in) += gradᵀ x, of grad (rows, out) and x (rows, in); from bfloat16, sums in C are float32."""
    (rows, out), width = grad.shape, x.shape[1]
    if by is None or rows % 2 or out % 8 or width % 32 or not total.is_contiguous():
        total += grad.T @ x
        return
    grad, x, threads = grad.contiguous(), x.contiguous(), torch.get_num_threads()
    space = total.new_empty(threads * by.gradient_space(width))
    by.add_weight_gradient(threads, rows, width, out, *(z.data_ptr() for z in (grad, x, total, space)))


class Heads(NamedTuple):
    """The tensors that attend() reads.

    qkv (batch, length, heads + 2 kv_heads, width); cosines and sines (…, length, 2, width / 2), by which queries and
    keys are rotated; and the first key of each query, (length,) or (batch, length) int64, the last being its own.
    """

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


def swiglu(by: ctypes.CDLL | None, gate_up: Tensor) -> Tensor:
    """silu(gate) · up: gate_up (…, 2 width), the gate and then up → (…, width)."""
    if by is None:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)
    gate_up = gate_up.contiguous()
    out = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
    by.swiglu(*size(out), gate_up.data_ptr(), out.data_ptr())
    return out


def swiglu_back(by: ctypes.CDLL | None, grad: Tensor, gate_up: Tensor) -> Tensor:
    """The gradient of swiglu's gate_up, from that of its result."""
    out = torch.empty_like(gate_up, memory_format=torch.contiguous_format)
    if by is None:
        (gate, up), (to_gate, to_up) = gate_up.chunk(2, dim=-1), out.chunk(2, dim=-1)
        torch.mul(F.silu(gate), grad, out=to_up)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=to_gate)
        return out
    grad, gate_up = grad.contiguous(), gate_up.contiguous()
    by.swiglu_back(*size(grad), grad.data_ptr(), gate_up.data_ptr(), out.data_ptr())
    return out


def cross_entropy(by: ctypes.CDLL | None, logits: Tensor, vocab_size: int, targets: Tensor, counts: Tensor) -> Tensor:
    """Nats of each target, (rows,), 0 for one that does not count; in place of logits (rows, columns), one after
    another in memory, their gradient: their softmax, less one at the target if it counts. Columns from vocab_size on
    get 0.
    """
    fit = targets.dtype == torch.int64 and targets.device == logits.device
    if (
        by is not None and fit and bool((~counts | (targets >= 0) & (targets < vocab_size)).all())
    ):  # torch takes or refuses the others
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


def size(x: Tensor) -> tuple[int, int, int]:
    """The first arguments of each call: number of threads, rows and columns of its result."""
    return torch.get_num_threads(), x.numel() // max(1, x.shape[-1]), x.shape[-1]


@functools.cache
def checked(dtype: torch.dtype) -> ctypes.CDLL | Unavailable:
    """The library for numbers of this type, after it has computed what torch's operators do: a compiler may be
    wrong."""
    library = built("passes", dtype)
    if isinstance(library, Unavailable):
        return library
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = None, (ctypes.c_int, Count, Count, *arguments)
    library.weights_of.restype, library.weights_of.argtypes = Count, (Count,)
    library.gradient_space.restype, library.gradient_space.argtypes = Count, (Count,)
    library.workspace.restype, library.workspace.argtypes = Count, (Count, Count)
    both = zip(sample(library, dtype), sample(None, real(dtype)), strict=True)
    near = 1e-5 if dtype == real(dtype) else 0.02
    if not all(torch.allclose(actual.to(real(dtype)), expected, rtol=near, atol=near) for actual, expected in both):
        return Unavailable("what was compiled does not compute what it should")
    return library


def sample(by: ctypes.CDLL | None, dtype: torch.dtype) -> list[Tensor]:
    """Results of each function on the same small numbers."""
    generator = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(5, 74, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        logits, targets = 3 * x, torch.tensor([0, 69, 1, 2, 3])
        nats = cross_entropy(by, logits, 70, targets, targets != 2)
        wide, weight = x.to(real(dtype)), torch.linspace(0.5, 2, 74, dtype=real(dtype))
        normal, inverse = normalise(by if dtype == real(dtype) else None, wide, 1e-5)
        through_norm = normalise_back(by if dtype == real(dtype) else None, grad.to(real(dtype)), normal, inverse)
        scaled, slopes = normal * weight, (normalise_back(None, grad * weight, normal, inverse), (grad * normal).sum(0))
        if by is not None:
            scaled, inverse = scaled_norm(by, wide, weight, 1e-5, dtype)
            slopes = scaled_norm_back(by, grad, wide, weight, inverse)
        norms = [normal, inverse, through_norm, scaled, *slopes]
        total, whole = torch.ones(64, 32, dtype=real(dtype)), (torch.arange(12 * 96) % 7 - 3).view(12, 96).to(dtype)
        add_weight_gradient(by, total, whole[:, :64], whole[:, 64:])
        gates = swiglu(by, x), swiglu_back(by, grad[:, :37], x)
        return [*norms, nats, logits, *gates, total, *sample_attention(by, dtype)]


def sample_attention(by: ctypes.CDLL | None, dtype: torch.dtype) -> list[Tensor]:
    """Attention of a few random heads and the gradient of its input."""
    generator = torch.Generator().manual_seed(1)
    qkv, grad = (torch.randn(1, 40, n, 6, generator=generator, dtype=torch.float64).to(dtype) for n in (6, 2))
    if by is not None:
        inputs = Heads(qkv, 2, None, torch.zeros(40, dtype=torch.int64))
        out, *rest = attend(by, inputs)
        return [out, attend_back(by, grad, inputs, *rest)]
    q, k, v = qkv.transpose(1, 2).chunk(3, dim=1)
    hidden, upstream = torch.ones(40, 40, dtype=torch.bool).triu(1), grad.transpose(1, 2)
    p = (q @ k.mT / math.sqrt(6)).masked_fill(hidden, -torch.inf).softmax(-1)
    s = p * (upstream @ v.mT)
    s = (s - p * s.sum(-1, keepdim=True)) / math.sqrt(6)
    gradients = torch.cat((s @ k, s.mT @ q, p.mT @ upstream), dim=1)
    return [(p @ v).transpose(1, 2), gradients.transpose(1, 2)]
