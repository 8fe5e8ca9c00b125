"""The sizes of a shape as named numbers, the leaves of every formula."""

from __future__ import annotations

from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape


class Dimensions:
    """The sizes of a shape as Symbols; breakdown.SYMBOLS says what each name means."""

    def __init__(self, shape: TransformerShape) -> None:
        self.vocab: Term = Symbol("vocab", shape.vocab_rows)
        self.max_seq: Term = Symbol("max_seq", shape.context_length)
        self.n_layers: Term = Symbol("n_layers", shape.num_layers)
        self.d_model: Term = Symbol("d_model", shape.d_model)
        self.n_heads: Term = Symbol("n_heads", shape.num_heads)
        self.n_kv_heads: Term = Symbol("n_kv_heads", shape.kv_heads)
        self.head_dim: Term = Symbol("head_dim", shape.head_width)
        self.d_ff: Term = Symbol("d_ff", shape.d_ff)
        self.n_experts: Term = Symbol("n_experts", shape.experts or 1)
        self.held_experts: Term = Symbol("held_experts", shape.held_experts)
        self.active_experts: Term = Symbol("active_experts", shape.active_experts)
        self.expert_layers: Term = Symbol("expert_layers", shape.expert_layers) if shape.dense_layers else self.n_layers
        self.dense_layers: Term = Symbol("dense_layers", shape.dense_layers)
        self.dense_d_ff: Term = Symbol("dense_d_ff", shape.dense_d_ff or 0)
        self.shared_d_ff: Term = Symbol("shared_d_ff", shape.shared_d_ff or 0)
        if shape.latent is not None:
            self.q_rank: Term = Symbol("q_rank", shape.latent.q_rank or 0)
            self.kv_rank: Term = Symbol("kv_rank", shape.latent.kv_rank)
            self.nope_dim: Term = Symbol("nope_dim", shape.latent.nope_dim)
            self.rope_dim: Term = Symbol("rope_dim", shape.latent.rope_dim)
            self.value_dim: Term = Symbol("value_dim", shape.latent.value_dim)
        self.window: Term = Symbol("window", shape.sliding_window or 0)
        self.window_layers: Term = Symbol("window_layers", shape.windowed_layers)


def latent_matrices(shape: TransformerShape) -> dict[str, Term]:
    """Elements of the matrices of latent attention in one layer."""
    n = Dimensions(shape)
    latent = shape.latent
    found: dict[str, Term] = {}
    queries = n.n_heads * (n.nope_dim + n.rope_dim)
    if latent is not None and latent.q_rank is not None:
        found |= {"query down": n.d_model * n.q_rank, "query up": n.q_rank * queries}
    else:
        found["query"] = n.d_model * queries
    return found | {
        "key and value down": n.d_model * (n.kv_rank + n.rope_dim),
        "key and value up": n.kv_rank * (n.n_heads * (n.nope_dim + n.value_dim)),
        "output": n.n_heads * n.value_dim * n.d_model,
    }
