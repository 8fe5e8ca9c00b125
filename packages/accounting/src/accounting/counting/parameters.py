"""Parameters, by component; equal to sum(p.numel()) of the model."""

from __future__ import annotations

from functools import lru_cache

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.adapters import adapter_elements, adapter_tensors
from accounting.counting.dimensions import Dimensions, latent_matrices
from accounting.counting.layers import LayerKind, layer_matrices, stack
from accounting.formula import Symbol, Term, added
from accounting.shape import TransformerShape, no_value_embeddings
from accounting.units import Parameters


@lru_cache(maxsize=16)  # nearly every question begins with it
def parameters(shape: TransformerShape, *, active: bool = False) -> Breakdown:
    """Parameters of every component; with active=True, of the experts only those that one token passes.

    A tied head has none of its own. The final norm is among the norms, as are the query and key norms. With a lora_rank
    the adapters are a component of their own, the last.
    """
    n = Dimensions(shape)
    attention = n.d_model * n.head_dim * (n.n_heads + 2 * n.n_kv_heads) + n.n_heads * n.head_dim * n.d_model
    if shape.latent is not None:
        attention = added(latent_matrices(shape).values())
    if shape.attention_sinks:
        attention = attention + n.n_heads
    if shape.biased_qkv:
        attention = attention + n.head_dim * (n.n_heads + 2 * n.n_kv_heads)
    if shape.bias:
        attention = attention + n.d_model
    matrices = 3 if shape.gated else 2
    ffn = matrices * n.d_model * n.d_ff
    if shape.bias:
        ffn = ffn + (matrices - 1) * n.d_ff + n.d_model
    router = 0
    if shape.experts is not None:
        experts = n.held_experts if shape.experts_held is not None else n.n_experts
        experts = n.active_experts if active else experts
        ffn = experts * ffn
        router = n.expert_layers * n.d_model * n.n_experts
        if shape.router_bias:
            router = router + n.expert_layers * n.n_experts
        if shape.shared_d_ff is not None:
            ffn = ffn + matrices * n.d_model * n.shared_d_ff
    ffn = n.expert_layers * ffn
    if shape.dense_layers:
        ffn = ffn + n.dense_layers * (matrices * n.d_model * n.dense_d_ff)
    norms = shape.norms * (2 * n.d_model if shape.norm == "layernorm" and shape.bias else n.d_model)
    if shape.qk_norm:
        norms = norms + n.n_layers * 2 * n.head_dim
    if shape.latent is not None:
        norms = norms + n.n_layers * (n.q_rank + n.kv_rank)
    return breakdown(
        "parameters" + (" (active)" if active else ""),
        Parameters,
        {
            "embedding": n.vocab * n.d_model,
            "positions": n.max_seq * n.d_model if shape.position == "learned" else 0,
            "attention": n.n_layers * attention,
            **value_embeddings(shape),
            "ffn": ffn,
            "router": router,
            "norms": norms,
            "head": 0 if shape.tied_embeddings else n.vocab * n.d_model,
            **_adapters(shape, active),
        },
        "every trainable element once: "
        + (
            "the tied head is the embedding and counts nothing"
            if shape.tied_embeddings
            else "the head is its own matrix"
        ),
    )


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
    experts = shape.active_experts if active else shape.held_experts
    return {"adapters": Dimensions(shape).n_layers * adapter_elements(shape, experts)}


def trained_parameters(shape: TransformerShape) -> int:
    """Parameters that have gradients: the adapters where there are any, else all.

    >>> from accounting.record import replace
    >>> from accounting import SHAPES
    >>> trained_parameters(replace(SHAPES["llama-3-8b"], lora_rank=16))
    41943040
    """
    counted = parameters(shape)
    return int(counted.total if shape.lora_rank is None else counted["adapters"])


def trained_symbol(shape: TransformerShape) -> Term:
    """The parameters that an optimizer steps over, as a named number."""
    return Symbol("n_params" if shape.lora_rank is None else "adapter_params", trained_parameters(shape))


def block_parameters(shape: TransformerShape, kind: LayerKind) -> tuple[int, int]:
    """Parameters of one layer of this kind: of attention, and of the feed-forward layer with its router; no norms."""
    counted = parameters(shape)
    attention, ffn = int(counted["attention"]) // shape.num_layers, int(counted["ffn"])
    of_dense = (3 if shape.gated else 2) * shape.d_model * (shape.dense_d_ff or 0)
    if kind.dense:
        return attention, of_dense
    return attention, (ffn - shape.dense_layers * of_dense + int(counted["router"])) // shape.expert_layers


def expert_parameters(shape: TransformerShape) -> int:
    """Parameters of the experts that are held, in all layers; neither shared ones nor routers."""
    if shape.experts is None:
        return 0
    d, f, matrices = shape.d_model, shape.d_ff, 3 if shape.gated else 2
    biases = (matrices - 1) * f + d if shape.bias else 0
    return shape.expert_layers * shape.held_experts * (matrices * d * f + biases)


def matrices(shape: TransformerShape) -> dict[tuple[int, int], int]:
    """Weight matrices inside the blocks by (rows, columns), smaller side first: how many there are."""
    no_value_embeddings(shape, "each tensor of the parameters")
    counts: dict[tuple[int, int], int] = {}
    for kind, layers in stack(shape).counts.items():
        for rows, columns, count in layer_matrices(shape, kind):
            key = (min(rows, columns), max(rows, columns))
            counts[key] = counts.get(key, 0) + count * layers
    return counts


def block_weights(shape: TransformerShape) -> int:
    """Elements of the matrices of one block, those that its matrix multiplications read."""
    return sum(rows * columns * count for (rows, columns), count in matrices(shape).items()) // shape.num_layers


def other_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """The parameters that are no matrix of a block, as tensors: (how many, elements of one)."""
    d, f, e, L = shape.d_model, shape.d_ff, shape.head_width, shape.num_layers
    copies = shape.expert_layers * shape.held_experts
    found = [(1 if shape.tied_embeddings else 2, shape.vocab_rows * d)]
    if shape.position == "learned":
        found.append((1, shape.context_length * d))
    if shape.biased_qkv and shape.beyond_lm:
        found += [(L, shape.num_heads * e), (2 * L, shape.kv_heads * e)]
    elif shape.biased_qkv:
        found.append((L, (shape.num_heads + 2 * shape.kv_heads) * e))
    if shape.bias:
        found += [(L, d), (copies, (2 if shape.gated else 1) * f), (copies, d)]
    if shape.norms:
        found.append((shape.norms * (2 if shape.norm == "layernorm" and shape.bias else 1), d))
    if shape.qk_norm:
        found.append((2 * L, e))
    if shape.latent is not None:
        found += [(L, rank) for rank in (shape.latent.q_rank, shape.latent.kv_rank) if rank is not None]
    if shape.attention_sinks:
        found.append((L, shape.num_heads))
    if shape.router_bias:
        found.append((shape.expert_layers, shape.experts or 0))
    return found


def tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """Every parameter as a tensor: (how many, elements of one)."""
    inside = [(count, rows * columns) for (rows, columns), count in matrices(shape).items()]
    return inside + other_tensors(shape) + adapter_tensors(shape)


def trained_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """Of them those that have gradients: the adapters where there are any."""
    return tensors(shape) if shape.lora_rank is None else adapter_tensors(shape)
