"""The kinds of layers of a shape as named numbers, whatever their windows, and the matrices of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from accounting.formula import Symbol, Term
from accounting.layer import AnyAttention, Attention, FeedForward, Kind, LatentAttention, Mixer, without_window
from accounting.shape import TransformerShape


@dataclass(frozen=True)
class Stack:
    """The layers of a shape.

    Args:
        counts: number of layers of each kind, from the top.
        names: the word that tells each kind from the others; empty where there is one kind.
        ends: the last and the first layer of each kind, where a backward pass may need most memory, from the top: its
            name, its kind, and the layers below it by kind.
    """

    counts: dict[Kind, Term]
    names: dict[Kind, str]
    ends: tuple[tuple[str, Kind, dict[Kind, Term]], ...]


@lru_cache(maxsize=64)  # a search over layouts needs the same stages again
def stack(shape: TransformerShape) -> Stack:
    """The layers of a shape by kind, from the top."""
    layers, period = shape.num_layers, len(shape.leading) + len(shape.layers)
    if len(shape.matrix_kinds) == 1:
        ((kind, count),) = shape.matrix_kinds.items()
        depth = Symbol("n_layers", count)
        return Stack({kind: depth}, {kind: ""}, (("last", kind, {kind: depth - 1}), ("first", kind, {kind: Term(0)})))
    lowest = {without_window(shape.kind_at(at)): at for at in reversed(range(min(layers, period)))}
    places = [*range(min(layers, len(shape.leading))), *range(max(len(shape.leading), layers - period), layers)]
    highest = {without_window(shape.kind_at(at)): at for at in places}
    from_top = sorted(highest, key=lambda kind: -highest[kind])
    names = _names(shape)
    counts = {kind: Symbol("_".join([*names[kind].split(), "layers"]), shape.matrix_kinds[kind]) for kind in from_top}
    ends = [(at, "last", kind) for kind, at in highest.items()] + [(at, "first", kind) for kind, at in lowest.items()]
    return Stack(
        counts,
        names,
        tuple(
            (f"{name} {names[kind]}", kind, _below(shape, counts, at))
            for at, name, kind in sorted(ends, key=lambda end: -end[0])
        ),
    )


def _below(shape: TransformerShape, counts: dict[Kind, Term], depth: int) -> dict[Kind, Term]:
    """Layers of each kind below the layer at this depth, as the count less the others."""
    below = dict.fromkeys(counts, 0)
    for kind, number in shape.counts_below(depth).items():
        below[without_window(kind)] += number
    return {kind: count - (int(count) - below[kind]) if below[kind] else Term(0) for kind, count in counts.items()}


def _names(shape: TransformerShape) -> dict[Kind, str]:
    """A name of each kind by what it has and others have not, numbered where that is the same."""
    names: dict[Kind, str] = {}
    for kind in shape.matrix_kinds:
        words = [ffn_name(shape, kind.ffn)] if len(shape.ffns) > 1 else []
        if len({attention_name(one) for one in shape.attentions}) > 1:
            words.append(attention_name(kind.attention))
        elif len({one.attention.rotated for one in shape.matrix_kinds}) > 1:
            words.append("rotated" if kind.attention.rotated else "unrotated")
        name = " ".join(words)
        names[kind] = name if name not in names.values() else f"{name} {len(names) + 1}".strip()
    return names


def ffn_name(shape: TransformerShape, ffn: FeedForward) -> str:
    """The word for layers with this feed-forward layer among the others of the shape."""
    alike = [one for one in shape.ffns if (one.experts is None) == (ffn.experts is None)]
    number = f"{alike.index(ffn) + 1}" if alike.index(ffn) else ""
    return ("dense" if ffn.experts is None else "expert") + number


def attention_name(attention: AnyAttention) -> str:
    """The word for layers with this attention where there are several."""
    if isinstance(attention, Mixer):
        return attention.name.split()[0]
    return "latent" if isinstance(attention, LatentAttention) else "softmax"


def attention_groups(shape: TransformerShape) -> dict[AnyAttention, Term]:
    """Number of layers of each attention, whatever is rotated, and of each state in its place or beside it."""
    counts: dict[AnyAttention, int] = {}
    for attention, count in shape.attentions.items():
        key = attention
        if isinstance(attention, Attention):
            norm = "none" if attention.qk_norm == "l2" else attention.qk_norm
            key = replace(attention, window=None, chunked=False, rotated=False, qk_norm=norm, beside=None)
        if not isinstance(key, Mixer):
            counts[key] = counts.get(key, 0) + count
    groups = [*counts.items(), *shape.mixers.items()]
    return {key: layers_named(shape, attention_name(key), count) for key, count in groups}


def layers_named(shape: TransformerShape, name: str, count: int) -> Term:
    """A number of layers, called so unless it is all of them."""
    return Symbol("n_layers" if count == shape.num_layers else f"{name}_layers", count)


def ffn_layers(shape: TransformerShape) -> dict[FeedForward, Term]:
    """Number of layers with each feed-forward layer, those with experts first."""
    if len(shape.ffns) == 1:
        return {ffn: Symbol("n_layers", count) for ffn, count in shape.ffns.items()}
    order = sorted((ffn for ffn in shape.ffns if ffn.d_ff), key=lambda ffn: ffn.experts is None)
    return {ffn: Symbol(f"{ffn_name(shape, ffn)}_layers", shape.ffns[ffn]) for ffn in order}


def layer_matrices(shape: TransformerShape, kind: Kind) -> list[tuple[int, int, int]]:
    """The matrices of one layer: (rows, columns, how many); experts each count. Queries, keys and values are one matrix
    in `lm`, and so are gate and up; transformers has them apart, but for the gate and up of an expert."""
    d, e, f, ffn = shape.d_model, shape.head_width, kind.d_ff, kind.ffn
    gates = 2 if shape.gated else 1
    if shape.plain:
        sizes = [(d, (shape.num_heads + 2 * shape.kv_heads) * e, 1), (shape.num_heads * e, d, 1)]
    elif isinstance(kind.attention, LatentAttention):
        sizes = _latent_matrices(shape, kind.attention)
    elif isinstance(kind.attention, Mixer):
        sizes = []
    else:
        wide, keys = 2 if kind.attention.gated else 1, 0 if kind.attention.reuses else 2
        sizes = [(d, wide * shape.num_heads * e, 1), (d, shape.kv_heads * e, keys), (shape.num_heads * e, d, 1)]
    mixer = kind.attention if isinstance(kind.attention, Mixer) else kind.attention.beside
    if mixer is not None:
        sizes += [(d if one is None else one, d if other is None else other, 1) for _, one, other in mixer.matrices]
    if not f:
        return sizes
    if ffn.experts is None and not shape.plain:
        return [*sizes, (d, f, gates), (f, d, 1)]
    sizes += [(d, gates * f, ffn.held), (f, d, ffn.held)]
    if ffn.experts is not None:
        sizes.append((d, ffn.experts, 1))
    if ffn.shared_d_ff is not None:
        sizes += [(d, ffn.shared_d_ff, gates), (ffn.shared_d_ff, d, 1)]
    return [*sizes, (d, 1, 1)] if ffn.shared_gate else sizes


def _latent_matrices(shape: TransformerShape, latent: LatentAttention) -> list[tuple[int, int, int]]:
    d, heads, width = shape.d_model, shape.num_heads, latent.nope_dim + latent.rope_dim
    index = latent.indexer
    sizes = [(d, heads * width, 1)]
    if latent.q_rank is not None:
        sizes = [(d, latent.q_rank, 1), (latent.q_rank, heads * width, 1)]
    if index is not None and latent.q_rank is not None:
        sizes += [(latent.q_rank, index.heads * index.width, 1), (d, index.width, 1), (d, index.heads, 1)]
    return [
        *sizes,
        (d, latent.kv_rank + latent.rope_dim, 1),
        (latent.kv_rank, heads * (latent.nope_dim + latent.value_dim), 1),
        (heads * latent.value_dim, d, 1),
    ]
