"""Every matrix multiplication of a forward pass by itself: its FLOPs, and the weights that it reads."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions, latent_matrices
from accounting.counting.flops import PAIRS, doubled_pairs, pairs_in_words
from accounting.formula import Symbol, Term
from accounting.record import Record
from accounting.shape import TransformerShape, choose, positive
from accounting.units import FLOPs


class Matmul(Record):
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


def matmuls(shape: TransformerShape, tokens: Term, batch: Term, pairs: Term, *, absorbed: bool = False) -> list[Matmul]:
    """The matrix multiplications over so many tokens, and twice so many pairs of a query and a key it sees.

    absorbed: latent attention over the latents themselves, as decoding has it.
    """
    n = Dimensions(shape)
    found = [Matmul(name, 2 * tokens * size, size) for name, size in _projections(shape).items()]
    of_key, of_value = n.head_dim, n.head_dim  # elements multiplied for each pair of positions
    if shape.latent is not None:
        of_key = n.kv_rank + n.rope_dim if absorbed else n.nope_dim + n.rope_dim
        of_value = n.kv_rank if absorbed else n.value_dim
    scores = [
        Matmul("scores: query·keyᵀ", batch * n.n_heads * of_key * pairs, Term(0)),
        Matmul("scores: weights·value", batch * n.n_heads * of_value * pairs, Term(0)),
    ]
    found = [*found[:-1], *scores, found[-1]]  # the output's comes after them
    names = ("gate", "up", "down") if shape.gated else ("up", "down")
    of_ffn = n.expert_layers * n.d_model * n.d_ff
    if shape.experts is not None:
        of_ffn = n.active_experts * of_ffn
    found += [Matmul(f"ffn {name}", 2 * tokens * of_ffn, of_ffn, shape.experts is not None) for name in names]
    if shape.shared_d_ff is not None:
        shared = n.expert_layers * n.d_model * n.shared_d_ff
        found += [Matmul(f"shared ffn {name}", 2 * tokens * shared, shared) for name in names]
    if shape.dense_layers:
        dense = n.dense_layers * n.d_model * n.dense_d_ff
        found += [Matmul(f"dense ffn {name}", 2 * tokens * dense, dense) for name in names]
    if shape.experts is not None:
        router = n.expert_layers * n.d_model * n.n_experts
        found.append(Matmul("router", 2 * tokens * router, router))
    if shape.value_embeddings:
        gates = Symbol("value_layers", shape.value_embeddings) * n.n_kv_heads * n.d_model
        found.append(Matmul("value gates", 2 * tokens * gates, gates))
    if shape.lora_rank is not None:
        adapters = n.n_layers * adapter_elements(shape, shape.active_experts)
        found.append(Matmul("adapters", 2 * tokens * adapters, adapters))
    head = n.d_model * n.vocab
    return [*found, Matmul("head", 2 * tokens * head, head)]


def _projections(shape: TransformerShape) -> dict[str, Term]:
    """Elements of attention's matrices in all layers, in order, the output's last."""
    n = Dimensions(shape)
    if shape.latent is not None:
        return {name: n.n_layers * size for name, size in latent_matrices(shape).items()}
    queries = n.n_layers * n.d_model * n.n_heads * n.head_dim
    keys = n.n_layers * n.d_model * n.n_kv_heads * n.head_dim
    return {"query": queries, "key": keys, "value": keys, "output": queries}
