"""Kernels in Triton. Attention: problem, tile_sizes and tiles, then forward, backward and decode; flash has the
operators. The loss: cross_entropy.

They need the package triton, which is imported by those files and not by this one.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def lacking() -> str | None:
    """A sentence about what this installation lacks for the kernels; None if nothing."""
    if importlib.util.find_spec("triton") is None:
        return "the kernels are written in Triton, and the package triton is not installed: pip install triton"
    return None


def check_shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    sliding_window: int | None,
    document_ids: Tensor | None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> None:
    """ValueError: shapes or a mask that do not go together (see lm.attention.attention)."""
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
        dimensions = "they are (batch, heads, positions, head_dim) and differ only in heads and positions"
        raise ValueError(f"{shapes} do not fit: {dimensions}, k and v not at all")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{k.shape[1]} key heads do not divide {q.shape[1]} query heads: each serves as many of them")
    if sliding_window is not None and (sliding_window < 1 or not causal):
        raise ValueError(f"sliding_window {sliding_window} must be at least 1, and goes with causal=True")
    if document_ids is not None and document_ids.shape != (keys := (q.shape[0], k.shape[2])):
        raise ValueError(f"document_ids is {tuple(document_ids.shape)}, and it names a document for each key: {keys}")
    if softcap is not None and not 0 < softcap < float("inf"):
        raise ValueError(f"expected softcap above 0, got {softcap}: None is attention without a cap")
    if sinks is not None and sinks.shape != q.shape[1:2]:
        raise ValueError(f"expected sinks of {tuple(q.shape[1:2])}, one for each query head, got {tuple(sinks.shape)}")
