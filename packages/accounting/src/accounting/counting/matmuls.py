"""Every matrix multiplication of a forward pass by itself: its FLOPs, and the weights that it reads."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.dimensions import Dimensions
from accounting.counting.flops import PAIRS, doubled_pairs, pairs_in_words
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape, choose, only_ordinary, positive
from accounting.units import FLOPs


@dataclass(frozen=True)
class Matmul:
    """One matrix multiplication of every layer together; weights: elements that a token multiplies, all layers'
    together."""

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
    found = matmuls(shape, batch * seq, batch, doubled_pairs(shape, seq, pairs))
    words = f"matrix multiplications of all {shape.num_layers} layers; scores over {pairs_in_words(pairs)}"
    return breakdown("forward FLOPs by matrix multiplication", FLOPs, {one.name: one.flops for one in found}, words)


def matmuls(shape: TransformerShape, tokens: Term, batch: Term, pairs: Term) -> list[Matmul]:
    """The matrix multiplications over so many tokens, and twice so many pairs of a query and a key it sees."""
    only_ordinary(shape, "each matrix multiplication")
    n = Dimensions(shape)
    queries = n.n_layers * n.d_model * n.n_heads * n.head_dim
    keys = n.n_layers * n.d_model * n.n_kv_heads * n.head_dim
    of_ffn = n.n_layers * n.d_model * n.d_ff
    if shape.experts is not None:
        of_ffn = n.active_experts * of_ffn
    of_pairs = batch * n.n_heads * n.head_dim * pairs  # two FLOPs a pair and element of a head
    found = [
        Matmul("query", 2 * tokens * queries, queries),
        Matmul("key", 2 * tokens * keys, keys),
        Matmul("value", 2 * tokens * keys, keys),
        Matmul("scores: query·keyᵀ", of_pairs, Term(0)),
        Matmul("scores: weights·value", of_pairs, Term(0)),
        Matmul("output", 2 * tokens * queries, queries),
    ]
    of_experts = shape.experts is not None
    names = ("gate", "up", "down") if shape.gated else ("up", "down")
    found += [Matmul(f"ffn {name}", 2 * tokens * of_ffn, of_ffn, of_experts) for name in names]
    if shape.experts is not None:
        router = n.n_layers * n.d_model * n.n_experts
        found.append(Matmul("router", 2 * tokens * router, router))
    head = n.d_model * n.vocab
    return [*found, Matmul("head", 2 * tokens * head, head)]
