"""Low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685): B·A beside a matrix, which alone are trained.

Everything else is frozen: it has neither gradients nor optimizer state, and its backward is one matmul instead of two.
The residual stream has a gradient from the first block on, as PEFT's enable_input_require_grads() has it.
"""

from __future__ import annotations

from accounting.counting.dimensions import Dimensions, FfnDimensions
from accounting.formula import Symbol, Term, added
from accounting.shape import TransformerShape

OF_FFN_MATRICES = ("gate", "up", "gate_up", "down")


def no_muon_of_adapters(shape: TransformerShape, optimizer: str) -> None:
    """ValueError: adapters are no matrices that Muon is for."""
    if shape.lora_rank is not None and optimizer == "muon":
        raise ValueError("optimizer 'muon' is of whole matrices, and here adapters are trained: use adamw or sgd")


def adapted(shape: TransformerShape) -> dict[str, tuple[Term, Term]]:
    """(in, out) of every matrix of a layer that has an adapter, by its name; of experts, of one of them."""
    if shape.lora_rank is None:
        return {}
    n, (ffn,) = Dimensions(shape), shape.ffns
    d_ff = FfnDimensions(shape, ffn).d_ff
    queries, keys = n.n_heads * n.head_dim, n.n_kv_heads * n.head_dim
    sizes = {
        "query": (n.d_model, queries),
        "key": (n.d_model, keys),
        "value": (n.d_model, keys),
        "qkv": (n.d_model, (n.n_heads + 2 * n.n_kv_heads) * n.head_dim),
        "output": (queries, n.d_model),
        "gate": (n.d_model, d_ff),
        "up": (n.d_model, d_ff),
        "gate_up": (n.d_model, 2 * d_ff),
        "down": (d_ff, n.d_model),
    }
    return {name: sizes[name] for name in shape.adapted}


def rank_of(shape: TransformerShape) -> Term:
    """The rank of the adapters; 0 without any."""
    return Symbol("lora_rank", shape.lora_rank or 0)


def adapter_elements(shape: TransformerShape, experts: int, *, of_ffn: bool | None = None) -> Term:
    """Elements of one layer's adapters with `experts` experts; of_ffn: of one of feed-forward layer and attention."""
    rank, terms = rank_of(shape), []
    for name, (into, out) in adapted(shape).items():
        if of_ffn is None or of_ffn == (name in OF_FFN_MATRICES):
            one = rank * (into + out)
            terms.append(experts * one if name in OF_FFN_MATRICES else one)
    return added(terms)


def adapter_tensors(shape: TransformerShape) -> list[tuple[int, int]]:
    """The adapters of all layers as tensors: (how many, elements of one)."""
    rank, (ffn, *_) = shape.lora_rank or 0, shape.ffns
    tensors = []
    for name, (into, out) in adapted(shape).items():
        copies = shape.num_layers * (ffn.held if name in OF_FFN_MATRICES else 1)
        tensors += [(copies, rank * int(into)), (copies, rank * int(out))]
    return tensors
