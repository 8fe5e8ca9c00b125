"""FLOPs of forward, backward and decoding: matrix multiplications by component.

A multiplication of (m, k) by (k, n) is 2·m·k·n FLOPs. Its backward is two such multiplications, so twice that.
"""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions, latent_matrices
from accounting.formula import Symbol, Term, added, constant
from accounting.shape import TransformerShape, choose, positive
from accounting.units import FLOPs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PAIRS = ("full", "half", "causal")
RECOMPUTATIONS = ("none", "fused", "selective", "full")

_COUNTED = {
    "full": "every one of the seq² pairs of positions, masked or not, as an explicit matrix multiplication computes "
    "them",
    "half": "half of the seq² pairs of positions, the usual approximation of causality",
    "causal": "exactly the pairs a causal mask shows: seq·(seq + 1)/2, fewer with a window",
}


def pairs_in_words(pairs: str) -> str:
    """The pairs of positions that are counted, for a convention."""
    return _COUNTED[pairs]


def forward_flops(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, pairs: str = "full"
) -> Breakdown:
    """Matrix-multiply FLOPs of one forward pass over batch_size sequences, the head at every position."""
    seq = Symbol("seq", shape.sequence(seq_len))
    batch = Symbol("batch", positive("batch_size", batch_size))
    choose("pairs", pairs, PAIRS)
    return breakdown(
        "forward FLOPs",
        FLOPs,
        _forward(shape, seq, batch, doubled_pairs(shape, seq, pairs)),
        f"matrix multiplications only; attention scores over {pairs_in_words(pairs)}",
    )


def prefill_flops(shape: TransformerShape, prompt: int | None = None, batch_size: int = 1) -> Breakdown:
    """Matrix-multiply FLOPs of reading a prompt before the first new token: the head at the last position alone.

    Args:
        shape: the model.
        prompt: positions of the prompt; the whole context unless given.
        batch_size: prompts read together.

    >>> from accounting import SHAPES
    >>> prefill_flops(SHAPES["gpt2"], 1024)["head"] == 2 * 768 * 50257
    True
    """
    seq = Symbol("seq", shape.sequence(prompt))
    batch = Symbol("batch", positive("batch_size", batch_size))
    terms = _forward(shape, seq, batch, doubled_pairs(shape, seq, "causal"))
    terms["head"] = 2 * (batch * Dimensions(shape).d_model * Dimensions(shape).vocab)
    return breakdown(
        "prefill FLOPs",
        FLOPs,
        terms,
        "matrix multiplications only, the head at the last position alone; attention scores over "
        f"{pairs_in_words('causal')}",
    )


def decode_flops(shape: TransformerShape, context: int | None = None, batch_size: int = 1) -> Breakdown:
    """Matrix-multiply FLOPs of one decoding step: one new token each for batch_size sequences, keys and values cached.

    context is the number of positions the token sees, its own included.
    """
    seen = Symbol("context", shape.sequence(context))
    batch = Symbol("batch", positive("batch_size", batch_size))
    pairs = decode_pairs(shape, seen)
    return breakdown(
        "decode FLOPs",
        FLOPs,
        _forward(shape, constant(1), batch, pairs, absorbed=True),
        "matrix multiplications of one token a sequence, which sees the context positions of the cache",
    )


def decode_pairs(shape: TransformerShape, seen: Term) -> Term:
    """Twice the positions that one new token sees, summed over the layers."""
    n = Dimensions(shape)
    if not shape.windowed_layers:
        return 2 * (n.n_layers * seen)
    inside = n.window_layers * min(seen, n.window)
    return (
        2 * inside
        if shape.windowed_layers == shape.num_layers
        else 2 * ((n.n_layers - n.window_layers) * seen + inside)
    )


def doubled_pairs(shape: TransformerShape, seq: Term, pairs: str = "causal") -> Term:
    """Twice the pairs (query, visible key) of one sequence and one head, summed over the layers; an exact integer."""
    n = Dimensions(shape)
    if pairs == "full":
        return n.n_layers * (2 * seq * seq)
    if pairs == "half":
        return n.n_layers * (seq * seq)
    if not shape.windowed_layers or shape.sliding_window is None or shape.sliding_window >= seq:
        return n.n_layers * (seq * (seq + 1))
    inside = n.window_layers * (n.window * (n.window + 1) + 2 * n.window * (seq - n.window))
    if shape.windowed_layers == shape.num_layers:
        return inside
    return (n.n_layers - n.window_layers) * (seq * (seq + 1)) + inside


def _forward(shape: TransformerShape, seq: Term, batch: Term, pairs: Term, *, absorbed: bool = False) -> dict[str, int]:
    """absorbed: latent attention over the latents themselves, the matrices of keys and values moved to queries and
    output."""
    n = Dimensions(shape)
    tokens = batch * seq * n.n_layers
    routed = batch * seq * n.expert_layers
    each = 6 if shape.gated else 4
    ffn = each * (routed * n.d_model * n.d_ff)
    terms: dict[str, int] = {
        "projections": 4 * (tokens * n.d_model * n.head_dim * (n.n_heads + n.n_kv_heads)),
        # twice 2·head_dim for each pair: once for q·k, once for the weights times v
        "scores": 2 * (batch * n.n_heads * n.head_dim * pairs),
        "ffn": ffn if shape.experts is None else n.active_experts * ffn,
    }
    if shape.value_embeddings:
        layers = Symbol("value_layers", shape.value_embeddings)
        terms["value gates"] = 2 * (batch * seq * layers * n.d_model * n.n_kv_heads)
    if shape.latent is not None:
        terms["projections"] = 2 * (tokens * added(latent_matrices(shape).values()))
        pair = 2 * n.kv_rank + n.rope_dim if absorbed else n.nope_dim + n.rope_dim + n.value_dim
        terms["scores"] = batch * n.n_heads * pair * pairs
    if shape.shared_d_ff is not None:
        terms["ffn"] = terms["ffn"] + each * (routed * n.d_model * n.shared_d_ff)
    if shape.dense_layers:
        terms["ffn"] = terms["ffn"] + each * (batch * seq * n.dense_layers * n.d_model * n.dense_d_ff)
    if shape.experts is not None:
        terms["router"] = 2 * (routed * n.d_model * n.n_experts)
    if shape.lora_rank is not None:
        terms["adapters"] = 2 * (tokens * adapter_elements(shape, shape.active_experts))
    return {**terms, "head": 2 * (batch * seq * n.d_model * n.vocab)}


def backward_terms(shape: TransformerShape, forward: Mapping[str, int]) -> dict[str, int]:
    """FLOPs of the backward pass by component: twice the forward's, of a frozen matrix once, as its weight has no
    gradient."""
    frozen = () if shape.lora_rank is None else ("projections", "ffn", "router", "head")
    return {name: term if name in frozen else 2 * term for name, term in forward.items()}


def training_flops(
    shape: TransformerShape,
    seq_len: int | None = None,
    batch_size: int = 1,
    *,
    pairs: str = "full",
    recompute: str = "none",
) -> Breakdown:
    """Matrix-multiply FLOPs of one forward and backward pass: the step without its optimizer.

    With recompute="none" these are the model's FLOPs, for MFU; otherwise the hardware's, for HFU: "fused" recomputes
    q·k in the attention's backward (FlashAttention), "selective" the whole of the attention's scores, "full" every
    block.
    """
    forward = dict(forward_flops(shape, seq_len, batch_size, pairs=pairs).terms)
    choose("recompute", recompute, RECOMPUTATIONS)
    terms: dict[str, int] = {f"forward {name}": term for name, term in forward.items()}
    # the head's backward counts too: its input and its weight both have gradients
    terms |= {f"backward {name}": term for name, term in backward_terms(shape, forward).items()}
    if recompute == "fused":
        terms["recomputed scores"] = forward["scores"] // 2
    elif recompute == "selective":
        terms["recomputed scores"] = forward["scores"]
    elif recompute == "full":
        terms |= {f"recomputed {name}": term for name, term in forward.items() if name != "head"}
    return breakdown(
        "training FLOPs",
        FLOPs,
        terms,
        "matrix multiplications of forward and backward, the backward "
        + ("exactly twice the forward; " if shape.lora_rank is None else "of a frozen matrix as much as its forward; ")
        + ("nothing recomputed (model FLOPs)" if recompute == "none" else f"recomputing: {recompute} (hardware FLOPs)")
        + f"; scores over {pairs_in_words(pairs)}",
    )
