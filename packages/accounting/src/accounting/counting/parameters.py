"""Parameters, by component; equal to sum(p.numel()) of the model."""

from __future__ import annotations

from functools import lru_cache

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import instance
from accounting.counting.adapters import adapter_elements, adapter_tensors
from accounting.counting.dimensions import Dimensions, FfnDimensions, attention_matrices, small_tensors
from accounting.counting.layers import attention_groups, ffn_layers, layer_matrices, stack
from accounting.formula import Symbol, Term, added
from accounting.layer import AnyAttention, Attention, FeedForward, Kind
from accounting.shape import TransformerShape, no_value_embeddings
from accounting.units import Parameters


@lru_cache(maxsize=16)  # nearly every question begins with it
def parameters(shape: TransformerShape, *, active: bool = False) -> Breakdown:
    """Parameters of every component; with active=True, of the experts only those that one token passes.

    A tied head has none of its own. The final norm is among the norms, as are the query and key norms. With a lora_rank
    the adapters are a component of their own, the last.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    n = Dimensions(shape)
    attention = added(
        layers * added([_attention_elements(shape, one), *small_tensors(shape, one)["others"]])
        for one, layers in attention_groups(shape).items()
    )
    layers_of = ffn_layers(shape)
    ffn = added(layers * _ffn_elements(shape, one, active) for one, layers in layers_of.items())
    router = added(layers * size for one, layers in layers_of.items() for size in _router_sizes(shape, one))
    norms: Term | int = shape.weighted_norms * (2 * n.d_model if shape.biased_norm else n.d_model)
    for one, layers in attention_groups(shape).items():
        if sizes := small_tensors(shape, one)["norms"]:
            equal = len(sizes) == 2 and sizes[0].text() == sizes[1].text()
            norms = norms + layers * (2 * sizes[0] if equal else added(sizes))
    return breakdown(
        "parameters" + (" (active)" if active else ""),
        Parameters,
        {
            "embedding": n.vocab * n.d_model,
            "positions": n.max_seq * n.d_model if shape.position == "learned" else 0,
            "attention": attention,
            **value_embeddings(shape),
            "ffn": ffn,
            "router": router,
            "norms": norms,
            "head": (0 if shape.tied_embeddings else n.vocab * n.d_model) + (n.vocab if shape.head_bias else 0),
            **_adapters(shape, active),
        },
        "every trainable element once: "
        + (
            "the tied head is the embedding and counts nothing"
            if shape.tied_embeddings
            else "the head is its own matrix"
        ),
    )


def _attention_elements(shape: TransformerShape, attention: AnyAttention) -> Term:
    n = Dimensions(shape)
    if isinstance(attention, Attention) and not attention.reuses:
        queries = 2 * n.n_heads if attention.gated else n.n_heads
        return n.d_model * n.head_dim * (queries + 2 * n.n_kv_heads) + n.n_heads * n.head_dim * n.d_model
    return added(attention_matrices(shape, attention).values())


def _ffn_elements(shape: TransformerShape, ffn: FeedForward, active: bool) -> Term:
    """Elements of one layer's feed-forward layers, of experts those that are held or active."""
    m = FfnDimensions(shape, ffn)
    total = _one_ffn(shape, m.d_ff)
    if ffn.experts is not None:
        total = (m.active_experts if active else m.held_experts) * total
    if ffn.shared_d_ff is not None:
        total = total + _one_ffn(shape, m.shared_d_ff)
    return total + Dimensions(shape).d_model if ffn.shared_gate else total


def _one_ffn(shape: TransformerShape, width: Term) -> Term:
    n, matrices = Dimensions(shape), shape.matrices_of_ffn
    elements = matrices * n.d_model * width
    return elements + (matrices - 1) * width + n.d_model if shape.biased_ffn else elements


def _router_sizes(shape: TransformerShape, ffn: FeedForward) -> list[Term]:
    if ffn.experts is None:
        return []
    experts = FfnDimensions(shape, ffn).n_experts
    return [Dimensions(shape).d_model * experts, *([experts] if ffn.router_bias else [])]


def value_embeddings(shape: TransformerShape) -> dict[str, int]:
    """The parameters of the value embeddings and their gates, where a shape has them."""
    if not shape.value_embeddings:
        return {}
    n = Dimensions(shape)
    layers = Symbol("value_layers", shape.value_embeddings)
    return {"value embeddings": layers * n.n_kv_heads * (n.vocab * n.head_dim + n.d_model)}


def _adapters(shape: TransformerShape, active: bool) -> dict[str, int]:
    if shape.lora_rank is None:
        return {}
    (ffn,) = shape.ffns
    return {"adapters": Dimensions(shape).n_layers * adapter_elements(shape, ffn.active if active else ffn.held)}


def trained_parameters(shape: TransformerShape) -> int:
    """Parameters that have gradients: the adapters where there are any, else all.

    >>> from dataclasses import replace
    >>> from accounting import SHAPES
    >>> trained_parameters(replace(SHAPES["llama-3-8b"], lora_rank=16))
    41943040
    """
    counted = parameters(shape)
    return int(counted.total if shape.lora_rank is None else counted["adapters"])


def trained_symbol(shape: TransformerShape) -> Term:
    """The parameters that an optimizer steps over, as a named number."""
    return Symbol("n_params" if shape.lora_rank is None else "adapter_params", trained_parameters(shape))


def block_parameters(shape: TransformerShape, kind: Kind) -> tuple[int, int]:
    """Parameters of one layer of this kind: of attention, and of the feed-forward layer with its router; no norms."""
    attention = 0
    for one in (kind.attention, kind.attention.beside):
        if one is not None:
            attention += int(_attention_elements(shape, one)) + sum(small_tensors(shape, one)["others"])
    return attention, int(_ffn_elements(shape, kind.ffn, False)) + sum(_router_sizes(shape, kind.ffn))


def expert_parameters(shape: TransformerShape) -> int:
    """Parameters of the experts that are held, in all layers; neither shared ones nor routers."""
    return sum(count * one.held * expert_elements(shape, one) for one, count in shape.ffns.items() if one.experts)


def expert_elements(shape: TransformerShape, ffn: FeedForward) -> int:
    """Parameters of one expert."""
    return int(_one_ffn(shape, FfnDimensions(shape, ffn).d_ff))


def expert_matrices(shape: TransformerShape, ffn: FeedForward) -> int:
    """Elements of the matrices of one expert, its biases apart."""
    return shape.matrices_of_ffn * shape.d_model * (ffn.d_ff or shape.d_ff)


def matrices(shape: TransformerShape) -> dict[tuple[int, int], int]:
    """Weight matrices inside the blocks by (rows, columns), smaller side first: how many there are."""
    no_value_embeddings(shape, "each tensor of the parameters")
    counts: dict[tuple[int, int], int] = {}
    for kind, layers in stack(shape).counts.items():
        for rows, columns, count in layer_matrices(shape, kind):
            key = (min(rows, columns), max(rows, columns))
            counts[key] = counts.get(key, 0) + count * int(layers)
    return counts


def block_weights(shape: TransformerShape) -> int:
    """Elements of the matrices of one block, those that its matrix multiplications read."""
    return sum(rows * columns * count for (rows, columns), count in matrices(shape).items()) // shape.num_layers


def other_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """The parameters that are no matrix of a block, as tensors: (how many, elements of one)."""
    d = shape.d_model
    sizes = [(1 if shape.tied_embeddings else 2, shape.vocab_rows * d)]
    if shape.position == "learned":
        sizes.append((1, int(Dimensions(shape).max_seq) * d))
    for attention, layers in attention_groups(shape).items():
        small = small_tensors(shape, attention)
        sizes += [(int(layers), int(size)) for size in (*small["others"], *small["norms"])]
    if shape.head_bias:
        sizes.append((1, shape.vocab_rows))
    for ffn, count in shape.ffns.items():
        if not ffn.d_ff:
            continue
        gates = shape.matrices_of_ffn - 1
        merged = gates if shape.plain or ffn.experts is not None else 1  # gate and up as one tensor
        if shape.biased_ffn:
            sizes += [(count * ffn.held * gates // merged, merged * (ffn.d_ff or 0)), (count * ffn.held, d)]
            if ffn.shared_d_ff is not None:
                sizes += [(count * gates, ffn.shared_d_ff), (count, d)]
        if ffn.router_bias:
            sizes.append((count, ffn.experts or 0))
    if shape.weighted_norms:
        sizes.append((shape.weighted_norms * (2 if shape.biased_norm else 1), d))
    return sizes


def tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """Every parameter as a tensor: (how many, elements of one)."""
    inside = [(count, rows * columns) for (rows, columns), count in matrices(shape).items()]
    return inside + other_tensors(shape) + adapter_tensors(shape)


def trained_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """Of them those that have gradients: the adapters where there are any."""
    return tensors(shape) if shape.lora_rank is None else adapter_tensors(shape)
