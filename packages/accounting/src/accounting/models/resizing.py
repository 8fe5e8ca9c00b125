"""Shapes of another length, depth or width."""

from __future__ import annotations

from dataclasses import replace

from accounting.layer import LatentAttention, Layer, Mixer
from accounting.shape import TransformerShape


def lengthened(shape: TransformerShape, positions: int) -> TransformerShape:
    """The shape with a context of at least `positions` positions."""
    return replace(shape, context_length=max(shape.context_length, positions))


def deepened(shape: TransformerShape, layers: int) -> TransformerShape:
    """The shape with this number of layers: as large a part of them leads as before, rounded down but at least one."""
    leading = len(shape.leading)
    if leading:
        leading = min(layers, max(1, leading * layers // shape.num_layers))
    repeated = [shape.leading[at * len(shape.leading) // leading] for at in range(leading)]
    return replace(shape, num_layers=layers, leading=tuple(repeated))


def widened(shape: TransformerShape, kv_heads: int) -> TransformerShape:
    """The shape with this number of key heads, and everything across its width in proportion."""
    heads = kv_heads * (shape.num_heads // shape.kv_heads)
    width = max(1, heads * shape.d_model // shape.num_heads)

    def widen(size: int) -> int:
        return max(1, width * size // shape.d_model)

    def wider(size: int | None) -> int | None:
        return None if size is None else widen(size)

    def layer(one: Layer) -> Layer:
        attention, ffn = one.attention, one.ffn
        if isinstance(attention, LatentAttention):
            attention = replace(attention, q_rank=wider(attention.q_rank), kv_rank=widen(attention.kv_rank))
        elif isinstance(attention, Mixer):
            raise ValueError("a wider model of layers with a state is not defined here: give its sizes")
        if ffn is not None:
            ffn = replace(ffn, d_ff=wider(ffn.d_ff), shared_d_ff=wider(ffn.shared_d_ff))
        return Layer(attention, ffn)

    return replace(
        shape,
        d_model=width,
        num_heads=heads,
        num_kv_heads=None if shape.num_kv_heads is None else kv_heads,
        d_ff=widen(shape.d_ff),
        leading=tuple(map(layer, shape.leading)),
        layers=tuple(map(layer, shape.layers)),
    )
