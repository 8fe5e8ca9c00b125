"""Bytes that the forward pass keeps for the backward, by component: what autograd saves, each storage once.

The order of operations is that of an ordinary PyTorch model, `lm` of this repository: one matrix for queries, keys and
values, one for gate and up, queries and keys turned together. Parameters are not among what is counted.
Components are lists of tensors, (how many, bytes of one), because an allocator rounds each tensor up by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, added
from accounting.parameters import block_matrices, symbols
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    Pieces = list[tuple[int, Term]]  # tensors: how many, and the bytes of one

ATTENTIONS = ("fused", "eager", "blocks")
QUERY_BLOCK = 64  # queries that "blocks" takes at a time, lm.score_blocks.BLOCK
NORM_KERNELS = ("fused", "normalised", "folded", "composite")
CHECKPOINTINGS = ("none", "selective", "full")
LOSSES = ("plain", "chunked")
MOST_IN_BLOCKS = 1 << 20  # positions
CHUNK_BYTES = 512 << 20  # of fp32 logits that the chunked loss takes at a time: lm.loss.CHUNK_BYTES["cuda"]


@dataclass(frozen=True)
class Precision:
    """Bytes of a number in the weights (and their gradients), in the residual stream with its norms, and in all else."""

    weights: int
    residual: int
    activations: int
    master: bool  # fp32 weights in the optimizer


PRECISIONS = {
    "fp32": Precision(4, 4, 4, False),
    "bf16": Precision(2, 2, 2, True),
    # fp32 weights, of which every product reads a bf16 copy: torch.autocast
    "autocast": Precision(4, 4, 2, False),
}


@dataclass(frozen=True)
class Policy:
    """How a model is run, as far as it decides what is kept; see saved_activations."""

    precision: str = "fp32"
    attention: str = "fused"
    norm_kernel: str = "fused"
    checkpointing: str = "none"
    loss: str = "plain"
    chunk_bytes: int = CHUNK_BYTES
    shares: int = 1  # devices among which the positions between the products are shared out (sequence parallelism)

    def __post_init__(self) -> None:
        for name, among in (
            ("precision", tuple(PRECISIONS)),
            ("attention", ATTENTIONS),
            ("norm_kernel", NORM_KERNELS),
            ("checkpointing", CHECKPOINTINGS),
            ("loss", LOSSES),
        ):
            choose(name, getattr(self, name), among)
        positive("chunk_bytes", self.chunk_bytes)

    @property
    def bytes(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def words(self) -> str:
        return (
            f"{self.precision}, {self.attention} attention, {self.norm_kernel} norms, {self.loss} loss, "
            f"checkpointing {self.checkpointing}"
        )


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

    precision: "fp32"; "bf16" for everything; "autocast" keeps the residual stream and its norms in fp32, the rest in bf16,
    and beside the fp32 weights the bf16 copies that the products read. attention: "fused" keeps queries, keys, values,
    output and a log-sum-exp for each row (FlashAttention), "eager" keeps the T² weights, "blocks" those that a
    block of 64 queries may see (lm on a CPU in fp32). norm_kernel: of an RMSNorm "fused" keeps its input, "normalised" its
    input divided by its size, "folded" that too, of which the product that follows reads the same copy, and its matrix times
    the norm's weight (lm in fp32), "composite" both (torch's own on a CPU).
    checkpointing: "selective" keeps what enters attention's inside but nothing of it (Korthikanti et al. 2022), "full" only
    what enters each block (Chen et al. 2016). loss: "plain" keeps log-probabilities, "chunked" the gradients of hidden
    state and head.
    """
    policy = Policy(precision, attention, norm_kernel, checkpointing, loss)
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    L = symbols(shape)["L"]
    terms: dict[str, int] = {name: total(pieces) for name, pieces in shared_tensors(shape, B, T, policy).items()}
    terms |= {name: L * total(pieces) for name, pieces in kept_of_block(shape, B, T, policy).items()}
    terms |= {name: total(pieces) for name, pieces in head_tensors(shape, B, T, policy).items()}
    return breakdown(
        "saved activations", Bytes, terms, f"{policy.words}: every tensor that autograd keeps, each storage once"
    )


def rows(B: Term, T: Term, policy: Policy) -> Term:
    """Positions that a device holds of what lies between the products: all, or the largest of equal shares."""
    w = Symbol("t", policy.shares)
    return B * T if policy.shares == 1 else B * ((T + (w - 1)) // w)


def total(pieces: Pieces) -> Term:
    """Bytes of so many tensors."""
    return added(count * size for count, size in pieces)


def shared_tensors(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> dict[str, Pieces]:
    """What all layers share: the token ids, a complex turn for every position and pair, the mask of a window."""
    s = symbols(shape)
    tables: Pieces = []
    if shape.position == "rope":
        tables.append((1, 4 * (s["C"] * s["e"])))
    if policy.attention == "fused" and shape.window is not None and shape.window < int(T):
        tables.append((1, T * T * Symbol("a", policy.bytes.activations)))
    return {"token ids": [(1, 8 * (B * T))], "tables": tables}


def kept_of_block(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> dict[str, Pieces]:
    """What one block keeps until its backward; with checkpointing the rest is computed again then."""
    if policy.checkpointing == "full":
        return {"block inputs": [(1, rows(B, T, policy) * symbols(shape)["d"] * Symbol("r", policy.bytes.residual))]}
    block = block_tensors(shape, B, T, policy)
    if policy.checkpointing == "selective":
        del block["attention weights"]
        # the copies that score matrices want are made inside, from what is kept
        block["queries, keys, values"] = entering(shape, B, T, policy)
    return block


def block_tensors(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> dict[str, Pieces]:
    """What one block keeps when nothing is recomputed, by component, for B sequences of T positions."""
    s, BT = symbols(shape), B * T
    d, h, k, e, f = s["d"], s["h"], s["k"], s["e"], s["f"]
    a, active = Symbol("a", policy.bytes.activations), shape.active_experts
    between = rows(B, T, policy)
    folded = policy.norm_kernel == "folded" and shape.norm == "rmsnorm" and not shape.post_norm
    terms: dict[str, Pieces] = {
        "norms": [
            ((4 if shape.post_norm else 2) * count, size) for count, size in norm_tensors(shape, between, d, policy)
        ],
        "attention input": [(1, (h + 2 * k) * e * d * a if folded else between * d * a)],
    }
    if shape.qk_norm:
        # the heads before they are weighed; what came in is kept with queries, keys and values, or as a copy in fp32
        copies = {"fused": 0, "normalised": 1, "folded": 1, "composite": 1 if int(a) == 4 else 2}[
            head_norm_kernel(policy)
        ]
        heads: Pieces = [(copies, 4 * (BT * h * e)), (copies, 4 * (BT * k * e))]
        terms["query and key norms"] = [(1, 4 * (BT * h)), (1, 4 * (BT * k)), *(heads if copies else [])]
    terms["queries, keys, values"] = _qkv(shape, B, T, policy)
    if policy.attention == "blocks":
        seen = scores_in_blocks(int(T), shape.window)
        terms["attention weights"] = [(1, B * h * Symbol("J", scores) * a) for scores in seen]
    else:
        terms["attention weights"] = [(1, B * h * T * T * a if policy.attention == "eager" else 4 * (BT * h))]
    terms["attention output"] = [(1, BT * h * e * a)]
    terms["ffn input"] = [
        (1, (2 if shape.gated else 1) * f * d * a if folded and shape.experts is None else between * d * a)
    ]
    # gated: gate and up, which are one storage of 2f, the activated gate, and the product; else before and after
    inside: Pieces = [(1, 2 * (BT * f * a)), (2, BT * f * a)] if shape.gated else [(2, BT * f * a)]
    terms["ffn hidden"] = inside if shape.experts is None else [(active * count, size) for count, size in inside]
    if shape.experts is not None:
        # of a token its probabilities and their sum over those chosen; of a choice its index, its weight as one of the
        # token's and as one of the expert's, its place in both, what the expert read, what it gave, and that weighed
        terms["router"] = [
            (1, BT * Symbol("E", shape.experts) * a),
            (1, BT * a),
            (active, 8 * BT),
            (active, 16 * BT),
            (2 * active, BT * a),
            (3 * active, BT * d * a),
        ]
    if policy.precision == "autocast":
        terms["weights in bf16"] = [(1, 2 * Symbol("X", block_matrices(shape)))]
    return terms


def entering(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> Pieces:
    """What attention's inside is computed from: views of the projection, or with norms of queries and keys one copy more."""
    if policy.attention != "blocks":
        return _qkv(shape, B, T, Policy(policy.precision, "fused", policy.norm_kernel))
    s, a = symbols(shape), Symbol("a", policy.bytes.activations)
    copies = 2 if shape.qk_norm and policy.norm_kernel in ("fused", "composite") else 1
    return [(copies, B * T * ((s["h"] + 2 * s["k"]) * s["e"]) * a)]


def _qkv(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> Pieces:
    """Queries, keys and values as attention keeps them: views keep the whole of the storage they look into."""
    s, BT, a = symbols(shape), B * T, Symbol("a", policy.bytes.activations)
    h, k, e = s["h"], s["k"], s["e"]
    projected = (1, BT * ((h + 2 * k) * e) * a)  # the output of the projection, into which the values are a view
    turned = (1, BT * ((h + k) * e) * a)  # queries and keys, if something was done to them since
    changed = shape.position == "rope" or shape.qk_norm
    raw = shape.qk_norm and policy.norm_kernel in (
        "fused",
        "composite",
    )  # as the input of the norm, unless that made a copy
    if policy.attention == "blocks":
        return [(1, BT * h * e * a), (2, BT * k * e * a), *([projected] if raw else [])]
    if policy.attention == "fused":
        return [projected, turned] if changed else [projected]
    source, kept = turned if changed else projected, copies_of_heads(shape, B, T, policy)
    if int(B) == 1 or shape.kv_heads == 1:
        return [*kept, source, projected] if changed else [*kept, projected]
    if shape.qk_norm and (
        head_norm_kernel(policy) == "fused" or (int(a) == 4 and policy.norm_kernel not in ("normalised", "folded"))
    ):
        kept.append(projected)  # as the input of the norm, unless that made a copy
    return kept


def scores_in_blocks(length: int, window: int | None) -> list[int]:
    """Scores of each block of queries of one head: each query's row is as long as what the block sees of the keys."""
    if length > MOST_IN_BLOCKS:
        raise ValueError(
            f"attention 'blocks' is counted block by block to {MOST_IN_BLOCKS:,} positions, and {length:,} are more: "
            "use 'fused' (lm takes blocks to 256)"
        )
    return [
        (last - first) * (last - (0 if window is None else max(0, first + 1 - window)))
        for first in range(0, length, QUERY_BLOCK)
        for last in (min(first + QUERY_BLOCK, length),)
    ]


def copies_of_heads(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> Pieces:
    """Whole score matrices want batch and key heads as one dimension, which copies unless one of the two is 1."""
    s, a = symbols(shape), Symbol("a", policy.bytes.activations)
    if policy.attention == "blocks":
        return [(1, B * T * (s["h"] * s["e"]) * a), (2, B * T * (s["k"] * s["e"]) * a)]
    if policy.attention != "eager":
        return []
    views = int(B) == 1 or shape.kv_heads == 1
    queries: Pieces = [(1, B * T * (s["h"] * s["e"]) * a)]
    if views:
        return [] if shape.kv_heads == shape.num_heads or int(T) == 1 else queries
    return [*queries, (2, B * T * (s["k"] * s["e"]) * a)]


def head_norm_kernel(policy: Policy) -> str:
    """The kernel that norms queries and keys: of narrow numbers torch's own, where the residual's is lm's."""
    narrow = policy.bytes.activations < 4
    return "composite" if policy.norm_kernel in ("normalised", "folded") and narrow else policy.norm_kernel


def norm_tensors(shape: TransformerShape, BT: Term, width: Term, policy: Policy) -> Pieces:
    """What one norm keeps: its input, raw or normalised, which nothing else keeps, and fp32 statistics of each position."""
    r = Symbol("r", policy.bytes.residual)
    if shape.norm == "none":
        return []
    if shape.norm == "layernorm":
        return [(1, BT * width * r), (2, 4 * BT)]
    if (
        policy.norm_kernel == "composite"
    ):  # input and normalised input, both in fp32 whatever came in, and the statistic
        return [(2, 4 * (BT * width)), (1, 4 * BT)]
    return [(1, BT * width * r), (1, 4 * BT)]


def head_tensors(shape: TransformerShape, B: Term, T: Term, policy: Policy) -> dict[str, Pieces]:
    """What the final norm, the head and the loss keep."""
    s, BT, p = symbols(shape), B * T, Symbol("p", policy.bytes.weights)
    V, d, r, a = s["V"], s["d"], Symbol("r", policy.bytes.residual), Symbol("a", policy.bytes.activations)
    between = rows(B, T, policy)
    terms = {"final norm": norm_tensors(shape, between, d, policy)}
    if policy.loss == "chunked":  # its gradients are ready on the way forward, and nothing else is kept
        return {**terms, "loss": [(1, BT * d * r), (1, V * d * p)]}
    terms["head input"] = [(1, between * d * a)]
    if policy.precision == "autocast":
        terms["head in bf16"] = [(1, 2 * (V * d))]
    # log-probabilities, targets, and the sum of weights
    terms["loss"] = [(1, 4 * (BT * tokens(shape))), (1, 8 * BT), (1, Term(4))]
    return terms


def tokens(shape: TransformerShape) -> Term:
    """The vocabulary without what pads it: the loss is over these alone."""
    return symbols(shape)["V"] if shape.vocab_rows == shape.vocab_size else Symbol("U", shape.vocab_size)
