"""FLOPs of everything that is no matrix multiplication: norms, rotations, softmax, activations, residual, loss."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.dimensions import Dimensions
from accounting.counting.flops import doubled_pairs
from accounting.formula import Symbol, Term
from accounting.shape import TransformerShape, no_value_embeddings, positive
from accounting.units import FLOPs


def elementwise_flops(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> Breakdown:
    """Everything of one forward pass, loss included, that is no matrix multiplication: one FLOP an arithmetic
    operation.

    An exponential, a root, a division and a tanh count one each, as do +, -, × and a comparison that selects.
    """
    no_value_embeddings(shape, "what is no matrix multiplication")
    length = shape.sequence(seq_len)
    n, seq, batch = Dimensions(shape), Symbol("seq", length), Symbol("batch", positive("batch_size", batch_size))
    tokens = batch * seq
    return breakdown(
        "elementwise FLOPs",
        FLOPs,
        {
            "norms": _norms(shape, n, tokens),
            "rope": _rotations(shape, n, tokens),
            # scale, max, subtract, exponential, add, divide; of a sink one exponential and one addition a row
            "softmax": 3 * (batch * n.n_heads * doubled_pairs(shape, seq))
            + (2 * (tokens * n.n_layers * n.n_heads) if shape.attention_sinks else 0),
            "activation": _activations(shape, n, tokens),
            "router": 0 if shape.experts is None else _router(shape, n, tokens),
            "residual": 2 * (tokens * n.n_layers * n.d_model)
            + (tokens * n.d_model if shape.position == "learned" else 0)
            + (tokens * n.expert_layers * n.d_model if shape.shared_d_ff else 0),
            "loss": 4 * (tokens * n.vocab) + 3 * tokens,  # max, subtract, exponential, add; logarithm, subtract, mean
        },
        "one FLOP an arithmetic operation, transcendental ones included, over the pairs a causal mask shows; no biases",
    )


def _norms(shape: TransformerShape, n: Dimensions, tokens: Term) -> int:
    """An RMSNorm: square, add, scale, weigh; and a mean, an epsilon and a root for each position. A LayerNorm: add;
    subtract, square, add; scale, weigh, and the bias."""
    norms: int = 0
    if shape.norm == "rmsnorm":
        norms = shape.norms * (tokens * (4 * n.d_model + 3))
    elif shape.norm == "layernorm":
        norms = shape.norms * (tokens * ((7 if shape.bias else 6) * n.d_model + 4))
    if shape.qk_norm:
        norms = norms + tokens * n.n_layers * (n.n_heads + n.n_kv_heads) * (4 * n.head_dim + 3)
    if shape.qk_l2_norm:  # without a weight
        rotated = Symbol("rotated_layers", shape.num_layers - shape.unrotated_layers)
        norms = norms + tokens * rotated * (n.n_heads + n.n_kv_heads) * (3 * n.head_dim + 3)
    if shape.latent is not None:
        norms = norms + tokens * n.n_layers * (4 * n.kv_rank + 3)
        if shape.latent.q_rank is not None:
            norms = norms + tokens * n.n_layers * (4 * n.q_rank + 3)
    return norms


def _rotations(shape: TransformerShape, n: Dimensions, tokens: Term) -> int:
    """Six for each pair of elements; with latent attention one key is that of all heads."""
    if shape.position != "rope":
        return 0
    if shape.latent is not None:
        return 3 * (tokens * n.n_layers * n.rope_dim * (n.n_heads + 1))
    layers: Term = n.n_layers
    if shape.unrotated_layers:
        layers = Symbol("rotated_layers", shape.num_layers - shape.unrotated_layers)
    return 3 * (tokens * layers * n.head_dim * (n.n_heads + n.n_kv_heads))


def _activations(shape: TransformerShape, n: Dimensions, tokens: Term) -> int:
    """The activation and the product of the two halves; clamped_swiglu clamps three times and adds one besides."""
    each = {"swiglu": 6, "clamped_swiglu": 11, "geglu": 10, "gelu": 9, "silu": 5, "relu2": 2}[shape.ffn]
    found = each * shape.active_experts * (tokens * n.expert_layers * n.d_ff)
    if shape.shared_d_ff is not None:
        found = found + each * (tokens * n.expert_layers * n.shared_d_ff)
    if shape.dense_layers:
        found = found + each * (tokens * n.dense_layers * n.dense_d_ff)
    return found


def _router(shape: TransformerShape, n: Dimensions, tokens: Term) -> int:
    """A softmax of five operations a score, or a sigmoid of four; and what makes the weights of those chosen."""
    scores = tokens * n.expert_layers * n.n_experts
    chosen = tokens * n.expert_layers * n.active_experts
    if shape.router == "softmax_of_chosen":
        return 5 * chosen
    if shape.router == "sigmoid_of_input":
        return 4 * scores
    return 4 * scores + 2 * chosen if shape.router == "sigmoid" else 5 * scores
