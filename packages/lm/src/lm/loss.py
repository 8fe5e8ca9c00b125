"""Cross-entropy: the mean of -log softmax(logits)[target], from the logits or, in chunks, from what the head reads."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lm.documents import IGNORE
from lm.ops import triton as kernels
from lm.ops.cpu import passes, products

log = logging.getLogger(__name__)
# Bytes of float32 logits in a chunk; in 16 bits the same rows take half. CPU: small enough for the cache. GPU: large
# enough that the matmul outweighs reading and writing the weight's gradient, once a chunk.
CHUNK_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}


def cross_entropy(logits: Tensor, targets: Tensor, *, ignore_index: int = IGNORE, reduction: str = "mean") -> Tensor:
    """logits (…, vocab), targets (…) int64 → a scalar in nats, computed in float32 at least.

    reduction: "mean" over the targets that count, or "sum". No target that counts gives 0, not NaN.
    """
    check_reduction(reduction)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    flat, labels = wide.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    total = F.cross_entropy(flat, labels, ignore_index=ignore_index, reduction="sum")
    return total / (targets != ignore_index).sum().clamp(min=1) if reduction == "mean" else total


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    vocab_size: int | None = None,
    softcap: float | None = None,
    ignore_index: int = IGNORE,
    reduction: str = "mean",
    chunk_bytes: int | None = None,
) -> Tensor:
    """cross_entropy(hidden @ weight.T, targets) without ever holding all of the logits.

    hidden (…, width); weight (rows, width), whose rows from vocab_size on do not count; targets (…) int64. Gradients
    are computed on the way forward, chunk by chunk, and kept: they are as small as hidden and weight. softcap: see
    model.softcapped. chunk_bytes: of float32 logits at a time (see chunk_bytes_on).
    """
    check_reduction(reduction)
    chunk_bytes = chunk_bytes_on(hidden.device) if chunk_bytes is None else chunk_bytes
    rows = weight.shape[0] if vocab_size is None else vocab_size
    flat = targets.reshape(-1)
    chunk = max(1, chunk_bytes // (weight.shape[0] * (4 if softcap is None else 8)))
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    x = hidden.reshape(-1, hidden.shape[-1])
    apply = _Chunked.apply
    total: Tensor = apply(x, weight, flat, rows, ignore_index, chunk, dtype, softcap)  # type: ignore[no-untyped-call]
    return total / (flat != ignore_index).sum().clamp(min=1) if reduction == "mean" else total


def chunk_bytes_on(device: torch.device) -> int:
    """Bytes of float32 logits that chunked_cross_entropy computes at a time on a device."""
    return CHUNK_BYTES.get(device.type, CHUNK_BYTES["cpu"])


def kernel_on(device: torch.device, dtype: torch.dtype, softcap: float | None = None) -> str:
    """The backend of a chunk's nats and gradient: "fused", one Triton kernel; or "operators", torch's or C."""
    suits = device.type == "cuda" and dtype in (torch.float16, torch.bfloat16, torch.float32) and softcap is None
    if not suits or torch.compiler.is_compiling():
        return "operators"
    return "fused" if refusal(str(device), dtype) is None else "operators"


@functools.cache
def refusal(device: str, dtype: torch.dtype) -> str | None:
    """The reason against the kernel on a device; None if it agrees with torch's operators on small numbers."""
    if (lacking := kernels.lacking()) is not None:
        return lacking
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(5, 74, generator=generator).to(dtype), torch.tensor([0, 69, 1, 2, 3])
    gradient = logits.to(torch.float32, copy=True)
    try:
        with torch.inference_mode(False), torch.no_grad():
            nats = passes.cross_entropy(None, gradient, 70, targets, targets != IGNORE)
            on_device = logits.to(device)
            pairs = (fused(on_device, targets.to(device), 70, IGNORE), nats), (on_device, gradient)
            right = all(torch.allclose(x.cpu().float(), y, rtol=0.0, atol=0.01) for x, y in pairs)
        reason = None if right else "its results are wrong"
    except Exception as refused:  # whatever a driver or a compiler may say
        reason = (str(refused) or repr(refused)).splitlines()[0]
    if reason is not None:
        log.warning("the loss on %s in %s is not fused, and slower: %s", device, dtype, reason)
    return reason


def fused(logits: Tensor, targets: Tensor, vocab_size: int, ignore_index: int, gradient: bool = True) -> Tensor:
    """lm.ops.triton.cross_entropy, imported where it runs: the package triton may be absent."""
    from lm.ops.triton.cross_entropy import cross_entropy

    return cross_entropy(logits, targets, vocab_size=vocab_size, ignore_index=ignore_index, gradient=gradient)


class _Chunked(torch.autograd.Function):
    """The sum over the tokens, and its gradients: (softmax - one-hot) weight, and its transpose times hidden."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        vocab_size: int,
        ignore_index: int,
        chunk: int,
        dtype: torch.dtype,
        softcap: float | None,
    ) -> Tensor:
        train = any(ctx.needs_input_grad[:2])
        hidden_grad = torch.empty_like(hidden) if train else None
        # The chunks' parts are added up in float32 at least: in bfloat16 the error would grow with their number.
        sum_dtype = torch.promote_types(weight.dtype, torch.float32)
        # A frozen head has none.
        weight_grad = torch.zeros_like(weight, dtype=sum_dtype) if ctx.needs_input_grad[1] else None
        total = hidden.new_zeros((), dtype=torch.float64 if hidden.dtype == torch.float64 else torch.float32)
        matrix = weight.to(dtype)
        by_kernel = (
            type(hidden) is Tensor
            and hidden.dtype != torch.float64
            and targets.dtype == torch.int64
            and targets.device == hidden.device
            and kernel_on(hidden.device, dtype, softcap) == "fused"
        )
        # On a CPU, C computes in place what bfloat16 matmuls read and write.
        narrow = dtype == torch.bfloat16 and not hidden.is_cuda and softcap is None
        narrow = narrow and passes.compiled(hidden.new_empty(0, dtype=dtype)) is not None
        # Checking the targets on a GPU would synchronize, so there some are assumed to be ignored. The kernel gives
        # them no gradient.
        some_ignored = not by_kernel and (hidden.is_cuda or not bool((targets != ignore_index).all()))
        by_onednn = not by_kernel and products.takes(hidden, matrix)
        # Each chunk's logits, and then their softmax, overwrite the last chunk's: on a CPU fresh memory
        # is cold. oneDNN's product makes its own.
        rows = 0 if by_onednn else min(chunk, hidden.shape[0])
        buffer = hidden.new_empty(rows, weight.shape[0], dtype=dtype if by_kernel or narrow else total.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                h = hidden[start : start + chunk].to(dtype)  # (chunk, width)
                target = targets[start : start + chunk]
                counts = target != ignore_index  # (chunk,)
                if by_onednn:
                    logits = products.product(h, matrix)  # (chunk, rows)
                else:
                    logits = buffer[: h.shape[0]]
                    if dtype == buffer.dtype:
                        torch.mm(h, matrix.T, out=logits)
                    else:
                        logits.copy_(h @ matrix.T)
                if softcap is not None:  # the slope of the bend is 1 - tanh²
                    slope = 1 - logits.div_(softcap).tanh_().square()
                    logits.mul_(softcap)
                if by_kernel:
                    nats = fused(logits, target, vocab_size, ignore_index, gradient=train)
                else:
                    nats = passes.cross_entropy(passes.compiled(logits), logits, vocab_size, target, counts)
                total += nats.sum()
                if softcap is not None:
                    logits.mul_(slope)  # the gradient, by now
                if hidden_grad is not None:
                    p = logits.to(dtype)  # the gradient, by now
                    place, counts = hidden_grad[start : start + chunk], counts.unsqueeze(-1)
                    if some_ignored:  # left out of the weight's gradient here, of the hidden state's below
                        h = h.mul_(counts) if dtype != hidden.dtype else torch.mul(h, counts, out=place)
                    if weight_grad is not None:
                        if by_onednn:
                            weight_grad += products.weight_gradient(p, h)
                        elif weight_grad.dtype == dtype:
                            weight_grad.addmm_(p.T, h)
                        else:
                            weight_grad += p.T @ h
                    if by_onednn:
                        place.copy_(products.product(p, matrix.T))
                    else:
                        torch.mm(p, matrix, out=place) if place.dtype == dtype else place.copy_(p @ matrix)
                    if some_ignored:
                        place *= counts
                    del p, h  # before the next chunk allocates its own
                del logits, nats
        ctx.save_for_backward(hidden_grad, None if weight_grad is None else weight_grad.to(weight.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grad, weight_grad = ctx.saved_tensors
        of_weight = None if weight_grad is None else weight_grad * grad
        return hidden_grad * grad, of_weight, None, None, None, None, None, None


def check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction {reduction!r} is unknown: use 'mean' or 'sum'")
