"""FLOPs: matrix multiplications by component, and everything else as a line of its own.

A multiplication of (m, k) by (k, n) is 2·m·k·n FLOPs. Its backward is two such multiplications, so twice that.
"""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, constant
from accounting.parameters import matrices, parameters, symbols
from accounting.shape import TransformerShape, choose, positive
from accounting.units import FLOPs

ATTENTIONS = ("full", "half", "causal")
RECOMPUTATIONS = ("none", "fused", "selective", "full")
OPTIMIZERS = ("adamw", "adamw8bit", "sgd", "muon")

_COUNTED = {
    "full": "every one of the T² pairs of positions, masked or not, as an explicit matrix multiplication computes them",
    "half": "half of the T² pairs of positions, the usual approximation of causality",
    "causal": "exactly the pairs a causal mask shows: T(T+1)/2, fewer with a window",
}


def forward_flops(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, attention: str = "full"
) -> Breakdown:
    """Matrix-multiply FLOPs of one forward pass over batch_size sequences, the head at every position."""
    T = Symbol("T", shape.sequence(seq_len))
    B = Symbol("B", positive("batch_size", batch_size))
    choose("attention", attention, ATTENTIONS)
    return breakdown(
        "forward FLOPs",
        FLOPs,
        _forward(shape, T, B, doubled_pairs(shape, T, attention)),
        f"matrix multiplications only; attention scores over {_COUNTED[attention]}",
    )


def decode_flops(shape: TransformerShape, context: int | None = None, batch_size: int = 1) -> Breakdown:
    """Matrix-multiply FLOPs of one decoding step: one new token each for batch_size sequences, keys and values cached.

    context is the number of positions the token sees, its own included.
    """
    S = Symbol("S", shape.sequence(context))
    B = Symbol("B", positive("batch_size", batch_size))
    windowed = shape.windowed_layers
    seen = 2 * ((shape.num_layers - windowed) * S)
    if windowed:
        seen = seen + 2 * (Symbol("Lw", windowed) * min(S, Symbol("W", shape.window or 0)))
    return breakdown(
        "decode FLOPs",
        FLOPs,
        _forward(shape, constant(1), B, seen),
        "matrix multiplications of one token a sequence, which sees the S positions of the cache",
    )


def doubled_pairs(shape: TransformerShape, T: Term, attention: str = "causal") -> Term:
    """Twice the pairs (query, visible key) of one sequence and one head, summed over the layers; an exact integer."""
    L, windowed = Symbol("L", shape.num_layers), shape.windowed_layers
    if attention == "full":
        return L * (2 * T * T)
    if attention == "half":
        return L * (T * T)
    if not windowed or shape.window is None or shape.window >= T:
        return L * (T * (T + 1))
    W, Lw = Symbol("W", shape.window), Symbol("Lw", windowed)
    inside = Lw * (W * (W + 1) + 2 * W * (T - W))
    return inside if windowed == shape.num_layers else (L - Lw) * (T * (T + 1)) + inside


def _forward(shape: TransformerShape, T: Term, B: Term, pairs: Term) -> dict[str, int]:
    s = symbols(shape)
    L, d, h, k, e, f = s["L"], s["d"], s["h"], s["k"], s["e"], s["f"]
    ffn = (6 if shape.gated else 4) * (B * T * L * d * f)
    terms: dict[str, int] = {
        "projections": 4 * (B * T * L * d * e * (h + k)),
        "scores": 2 * (B * h * e * pairs),  # twice 2·e for each pair: once for q·k, once for the weights times v
        "ffn": ffn if shape.experts is None else Symbol("A", shape.active_experts) * ffn,
    }
    if shape.experts is not None:
        terms["router"] = 2 * (B * T * L * d * Symbol("E", shape.experts))
    return {**terms, "head": 2 * (B * T * d * s["V"])}


def training_flops(
    shape: TransformerShape,
    seq_len: int | None = None,
    batch_size: int = 1,
    *,
    attention: str = "full",
    recompute: str = "none",
) -> Breakdown:
    """Matrix-multiply FLOPs of one forward and backward pass: the step without its optimizer.

    With recompute="none" these are the model's FLOPs, for MFU; otherwise the hardware's, for HFU: "fused" recomputes q·k
    in the attention's backward (FlashAttention), "selective" the whole of the attention's scores, "full" every block.
    """
    forward = dict(forward_flops(shape, seq_len, batch_size, attention=attention).terms)
    choose("recompute", recompute, RECOMPUTATIONS)
    terms: dict[str, int] = {f"forward {name}": term for name, term in forward.items()}
    # the head's backward counts too: its input and its weight both have gradients
    terms |= {f"backward {name}": 2 * term for name, term in forward.items()}
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
        "matrix multiplications of forward and backward, the backward exactly twice the forward; "
        + ("nothing recomputed (model FLOPs)" if recompute == "none" else f"recomputing: {recompute} (hardware FLOPs)")
        + f"; scores over {_COUNTED[attention]}",
    )


def elementwise_flops(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> Breakdown:
    """Everything of one forward pass, loss included, that is no matrix multiplication: one FLOP an arithmetic operation.

    An exponential, a root, a division and a tanh count one each, as do +, -, × and a comparison that selects.
    """
    length = shape.sequence(seq_len)
    T, B, s = Symbol("T", length), Symbol("B", positive("batch_size", batch_size)), symbols(shape)
    L, d, h, k, e, f = s["L"], s["d"], s["h"], s["k"], s["e"], s["f"]
    norms: int = 0
    if shape.norm == "rmsnorm":  # square, add, scale, weigh; and a mean, an epsilon and a root for each position
        norms = shape.norms * (B * T * (4 * d + 3))
    elif shape.norm == "layernorm":  # add; subtract, square, add; scale, weigh, and the bias
        norms = shape.norms * (B * T * ((7 if shape.bias else 6) * d + 4))
    if shape.qk_norm:
        norms = norms + B * T * L * (h + k) * (4 * e + 3)
    active = shape.active_experts
    activation = {"swiglu": 6, "geglu": 10, "gelu": 9, "silu": 5, "relu2": 2}[shape.ffn]
    residual = 2 * (B * T * L * d)
    if shape.position == "learned":
        residual = residual + B * T * d
    return breakdown(
        "elementwise FLOPs",
        FLOPs,
        {
            "norms": norms,
            "rope": 3 * (B * T * L * e * (h + k)) if shape.position == "rope" else 0,  # six for each pair of numbers
            "softmax": 3 * (B * h * doubled_pairs(shape, T)),  # scale, max, subtract, exponential, add, divide
            "activation": activation * active * (B * T * L * f),
            "router": 0 if shape.experts is None else 5 * (B * T * L * Symbol("E", shape.experts)),
            "residual": residual,
            "loss": 4 * (B * T * s["V"]) + 3 * (B * T),  # max, subtract, exponential, add; logarithm, subtract, mean
        },
        "one FLOP an arithmetic operation, transcendental ones included, over the pairs a causal mask shows; no biases",
    )


def optimizer_flops(shape: TransformerShape, *, optimizer: str = "adamw") -> Breakdown:
    """FLOPs of one optimizer step, by what they do; AdamW (Loshchilov and Hutter 2019) is 14 a parameter.

    "muon" (Jordan et al. 2024) orthogonalises the matrices of the blocks by five Newton–Schulz steps and leaves the rest
    to AdamW. Scalars computed once a step (bias corrections, the rate) count nothing.
    """
    choose("optimizer", optimizer, OPTIMIZERS)
    N = Symbol("N", int(parameters(shape).total))
    if optimizer == "sgd":
        terms: dict[str, int] = {"weight decay": 2 * N, "momentum": 2 * N, "update": 2 * N}
        words = "SGD with momentum: decay 2, momentum 2, update 2 a parameter"
    elif optimizer == "muon":
        terms, words = _muon(shape)
    else:
        terms = _adamw(N)
        words = "AdamW: first moment 3, second moment 4, update 5, weight decay 2 a parameter"
    return breakdown("optimizer FLOPs", FLOPs, terms, words)


def _adamw(N: Term) -> dict[str, int]:
    return {
        "first moment": 3 * N,  # m ← β₁·m + (1 - β₁)·g
        "second moment": 4 * N,  # v ← β₂·v + (1 - β₂)·g·g
        "update": 5 * N,  # θ ← θ - α·m / (√v + ε)
        "weight decay": 2 * N,  # θ ← θ - αλ·θ
    }


def _muon(shape: TransformerShape) -> tuple[dict[str, int], str]:
    found = matrices(shape)
    inside = sum(rows * columns * count for (rows, columns), count in found.items())
    M, N = Symbol("M", inside), Symbol("N", int(parameters(shape).total) - inside)
    # A = XXᵀ, A·A, (bA + cA²)·X, with X of (rows, columns) and rows the smaller side
    steps = sum(5 * count * (4 * rows * rows * columns + 2 * rows**3) for (rows, columns), count in found.items())
    blends = sum(5 * count * (3 * rows * rows + 2 * rows * columns) for (rows, columns), count in found.items())
    normal = sum(count * 3 * rows * columns for (rows, columns), count in found.items())
    terms: dict[str, int] = {f"adamw {name}": term for name, term in _adamw(N).items()}
    terms |= {
        "momentum": 4 * M,  # μ·m + g, and once more for Nesterov
        "newton-schulz products": steps,
        "newton-schulz sums": blends + normal,
        "update": 2 * M,
        "weight decay": 2 * M,
    }
    return terms, "Muon on the matrices of the blocks (five Newton–Schulz steps), AdamW at 14 a parameter on the rest"


def training_estimates(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, attention: str = "full"
) -> dict[str, FLOPs]:
    """The rules of thumb beside the exact count, forward and backward, for batch_size sequences; not to be added up.

    6N with and without the embeddings (Kaplan et al. 2020), PaLM's 6N + 12LHQT with all parameters (Chowdhery et al.
    2022, appendix B), and the matrix multiplications themselves.
    """
    terms = estimate_terms(shape, seq_len, batch_size)
    exact = training_flops(shape, seq_len, batch_size, attention=attention)
    return {**{name: FLOPs(int(term)) for name, term in terms.items()}, "exact": FLOPs(int(exact.total))}


def estimate_terms(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> dict[str, Term]:
    """The rules of thumb with their formulas; of experts only those count that a token passes."""
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    s, found = symbols(shape), parameters(shape, active=True)
    N = Symbol("N", int(found.total))
    outside = Symbol("O", int(found["embedding"]) + int(found["positions"]) + int(found["head"]))
    return {
        "6N, no embeddings": 6 * (N - outside) * B * T,
        "6N, all parameters": 6 * N * B * T,
        "PaLM 6N + 12LHQT": (6 * N + 12 * s["L"] * s["h"] * s["e"] * T) * B * T,
    }
