"""Bytes saved by a block that `lm` cannot build: latent attention, shared experts, attention sinks, Llama 4's layers.

The order of operations is that of the models in transformers: a matrix each for queries, keys and values and for gate
and up, experts whose gate and up are one, each expert's tokens gathered. Of Llama 4 tokens are gathered too, where
transformers gives every token to every expert.
"""

from __future__ import annotations

from accounting.counting.layers import LayerKind
from accounting.formula import Term
from accounting.memory.records import Component

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accounting.memory.activations import ForwardPass
    from accounting.memory.records import Tensors


def only_counted(run: ForwardPass) -> None:
    """ValueError for a policy or a part of the shape with which such a block is not counted."""
    for name, chosen, counted in (
        ("precision", run.policy.precision, ("fp32", "bf16")),
        ("norm_kernel", run.policy.norm_kernel, ("fused", "composite")),
        ("gate_kernel", run.policy.gate_kernel, ("composite",)),
        ("attention_kernel", run.policy.attention_kernel, ("fused", "eager")),
        ("qk_norm", run.shape.qk_norm, (False,)),
        ("post_norm", run.shape.post_norm, (False,)),
    ):
        if chosen not in counted:
            raise ValueError(
                "the memory of training latent attention, shared experts, dense layers beside experts, attention sinks "
                f"or Llama 4 is not counted with {name} {chosen!r}: it is with {' and '.join(map(str, counted))}"
            )


def tables(run: ForwardPass) -> Tensors:
    """Cosines and sines of every position, which all layers share."""
    shape, n, positions = run.shape, run.n, run.queries
    if shape.position != "rope" or shape.unrotated_layers == shape.num_layers:
        return []
    if shape.latent is not None:  # each of both twice in a row
        return [(2, positions * n.rope_dim * run.act)]
    if shape.unrotated_layers or shape.qk_l2_norm:  # complex numbers
        return [(1, 4 * (positions * n.head_dim))]
    return [(2, positions * (n.head_dim // 2) * run.act)]


def masks(run: ForwardPass, layers: dict[LayerKind, Term], block: LayerKind | None) -> Tensors:
    """What score matrices are added to in so many layers of each kind, and in the block in its backward: made for each
    sequence, and kept for layers that are computed again.

    Layers with a window have one of their own, and so have Llama 4's rotated layers, which see a chunk.
    """
    shape, policy = run.shape, run.policy
    if policy.attention_kernel != "eager" or policy.activation_checkpointing == "none":
        return []
    kinds = len({kind.rotated for kind, count in layers.items() if count or kind == block})
    if 0 < shape.windowed_layers < shape.num_layers and any(layers.values()):
        kinds = 2
    return [(kinds, run.batch * run.queries * run.seq * run.act)]


def of_attention(run: ForwardPass, kind: LayerKind) -> dict[Component, Tensors]:
    """What attention saves, its input apart."""
    found: dict[Component, Tensors] = {}
    if run.shape.latent is not None:
        found[Component.LATENTS] = _latents(run)
    elif kind.rotated and run.shape.qk_l2_norm:
        found[Component.QK_NORMS] = _l2_norms(run)
    if run.shape.unrotated_layers and not kind.rotated:  # what the queries of a position are multiplied by
        found[Component.QK_SCALES] = [(1, 4 * run.queries)]
    found[Component.QKV] = _eager(run) if run.policy.attention_kernel == "eager" else entering(run)
    found[Component.ATTENTION_WEIGHTS] = _weights(run)
    found[Component.ATTENTION_OUTPUT] = [(1, run.tokens * _value_width(run) * run.act)]
    return found


def _value_width(run: ForwardPass) -> Term:
    n = run.n
    return n.n_heads * (n.value_dim if run.shape.latent is not None else n.head_dim)


def _latents(run: ForwardPass) -> Tensors:
    """The latents before and after their norms; the part of the keys that is rotated lies beside that of keys and
    values."""
    n, between, act = run.n, run.between, run.act
    latent = run.shape.latent
    found: Tensors = []
    if latent is not None and latent.q_rank is not None:
        found += [*_norm(run, n.q_rank, n.q_rank), (1, between * n.q_rank * act)]
    return [*found, *_norm(run, n.kv_rank, n.kv_rank + n.rope_dim), (1, between * n.kv_rank * act)]


def _norm(run: ForwardPass, width: Term, stored: Term) -> Tensors:
    """What an RMSNorm of so many elements saves, of whose input so many are stored together."""
    statistic = (1, 4 * run.between)
    if run.policy.norm_kernel == "fused":
        return [(1, run.between * stored * run.act), statistic]
    if run.narrow:  # in fp32 the input is a copy
        return [(2, 4 * (run.between * width)), statistic]
    return [(1, 4 * (run.between * stored)), (1, 4 * (run.between * width)), statistic]


def _l2_norms(run: ForwardPass) -> Tensors:
    """Queries and keys as they were, in fp32, and what each head is divided by."""
    n = run.n
    found: Tensors = []
    for heads in (n.n_heads, n.n_kv_heads):
        found += [(1, 4 * (run.tokens * heads * n.head_dim)), (1, 4 * (run.tokens * heads))]
    return found


def entering(run: ForwardPass) -> Tensors:
    """Queries, keys and values as attention gets them; of latent attention the values lie beside a part of the keys."""
    n, tokens, act = run.n, run.tokens, run.act
    if run.shape.latent is not None:
        of_query = n.n_heads * (n.nope_dim + n.rope_dim)
        return [(2, tokens * of_query * act), (1, tokens * (n.n_heads * (n.nope_dim + n.value_dim)) * act)]
    return [(1, tokens * (n.n_heads * n.head_dim) * act), (2, tokens * (n.n_kv_heads * n.head_dim) * act)]


def _eager(run: ForwardPass) -> Tensors:
    """Queries, keys and values as explicit matrix multiplications keep them: keys and values of every query head, and
    with several sequences values in a row."""
    shape, n, tokens, act = run.shape, run.n, run.tokens, run.act
    one = int(run.batch) == 1
    if shape.latent is not None:
        queries, keys, values = entering(run)[0], entering(run)[0], entering(run)[1]
        return [(1, queries[1]), (1, keys[1]), values if one else (1, tokens * _value_width(run) * act)]
    heads = n.n_heads if shape.kv_heads < shape.num_heads and not (one and shape.kv_heads == 1) else n.n_kv_heads
    return [(1, tokens * (n.n_heads * n.head_dim) * act), (2, tokens * (heads * n.head_dim) * act)]


def repeated(run: ForwardPass) -> Tensors:
    """Of those the copies that explicit matrix multiplications make of what attention gets."""
    shape, tokens, act = run.shape, run.tokens, run.act
    if run.policy.attention_kernel != "eager":
        return []
    if shape.latent is None and shape.kv_heads < shape.num_heads:
        return _eager(run)[1:]
    return [] if int(run.batch) == 1 else [(1, tokens * _value_width(run) * act)]


def _weights(run: ForwardPass) -> Tensors:
    """A log-sum-exp of each row, or the weights: of latent attention in fp32 too, with sinks one more a row."""
    shape, rows = run.shape, run.tokens * run.n.n_heads
    if run.policy.attention_kernel == "fused":
        return [(1, 4 * rows)]
    if shape.attention_sinks:  # and which score of a row is largest
        return [(1, rows * (run.seq + 1) * run.act), (1, 8 * rows)]
    in_fp32 = [(1, 4 * (rows * run.seq))] if shape.latent is not None and run.narrow else []
    return [*in_fp32, (1, rows * run.seq * run.act)]


def of_ffn(run: ForwardPass, kind: LayerKind) -> dict[Component, Tensors]:
    """What the feed-forward layer saves, its input apart."""
    shape, n, tokens = run.shape, run.n, run.tokens
    if kind.dense:
        return {Component.FFN_HIDDEN: _hidden(run, tokens * n.dense_d_ff * run.act)}
    if shape.experts is None:
        return {Component.FFN_HIDDEN: _hidden(run, tokens * n.d_ff * run.act)}
    hidden = _hidden(run, tokens * n.d_ff * run.act, in_one=True)
    found = {Component.FFN_HIDDEN: [(shape.active_experts * count, size) for count, size in hidden]}
    if shape.shared_d_ff is not None:
        found[Component.SHARED_FFN_HIDDEN] = _hidden(run, tokens * n.shared_d_ff * run.act)
    return {**found, Component.ROUTER: _router(run)}


def _hidden(run: ForwardPass, hidden: Term, *, in_one: bool = False) -> Tensors:
    """Gate and up, the activated gate and the product; a clamped gate is kept, and its sigmoid, and up + 1."""
    if not run.shape.gated:
        return [(2, hidden)]
    before: Tensors = [(1, 2 * hidden)] if in_one else [(2, hidden)]
    return [*before, (5 if run.shape.ffn == "clamped_swiglu" else 2, hidden)]


def _router(run: ForwardPass) -> Tensors:
    """What makes the weights of the experts chosen, and what the experts read and gave."""
    shape, n, tokens, act = run.shape, run.n, run.tokens, run.act
    active = shape.active_experts
    of_experts: Tensors = [(active, 16 * tokens), (3 * active, tokens * n.d_model * act)]
    if shape.router == "softmax_of_chosen":  # their indices, probabilities, and those again by expert
        return [(active, 8 * tokens), (2 * active, tokens * act), *of_experts]
    if shape.router == "sigmoid":
        copies: Tensors = [(1, 4 * (tokens * n.d_model)), (1, 4 * (n.n_experts * n.d_model))] if run.narrow else []
        return [
            *copies,  # of input and matrix in fp32
            (1, 4 * (tokens * n.n_experts)),
            (active, 8 * tokens),
            (2 * active, 4 * tokens),
            (1, 4 * tokens),
            *of_experts,
        ]
    if shape.router == "sigmoid_of_input":
        return [(active, 8 * tokens), (2 * active, 4 * tokens), *of_experts]
    return [
        (1, tokens * n.n_experts * act),
        (1, tokens * act),
        (active, 8 * tokens),
        (2 * active, tokens * act),
        *of_experts,
    ]
