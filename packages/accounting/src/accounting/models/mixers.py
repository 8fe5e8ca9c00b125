"""Layers with a state in place of a cache, as published: each is a row of matrices, other parameters and a state."""

from __future__ import annotations

from accounting.formula import Symbol
from accounting.layer import Mixer

NOTHING = Mixer("nothing")  # of a layer that is a feed-forward layer alone


def delta(key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, *, merged: bool = True) -> Mixer:
    """Gated DeltaNet (Yang et al. 2024), as in Qwen3-Next: the state is read, corrected and read by a query.

    The kernel is that of the causal convolution over queries, keys and values. merged: queries, keys, values and gate
    are one matrix, decays and strengths another.
    """
    if value_heads % key_heads:
        raise ValueError(f"expected value_heads a multiple of key_heads {key_heads}, got {value_heads}")
    heads, width = Symbol("value_heads", value_heads), Symbol("value_dim", value_dim)
    keys = Symbol("key_heads", key_heads) * Symbol("key_dim", key_dim)
    values, mixed = heads * width, 2 * keys + heads * width
    matrices: list[tuple[str, int | None, int | None]] = [
        ("query, key, value, gate", None, mixed + values),
        ("decay and strength", None, 2 * heads),
    ]
    if not merged:
        matrices = [("query, key, value", None, mixed), ("gate", None, values)]
        matrices += [(name, None, heads) for name in ("decay", "strength")]
    convolved, state = mixed * Symbol("kernel", kernel), values * Symbol("key_dim", key_dim)
    matrices.append(("output", values, None))
    vectors = convolved, heads, heads
    return Mixer("delta rule", tuple(matrices), vectors, (width,), state, newest=convolved, flops=6 * state)


def kimi_delta(heads: int, width: int, kernel: int) -> Mixer:
    """Kimi Delta Attention (Kimi Team 2025): a delta rule whose decay and gate come from narrow latents."""
    each, narrow = Symbol("value_heads", heads), Symbol("value_dim", width)
    inner = each * narrow
    matrices: list[tuple[str, int | None, int | None]] = [(name, None, inner) for name in ("query", "key", "value")]
    matrices += [(f"{name} down", None, narrow) for name in ("decay", "gate")]
    matrices += [(f"{name} up", narrow, inner) for name in ("decay", "gate")]
    matrices += [("strength", None, each), ("output", inner, None)]
    convolved, state = 3 * inner * Symbol("kernel", kernel), inner * narrow
    vectors = convolved, inner, each
    return Mixer("delta rule", tuple(matrices), vectors, (narrow,), state, newest=convolved, flops=6 * state)


def mamba2(*sizes: int, convolution_bias: bool, norm: bool) -> Mixer:
    """Mamba-2 (Dao and Gu 2024): the state of each head is written by an outer product and read by a query.

    The sizes are heads, the width of a head, the width of keys and queries (B and C), the groups that share them, and
    positions of the convolution. norm: the output has a gated norm.
    """
    heads, width, state, groups, kernel = sizes
    inner, each = Symbol("state_heads", heads) * Symbol("state_width", width), Symbol("state_heads", heads)
    mixed = inner + 2 * (Symbol("groups", groups) * Symbol("state_dim", state))
    convolved, of_state = mixed * Symbol("kernel", kernel), inner * Symbol("state_dim", state)
    matrices = ("state in", None, inner + mixed + each), ("output", inner, None)
    vectors = convolved, *([mixed] if convolution_bias else []), each, each, each
    norms = (inner,) if norm else ()
    return Mixer("mamba state", matrices, vectors, norms, of_state, newest=convolved, flops=4 * of_state)


def mamba(inner: int, state: int, rank: int, kernel: int, *, convolution_bias: bool, norms: bool) -> Mixer:
    """Mamba (Gu and Dao 2023): every channel has a state of its own, of which B, C and the step come from the channel.

    There are `inner` channels; the steps come from a latent of `rank`. norms: step, B and C have norms (Jamba).
    """
    channels, width, low = Symbol("channels", inner), Symbol("state_dim", state), Symbol("step_rank", rank)
    of_state, convolved = channels * width, channels * Symbol("kernel", kernel)
    matrices = (
        ("state in", None, 2 * channels),
        ("step, key and query", channels, low + 2 * width),
        ("step up", low, channels),
        ("output", channels, None),
    )
    vectors = of_state, channels, channels, convolved, *([channels] if convolution_bias else [])
    weights = (low, width, width) if norms else ()
    return Mixer("mamba state", matrices, vectors, weights, of_state, newest=convolved, flops=4 * of_state)


def short_convolution(width: int, kernel: int, *, bias: bool) -> Mixer:
    """A gated convolution over a few positions (LFM2)."""
    d = Symbol("d_model", width)
    convolved = d * Symbol("kernel", kernel)
    matrices = (("convolution in", None, 3 * d), ("output", None, None))
    return Mixer("convolution", matrices, (convolved, *((d, 3 * d, d) if bias else ())), newest=convolved)


def lightning(heads: int, width: int) -> Mixer:
    """Lightning attention (MiniMax 2025): linear attention with a decay of each head, a norm and a gate."""
    inner = Symbol("value_heads", heads) * Symbol("value_dim", width)
    state = inner * Symbol("value_dim", width)
    matrices = (("query, key, value", None, 3 * inner), ("gate", None, inner), ("output", inner, None))
    return Mixer("lightning state", matrices, (), (inner,), state=state, flops=4 * state)
