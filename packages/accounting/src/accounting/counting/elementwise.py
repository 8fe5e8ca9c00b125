"""FLOPs of everything that is no matrix multiplication: norms, rotations, softmax, activations, residual, loss."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.dimensions import Dimensions
from accounting.counting.flops import doubled_pairs
from accounting.formula import Symbol
from accounting.shape import TransformerShape, only_ordinary, positive
from accounting.units import FLOPs


def elementwise_flops(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> Breakdown:
    """Everything of one forward pass, loss included, that is no matrix multiplication: one FLOP an arithmetic
    operation.

    An exponential, a root, a division and a tanh count one each, as do +, -, × and a comparison that selects.
    """
    only_ordinary(shape, "what is no matrix multiplication")
    length = shape.sequence(seq_len)
    n, seq, batch = Dimensions(shape), Symbol("seq", length), Symbol("batch", positive("batch_size", batch_size))
    tokens = batch * seq
    norms: int = 0
    if shape.norm == "rmsnorm":  # square, add, scale, weigh; and a mean, an epsilon and a root for each position
        norms = shape.norms * (tokens * (4 * n.d_model + 3))
    elif shape.norm == "layernorm":  # add; subtract, square, add; scale, weigh, and the bias
        norms = shape.norms * (tokens * ((7 if shape.bias else 6) * n.d_model + 4))
    if shape.qk_norm:
        norms = norms + tokens * n.n_layers * (n.n_heads + n.n_kv_heads) * (4 * n.head_dim + 3)
    active = shape.active_experts
    activation = {"swiglu": 6, "geglu": 10, "gelu": 9, "silu": 5, "relu2": 2}[shape.ffn]
    residual = 2 * (tokens * n.n_layers * n.d_model)
    if shape.position == "learned":
        residual = residual + tokens * n.d_model
    return breakdown(
        "elementwise FLOPs",
        FLOPs,
        {
            "norms": norms,
            # six for each pair of elements
            "rope": 3 * (tokens * n.n_layers * n.head_dim * (n.n_heads + n.n_kv_heads))
            if shape.position == "rope"
            else 0,
            "softmax": 3
            * (batch * n.n_heads * doubled_pairs(shape, seq)),  # scale, max, subtract, exponential, add, divide
            "activation": activation * active * (tokens * n.n_layers * n.d_ff),
            "router": 0 if shape.experts is None else 5 * (tokens * n.n_layers * n.n_experts),
            "residual": residual,
            "loss": 4 * (tokens * n.vocab) + 3 * tokens,  # max, subtract, exponential, add; logarithm, subtract, mean
        },
        "one FLOP an arithmetic operation, transcendental ones included, over the pairs a causal mask shows; no biases",
    )
