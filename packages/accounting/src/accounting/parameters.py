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
    """Weight matrices inside the blocks by (rows, columns), smaller side first: how many there are; experts each count.

    As in `lm`: queries, keys and values are one matrix, and so are gate and up.
    """
    d, f, e = shape.d_model, shape.d_ff, shape.head_width
    copies = shape.experts or 1
    found = [(d, (shape.num_heads + 2 * shape.kv_heads) * e, 1), (shape.num_heads * e, d, 1)]
    found += [(d, (2 if shape.gated else 1) * f, copies), (f, d, copies)]
    if shape.experts is not None:
        found.append((d, shape.experts, 1))
    counts: dict[tuple[int, int], int] = {}
    for rows, columns, count in found:
        key = (min(rows, columns), max(rows, columns))
        counts[key] = counts.get(key, 0) + count * shape.num_layers
    return counts


def block_matrices(shape: TransformerShape) -> int:
    """Numbers in the matrices of one block, those that its products read."""
    return sum(rows * columns * count for (rows, columns), count in matrices(shape).items()) // shape.num_layers


def other_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """The parameters that are no matrix of a block, as tensors: (how many, numbers of one)."""
    d, f, e, L = shape.d_model, shape.d_ff, shape.head_width, shape.num_layers
    copies = L * (shape.experts or 1)
    found = [(1 if shape.tied_embeddings else 2, shape.vocab_rows * d)]
    if shape.position == "learned":
        found.append((1, shape.context_length * d))
    if shape.biased_qkv:
        found.append((L, (shape.num_heads + 2 * shape.kv_heads) * e))
    if shape.bias:
        found += [(L, d), (copies, (2 if shape.gated else 1) * f), (copies, d)]
    if shape.norms:
        found.append((shape.norms * (2 if shape.norm == "layernorm" and shape.bias else 1), d))
    if shape.qk_norm:
        found.append((2 * L, e))
    return found


def tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """Every parameter as a tensor: (how many, numbers of one)."""
    return [(count, rows * columns) for (rows, columns), count in matrices(shape).items()] + other_tensors(shape)
