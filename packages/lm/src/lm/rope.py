"""Rotary positions: the angle of each pair of elements at each position. (Su et al. 2021, arXiv:2104.09864)"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from lm.config import ModelConfig, RopeScaling


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """Angle of each pair between neighbouring positions: theta^(-2j / head_dim), float64 (head_dim / 2,).

    scaling divides all of them by a factor (Chen et al. 2023, arXiv:2306.15595), or the low ones (Llama 3.1): see
    ModelConfig.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd, and rotary embeddings rotate pairs: make it even")
    frequencies: Tensor = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return frequencies
    factor, low, high, original = scaling
    if original is None:
        return frequencies / factor
    share = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0, 1)  # 1: not scaled
    return share * frequencies + (1 - share) * frequencies / factor


@functools.lru_cache(maxsize=8)
def rope_cache(
    length: int,
    head_dim: int,
    theta: float,
    scaling: RopeScaling | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """cos and sin of position · frequency, for positions 0 … length - 1: (length, head_dim / 2, 2).

    In float32 at least, from angles in float64: at position 100,000 a float32 angle is off by 0.004. Cached.
    """
    with torch.inference_mode(False):  # a later call may need gradients through the cached table
        angles = torch.arange(length)[:, None] * rope_frequencies(head_dim, theta, scaling)  # (length, head_dim / 2)
        return torch.stack((angles.cos(), angles.sin()), -1).to(torch.promote_types(dtype, torch.float32)).to(device)


def rope_at(config: ModelConfig, positions: Tensor | slice, like: Tensor) -> Tensor | None:
    """The rows of rope_cache at positions (seq,) or (batch, seq), one for all heads: (…, seq, 1, head_dim / 2, 2)."""
    if config.position != "rope":
        return None
    size = (config.context_length, config.head_width)
    table = rope_cache(*size, config.rope_theta, config.rope_scaling, like.dtype, like.device)
    return table[positions].unsqueeze(-3)
