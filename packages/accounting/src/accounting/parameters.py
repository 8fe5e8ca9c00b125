"""Parameters, by component; equal to sum(p.numel()) of the model."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape
from accounting.units import Parameters


def symbols(shape: TransformerShape) -> dict[str, Term]:
    """The letters of the formulas (breakdown.SYMBOLS says what they mean) with the numbers of this shape."""
    return {
        "V": Symbol("V", shape.vocab_rows),
        "C": Symbol("C", shape.context_length),
        "L": Symbol("L", shape.num_layers),
        "d": Symbol("d", shape.d_model),
        "h": Symbol("h", shape.num_heads),
        "k": Symbol("k", shape.kv_heads),
        "e": Symbol("e", shape.head_width),
        "f": Symbol("f", shape.d_ff),
    }


def parameters(shape: TransformerShape, *, active: bool = False) -> Breakdown:
    """Parameters of every component; with active=True, of the experts only those that one token passes.

    A tied head has none of its own. The final norm is among the norms, as are the query and key norms.
    """
    s = symbols(shape)
    L, d, h, k, e, f = s["L"], s["d"], s["h"], s["k"], s["e"], s["f"]
    attention = d * e * (h + 2 * k) + h * e * d
    if shape.biased_qkv:
        attention = attention + e * (h + 2 * k)
    if shape.bias:
        attention = attention + d
    matrices = 3 if shape.gated else 2
    ffn = matrices * d * f
    if shape.bias:
        ffn = ffn + (matrices - 1) * f + d
    router = 0
    if shape.experts is not None:
        experts = Symbol("A", shape.active_experts) if active else Symbol("E", shape.experts)
        ffn = experts * ffn
        router = L * d * Symbol("E", shape.experts)
    norms = shape.norms * (2 * d if shape.norm == "layernorm" and shape.bias else d)
    if shape.qk_norm:
        norms = norms + L * 2 * e
    return breakdown(
        "parameters" + (" (active)" if active else ""),
        Parameters,
        {
            "embedding": s["V"] * d,
            "positions": s["C"] * d if shape.position == "learned" else 0,
            "attention": L * attention,
            "ffn": L * ffn,
            "router": router,
            "norms": norms,
            "head": 0 if shape.tied_embeddings else s["V"] * d,
        },
        "every trainable number once: "
        + (
            "the tied head is the embedding and counts nothing"
            if shape.tied_embeddings
            else "the head is its own matrix"
        ),
    )


def matrices(shape: TransformerShape) -> dict[tuple[int, int], int]:
    """Weight matrices inside the blocks by (rows, columns), smaller side first: how many there are; experts each count."""
    d, q, kv = shape.d_model, shape.num_heads * shape.head_width, shape.kv_heads * shape.head_width
    copies = 1 if shape.experts is None else shape.experts
    found = [(d, q, 1), (d, kv, 2), (q, d, 1), (d, shape.d_ff, copies * (3 if shape.gated else 2))]
    if shape.experts is not None:
        found.append((d, shape.experts, 1))
    counts: dict[tuple[int, int], int] = {}
    for rows, columns, count in found:
        key = (min(rows, columns), max(rows, columns))
        counts[key] = counts.get(key, 0) + count * shape.num_layers
    return counts
