"""Shapes of another length, depth or width."""

from __future__ import annotations

from accounting.record import replace
from accounting.shape import TransformerShape


def lengthened(shape: TransformerShape, positions: int) -> TransformerShape:
    """The shape with a context of at least so many positions."""
    return replace(shape, context_length=max(shape.context_length, positions))


def deepened(shape: TransformerShape, layers: int) -> TransformerShape:
    """The shape with so many layers; of those with a window, the same part as before, rounded down but at least one."""
    windowed = shape.sliding_window_layers
    if windowed is not None:
        windowed = max(1, windowed * layers // shape.num_layers)
    return replace(shape, num_layers=layers, sliding_window_layers=windowed)


def widened(shape: TransformerShape, kv_heads: int) -> TransformerShape:
    """The shape with so many key heads, and everything across its width in proportion."""
    heads = kv_heads * (shape.num_heads // shape.kv_heads)
    width = max(1, heads * shape.d_model // shape.num_heads)
    return replace(
        shape,
        d_model=width,
        num_heads=heads,
        num_kv_heads=None if shape.num_kv_heads is None else kv_heads,
        head_dim=shape.head_dim,
        d_ff=max(1, width * shape.d_ff // shape.d_model),
    )
