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
        self.window: Term = Symbol("window", shape.sliding_window or 0)
        self.window_layers: Term = Symbol("window_layers", shape.windowed_layers)
