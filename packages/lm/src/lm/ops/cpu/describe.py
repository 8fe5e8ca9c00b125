"""A model as forward.c reads it: pointers to its weights, and of each family the norms, factors and switches that its
block has beside Llama's. A class of any other module than this package's, or a method that is not among those below, is
not described, and the model computes by PyTorch."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as all_modules

from lm.model import Transformer
from lm.ops.cpu.build import Unavailable
from lm.ops.cpu.int8 import Int8Linear
from lm.ops.cpu.stored import BLOCKS, Rows, StoredEmbedding, StoredLinear

Pointer, Count, Real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
# The numbers by which vectors.c and kinds.c know them.
KINDS = {"F32": 0, "BF16": 1, "F16": 2, "INT8": 3, "Q8_0": 4, "Q4_K": 5, "Q5_K": 6, "Q6_K": 7}
RMSNORM, LAYERNORM, NO_NORM = range(3)
ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_exact": 2, "relu2": 3, "clamped": 4}
# The methods that forward.c computes, by their class.
MODEL = {
    "forward": ("Transformer",),
    "hidden": ("Transformer", "Cohere", "Granite"),
    "ropes": ("Transformer", "FamilyModel"),
    "logits": ("Transformer",),
}
ATTENTION = {
    "forward": ("Attention", "FusedAttention"),
    "project": ("Attention", "WideNormAttention"),
    "rotate": ("Attention", "FamilyAttention"),
    "attend": ("Attention", "Gemma2Attention", "GptOssAttention"),
}
# Blocks by the place of their norms: of a sublayer's input, its output, or the sum of both.
BEFORE = ("LlamaBlock", "GraniteBlock", "GPTNeoXBlock", "CohereBlock")
PARALLEL = ("CohereBlock",)
NORMS = {
    **dict.fromkeys(("RMSNorm", "GemmaNorm"), RMSNORM),
    **dict.fromkeys(("LayerNorm", "HeadNorm"), LAYERNORM),
    "Identity": NO_NORM,
}
HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
GATED = {"SwiGLU": "silu", "GeGLU": "gelu", "ClampedSwiGLU": "clamped"}


class Matrix(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("weight", "scale", "bias")),
        *((name, Count) for name in ("kind", "rows", "columns", "stride")),
    ]


class Norm(ctypes.Structure):
    _fields_ = [("weight", Pointer), ("bias", Pointer), ("kind", Count), ("step", Count), ("eps", Real)]


class Activation(ctypes.Structure):
    _fields_ = [("kind", Count), ("gated", Count), ("alpha", Real), ("limit", Real)]


class FeedForward(ctypes.Structure):
    _fields_ = [("gate", Matrix), ("up", Matrix), ("down", Matrix)]


class Norms(ctypes.Structure):
    _fields_ = [("before", Norm), ("after", Norm), ("of_sum", Norm)]


class Layer(ctypes.Structure):
    _fields_ = [
        *((name, Norms) for name in ("attention", "ffn")),
        *((name, Norm) for name in ("q_norm", "k_norm")),
        ("qkv", Matrix * 3),
        *((name, Matrix) for name in ("output", "value_gate", "router")),
        *((name, Pointer) for name in ("value_embedding", "sinks", "rope", "long_rope")),
        ("experts", ctypes.POINTER(FeedForward)),
        *((name, Count) for name in ("pairs", "window")),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        *((name, Count) for name in ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "expert_d_ff")),
        *((name, Count) for name in ("wide_norms", "neighbours", "long_rope_from")),
        *((name, Count) for name in ("parallel", "per_token", "normalised")),
        *((name, Real) for name in ("embedding_scale", "query_scale", "score_cap")),
        *((name, Real) for name in ("residual_scale", "hidden_scale", "logit_cap")),
        ("activation", Activation),
        ("positions", Pointer),
        ("final_norm", Norm),
        ("embedding", Matrix),
        ("head", Matrix),
        ("layer", ctypes.POINTER(Layer)),
    ]


class Description:
    """`model`, a structure of C, and `referenced`, all that it points to. Unavailable: forward.c cannot compute it."""

    def __init__(self, model: Transformer, dtype: torch.dtype, capacity: int) -> None:
        c: Any = model.config
        for module in (model, *model.modules()):
            if not is_plain(module):
                raise Unavailable(f"a {type(module).__name__} of the model has a hook or a forward of its own")
            if not type(module).__module__.startswith(("lm.", "torch.nn.")):
                raise Unavailable(f"there is a {type(module).__name__} in the model")
        check_methods(model, MODEL)
        self.dtype, self.referenced = dtype, list[Any]()
        self.activations, self.d_ff = set[tuple[str, bool, float, float]](), [0, 0]  # of dense layers, of experts
        blocks: list[Any] = list(model.blocks)
        layers = (Layer * len(blocks))(*map(self.layer, blocks))
        self.referenced.append(layers)
        self.rotations(model, layers, capacity)
        if len(self.activations) > 1:
            raise Unavailable("its layers have several activations")
        (name, gated, alpha, limit), first = self.activations.pop(), blocks[0]
        attention, ffn = first.attention, next((b.ffn for b in blocks if hasattr(b.ffn, "experts")), None)
        kind, factors = owner(model, "hidden"), {"Cohere": "logit_scale", "Granite": "logits_scaling"}
        factor = getattr(c, factors[kind]) if kind in factors else 1.0
        embedding: Any = model.embedding
        self.model = Model(
            layers=len(blocks),
            d_model=c.d_model,
            heads=c.num_heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_width,
            d_ff=self.d_ff[0],
            expert_d_ff=self.d_ff[1],
            wide_norms=owner(attention, "project") == "WideNormAttention",
            neighbours=getattr(getattr(attention, "rotation", None), "__name__", "") == "rotate_neighbours",
            long_rope_from=getattr(c, "rope_changes_at", None) or 0,
            parallel=owner(first, "forward") in PARALLEL or getattr(first, "parallel", False),
            per_token=0 if ffn is None else ffn.per_token,
            normalised=ffn is not None and ffn.normalised,
            embedding_scale=getattr(embedding, "scale", 1.0),
            query_scale=getattr(attention, "query_scale", 1.0) / math.sqrt(c.head_width),
            score_cap=getattr(attention, "softcap", None) or 0.0,
            residual_scale=getattr(first, "multiplier", 1.0),
            hidden_scale=1 / factor if kind == "Granite" else factor,
            logit_cap=c.logit_softcap or 0.0,
            activation=Activation(ACTIVATIONS[name], gated, alpha, limit),
            positions=None if model.positions is None else self.at(model.positions.weight),
            final_norm=self.norm(model.final_norm),
            embedding=self.matrix(model.embedding),
            head=self.matrix(model.embedding if model.head is None else model.head),
            layer=layers,
        )

    def layer(self, block: Any) -> Layer:
        attention, ffn = block.attention, block.ffn
        check_methods(attention, ATTENTION)
        none = Norm(kind=NO_NORM)
        own, others = (self.norm(getattr(block, name, block.attention_norm)) for name in ("attention_norm", "ffn_norm"))
        kind = owner(block, "forward")
        if kind in BEFORE or (kind == "Block" and not block.post_norm):
            norms = Norms(own, none, none), Norms(others, none, none)
        elif kind == "Block":
            norms = Norms(none, none, own), Norms(none, none, others)
        elif kind == "Olmo2Block":
            norms = Norms(none, own, none), Norms(none, others, none)
        elif kind == "SandwichBlock":
            after, last = self.norm(block.attention_post_norm), self.norm(block.ffn_post_norm)
            norms = Norms(own, after, none), Norms(others, last, none)
        else:
            raise Unavailable(f"there is a {type(block).__name__} in the model")
        has_experts = owner(ffn, "forward") == "Experts"
        parts = list(ffn.experts) if has_experts else [ffn]
        experts = (FeedForward * len(parts))(*map(self.feed_forward, parts))
        self.referenced.append(experts)
        self.d_ff[has_experts] = max(self.d_ff[has_experts], experts[0].down.columns)
        embedding, sinks = attention.value_embedding, getattr(attention, "sinks", None)
        return Layer(
            *norms,
            q_norm=self.norm(attention.q_norm),
            k_norm=self.norm(attention.k_norm),
            qkv=(Matrix * 3)(*self.matrices(attention.qkv)),
            output=self.matrix(attention.output),
            value_gate=Matrix() if embedding is None else self.matrix(attention.value_gate),
            router=self.matrix(ffn.router) if has_experts else Matrix(),
            value_embedding=None if embedding is None else self.at(embedding.weight),
            sinks=None if sinks is None else self.at(sinks),
            experts=experts,
            window=attention.sliding_window or 0,
        )

    def feed_forward(self, ffn: Any) -> FeedForward:
        """The matrices of a feed-forward layer, or of one expert."""
        kind = owner(ffn, "forward")
        if kind in GATED:
            clamp = (ffn.alpha, ffn.limit) if kind == "ClampedSwiGLU" else (0.0, 0.0)
            self.activations.add((GATED[kind], True, *clamp))
            gate, *up = self.matrices(ffn.gate_up, 2)
            return FeedForward(gate, *up, self.matrix(ffn.down))
        if kind != "MLP":
            raise Unavailable(f"there is a {type(ffn).__name__} in the model")
        self.activations.add((ffn.activation, False, 0.0, 0.0))
        return FeedForward(Matrix(), self.matrix(ffn.up), self.matrix(ffn.down))

    def rotations(self, model: Transformer, layers: Any, capacity: int) -> None:
        """Give each layer its cosines and sines, and others for texts beyond a length that has its own rotation."""
        c: Any = model.config
        changes_at = getattr(c, "rope_changes_at", None)
        if getattr(c, "rope_depends_on_length", False) and changes_at is None:
            raise Unavailable("its rotation depends on the length of the text")
        like = next(model.parameters())
        short = model.ropes(slice(0, min(capacity, changes_at or capacity)), like)
        long = model.ropes(slice(0, capacity), like) if changes_at is not None else short
        for layer, *tables in zip(layers, short, long, strict=True):
            if tables[0] is not None:
                layer.rope, layer.long_rope = (self.at(table) for table in tables)
                layer.pairs = tables[0].shape[-2]

    def at(self, tensor: Any, dtype: torch.dtype | None = None) -> int:
        """The address of its numbers."""
        if tensor.dtype != (dtype or self.dtype):
            raise Unavailable(f"weights are of several types, {self.dtype} and {tensor.dtype}")
        self.referenced.append(tensor.detach().contiguous())
        return int(self.referenced[-1].data_ptr())

    def norm(self, norm: Any) -> Norm:
        name = owner(norm, "forward")
        if name not in NORMS:
            raise Unavailable(f"there is a {type(norm).__name__} in the model")
        if NORMS[name] == NO_NORM:
            return Norm(kind=NO_NORM)
        weight, bias = norm.weight + 1 if name == "GemmaNorm" else norm.weight, getattr(norm, "bias", None)
        step = weight.shape[-1] if name == "HeadNorm" else 0
        return Norm(self.at(weight), None if bias is None else self.at(bias), NORMS[name], step, norm.eps)

    def matrix(self, layer: Any) -> Matrix:
        (result,) = self.matrices(layer)
        return result

    def matrices(self, layer: Any, count: int | None = None) -> list[Matrix]:
        """The matrices that make up the rows of a layer: each in its own type, or `count` with as many rows each."""
        if isinstance(layer, Int8Linear):
            padded = F.pad(layer.whole, (0, -layer.inputs % 32)) if layer.inputs % 32 else layer.whole  # whole blocks
            parts, scales = [Rows("INT8", padded)], layer.scale.to(self.dtype)
        elif isinstance(layer, StoredLinear | StoredEmbedding):
            parts, scales = layer.parts, None
        elif isinstance(layer, nn.Embedding) or owner(layer, "forward") in ("Linear", "FusedLinear"):
            parts, scales = [Rows("F32", layer.weight)], None
        else:
            raise Unavailable(f"there is a {type(layer).__name__} in the model")
        if count is not None and len(parts) != count:
            (rows,) = parts
            parts = [Rows(rows.kind, data) for data in rows.data.chunk(count)]
        biases, result, begin = getattr(layer, "bias", None), list[Matrix](), 0
        for rows in parts:
            span, (size, width) = slice(begin, begin + len(rows.data)), rows.data.shape
            result.append(
                Matrix(
                    self.at(rows.data, self.dtype if rows.kind == "F32" else rows.data.dtype),
                    None if scales is None else self.at(scales[span]),
                    None if biases is None else self.at(biases[span]),
                    KINDS[rows.kind],
                    size,
                    layer.inputs if scales is not None else rows.columns if rows.kind in BLOCKS else width,
                    rows.data.stride(0) * rows.data.element_size(),
                )
            )
            begin += size
        if any(KINDS[rows.kind] for rows in parts) and self.dtype != torch.float32:
            raise Unavailable(f"its weights are {parts[0].kind} beside {self.dtype}, and it is written for float32")
        return result


def owner(module: Any, method: str) -> str:
    """Name of the class whose method it is."""
    function = getattr(type(module), method)
    return str(getattr(function, "fget", function).__qualname__.split(".")[0])


def check_methods(module: nn.Module, methods: dict[str, tuple[str, ...]]) -> None:
    """Unavailable: a method is not one that forward.c computes."""
    for name, owners in methods.items():
        if owner(module, name) not in owners:
            raise Unavailable(f"there is a {type(module).__name__} in the model")


def hooked(module: nn.Module) -> bool:
    """True if a call of the module does more than its forward: it, or every module, has a hook."""
    return any(getattr(module, f"_{kind}") or getattr(all_modules, f"_global_{kind}") for kind in HOOKS)


def is_plain(module: nn.Module) -> bool:
    """True if a call of the module is its class's forward: it has no hooks, and no forward of its own."""
    return not hooked(module) and "forward" not in vars(module)
