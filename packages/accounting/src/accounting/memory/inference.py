"""Bytes of a model that generates: weights as stored, the cache of keys and values, and one step's working set."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import choose, instance, positive, whole
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions, FfnDimensions, LatentDimensions
from accounting.counting.flops import cached, windows
from accounting.counting.layers import attention_groups
from accounting.counting.parameters import expert_elements, expert_matrices, parameters
from accounting.formula import Symbol, Term, added, constant
from accounting.layer import LatentAttention, Mixer
from accounting.shape import TransformerShape
from accounting.units import Bytes

BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}  # of an element of the cache


@dataclass(frozen=True)
class Format:
    """A format of weights: bits of an element, elements that share a scale, bits of the scale, and what it stores."""

    bits: int
    group: int = 0
    scale_bits: int = 0
    stores: str = "all"  # "blocks": the matrices of the blocks; "experts": those of the experts; the rest is bf16


FORMATS = {
    "fp32": Format(32),
    "bf16": Format(16),
    "fp16": Format(16),
    "fp8": Format(8, 128 * 128, 32, "blocks"),  # as DeepSeek-V3 is published: an fp32 scale for 128 × 128
    "int8": Format(8, 128, 16, "blocks"),
    "int4": Format(4, 128, 16, "blocks"),
    "mxfp4": Format(4, 32, 8, "experts"),  # OCP Microscaling Formats 1.0, as gpt-oss is published
}
# parameters that are no matrices of the blocks
OUTSIDE = ("embedding", "positions", "value embeddings", "norms", "head", "adapters")


def kv_cache(
    shape: TransformerShape,
    batch_size: int = 1,
    context: int | None = None,
    *,
    dtype: str = "bf16",
    page: int = 0,
    hybrid: bool = False,
    read: bool = False,
) -> Breakdown:
    """Bytes of the keys and values of every layer, for batch_size sequences of `context` positions each.

    Args:
        shape: the model.
        batch_size: sequences.
        context: positions of each; the whole context unless given.
        dtype: one of BITS.
        page: positions of a block that an engine allocates to every layer alike, those with a window included, as
            vLLM does without its hybrid cache manager; 0: a layer with a window keeps no more than the window, and
            nothing is padded.
        hybrid: with pages of which a layer with a window holds those that the window can touch, as vLLM's hybrid cache
            manager does.
        read: only those positions that the newest token sees, fewer where a chunk has just begun.

    Returns:
        Keys, values, and of linear attention the state in fp32 with the newest positions of its convolution.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    choose("dtype", dtype, BITS)
    batch, seen = Symbol("batch", positive("batch_size", batch_size)), Symbol("context", shape.sequence(context))
    if whole("page", page):
        seen = (seen + (page - 1)) // page * page
    elif hybrid:
        raise ValueError("hybrid needs pages, and page is 0: give a page")
    n = Dimensions(shape)
    keys, latents, states = [], [], []
    for attention, layers in windows(shape).items():
        if isinstance(attention, LatentAttention):
            m = LatentDimensions(attention)
            latents.append(batch * (m.kv_rank + m.rope_dim) * (layers * seen))
            if attention.indexer is not None:  # its keys
                latents.append(batch * m.index_dim * (layers * seen))
        elif not attention.reuses and not isinstance(attention, Mixer):
            positions = seen
            if attention.window is not None and (hybrid or not page):
                window = Symbol("window", attention.window)
                if page:  # a window that begins within a page touches one page more
                    window = ((window + (page - 2)) // page + 1) * page
                positions = cached(attention, seen) if read else min(seen, window)
            keys.append(layers * positions)
    for mixer, layers in attention_groups(shape).items():
        if isinstance(mixer, Mixer) and (mixer.state or mixer.newest):
            states.append(batch * layers * (4 * constant(mixer.state) + mixer.newest * BITS[dtype] // 8))
    stored = batch * n.n_kv_heads * n.head_dim * added(keys) * BITS[dtype] // 8 if keys else Term(0)
    terms = {"keys": stored, "values": stored}
    if latents:
        terms["keys"] = added([*([stored] if keys else []), added(latents) * BITS[dtype] // 8])
    if states:
        terms["states"] = added(states)
    words = f"pages of {page} positions" if page else "nothing padded"
    if page and any(attention.window for attention in windows(shape)):
        words += ", of windows those that they touch" if hybrid else " in every layer, those with a window included"
    return breakdown("KV cache", Bytes, terms, f"{dtype}, {'latents of keys and values, ' * bool(latents)}{words}")


def weight_bytes(shape: TransformerShape, *, weights: str = "bf16") -> Breakdown:
    """Bytes of the weights as stored, in one of FORMATS; elements of a quantised format share a scale in groups.

    fp8, int8 and int4 are of the matrices of the blocks, mxfp4 of those of the experts; the rest of such models is
    bf16.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    counted = parameters(shape)
    inside = int(counted["attention"]) + int(counted["ffn"]) + int(counted["router"])
    experts = sum(count * ffn.held * expert_matrices(shape, ffn) for ffn, count in shape.ffns.items() if ffn.experts)
    return breakdown(
        "weights",
        Bytes,
        {
            **_block_bytes(inside, experts, weights),
            **{name: int(counted[name]) * _width(weights) for name in OUTSIDE if name in counted},
        },
        _stored(weights),
    )


def weights_read(shape: TransformerShape, tokens: int, *, weights: str = "bf16") -> Breakdown:
    """Bytes of the weights that one forward pass over `tokens` tokens reads.

    Of an embedding table the rows of the tokens, unless it is tied to the head, which is read whole; of experts at most
    as many as the tokens can choose.

    >>> from accounting import SHAPES
    >>> weights_read(SHAPES["llama-3-8b"], 1)["embedding"]
    Bytes(8_192)
    """
    counted = parameters(shape)
    positive("tokens", tokens)
    experts = unread = 0
    for ffn, count in shape.ffns.items():
        if ffn.experts is not None:
            read = min(ffn.held, ffn.active * tokens)
            experts += count * read * expert_matrices(shape, ffn)
            unread += count * (ffn.held - read) * expert_elements(shape, ffn)
    inside = int(counted["attention"]) + int(counted["ffn"]) + int(counted["router"]) - unread
    width, rows = _width(weights), min(tokens, shape.vocab_rows)
    positions = min(tokens, shape.context_length) * shape.d_model if shape.position == "learned" else 0
    n, more = Dimensions(shape), {}
    if shape.value_embeddings:  # the rows of the tokens, and the gates
        layers = Symbol("value_layers", shape.value_embeddings)
        more["value embeddings"] = layers * n.n_kv_heads * (rows * n.head_dim + n.d_model) * width
    if shape.lora_rank is not None:
        (ffn,) = shape.ffns
        more["adapters"] = n.n_layers * adapter_elements(shape, min(ffn.held, ffn.active * tokens)) * width
    return breakdown(
        "weights read",
        Bytes,
        {
            **_block_bytes(inside, experts, weights),
            "embedding": 0 if shape.tied_embeddings else rows * n.d_model * width,
            "positions": positions * width,
            "norms": int(counted["norms"]) * width,
            "head": n.vocab * n.d_model * width,
            **more,
        },
        _stored(weights),
    )


def _block_bytes(elements: int, experts: int, weights: str) -> dict[str, Term]:
    """Bytes of the matrices of the blocks, of which `experts` elements are matrices of experts, and of their scales."""
    form = FORMATS[choose("weights", weights, FORMATS)]
    quantised = Symbol("block_elements", elements)
    rest: Term | int = 0
    if form.stores == "experts":
        if not experts:
            raise ValueError(f"weights {weights!r} are those of experts, and this model has none: use another format")
        quantised, rest = Symbol("expert_elements", experts), 2 * Symbol("other_elements", elements - experts)
    if form.bits >= 8 and not form.group:
        return {"blocks": quantised * (form.bits // 8), "scales": Term(0)}
    scales = (quantised + (form.group - 1)) // form.group
    return {"blocks": (quantised * form.bits + 7) // 8 + rest, "scales": form.scale_bits // 8 * scales}


def _width(weights: str) -> int:
    """Bytes of one weight outside the matrices of the blocks, which alone are quantised."""
    form = FORMATS[choose("weights", weights, FORMATS)]
    return form.bits // 8 if form.stores == "all" else 2


def _stored(weights: str) -> str:
    form = FORMATS[weights]
    if form.stores == "all":
        return f"{weights} throughout"
    return f"{weights} for the {form.stores}, {form.scale_bits}-bit scales for groups of {form.group:,}, bf16 elsewhere"


def inference_memory(
    shape: TransformerShape,
    batch_size: int = 1,
    context: int | None = None,
    *,
    weights: str = "bf16",
    cache: str = "bf16",
    page: int = 0,
    hybrid: bool = False,
) -> Breakdown:
    """Bytes of a model decoding batch_size sequences whose caches hold `context` positions each, in pages as kv_cache
    counts them."""
    n, batch = Dimensions(shape), Symbol("batch", positive("batch_size", batch_size))
    stored = dict(weight_bytes(shape, weights=weights).terms)
    keys_and_values = kv_cache(shape, batch_size, context, dtype=cache, page=page, hybrid=hybrid)
    cached: Term | int = sum(term for _, term in keys_and_values.terms)
    width = BITS["fp32" if weights == "fp32" else "bf16"] // 8
    hidden = max(
        (n.n_heads + 2 * n.n_kv_heads) * n.head_dim,
        *(shape.matrices_of_ffn * one.active * FfnDimensions(shape, one).d_ff for one in shape.ffns),
    )
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
