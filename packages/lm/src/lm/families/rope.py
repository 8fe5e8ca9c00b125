"""Rotary positions as Hugging Face's rope_parameters describe them: linear, llama3, yarn, dynamic and longrope scaling.
A rotation is as lm.attention's: cos and sin of each pair, (…, seq, 1, width / 2, 2), here times a factor for
attention."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lm.attention import rope_frequencies
from lm.config import FrozenTable

# The settings of each rope_type: those that it must have, and others.
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
SETTINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor", "original_max_position_embeddings"), ()),
    "llama3": (LLAMA3, ()),
    "yarn": (
        ("original_max_position_embeddings",),
        ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": (("short_factor", "long_factor", "original_max_position_embeddings"), ("factor", "attention_factor")),
}
COMMON = ("rope_type", "rope_theta", "partial_rotary_factor")
FACTORS = ("short_factor", "long_factor")  # lists, of a factor for each pair
LEAST = {"rope_theta": 1, "original_max_position_embeddings": 1}  # whose logarithms divide
BY_LENGTH = ("dynamic", "longrope")  # the rotation of a position depends on the length of the sequence


def check(parameters: Mapping[str, Any], head_dim: int) -> None:
    """ValueError: a rope_type or a setting of it that is unknown, one that is missing, or an odd width."""
    kind = parameters.get("rope_type", "default")
    if kind not in SETTINGS:
        raise ValueError(f"rope_type {kind!r} is not supported: it is one of {', '.join(SETTINGS)}")
    required, others = SETTINGS[kind]
    for name in required:
        if parameters.get(name) is None:
            raise ValueError(f"rope_type {kind!r} lacks the setting {name!r}")
    for name, value in parameters.items():
        if name not in (*required, *others, *COMMON):
            raise ValueError(f"rope_type {kind!r} has no setting {name!r}")
        is_list, least = isinstance(value, list | tuple), LEAST.get(name, 0)
        numbers = all(isinstance(one, int | float) and least < one < 1e18 for one in (value if is_list else (value,)))
        is_valid = is_list == (name in FACTORS) and (numbers or (value == 0 and name in others))
        if name not in ("rope_type", "truncate") and not is_valid:
            raise ValueError(f"expected numbers above {least} as {name} of rope_type {kind!r}, got {value!r}")
    width = rotated_width(parameters, head_dim)
    if width % 2 or not 0 < width <= head_dim:
        raise ValueError(f"expected a rotation of pairs, got one of {width} of a head's {head_dim} elements")
    pairs = width // 2
    for name in FACTORS:
        if name in parameters and len(parameters[name]) != pairs:
            raise ValueError(f"{name} has {len(parameters[name])} factors, and a head rotates {pairs} pairs")


def rotated_width(parameters: Mapping[str, Any], head_dim: int) -> int:
    """Number of elements of a head that are rotated."""
    return int(head_dim * parameters.get("partial_rotary_factor", 1.0))


def frequencies(parameters: Mapping[str, Any], head_dim: int, context_length: int, lengths: Tensor) -> Tensor:
    """Angle of each pair between neighbouring positions, in sequences of these lengths (…): (…, width / 2), float64."""
    kind, theta = parameters.get("rope_type", "default"), parameters["rope_theta"]
    width = rotated_width(parameters, head_dim)
    plain = rope_frequencies(width, theta).to(lengths.device)
    original: Any = parameters.get("original_max_position_embeddings")  # there where it is needed: see check
    factor: Any = parameters.get("factor")
    if kind == "linear":
        plain = plain / factor
    elif kind == "llama3":
        scaling = (factor, parameters["low_freq_factor"], parameters["high_freq_factor"], original)
        plain = rope_frequencies(width, theta, scaling).to(lengths.device)
    elif kind == "yarn":
        slowed = plain / (factor or context_length / original)
        share = yarn_ramp(parameters, width).to(lengths.device)
        plain = slowed * share + plain * (1 - share)
    elif kind == "dynamic":
        longer = lengths.clamp(min=original)[..., None]
        base = theta * (factor * longer / original - (factor - 1)) ** (width / (width - 2))
        exponents = torch.arange(0, width, 2, dtype=torch.float64, device=lengths.device) / width
        return base**-exponents  # type: ignore[no-any-return]
    elif kind == "longrope":
        short, long = (torch.tensor(parameters[name], dtype=torch.float64) for name in ("short_factor", "long_factor"))
        factors = torch.where(lengths[..., None] > original, long.to(lengths.device), short.to(lengths.device))
        return plain / factors
    return plain.expand(*lengths.shape, -1)


def yarn_ramp(parameters: Mapping[str, Any], width: int) -> Tensor:
    """The share of each pair's rotation that is slowed, (width / 2,). (Peng et al. 2023, arXiv:2309.00071)"""
    theta, original = parameters["rope_theta"], parameters["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        """The pair that turns so often within the original context."""
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(parameters.get("beta_fast") or 32), pair_of(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    pairs = torch.arange(width // 2, dtype=torch.float64)
    return ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)


def attention_factor(parameters: Mapping[str, Any], context_length: int) -> float:
    """Factor of cos and sin: yarn's and longrope's, 1 of the others."""
    kind, original = parameters.get("rope_type", "default"), parameters.get("original_max_position_embeddings")
    if kind not in ("yarn", "longrope"):
        return 1.0
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    assert original is not None  # see check
    factor = parameters.get("factor") or context_length / original
    if factor <= 1:
        return 1.0
    if kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(original))
    above, below = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if above and below:
        return float((0.1 * above * math.log(factor) + 1) / (0.1 * below * math.log(factor) + 1))
    return 0.1 * math.log(factor) + 1


def rotation_at(
    parameters: FrozenTable, head_dim: int, context_length: int, positions: Tensor | slice, like: Tensor
) -> Tensor:
    """cos and sin at positions (seq,) or (batch, seq): (…, seq, 1, width / 2, 2), on the device of `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    if parameters.get("rope_type") not in BY_LENGTH:
        table = rotation_table(parameters, head_dim, context_length, dtype, like.device)
        return table[positions].unsqueeze(-3)
    if isinstance(positions, slice):
        positions = torch.arange(positions.start, positions.stop, device=like.device)
    turns = frequencies(parameters, head_dim, context_length, lengths_of(positions))  # (…, seq, width / 2)
    angles = positions[..., None] * turns
    rotation = torch.stack((angles.cos(), angles.sin()), -1) * attention_factor(parameters, context_length)
    return rotation.to(dtype).unsqueeze(-3)


def lengths_of(positions: Tensor) -> Tensor:
    """Length of each token's own document, float64; positions (…, seq) rise up to its end."""
    index = torch.arange(positions.shape[-1], device=positions.device).expand(positions.shape)
    is_last = torch.ones_like(positions, dtype=torch.bool)
    is_last[..., :-1] = positions[..., 1:] <= positions[..., :-1]
    last = torch.where(is_last, index, positions.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    return positions.gather(-1, last).double() + 1


@functools.lru_cache(maxsize=8)
def rotation_table(
    parameters: FrozenTable, head_dim: int, context_length: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """cos and sin of all positions of the context, (context_length, width / 2, 2). Cached."""
    with torch.inference_mode(False):  # a later call may need gradients through the cached table
        turns = frequencies(parameters, head_dim, context_length, torch.zeros((), dtype=torch.float64))
        angles = torch.arange(context_length)[:, None] * turns
        rotation = torch.stack((angles.cos(), angles.sin()), -1) * attention_factor(parameters, context_length)
        return rotation.to(dtype).to(device)


def rotate_neighbours(x: Tensor, rope: Tensor | None) -> Tensor:
    """As lm.model.apply_rotary_emb, of the pairs (2i, 2i + 1)."""
    if rope is None:
        return x
    width = 2 * rope.shape[-2]
    a, b = x[..., :width].unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]  # (…, width / 2)
    cos, sin = rope.unbind(-1)
    rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((rotated.to(x.dtype), x[..., width:]), -1)
