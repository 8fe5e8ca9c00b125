"""The modules of model.py as a CPU computes them fastest, in training above all: `fuse` swaps them in, in place.

Every twin has the parameters, the state dict and, to rounding, the results and the gradients of its plain module:

    RMSNorm     one pass over memory in C, both ways
    Attention   scores by blocks of queries, whose rotation is part of the copy that the products read (block_attention)
    SwiGLU      silu(gate) · up in one pass in C; its backward writes both halves where they belong
    Block       a residual sum and the norm after it in one pass; the norm's weight is multiplied into the matrix that
    reads
                the norm, which is smaller than the activations

A twin computes as the plain module does where that is what the caller needs: on another device, with a key/value cache,
under autocast, when a module in it was given a hook.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lm.attention import MATMUL_KEYS, causal_self_bias
from lm.model import (
    MLP,
    Attention,
    Block,
    LayerCache,
    RMSNorm,
    SwiGLU,
    positions_of,
    recomputed,
    rope_at,
)
from lm.ops.cpu import passes
from lm.ops.cpu.block_attention import attend

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
    return model


def hooked(module: nn.Module) -> bool:
    """Whether a call of the module does more than its forward."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def in_full_precision(x: Tensor) -> bool:
    """Whether x is on a CPU and computed with as it is: what the twins are for."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    return not torch.is_autocast_enabled("cpu")


class FusedRMSNorm(RMSNorm):
    """RMSNorm in fewer passes over memory than F.rms_norm makes: 0.30 ms for 0.40, both ways, at 1,024 × 128."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        if not wide or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return super().forward(x)
        return _ScaledNorm.apply(x, self.weight, self.eps)  # type: ignore[no-any-return, no-untyped-call]


class FusedAttention(Attention):
    """Attention by blocks of queries, up to as many positions as that is faster for than torch's tiled kernel."""

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """weight: see `linear`."""
        qkv = linear(self.qkv, x, weight)
        if self.value_embedding is not None and ids is not None:
            qkv = self.add_value_embedding(qkv, linear(self.value_gate, x, weight), ids)
        return self.output(self.attend(qkv, rope, document_ids, cache))  # type: ignore[no-any-return]

    def attend(self, qkv: Tensor, rope: Tensor | None, document_ids: Tensor | None, cache: LayerCache | None) -> Tensor:
        if cache is not None or qkv.shape[1] > MATMUL_KEYS or not in_full_precision(qkv):
            return super().attend(qkv, rope, document_ids, cache)
        qkv = qkv.view(*qkv.shape[:2], -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k, v = qkv.split_with_sizes((self.heads, self.kv_heads, self.kv_heads), dim=2)
            qkv = torch.cat((self.q_norm(q), self.k_norm(k), v), dim=2)
        if rope is None and self.config.position == "rope":
            rope = rope_at(self.config, positions_of(qkv, document_ids, None), qkv)
        turns = None if rope is None else torch.view_as_complex(rope)  # (…, seq, 1, head_dim / 2)
        window = self.config.sliding_window
        bias = causal_self_bias(qkv, window, document_ids)
        y = (recomputed(attend) if self.recompute else attend)(qkv, self.heads, turns, bias, window)
        return y.flatten(2)


class FusedSwiGLU(SwiGLU):
    """SwiGLU in one pass between its products."""

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """weight: see `linear`."""
        both = linear(self.gate_up, x, weight)
        if both.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return self.down(_Gated.apply(both))  # type: ignore[no-any-return, no-untyped-call]
        gate, up = both.chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class FusedMLP(MLP):
    """MLP, whose first product may take the weight of the norm before it."""

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """weight: see `linear`."""
        return self.down(self.activate(linear(self.up, x, weight)))  # type: ignore[no-any-return]


class FusedBlock(Block):
    """Block, in which a sum and the norm after it are one pass, and the norm's weight is left to the product that reads
    it."""

    def forward(
        self,
        x: Tensor,
        rope: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: LayerCache | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        folds = torch.is_grad_enabled() and not torch.compiler.is_compiling() and in_full_precision(x)
        if self.post or cache is not None or not folds:
            return super().forward(x, rope, document_ids, cache, ids)
        if folded(self.attention_norm, self.attention):
            normal = _Normalise.apply(x, self.attention_norm.eps)  # type: ignore[no-untyped-call]
            weight = self.attention_norm.weight
            more = cast(FusedAttention, self.attention)(normal, rope, document_ids, None, ids, weight)
        else:
            more = self.attention(self.attention_norm(x), rope, document_ids, None, ids)
        if folded(self.ffn_norm, self.ffn):
            x, normal = _AddNormalise.apply(x, more, self.ffn_norm.eps)  # type: ignore[no-untyped-call]
            return x + self.ffn(normal, self.ffn_norm.weight)  # type: ignore[no-any-return]
        x = x + more
        return x + self.ffn(self.ffn_norm(x))  # type: ignore[no-any-return]


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    RMSNorm: FusedRMSNorm,
    Attention: FusedAttention,
    SwiGLU: FusedSwiGLU,
    MLP: FusedMLP,
    Block: FusedBlock,
}


def folded(norm: nn.Module, reader: nn.Module) -> bool:
    """Whether reader's first product can take the weight of the norm that it reads: nobody watches either."""
    if type(norm) is not FusedRMSNorm or type(reader) not in (FusedAttention, FusedSwiGLU, FusedMLP):
        return False
    first = reader.qkv if isinstance(reader, Attention) else reader.gate_up if isinstance(reader, SwiGLU) else reader.up
    return type(first) is nn.Linear and not (hooked(norm) or hooked(reader) or hooked(first))


def linear(layer: nn.Module, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """layer(x · weight): the weight (in,) is multiplied into the layer's matrix rather than into every position."""
    if weight is not None:
        y = _WeightedLinear.apply(x, layer.weight, weight)  # type: ignore[no-untyped-call]
    elif (
        type(layer) is nn.Linear
        and layer.out_features > layer.in_features
        and in_full_precision(x)
        and torch.is_grad_enabled()
        and not hooked(layer)
    ):
        y = _WideLinear.apply(x, layer.weight)  # type: ignore[no-untyped-call]
    else:
        return layer(x)  # type: ignore[no-any-return]
    return y if layer.bias is None else y + layer.bias  # type: ignore[no-any-return]


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x of grad (rows, out) and x (rows, in), (out, in), as the library is faster at it: by tall times wide."""
    if grad.shape[1] > x.shape[1]:
        return (x.T @ grad).T.contiguous()
    return grad.T @ x


class _WideLinear(torch.autograd.Function):
    """y = x matrixᵀ of a matrix with more rows than columns, whose gradient is weight_gradient()."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return F.linear(x, matrix)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, matrix = ctx.saved_tensors
        return grad @ matrix, weight_gradient(grad.flatten(0, -2), x.flatten(0, -2))


class _WeightedLinear(torch.autograd.Function):
    """y = x (matrix · weight)ᵀ: with G = gᵀ x, dmatrix = G · weight and dweight = Σ G · matrix over the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
        both = matrix * weight
        ctx.save_for_backward(x, matrix, weight, both)
        return F.linear(x, both)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, matrix, weight, both = ctx.saved_tensors
        product = weight_gradient(grad.flatten(0, -2), x.flatten(0, -2))
        return grad @ both, product * weight, (product * matrix).sum(0)


class _Gated(torch.autograd.Function):
    """silu(gate) · up of both (…, 2 · d_ff), the gate's half first. What is kept is what autograd would keep."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        out, active = passes.gated(passes.compiled(both), both)
        ctx.save_for_backward(both, active)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return passes.gated_back(passes.compiled(grad), grad, *ctx.saved_tensors)


class _ScaledNorm(torch.autograd.Function):
    """x / rms(x) · weight. With n = x / rms(x): dweight = Σ g n and dx = (g weight - n mean(g weight n)) / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        _, normal, inverse = passes.normalise(passes.compiled(x), x, eps)
        ctx.save_for_backward(normal, weight, inverse)
        scaled: Tensor = normal * weight
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, weight, inverse = ctx.saved_tensors
        for_x = passes.normalise_back(passes.compiled(grad), grad * weight, normal, inverse)
        return for_x, (grad * normal).flatten(0, -2).sum(0), None


class _Normalise(torch.autograd.Function):
    """x / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        _, normal, inverse = passes.normalise(passes.compiled(x), x, eps)
        ctx.save_for_backward(normal, inverse)
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return passes.normalise_back(passes.compiled(grad), grad, *ctx.saved_tensors), None


class _AddNormalise(torch.autograd.Function):
    """x + y, and that divided by its rms: one pass over memory for two, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total, normal, inverse = passes.normalise(passes.compiled(x), x, eps, y)
        ctx.save_for_backward(normal, inverse)
        return total, normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, inverse = ctx.saved_tensors
        slope = passes.normalise_back(passes.compiled(grad), grad, normal, inverse, own)
        return slope, slope, None
