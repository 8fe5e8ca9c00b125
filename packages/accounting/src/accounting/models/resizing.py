"""Shapes of another length, depth or width."""

from __future__ import annotations

from accounting.record import replace
from accounting.shape import TransformerShape


def lengthened(shape: TransformerShape, positions: int) -> TransformerShape:
    """The shape with a context of at least so many positions."""
    return replace(shape, context_length=max(shape.context_length, positions))


def deepened(shape: TransformerShape, layers: int) -> TransformerShape:
    """The shape with so many layers; of those that are special (with a window, dense beside experts, unrotated) the
    same part as before, rounded down but at least one."""

    def part(some: int) -> int:
        return max(1, some * layers // shape.num_layers) if some else 0

    windowed = shape.sliding_window_layers
    return replace(
        shape,
        num_layers=layers,
        sliding_window_layers=None if windowed is None else part(windowed),
        dense_layers=part(shape.dense_layers),
        unrotated_layers=part(shape.unrotated_layers),
    )


def widened(shape: TransformerShape, kv_heads: int) -> TransformerShape:
    """The shape with so many key heads, and everything across its width in proportion."""
    heads = kv_heads * (shape.num_heads // shape.kv_heads)
    width = max(1, heads * shape.d_model // shape.num_heads)

    def wider(size: int | None) -> int | None:
        return None if size is None else max(1, width * size // shape.d_model)

    latent = shape.latent
    if latent is not None:
        latent = replace(latent, q_rank=wider(latent.q_rank), kv_rank=wider(latent.kv_rank))
    return replace(
        shape,
        d_model=width,
        num_heads=heads,
        num_kv_heads=None if shape.num_kv_heads is None else kv_heads,
        head_dim=shape.head_dim,
        d_ff=wider(shape.d_ff),
        dense_d_ff=wider(shape.dense_d_ff),
        shared_d_ff=wider(shape.shared_d_ff),
        latent=latent,
    )
