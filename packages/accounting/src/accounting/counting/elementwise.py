"""FLOPs of everything that is no matrix multiplication: norms, rotations, softmax, activations, residual, loss."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import positive
from accounting.counting.dimensions import Dimensions, FfnDimensions, LatentDimensions
from accounting.counting.flops import doubled_pairs
from accounting.counting.layers import attention_groups, ffn_layers
from accounting.formula import Symbol, Term, added
from accounting.layer import AnyAttention, LatentAttention
from accounting.shape import NotCounted, TransformerShape, no_value_embeddings
from accounting.units import FLOPs


def elementwise_flops(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> Breakdown:
    """Everything of one forward pass, loss included, that is no matrix multiplication: one FLOP an arithmetic
    operation.

    An exponential, a root, a division and a tanh count one each, as do +, -, × and a comparison that selects.
    """
    no_value_embeddings(shape, "what is no matrix multiplication")
    length = shape.sequence(seq_len)
    groups = attention_groups(shape)
    if shape.mixers or (shape.latent and shape.latent.indexer) or any(one.qk_norm == "width" for one in groups):
        raise NotCounted("elementwise FLOPs are not counted of states and indexers, nor of norms as wide as all heads")
    n, seq, batch = Dimensions(shape), Symbol("seq", length), Symbol("batch", positive("batch_size", batch_size))
    tokens = batch * seq
    return breakdown(
        "elementwise FLOPs",
        FLOPs,
        {
            "norms": _norms(shape, n, tokens),
            "rope": _rotations(shape, n, tokens),
            # scale, max, subtract, exponential, add, divide; of a sink one exponential and one addition a row
            "softmax": 3 * (batch * n.n_heads * added(doubled_pairs(shape, seq).values()))
            + 2 * added(tokens * layers * n.n_heads for one, layers in groups.items() if one.sinks),
            "activation": _activations(shape, tokens),
            "router": _router(shape, tokens),
            "residual": 2 * (tokens * n.n_layers * n.d_model)
            + (tokens * n.d_model if shape.position == "learned" else 0)
            + added(tokens * layers * n.d_model for one, layers in ffn_layers(shape).items() if one.shared_d_ff),
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
        norms = shape.norms * (tokens * ((7 if shape.biased_norm else 6) * n.d_model + 4))
    for one, layers in _rotated(shape).items():
        if one.qk_norm == "head":
            norms = norms + tokens * layers * (n.n_heads + n.n_kv_heads) * (4 * n.head_dim + 3)
        elif one.qk_norm == "l2":  # without a weight
            norms = norms + tokens * layers * (n.n_heads + n.n_kv_heads) * (3 * n.head_dim + 3)
        if isinstance(one, LatentAttention):
            m = LatentDimensions(one)
            norms = norms + tokens * layers * (4 * m.kv_rank + 3)
            if one.q_rank is not None:
                norms = norms + tokens * layers * (4 * m.q_rank + 3)
    return norms


def _rotated(shape: TransformerShape) -> dict[AnyAttention, Term]:
    """Number of layers of each attention, rotated ones apart from others."""
    if len(shape.attentions) == 1:
        return {one: Symbol("n_layers", count) for one, count in shape.attentions.items()}
    return {
        one: Symbol("rotated_layers" if one.rotated else "unrotated_layers", count)
        for one, count in shape.attentions.items()
    }


def _rotations(shape: TransformerShape, n: Dimensions, tokens: Term) -> int:
    """Six for each pair of elements; with latent attention one key is that of all heads."""
    rotations = []
    for one, layers in _rotated(shape).items():
        if isinstance(one, LatentAttention):
            rotations.append(3 * (tokens * layers * LatentDimensions(one).rope_dim * (n.n_heads + 1)))
        elif one.rotated:
            rotations.append(3 * (tokens * layers * n.head_dim * (n.n_heads + n.n_kv_heads)))
    return added(rotations)


def _activations(shape: TransformerShape, tokens: Term) -> int:
    """The activation and the product of the two halves; clamped_swiglu clamps three times and adds one besides."""
    each = {"swiglu": 6, "clamped_swiglu": 11, "geglu": 10, "gelu": 9, "gelu_new": 9, "silu": 5, "relu": 1, "relu2": 2}[
        shape.ffn
    ]
    operations = []
    for ffn, layers in ffn_layers(shape).items():
        m = FfnDimensions(shape, ffn)
        operations.append(each * ffn.active * (tokens * layers * m.d_ff))
        if ffn.shared_d_ff is not None:
            operations.append(each * (tokens * layers * m.shared_d_ff))
    return added(operations)


def _router(shape: TransformerShape, tokens: Term) -> int:
    """A softmax of five operations a score, or a sigmoid of four; and the weights of the experts chosen."""
    operations = []
    for ffn, layers in ffn_layers(shape).items():
        if ffn.experts is not None:
            m = FfnDimensions(shape, ffn)
            scores, chosen = tokens * layers * m.n_experts, tokens * layers * m.active_experts
            operations.append(
                {
                    "softmax": 5 * scores,
                    "softmax_of_chosen": 5 * chosen,
                    "sigmoid": 4 * scores + 2 * chosen,
                    "sigmoid_of_input": 4 * scores,
                }[ffn.router]
            )
    return added(operations)
