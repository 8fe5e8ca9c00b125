"""The sizes of a shape as named numbers, the leaves of every formula, and the elements of attention's matrices."""

from __future__ import annotations

from accounting.formula import Symbol, Term, constant
from accounting.layer import AnyAttention, FeedForward, LatentAttention, Mixer
from accounting.shape import TransformerShape


class Dimensions:
    """The sizes of a shape as Symbols; breakdown.symbols() says what each name means."""

    def __init__(self, shape: TransformerShape) -> None:
        self.vocab: Term = Symbol("vocab", shape.vocab_rows)
        self.max_seq: Term = Symbol("max_seq", shape.context_length + shape.extra_positions)
        self.n_layers: Term = Symbol("n_layers", shape.num_layers)
        self.d_model: Term = Symbol("d_model", shape.d_model)
        self.n_heads: Term = Symbol("n_heads", shape.num_heads)
        self.n_kv_heads: Term = Symbol("n_kv_heads", shape.kv_heads)
        self.head_dim: Term = Symbol("head_dim", shape.head_width)


class LatentDimensions:
    """The sizes of latent attention."""

    def __init__(self, latent: LatentAttention) -> None:
        self.q_rank: Term = Symbol("q_rank", latent.q_rank or 0)
        self.kv_rank: Term = Symbol("kv_rank", latent.kv_rank)
        self.nope_dim: Term = Symbol("nope_dim", latent.nope_dim)
        self.rope_dim: Term = Symbol("rope_dim", latent.rope_dim)
        self.value_dim: Term = Symbol("value_dim", latent.value_dim)
        self.index_heads: Term = Symbol("index_heads", latent.indexer.heads if latent.indexer else 0)
        self.index_dim: Term = Symbol("index_dim", latent.indexer.width if latent.indexer else 0)


class FfnDimensions:
    """The sizes of a feed-forward layer."""

    def __init__(self, shape: TransformerShape, ffn: FeedForward) -> None:
        beside_experts = ffn.experts is None and len(shape.ffns) > 1
        self.d_ff: Term = Symbol("dense_d_ff" if beside_experts else "d_ff", ffn.d_ff or shape.d_ff)
        self.n_experts: Term = Symbol("n_experts", ffn.experts or 1)
        self.held_experts: Term = Symbol("n_experts" if ffn.experts_held is None else "held_experts", ffn.held)
        self.active_experts: Term = Symbol("active_experts", ffn.active)
        self.shared_d_ff: Term = Symbol("shared_d_ff", ffn.shared_d_ff or 0)


def attention_matrices(shape: TransformerShape, attention: AnyAttention) -> dict[str, Term]:
    """Elements of each matrix of one layer's attention or state, the output's last."""
    n = Dimensions(shape)
    if isinstance(attention, Mixer):
        d = n.d_model
        sides = {name: (d if one is None else constant(one), other) for name, one, other in attention.matrices}
        return {name: rows * (d if columns is None else columns) for name, (rows, columns) in sides.items()}
    if isinstance(attention, LatentAttention):
        m = LatentDimensions(attention)
        queries = n.n_heads * (m.nope_dim + m.rope_dim)
        sizes = {"query": n.d_model * queries}
        if attention.q_rank is not None:
            sizes = {"query down": n.d_model * m.q_rank, "query up": m.q_rank * queries}
        if attention.indexer is not None:
            sizes["index query"] = m.q_rank * (m.index_heads * m.index_dim)
            sizes |= {"index key": n.d_model * m.index_dim, "index weights": n.d_model * m.index_heads}
        return sizes | {
            "key and value down": n.d_model * (m.kv_rank + m.rope_dim),
            "key and value up": m.kv_rank * (n.n_heads * (m.nope_dim + m.value_dim)),
            "output": n.n_heads * m.value_dim * n.d_model,
        }
    queries, keys = n.d_model * n.n_heads * n.head_dim, n.d_model * n.n_kv_heads * n.head_dim
    gate = {"attention gate": queries} if attention.gated else {}
    own = {} if attention.reuses else {"key": keys, "value": keys}
    return {"query": queries, **gate, **own, "output": queries}


def small_tensors(shape: TransformerShape, attention: AnyAttention) -> dict[str, list[Term]]:
    """Elements of the parameters of one layer's attention that are no matrices: biases and the like, and norms."""
    n = Dimensions(shape)
    if isinstance(attention, Mixer):
        return {"others": list(map(constant, attention.vectors)), "norms": list(map(constant, attention.norms))}
    biases: list[Term] = [n.d_model] if shape.biased_output else []
    if isinstance(attention, LatentAttention):
        m = LatentDimensions(attention)
        ranks = [m.q_rank] if attention.q_rank is not None else []
        if shape.biased_qkv:
            biases += [*ranks, m.kv_rank + m.rope_dim]
        if attention.indexer is not None:  # the norm of the index keys has a bias
            ranks = [*ranks, m.index_dim, m.index_dim]
        return {"others": biases, "norms": [*ranks, m.kv_rank]}
    heads, keys = n.n_heads * n.head_dim, n.n_kv_heads * n.head_dim
    if shape.biased_qkv and shape.plain:
        biases.insert(0, n.head_dim * (n.n_heads + 2 * n.n_kv_heads))
    elif shape.biased_qkv:
        biases = [2 * heads if attention.gated else heads, keys, keys, *biases]
    if attention.sinks:
        biases.insert(0, n.n_heads)
    norms = {"head": [n.head_dim, n.head_dim], "width": [heads, keys]}.get(attention.qk_norm or "none", [])
    if attention.reuses:
        norms, biases = norms[:1], [size for size in biases if size is not keys]
    return {"others": biases, "norms": norms}
