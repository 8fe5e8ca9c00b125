"""The kinds of layers that a shape has, where they stand in its depth, and the matrices of each.

Most shapes have one kind. Beside layers with experts some have dense ones, and beside layers with rotary positions some
without.
"""

from __future__ import annotations

from functools import lru_cache

from accounting.formula import Symbol, Term
from accounting.record import Record
from accounting.shape import TransformerShape


class LayerKind(Record):
    """Layers of a shape that cost alike.

    Args:
        dense: whether it has one feed-forward layer of dense_d_ff where others have experts.
        rotated: whether its queries and keys are rotated.
        words: what tells it from the other kinds of its shape, empty where there are none.
    """

    dense: bool
    rotated: bool
    words: str = ""

    @property
    def symbol(self) -> str:
        """What the number of these layers is called in a formula."""
        return "_".join([*self.words.split(), "layers"]) if self.words else "n_layers"


class Stack(Record):
    """The layers of a shape.

    Args:
        counts: how many of each kind there are.
        ends: the last and the first layer of each kind, where a backward pass may need most, from the top: its name,
            its kind, and the layers below it by kind.
    """

    counts: dict[LayerKind, Term]
    ends: tuple[tuple[str, LayerKind, dict[LayerKind, Term]], ...]


@lru_cache(maxsize=64)  # a search over layouts asks for the same stages again
def stack(shape: TransformerShape) -> Stack:
    """The layers of a shape by kind.

    >>> from accounting import SHAPES
    >>> [(kind.words, count) for kind, count in stack(SHAPES["deepseek-v3"]).counts.items()]
    [('expert', 58), ('dense', 3)]
    """
    if not shape.dense_layers and not 0 < shape.unrotated_layers < shape.num_layers:
        kind = LayerKind(False, shape.position == "rope" and not shape.unrotated_layers)
        layers = Symbol(kind.symbol, shape.num_layers)
        return Stack({kind: layers}, (("last", kind, {kind: layers - 1}), ("first", kind, {kind: Term(0)})))
    kinds = [_kind(shape, at) for at in range(shape.num_layers)]
    counts = {kind: Symbol(kind.symbol, kinds.count(kind)) for kind in dict.fromkeys(reversed(kinds))}
    ends = []
    for name, order in (("last", reversed(range(len(kinds)))), ("first", range(len(kinds)))):
        found: dict[LayerKind, int] = {}
        for at in order:
            found.setdefault(kinds[at], at)
        ends += [(at, name, kind) for kind, at in found.items()]
    return Stack(
        counts,
        tuple(
            (
                f"{name} {kind.words}",
                kind,
                {one: _all_but(count, kinds[at:].count(one)) for one, count in counts.items()},
            )
            for at, name, kind in sorted(ends, key=lambda end: -end[0])
        ),
    )


def _all_but(count: Term, others: int) -> Term:
    """count - others, and a plain nothing where that is one."""
    return Term(0) if int(count) == others else count - others


def _kind(shape: TransformerShape, at: int) -> LayerKind:
    """The kind of layer `at` of the depth."""
    layers, with_experts = shape.num_layers, shape.expert_layers
    dense = at < shape.dense_layers
    if shape.dense_interleaved:  # the last of every so many has experts
        dense = (at + 1) * with_experts // layers == at * with_experts // layers
    unrotated = (at + 1) * shape.unrotated_layers // layers > at * shape.unrotated_layers // layers
    words = [("dense" if dense else "expert")] if shape.dense_layers else []
    if 0 < shape.unrotated_layers < layers:
        words.append("unrotated" if unrotated else "rotated")
    return LayerKind(dense, shape.position == "rope" and not unrotated, " ".join(words))


def layer_matrices(shape: TransformerShape, kind: LayerKind) -> list[tuple[int, int, int]]:
    """The matrices of one layer: (rows, columns, how many); experts each count.

    Queries, keys and values are one matrix, and so are gate and up, as in `lm`; transformers has them apart, but for
    the gate and up of an expert.
    """
    d, e, f = shape.d_model, shape.head_width, shape.d_ff
    gates = 2 if shape.gated else 1
    if not shape.beyond_lm:
        found = [(d, (shape.num_heads + 2 * shape.kv_heads) * e, 1), (shape.num_heads * e, d, 1)]
    elif shape.latent is not None:
        found = _latent_matrices(shape)
    else:
        found = [(d, shape.num_heads * e, 1), (d, shape.kv_heads * e, 2), (shape.num_heads * e, d, 1)]
    if kind.dense:
        return [*found, (d, shape.dense_d_ff or 0, gates), (shape.dense_d_ff or 0, d, 1)]
    if shape.experts is None and shape.beyond_lm:
        return [*found, (d, f, gates), (f, d, 1)]
    found += [(d, gates * f, shape.held_experts), (f, d, shape.held_experts)]
    if shape.experts is not None:
        found.append((d, shape.experts, 1))
    if shape.shared_d_ff is not None:
        found += [(d, shape.shared_d_ff, gates), (shape.shared_d_ff, d, 1)]
    return found


def _latent_matrices(shape: TransformerShape) -> list[tuple[int, int, int]]:
    latent, d, heads = shape.latent, shape.d_model, shape.num_heads
    assert latent is not None
    of_query = latent.nope_dim + latent.rope_dim
    found = [(d, heads * of_query, 1)]
    if latent.q_rank is not None:
        found = [(d, latent.q_rank, 1), (latent.q_rank, heads * of_query, 1)]
    return [
        *found,
        (d, latent.kv_rank + latent.rope_dim, 1),
        (latent.kv_rank, heads * (latent.nope_dim + latent.value_dim), 1),
        (heads * latent.value_dim, d, 1),
    ]
