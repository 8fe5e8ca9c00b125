"""Bytes of a model that generates: weights as stored, the cache of keys and values, and one step's working set."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions
from accounting.counting.parameters import parameters
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes

BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
SCALED = ("int8", "int4")  # stored in groups that share one bf16 scale
GROUP = 128
# what is not among the matrices of the blocks, which alone are quantised
OUTSIDE = ("embedding", "positions", "value embeddings", "norms", "head", "adapters")


def kv_cache(
    shape: TransformerShape, batch_size: int = 1, context: int | None = None, *, dtype: str = "bf16"
) -> Breakdown:
    """Bytes of the keys and values of every layer, for batch_size sequences of `context` positions each.

    A layer with a window keeps no more than the window.
    """
    choose("dtype", dtype, tuple(BITS))
    batch, seen = Symbol("batch", positive("batch_size", batch_size)), Symbol("context", shape.sequence(context))
    n = Dimensions(shape)
    held = n.n_layers * seen
    if shape.windowed_layers:
        held = (n.n_layers - n.window_layers) * seen + n.window_layers * min(seen, n.window)
    each = batch * n.n_kv_heads * n.head_dim * held
    if shape.latent is not None:
        latents = batch * (n.kv_rank + n.rope_dim) * held * BITS[dtype] // 8
        return breakdown("KV cache", Bytes, {"keys": latents, "values": 0}, f"{dtype}, latents of keys and values")
    stored = each * BITS[dtype] // 8
    return breakdown("KV cache", Bytes, {"keys": stored, "values": stored}, f"{dtype}, nothing padded")


def weight_bytes(shape: TransformerShape, *, weights: str = "bf16") -> Breakdown:
    """Bytes of the weights as stored: int8 and int4 for the matrices of the blocks, the rest of those models in bf16.

    Quantised elements share one bf16 scale in groups of 128.
    """
    counted = parameters(shape)
    inside = int(counted["attention"]) + int(counted["ffn"]) + int(counted["router"])
    return breakdown(
        "weights",
        Bytes,
        {
            **_block_bytes(inside, weights),
            **{name: int(counted[name]) * _width(weights) for name in OUTSIDE if name in counted},
        },
        _stored(weights),
    )


def weights_read(shape: TransformerShape, tokens: int, *, weights: str = "bf16") -> Breakdown:
    """Bytes of the weights that one forward pass over so many tokens reads.

    Of an embedding table the rows of the tokens, unless it is tied to the head, which is read whole; of experts at most
    as many as the tokens can choose.

    >>> from accounting import SHAPES
    >>> weights_read(SHAPES["llama-3-8b"], 1)["embedding"]
    Bytes(8_192)
    """
    counted = parameters(shape)
    ffn = int(counted["ffn"])
    if shape.experts is not None:
        active = int(parameters(shape, active=True)["ffn"])
        unread = (ffn - active) // (shape.experts - shape.active_experts) if shape.experts > shape.active_experts else 0
        ffn -= unread * (shape.experts - min(shape.experts, shape.active_experts * positive("tokens", tokens)))
    width, rows = _width(weights), min(tokens, shape.vocab_rows)
    head = Symbol("vocab", shape.vocab_rows) * Symbol("d_model", shape.d_model)
    positions = min(tokens, shape.context_length) * shape.d_model if shape.position == "learned" else 0
    return breakdown(
        "weights read",
        Bytes,
        {
            **_block_bytes(int(counted["attention"]) + ffn + int(counted["router"]), weights),
            "embedding": 0 if shape.tied_embeddings else rows * Symbol("d_model", shape.d_model) * width,
            "positions": positions * width,
            "norms": int(counted["norms"]) * width,
            "head": head * width,
            **_value_embeddings_read(shape, rows, width),
            **_adapters_read(shape, tokens, width),
        },
        _stored(weights),
    )


def _value_embeddings_read(shape: TransformerShape, rows: int, width: int) -> dict[str, Term]:
    """The rows of the tokens, and the gates."""
    if not shape.value_embeddings:
        return {}
    n, layers = Dimensions(shape), Symbol("value_layers", shape.value_embeddings)
    return {"value embeddings": layers * n.n_kv_heads * (rows * n.head_dim + n.d_model) * width}


def _adapters_read(shape: TransformerShape, tokens: int, width: int) -> dict[str, Term]:
    if shape.lora_rank is None:
        return {}
    experts = min(shape.held_experts, shape.active_experts * tokens)
    return {"adapters": Dimensions(shape).n_layers * adapter_elements(shape, experts) * width}


def _block_bytes(elements: int, weights: str) -> dict[str, Term]:
    blocks = Symbol("block_elements", elements)
    if choose("weights", weights, tuple(BITS)) not in SCALED:
        return {"blocks": blocks * (BITS[weights] // 8), "scales": Term(0)}
    return {"blocks": (blocks * BITS[weights] + 7) // 8, "scales": 2 * ((blocks + (GROUP - 1)) // GROUP)}


def _width(weights: str) -> int:
    """Bytes of one weight outside the matrices of the blocks, which alone are quantised."""
    return 2 if weights in SCALED else BITS[choose("weights", weights, tuple(BITS))] // 8


def _stored(weights: str) -> str:
    if weights in SCALED:
        return f"{weights} for the blocks, bf16 scales for groups of {GROUP}, bf16 elsewhere"
    return f"{weights} throughout"


def inference_memory(
    shape: TransformerShape,
    batch_size: int = 1,
    context: int | None = None,
    *,
    weights: str = "bf16",
    cache: str = "bf16",
) -> Breakdown:
    """Bytes of a model decoding batch_size sequences whose caches hold `context` positions each."""
    n, batch = Dimensions(shape), Symbol("batch", positive("batch_size", batch_size))
    stored = dict(weight_bytes(shape, weights=weights).terms)
    cached: Term | int = sum(term for _, term in kv_cache(shape, batch_size, context, dtype=cache).terms)
    width = BITS["fp32" if weights == "fp32" else "bf16"] // 8
    hidden = max((n.n_heads + 2 * n.n_kv_heads) * n.head_dim, (3 if shape.gated else 2) * shape.active_experts * n.d_ff)
    return breakdown(
        "inference memory",
        Bytes,
        {
            **stored,
            "kv cache": cached,
            "activations": batch * (2 * n.d_model + hidden) * width,
            "logits": batch * n.vocab * 4,
        },
        f"weights {weights}, cache {cache} at {shape.sequence(context)} positions; a decoding step holds the residual, "
        "its norm, the wider of the two sublayers, and logits in fp32; no allocator's slack",
    )
