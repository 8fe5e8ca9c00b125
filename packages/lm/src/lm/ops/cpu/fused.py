"""The modules of model.py as a CPU trains them fastest: `fuse` swaps them in, in place.

Every twin has the parameters, the state dict and, to rounding, the results and the gradients of its plain module:

    Attention   a head at a time in the processor's cache, in C, rotation and softmax included (attention.c)
    Linear      by oneDNN, on the machines on which that is the faster library (products)

`nox -s bench -- twins` measures what each gains in whole steps; docs/design/performance/lm.md has its tables.

Under autocast to bfloat16, what a matmul reads or wrote goes through the same passes in bfloat16; sums are float32.
A twin computes as the plain module does where that is what the caller needs: on another device, with a key/value cache,
under another autocast, when a module in it was given a hook; and where nothing can be compiled.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lm.activation_checkpointing import recomputed
from lm.attention import MATMUL_KEYS, positions_in
from lm.model import Attention, LayerCache
from lm.ops.cpu import passes
from lm.ops.cpu.describe import hooked
from lm.ops.cpu.passes import in_bfloat16
from lm.ops.cpu.products import FusedLinear

Module = TypeVar("Module", bound=nn.Module)


def fuse(model: Module) -> Module:
    """Swaps the modules of a model, or of a part of one, for their fused twins, in place, and gives it back.

    The state dict stays the same, and so do parameters that an optimizer holds. Modules of another type (a subclass,
    int8) are left alone; hooks of the others are called as before. Fusing twice changes nothing.
    """
    for module in model.modules():
        twin = TWINS.get(type(module))
        if twin is not None:
            module.__class__ = twin
    return model


class FusedAttention(Attention):
    """Attention in C, up to as many positions as that is faster for than torch's tiled kernel."""

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        narrow = in_bfloat16(x.device)
        suits = passes.suits(x) and (torch.is_grad_enabled() or not narrow)
        if cache is not None or x.shape[1] > MATMUL_KEYS or not suits:
            return super().forward(x, rope, document_ids, cache, ids)
        if self.value_embedding is None and isinstance(self.q_norm, nn.Identity) and not hooked(self.q_norm):
            heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # without a copy
        else:
            heads = torch.cat(self.project(x, ids), dim=2)
            heads = heads.bfloat16() if narrow else heads
        run = recomputed(attend) if self.recompute else attend
        y = run(heads, self.num_heads, rope, first_keys(x.shape[1], self.sliding_window, document_ids))
        return self.output(y.flatten(2))  # type: ignore[no-any-return]


def attend(qkv: Tensor, heads: int, rope: Tensor | None, first: Tensor) -> Tensor:
    """Causal attention, softmax(q kᵀ / √head_dim) v of rotated q and k: (batch, length, heads, head_dim).

    qkv: (batch, length, heads + 2 · kv_heads, head_dim), the heads of queries, of keys, of values.
    rope: cosines and sines, (length, 1, head_dim / 2, 2), or with the batch before it.
    first: first_keys().
    """
    rope = None if rope is None else rope.to(passes.real(qkv.dtype)).contiguous()
    return _Attend.apply(qkv.contiguous(), heads, rope, first)  # type: ignore[no-untyped-call, no-any-return]


def first_keys(length: int, sliding_window: int | None, document_ids: Tensor | None) -> Tensor:
    """The first key that each query sees: (length,), or (batch, length) with documents; int64."""
    first = windows(length, sliding_window)
    return first if document_ids is None else first.maximum(torch.arange(length) - positions_in(document_ids))


@functools.lru_cache(maxsize=8)
def windows(length: int, sliding_window: int | None) -> Tensor:
    """The first key that each query's window has: (length,) int64, cached for all layers and steps."""
    with torch.inference_mode(False):  # it outlives the call, and a later one may want gradients beside it
        return (torch.arange(1, length + 1) - (sliding_window or length)).clamp(min=0)


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    Attention: FusedAttention,
    nn.Linear: FusedLinear,
}


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int, rope: Tensor | None, first: Tensor) -> Tensor:
        out, *rest = passes.attend(passes.library(qkv.dtype), passes.Heads(qkv, heads, rope, first))
        ctx.heads = heads
        ctx.save_for_backward(qkv, rope, first, *rest)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, rope, first, powers, inverse = ctx.saved_tensors
        inputs = passes.Heads(qkv, ctx.heads, rope, first)
        return passes.attend_back(passes.library(qkv.dtype), grad, inputs, powers, inverse), None, None, None
