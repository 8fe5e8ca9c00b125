"""Every matrix multiplication of a forward pass by itself: its FLOPs, and the weights that it reads."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import choose, positive
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions, FfnDimensions, attention_matrices
from accounting.counting.flops import PAIRS, Pairs, doubled_pairs, score_flops, state_flops
from accounting.counting.layers import attention_groups, ffn_layers, ffn_name
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape
from accounting.units import FLOPs


@dataclass(frozen=True)
class Matmul:
    """One matrix multiplication of all layers together; weights: elements that a token multiplies in them."""

    name: str
    flops: Term
    weights: Term
    of_experts: bool = False


def matmul_flops(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, pairs: str = "full"
) -> Breakdown:
    """FLOPs of one forward pass, matrix multiplication by matrix multiplication; the total is that of forward_flops.

    Args:
        shape: the model.
        seq_len: positions of a sequence; the whole context unless given.
        batch_size: sequences.
        pairs: "full", "half" or "causal": the pairs of positions that scores are counted over.

    >>> from accounting import SHAPES
    >>> matmul_flops(SHAPES["gpt2-xl-swiglu"])["query"]
    FLOPs(251_658_240_000)
    """
    seq = Symbol("seq", shape.sequence(seq_len))
    batch = Symbol("batch", positive("batch_size", batch_size))
    choose("pairs", pairs, PAIRS)
    parts = matmuls(shape, batch * seq, batch, doubled_pairs(shape, seq, pairs))
    words = f"matrix multiplications of all {shape.num_layers} layers; scores over {PAIRS[pairs]}"
    return breakdown("forward FLOPs by matrix multiplication", FLOPs, {one.name: one.flops for one in parts}, words)


def matmuls(
    shape: TransformerShape, tokens: Term, batch: Term, pairs: Pairs, *, absorbed: bool = False
) -> list[Matmul]:
    """The matmuls over these tokens and twice these pairs; absorbed: latent attention over latents, as in decoding."""
    n = Dimensions(shape)
    projections: dict[str, Term] = {}
    for attention, layers in attention_groups(shape).items():
        for name, size in attention_matrices(shape, attention).items():
            elements = layers * size
            projections[name] = projections[name] + elements if name in projections else elements
    output = projections.pop("output")
    parts = [Matmul(name, 2 * tokens * size, size) for name, size in projections.items()]
    scores = score_flops(shape, batch, pairs, absorbed=absorbed)
    parts += [
        Matmul("scores: query·keyᵀ", scores["keys"], Term(0)),
        Matmul("scores: weights·value", scores["values"], Term(0)),
    ]
    parts += [Matmul(name, flops, Term(0)) for name, flops in state_flops(shape, tokens).items()]
    parts.append(Matmul("output", 2 * tokens * output, output))
    names = ("gate", "up", "down") if shape.gated else ("up", "down")
    routers, gates = [], []
    for ffn, layers in ffn_layers(shape).items():
        m, words = FfnDimensions(shape, ffn), "ffn"
        if ffn.experts is None and len(shape.ffns) > 1:
            words = f"{ffn_name(shape, ffn)} ffn"
        size = layers * n.d_model * m.d_ff
        if ffn.experts is not None:
            size = m.active_experts * size
            router = layers * n.d_model * m.n_experts
            routers.append(Matmul("router", 2 * tokens * router, router))
        parts += [Matmul(f"{words} {name}", 2 * tokens * size, size, ffn.experts is not None) for name in names]
        if ffn.shared_d_ff is not None:
            shared = layers * n.d_model * m.shared_d_ff
            parts += [Matmul(f"shared ffn {name}", 2 * tokens * shared, shared) for name in names]
        if ffn.shared_gate:
            gates.append(Matmul("shared gate", 2 * tokens * layers * n.d_model, layers * n.d_model))
    parts += [*routers, *gates]
    if shape.value_embeddings:
        elements = Symbol("value_layers", shape.value_embeddings) * n.n_kv_heads * n.d_model
        parts.append(Matmul("value gates", 2 * tokens * elements, elements))
    if shape.lora_rank is not None:
        (ffn,) = shape.ffns
        adapters = n.n_layers * adapter_elements(shape, ffn.active)
        parts.append(Matmul("adapters", 2 * tokens * adapters, adapters))
    head = n.d_model * n.vocab
    return [*parts, Matmul("head", 2 * tokens * head, head)]
