"""Bytes saved by a block of transformers: a Llama, and what `lm` cannot build, such as latent attention and sinks.

The order of operations is that of transformers' models: a matrix each for queries, keys and values and for gate and up,
experts whose gate and up are one, each expert's tokens gathered (also of Llama 4, where transformers gives every token
to every expert). Tables of rotations are as wide as heads, of which some rotate a part.
"""

from __future__ import annotations

from accounting.counting.dimensions import FfnDimensions, LatentDimensions
from accounting.formula import Term
from accounting.layer import Attention, FeedForward, Kind, LatentAttention, Mixer
from accounting.memory.records import Component, Tensors
from accounting.shape import NotCounted

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from typing import Any

    from accounting.memory.activations import ForwardPass


COUNTED: dict[str, tuple[Any, ...]] = {  # settings of a policy
    "precision": ("fp32", "bf16", "pure_bf16"),
    "norm_kernel": ("fused", "composite"),
    "gate_kernel": ("composite",),
    "attention_kernel": ("fused", "eager"),
}


def only_with(
    quantity: str, settings: object, counted: dict[str, tuple[Any, ...]], mistake: type[ValueError] = ValueError
) -> None:
    """The mistake for a setting with which the quantity is not counted."""
    for name, some in counted.items():
        if (value := getattr(settings, name)) not in some:
            words = " and ".join(map(str, some))
            raise mistake(f"{quantity} is not counted with {name} {value!r}: it is with {words}")


def only_counted(run: ForwardPass) -> None:
    """ValueError for a policy or a part of the shape with which such a block is not counted."""
    layers = "the memory of training layers as transformers computes them"
    only_with(layers, run.policy, COUNTED)
    only_with(layers, run.shape, {"norm": ("rmsnorm", "layernorm"), "lora_rank": (None,)}, NotCounted)
    for kind in run.shape.matrix_kinds:
        if not _verified(kind) or (run.shape.norm == "layernorm" and run.shape.qk_norm):
            raise NotCounted(
                "the memory of training is counted of models that lm can build, of dense ones with softmax attention "
                "as transformers computes them, and of layers like those of DeepSeek V3, gpt-oss and Llama 4: of "
                "others parameters, FLOPs and caches are counted"
            )


def _verified(kind: Kind) -> bool:
    """True for a layer whose bytes tests/test_memory_against_transformers.py holds against a model."""
    attention, ffn = kind.attention, kind.ffn
    if isinstance(attention, LatentAttention):
        return attention.indexer is None and (ffn.experts is None or ffn.router == "sigmoid")
    if isinstance(attention, Mixer) or attention.beside or attention.reuses or attention.gated:
        return False
    if ffn.experts is None:
        return True
    if attention.qk_norm in ("head", "width"):
        return False
    return ffn.router == ("softmax_of_chosen" if attention.sinks else "sigmoid_of_input") and not ffn.shared_gate


def _of_llama_4(run: ForwardPass) -> bool:
    return any(one.router == "sigmoid_of_input" for one in run.shape.ffns)


def tables(run: ForwardPass) -> Tensors:
    """Cosines and sines of every position, which all layers share."""
    shape, n, positions = run.shape, run.n, run.queries
    rotated = [one for one in shape.attentions if one.rotated]
    if not rotated:
        return []
    if shape.latent is not None:  # each of both twice in a row
        return [(2, positions * LatentDimensions(shape.latent).rope_dim * run.act)]
    if _of_llama_4(run):  # complex numbers
        return [(1, 4 * (positions * n.head_dim))]
    width = n.head_dim // 2 if any(one.sinks for one in rotated) else n.head_dim
    return [(2, positions * width * run.act)]


def masks(run: ForwardPass, layers: dict[Kind, Term], block: Kind | None) -> Tensors:
    """Masks of the scores, one for each window, that layers computed again keep, and the block in its backward has."""
    shape, policy = run.shape, run.policy
    if policy.attention_kernel != "eager" or policy.activation_checkpointing == "none":
        return []
    kinds = 2 if 0 < shape.windowed_layers < shape.num_layers and any(layers.values()) else 1
    if _of_llama_4(run):
        kinds = len({kind.attention.rotated for kind, count in layers.items() if count or kind == block})
    return [(kinds, run.batch * run.queries * run.seq * run.act)]


def of_attention(run: ForwardPass, kind: Kind) -> dict[Component, Tensors]:
    """Tensors that attention saves, its input apart."""
    saved: dict[Component, Tensors] = {}
    attention = kind.attention
    if isinstance(attention, LatentAttention):
        saved[Component.LATENTS] = _latents(run, attention)
    elif attention.qk_norm != "none":
        saved[Component.QK_NORMS] = _qk_norms(run, attention.qk_norm)
    if _of_llama_4(run) and not attention.rotated:  # scales of the queries of each position
        saved[Component.QK_SCALES] = [(1, 4 * run.queries)]
    eager = run.policy.attention_kernel == "eager"
    saved[Component.QKV] = _eager(run, kind) if eager else entering(run, kind)
    saved[Component.ATTENTION_WEIGHTS] = _weights(run, kind)
    saved[Component.ATTENTION_OUTPUT] = [(1, run.tokens * _value_width(run, kind) * run.act)]
    return saved


def _value_width(run: ForwardPass, kind: Kind) -> Term:
    if isinstance(kind.attention, LatentAttention):
        return run.n.n_heads * LatentDimensions(kind.attention).value_dim
    return run.n.n_heads * run.n.head_dim


def _latents(run: ForwardPass, latent: LatentAttention) -> Tensors:
    """The latents before and after their norms; the rotated part of the keys lies beside that of keys and values."""
    m, between, act = LatentDimensions(latent), run.between, run.act
    saved: Tensors = []
    if latent.q_rank is not None:
        saved += [*_norm(run, between, m.q_rank, m.q_rank), (1, between * m.q_rank * act)]
    return [*saved, *_norm(run, between, m.kv_rank, m.kv_rank + m.rope_dim), (1, between * m.kv_rank * act)]


def _norm(run: ForwardPass, rows: Term, width: Term, stored: Term) -> Tensors:
    """Tensors that an RMSNorm of rows of `width` elements saves, of whose input `stored` elements are one tensor."""
    statistic = (1, 4 * rows)
    if run.policy.norm_kernel == "fused":
        return [(1, rows * stored * run.act), statistic]
    if run.narrow:  # in fp32 the input is a copy
        return [(2, 4 * (rows * width)), statistic]
    return [(1, 4 * (rows * stored)), (1, 4 * (rows * width)), statistic]


def _qk_norms(run: ForwardPass, norm: str | None) -> Tensors:
    """Queries and keys before their norms, and what each head, or all of them together, is divided by."""
    n, tensors = run.n, []
    for heads in (n.n_heads, n.n_kv_heads):
        rows, width = run.tokens * heads, n.head_dim
        if norm == "width":
            rows, width = run.tokens, heads * n.head_dim
        if norm == "l2" and (_of_llama_4(run) or run.policy.norm_kernel == "composite"):
            tensors += [(1, 4 * (rows * width)), (1, 4 * rows)]  # of no weight, for which it would save more
        else:
            tensors += _norm(run, rows, width, width)
    return tensors


def entering(run: ForwardPass, kind: Kind) -> Tensors:
    """Queries, keys and values as attention gets them; of latent attention the values lie beside a part of the keys."""
    n, tokens, act = run.n, run.tokens, run.act
    if isinstance(kind.attention, LatentAttention):
        m = LatentDimensions(kind.attention)
        of_query = n.n_heads * (m.nope_dim + m.rope_dim)
        return [(2, tokens * of_query * act), (1, tokens * (n.n_heads * (m.nope_dim + m.value_dim)) * act)]
    queries, keys = tokens * (n.n_heads * n.head_dim) * act, tokens * (n.n_kv_heads * n.head_dim) * act
    return [(3, queries)] if run.shape.repeated_keys else [(1, queries), (2, keys)]


def _eager(run: ForwardPass, kind: Kind) -> Tensors:
    """Queries, keys and values of explicit matmuls: of every query head, and of several sequences values in a row."""
    shape, n, tokens, act = run.shape, run.n, run.tokens, run.act
    one = int(run.batch) == 1
    if isinstance(kind.attention, LatentAttention):
        (_, queries), values = entering(run, kind)
        return [(2, queries), values if one else (1, tokens * _value_width(run, kind) * act)]
    repeats = shape.kv_heads < shape.num_heads and not (one and shape.kv_heads == 1)
    heads = n.n_heads if repeats or shape.repeated_keys else n.n_kv_heads
    return [(1, tokens * (n.n_heads * n.head_dim) * act), (2, tokens * (heads * n.head_dim) * act)]


def repeated(run: ForwardPass, kind: Kind) -> Tensors:
    """Of those the copies that explicit matrix multiplications make of what attention gets."""
    shape, tokens, act = run.shape, run.tokens, run.act
    if run.policy.attention_kernel != "eager":
        return []
    if isinstance(kind.attention, Attention) and shape.kv_heads < shape.num_heads and not shape.repeated_keys:
        return _eager(run, kind)[1:]
    return [] if int(run.batch) == 1 else [(1, tokens * _value_width(run, kind) * act)]


def _weights(run: ForwardPass, kind: Kind) -> Tensors:
    """A log-sum-exp of each row, or the weights: but for Llama 4 in fp32 too, with sinks one more a row."""
    rows = run.tokens * run.n.n_heads
    if run.policy.attention_kernel == "fused":
        return [(1, 4 * rows)]
    if kind.attention.sinks:  # and the index of the largest score of a row
        return [(1, rows * (run.seq + 1) * run.act), (1, 8 * rows)]
    in_fp32 = [(1, 4 * (rows * run.seq))] if run.narrow and not _of_llama_4(run) else []
    return [*in_fp32, (1, rows * run.seq * run.act)]


def of_ffn(run: ForwardPass, kind: Kind) -> dict[Component, Tensors]:
    """Tensors that the feed-forward layer saves, its input apart."""
    ffn, tokens = kind.ffn, run.tokens
    m = FfnDimensions(run.shape, ffn)
    if ffn.experts is None:
        return {Component.FFN_HIDDEN: _hidden(run, tokens * m.d_ff * run.act)}
    hidden = _hidden(run, tokens * m.d_ff * run.act, in_one=True)
    saved = {Component.FFN_HIDDEN: [(ffn.active * count, size) for count, size in hidden]}
    if ffn.shared_d_ff is not None:
        saved[Component.SHARED_FFN_HIDDEN] = _hidden(run, tokens * m.shared_d_ff * run.act)
    return {**saved, Component.ROUTER: _router(run, ffn)}


def _hidden(run: ForwardPass, hidden: Term, *, in_one: bool = False) -> Tensors:
    """Tensors between a feed-forward layer's matrices: gate, up, the activated gate and the product; or the input and
    the output of an activation, and those between its operators; a clamped gate, its sigmoid and up + 1 too."""
    count = {"clamped_swiglu": 7, "swiglu": 4, "geglu": 4, "gelu_new": 5, "relu": 1}.get(run.shape.ffn, 2)
    return [(1, 2 * hidden), (count - 2, hidden)] if in_one else [(count, hidden)]


def _router(run: ForwardPass, ffn: FeedForward) -> Tensors:
    """Tensors that make the weights of the experts chosen, and what the experts read and gave."""
    n, tokens, act, active = run.n, run.tokens, run.act, ffn.active
    n_experts = FfnDimensions(run.shape, ffn).n_experts
    of_experts: Tensors = [(active, 16 * tokens), (3 * active, tokens * n.d_model * act)]
    if ffn.router == "softmax_of_chosen":  # their indices, probabilities, and those again by expert
        return [(active, 8 * tokens), (2 * active, tokens * act), *of_experts]
    if ffn.router == "sigmoid":
        copies: Tensors = [(1, 4 * (tokens * n.d_model)), (1, 4 * (n_experts * n.d_model))] if run.narrow else []
        return [
            *copies,  # of input and matrix in fp32
            (1, 4 * (tokens * n_experts)),
            (active, 8 * tokens),
            (2 * active, 4 * tokens),
            (1, 4 * tokens),
            *of_experts,
        ]
    return [(active, 8 * tokens), (2 * active, 4 * tokens), *of_experts]  # a sigmoid of the input
