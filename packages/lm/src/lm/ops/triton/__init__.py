"""Kernels in Triton, which those files import and this one does not. Attention: problem, tile_sizes and tiles, then
forward, backward and decode; flash has the operators. The loss: cross_entropy."""

from __future__ import annotations

import importlib.util


def lacking() -> str | None:
    """A sentence about what this installation lacks for the kernels; None if nothing."""
    if importlib.util.find_spec("triton") is None:
        return "the kernels are written in Triton, and the package triton is not installed: pip install triton"
    return None
