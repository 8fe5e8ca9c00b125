"""The modules of model.py as a CPU trains them fastest: `fuse` swaps them in, in place.

Every twin has the parameters, the state dict and, to rounding, the results and the gradients of its plain module:

    Attention   scores by blocks of queries, whose rotation is part of the copy that the products read; in bfloat16 a
                head at a time in C (block_attention, attention.c)
    RMSNorm     one pass over memory in C, both ways
    SwiGLU      what stands between its products in one pass over memory in C, both ways
    Linear      by oneDNN, on the machines on which that is the faster library (products)

`nox -s bench -- twins` measures what each gains in whole steps; docs/design/performance/lm.md has its tables. The
norm's weight folded into the matrix that reads it, sums and norms in one pass, and gradients of weights as tall
products gained 2% at most: they were here, and went.

Under autocast to bfloat16, what a matmul reads or wrote goes through the same passes in bfloat16; sums are float32.
A twin computes as the plain module does where that is what the caller needs: on another device, with a key/value cache,
under another autocast, when a module in it was given a hook.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lm.activation_checkpointing import recomputed
from lm.attention import MATMUL_KEYS, causal_self_bias
from lm.model import Attention, Block, LayerCache, RMSNorm, SwiGLU, Transformer
from lm.ops.cpu import passes
from lm.ops.cpu.block_attention import attend, first_keys
from lm.ops.cpu.passes import in_bfloat16
from lm.ops.cpu.products import FusedLinear

Module = TypeVar("Module", bound=nn.Module)


def fuse(model: Module) -> Module:
    """Swaps the modules of a model, or of a part of one, for their fused twins, in place, and gives it back.

    The state dict stays as it is, and so do parameters that an optimizer holds. Modules of another type (a subclass,
    int8) and modules with hooks are left alone. Fusing twice changes nothing.
    """
    for module in model.modules():
        twin = TWINS.get(type(module))
        if twin is not None and not hooked(module):
            module.__class__ = twin
    for block in model.modules():
        if isinstance(block, Block) and not block.post_norm:
            for norm in (block.attention_norm, block.ffn_norm):
                if isinstance(norm, FusedRMSNorm):
                    norm.only_matmuls_read = True
        elif isinstance(block, Transformer) and isinstance(block.final_norm, FusedRMSNorm):
            block.final_norm.only_matmuls_read = True
    return model


def hooked(module: nn.Module) -> bool:
    """True if a call of the module does more than its forward."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def in_full_precision(x: Tensor) -> bool:
    """True for float32 or float64 on a CPU without autocast, for which the twins are."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    return not torch.is_autocast_enabled("cpu")


class FusedAttention(Attention):
    """Attention by blocks of queries, up to as many positions as that is faster for than torch's tiled kernel."""

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        narrow = torch.is_grad_enabled() and in_bfloat16(x.device)
        if cache is not None or x.shape[1] > MATMUL_KEYS or not (narrow or in_full_precision(x)):
            return super().forward(x, rope, document_ids, cache, ids)
        if self.value_embedding is None and isinstance(self.q_norm, nn.Identity):
            heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # without a copy
        else:
            heads = torch.cat(self.project(x, ids), dim=2)
            heads = heads.bfloat16() if narrow else heads
        rotation = None if rope is None else torch.view_as_complex(rope)  # (…, seq, 1, head_dim / 2)
        if heads.dtype == torch.bfloat16:
            seen = first_keys(x.shape[1], self.sliding_window, document_ids)
        else:
            seen = causal_self_bias(heads, self.sliding_window, document_ids)
        run = recomputed(attend) if self.recompute else attend
        y = run(heads, self.num_heads, rotation, seen, self.sliding_window)
        return self.output(y.flatten(2))  # type: ignore[no-any-return]


class FusedRMSNorm(RMSNorm):
    """RMSNorm in fewer passes over memory than F.rms_norm makes, both ways.

    In bfloat16 where its input is, or where only matmuls read it, which then need not convert it.
    """

    only_matmuls_read = False

    def forward(self, x: Tensor) -> Tensor:
        narrow = x.dtype == torch.bfloat16 or (x.dtype == torch.float32 and self.only_matmuls_read)
        narrow = narrow and self.weight.dtype == torch.float32  # not as FSDP gathers it, in bfloat16
        if narrow and torch.is_grad_enabled() and in_bfloat16(x.device):
            return _NarrowNorm.apply(x.float(), self.weight, self.eps)  # type: ignore[no-any-return, no-untyped-call]
        wide = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        if not wide or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return super().forward(x)
        return _ScaledNorm.apply(x, self.weight, self.eps)  # type: ignore[no-any-return, no-untyped-call]


class FusedSwiGLU(SwiGLU):
    """SwiGLU with what stands between its products in one pass over memory, both ways."""

    def forward(self, x: Tensor) -> Tensor:
        suits = (in_full_precision(x) and not torch.compiler.is_compiling()) or in_bfloat16(x.device)
        if not suits or not torch.is_grad_enabled():
            return super().forward(x)
        return self.down(_Gate.apply(self.gate_up(x)))  # type: ignore[no-any-return, no-untyped-call]


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    Attention: FusedAttention,
    RMSNorm: FusedRMSNorm,
    SwiGLU: FusedSwiGLU,
    nn.Linear: FusedLinear,
}


class _ScaledNorm(torch.autograd.Function):
    """x / rms(x) · weight. With n = x / rms(x): dweight = Σ g n and dx = (g weight - n mean(g weight n)) / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        normal, inverse = passes.normalise(passes.compiled(x), x, eps)
        ctx.save_for_backward(normal, weight, inverse)
        scaled: Tensor = normal * weight
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, weight, inverse = ctx.saved_tensors
        for_x = passes.normalise_back(passes.compiled(grad), grad * weight, normal, inverse)
        return for_x, (grad * normal).flatten(0, -2).sum(0), None


class _NarrowNorm(torch.autograd.Function):
    """_ScaledNorm of float32, in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out, inverse = passes.scaled_norm(passes.library(torch.bfloat16), x, weight, eps, torch.bfloat16)
        ctx.save_for_backward(x, weight, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return *passes.scaled_norm_back(passes.library(torch.bfloat16), grad, *ctx.saved_tensors), None


class _Gate(torch.autograd.Function):
    """silu(gate) · up, which keeps nothing but its input."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return passes.swiglu(passes.compiled(gate_up), gate_up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        return passes.swiglu_back(passes.compiled(grad), grad, gate_up)
