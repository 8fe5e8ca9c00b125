"""The rules of thumb for training FLOPs, beside the exact count."""

from __future__ import annotations

from accounting.checks import positive
from accounting.counting.dimensions import Dimensions
from accounting.counting.flops import training_flops
from accounting.counting.parameters import parameters
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape
from accounting.units import FLOPs


def training_estimates(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, pairs: str = "full"
) -> dict[str, FLOPs]:
    """The rules of thumb beside the exact count, forward and backward, for batch_size sequences; not to be added up.

    6N with and without the embeddings (Kaplan et al. 2020), PaLM's 6N + 12LHQT with all parameters (Chowdhery et al.
    2022, appendix B), and the matrix multiplications themselves.
    """
    terms = estimate_terms(shape, seq_len, batch_size)
    exact = training_flops(shape, seq_len, batch_size, pairs=pairs)
    return {**{name: FLOPs(int(term)) for name, term in terms.items()}, "exact": FLOPs(int(exact.total))}


def estimate_terms(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> dict[str, Term]:
    """The rules of thumb with their formulas; of experts only those count that a token passes."""
    n, counted = Dimensions(shape), parameters(shape, active=True)
    tokens = Symbol("batch", positive("batch_size", batch_size)) * Symbol("seq", shape.sequence(seq_len))
    params = Symbol("n_params", int(counted.total))
    outside = Symbol("embedding_params", int(counted["embedding"]) + int(counted["positions"]) + int(counted["head"]))
    scores = 12 * n.n_layers * n.n_heads * n.head_dim * Symbol("seq", shape.sequence(seq_len))
    return {
        "6N, no embeddings": 6 * (params - outside) * tokens,
        "6N, all parameters": 6 * params * tokens,
        "PaLM 6N + 12LHQT": (6 * params + scores) * tokens,
    }
