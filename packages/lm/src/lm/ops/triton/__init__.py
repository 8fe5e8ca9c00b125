"""Kernels in Triton, one idea a file. Of attention tiles, settings, forward, backward, decode; flash is the operator
that PyTorch sees. And cross_entropy.

They need the package triton, which is imported by those files and not by this one.
"""

from __future__ import annotations

import importlib.util


def lacking() -> str | None:
    """What the kernels need and this installation does not have, in a sentence; None where nothing is lacking."""
    if importlib.util.find_spec("triton") is None:
        return "the kernels are written in Triton, and the package triton is not installed: pip install triton"
    return None
