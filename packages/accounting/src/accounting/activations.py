"""Bytes that the forward pass keeps for the backward, by component: what autograd saves, each storage once.

The order of operations is that of an ordinary PyTorch model, `lm` of this repository: one matrix for queries, keys and
values, one for gate and up, queries and keys turned together. Parameters are not among what is counted.
"""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, added, constant
from accounting.parameters import symbols
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes

ACTIVATION_BYTES = {"fp32": 4, "bf16": 2}
ATTENTIONS = ("fused", "eager")
NORM_KERNELS = ("fused", "normalised", "composite")
CHECKPOINTINGS = ("none", "selective", "full")
LOSSES = ("plain", "chunked")
RECOMPUTED = ("queries, keys, values", "attention weights")  # by selective checkpointing


def saved_activations(
    shape: TransformerShape,
    batch_size: int,
    seq_len: int | None = None,
    *,
    precision: str = "fp32",
    attention: str = "fused",
    norm_kernel: str = "fused",
    checkpointing: str = "none",
    loss: str = "plain",
) -> Breakdown:
    """Bytes saved between forward and backward of the model and its loss, for batch_size sequences.

    attention: "fused" keeps queries, keys, values, output and a log-sum-exp for each row (FlashAttention), "eager" keeps the
    T² weights. norm_kernel: of an RMSNorm "fused" keeps its input, "normalised" its input divided by its size
    (lm in fp32), "composite" both (torch's own on a CPU).
    checkpointing: "selective" keeps nothing of the inside of attention (Korthikanti et al. 2022), "full" only what enters
    each block (Chen et al. 2016). loss: "plain" keeps log-probabilities, "chunked" the gradients of hidden state and head.
    """
    for name, value, among in (
        ("precision", precision, tuple(ACTIVATION_BYTES)),
        ("attention", attention, ATTENTIONS),
        ("norm_kernel", norm_kernel, NORM_KERNELS),
        ("checkpointing", checkpointing, CHECKPOINTINGS),
        ("loss", loss, LOSSES),
    ):
        choose(name, value, among)
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    a, s = Symbol("a", ACTIVATION_BYTES[precision]), symbols(shape)
    terms: dict[str, int] = {"token ids": 8 * (B * T), "tables": tables(shape, T, a, attention)}
    if checkpointing == "full":
        terms["block inputs"] = B * T * s["L"] * s["d"] * a
    else:
        block = block_activations(shape, B, T, a, attention, norm_kernel)
        skipped = RECOMPUTED if checkpointing == "selective" else ()
        terms |= {name: s["L"] * term for name, term in block.items() if name not in skipped}
    terms |= head_activations(shape, B, T, a, norm_kernel, loss)
    return breakdown(
        "saved activations",
        Bytes,
        terms,
        f"{precision}, {attention} attention, {norm_kernel} norms, {loss} loss, checkpointing {checkpointing}: "
        "every tensor that autograd keeps, each storage once",
    )


def block_activations(
    shape: TransformerShape, B: Term, T: Term, a: Term, attention: str, norm_kernel: str
) -> dict[str, Term]:
    """Bytes that one block keeps, by component, for B sequences of T positions in `a` bytes a number."""
    s, BT = symbols(shape), B * T
    d, h, k, e, f = s["d"], s["h"], s["k"], s["e"], s["f"]
    active = shape.active_experts
    terms = {
        "norms": BT * ((4 if shape.post_norm else 2) * norm_activations(shape, d, a, norm_kernel)),
        "attention input": BT * d * a,
    }
    if shape.qk_norm:
        # the heads before they are weighed; the input of the norm is kept with queries, keys and values
        heads = {"fused": Term(0), "normalised": e * a, "composite": 4 * e}[norm_kernel]
        terms["query and key norms"] = BT * ((h + k) * (constant(4) + heads))
    terms["queries, keys, values"] = _qkv(shape, B, T, a, attention, norm_kernel)
    terms["attention weights"] = B * h * T * T * a if attention == "eager" else 4 * (BT * h)
    terms["attention output"] = BT * h * e * a
    terms["ffn input"] = BT * d * a
    # gated: gate and up, which are one storage of 2f, the activated gate, and the product; else before and after
    terms["ffn hidden"] = (4 if shape.gated else 2) * active * (BT * f * a)
    if (
        shape.experts is not None
    ):  # probabilities; for each choice its index, its weight, and what the expert read and gave
        terms["router"] = BT * (Symbol("E", shape.experts) * a + active * (2 * d * a + 12))
    return terms


def _qkv(shape: TransformerShape, B: Term, T: Term, a: Term, attention: str, norm_kernel: str) -> Term:
    """Queries, keys and values as attention keeps them: views keep the whole of the storage they look into."""
    s, BT = symbols(shape), B * T
    h, k, e = s["h"], s["k"], s["e"]
    projected = BT * ((h + 2 * k) * e) * a  # the output of the projection, into which the values are a view
    turned = BT * ((h + k) * e) * a  # queries and keys, if something was done to them since
    changed = shape.position == "rope" or shape.qk_norm
    if attention == "fused":
        return projected + turned if changed else projected
    # whole score matrices want batch and key heads as one dimension, which copies unless one of the two is 1
    key_view = int(B) == 1 or shape.kv_heads == 1
    query_view = key_view and (shape.kv_heads == shape.num_heads or int(T) == 1)
    source = turned if changed else projected
    kept: list[Term] = [] if query_view else [BT * (h * e) * a]
    if key_view:
        kept += [source, projected] if changed else [projected]
    else:
        kept += [2 * (BT * (k * e) * a)]
        if shape.qk_norm and norm_kernel != "normalised":
            kept.append(projected)
    return added(kept)


def norm_activations(shape: TransformerShape, width: Term, a: Term, norm_kernel: str) -> Term:
    """Bytes a position that one norm keeps: its input, raw or normalised, which nothing else keeps, and fp32 statistics."""
    if shape.norm == "none":
        return Term(0)
    if shape.norm == "layernorm":
        return width * a + 8
    if norm_kernel == "composite":  # input and normalised input, both in fp32 whatever came in, and the reciprocal root
        return 8 * width + 4
    return width * a + 4


def head_activations(
    shape: TransformerShape, B: Term, T: Term, a: Term, norm_kernel: str, loss: str
) -> dict[str, Term]:
    """Bytes that the final norm, the head and the loss keep."""
    s, BT = symbols(shape), B * T
    terms = {"final norm": BT * norm_activations(shape, s["d"], a, norm_kernel)}
    if loss == "chunked":  # its gradients are ready on the way forward, and nothing else is kept
        terms["loss"] = (BT * s["d"] + s["V"] * s["d"]) * a
    else:
        terms["head input"] = BT * s["d"] * a
        terms["loss"] = 4 * (BT * tokens(shape)) + 8 * BT + 4  # log-probabilities, targets, and the sum of weights
    return terms


def tables(shape: TransformerShape, T: Term, a: Term, attention: str) -> Term:
    """Bytes of what all layers share whatever the batch: a complex turn for every position and pair, a window's mask."""
    s = symbols(shape)
    total = 4 * (s["C"] * s["e"]) if shape.position == "rope" else Term(0)
    if attention == "fused" and shape.window is not None and shape.window < int(T):
        total = total + T * T * a
    return total


def tokens(shape: TransformerShape) -> Term:
    """The vocabulary without what pads it: the loss is over these alone."""
    return symbols(shape)["V"] if shape.vocab_rows == shape.vocab_size else Symbol("U", shape.vocab_size)
