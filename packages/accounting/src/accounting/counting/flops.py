"""FLOPs of forward, backward and decoding: matrix multiplications by component.

A multiplication of (m, k) by (k, n) is 2·m·k·n FLOPs. Its backward is two such multiplications, so twice that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import choose, instance, positive
from accounting.counting.adapters import adapter_elements
from accounting.counting.dimensions import Dimensions, FfnDimensions, LatentDimensions, attention_matrices
from accounting.counting.layers import attention_groups, ffn_layers, layers_named
from accounting.counting.parameters import parameters
from accounting.formula import Symbol, Term, added, constant
from accounting.layer import AnyAttention, Attention, Indexer, LatentAttention, Mixer
from accounting.shape import TransformerShape
from accounting.units import FLOPs

Pairs = dict[type, Term]  # by Attention, LatentAttention or Indexer

RECOMPUTATIONS = ("none", "fused", "selective", "operators", "full")
PAIRS = {  # of positions, that attention scores are counted over
    "full": "every one of the seq² pairs of positions, masked or not, as an explicit matrix multiplication computes "
    "them",
    "half": "half of the seq² pairs of positions, the usual approximation of causality",
    "causal": "exactly the pairs a causal mask shows: seq·(seq + 1)/2, fewer with a window",
}


def forward_flops(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, pairs: str = "full"
) -> Breakdown:
    """Matrix-multiply FLOPs of one forward pass over batch_size sequences, the head at every position."""
    instance("shape", shape, TransformerShape, "SHAPES")
    seq = Symbol("seq", shape.sequence(seq_len))
    batch = Symbol("batch", positive("batch_size", batch_size))
    choose("pairs", pairs, PAIRS)
    return breakdown(
        "forward FLOPs",
        FLOPs,
        _forward(shape, seq, batch, doubled_pairs(shape, seq, pairs)),
        f"matrix multiplications only; attention scores over {PAIRS[pairs]}",
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
        f"matrix multiplications only, the head at the last position alone; attention scores over {PAIRS['causal']}",
    )


def decode_flops(shape: TransformerShape, context: int | None = None, batch_size: int = 1) -> Breakdown:
    """Matrix-multiply FLOPs of one decoding step: one new token each for batch_size sequences, keys and values cached.

    context is the number of positions the token sees, its own included.
    """
    seen = Symbol("context", shape.sequence(context))
    batch = Symbol("batch", positive("batch_size", batch_size))
    pairs = _pairs(shape, lambda attention, layers: 2 * (layers * cached(attention, seen)))
    return breakdown(
        "decode FLOPs",
        FLOPs,
        _forward(shape, constant(1), batch, pairs, absorbed=True),
        "matrix multiplications of one token a sequence, which sees the context positions of the cache",
    )


def cached(attention: AnyAttention, seen: Term) -> Term:
    """Positions that a query sees of `seen`, the new one included."""
    if attention.limit is None or attention.limit >= int(seen):
        return seen
    window = Symbol("window", attention.limit)
    return (seen - 1) % window + 1 if attention.chunked else window


def doubled_pairs(shape: TransformerShape, seq: Term, pairs: str = "causal") -> Pairs:
    """Twice the pairs (query, visible key) of one sequence and one head in all layers, of each attention; exact."""
    if pairs == "full":
        return _pairs(shape, lambda _, layers: layers * (2 * seq * seq))
    if pairs == "half":
        return _pairs(shape, lambda _, layers: layers * (seq * seq))
    return _pairs(shape, lambda attention, layers: layers * _doubled(attention, seq))


def _doubled(attention: AnyAttention, seq: Term) -> Term:
    if attention.limit is None or attention.limit >= int(seq):
        return seq * (seq + 1)
    window = Symbol("window", attention.limit)
    if attention.chunked:
        rest = seq % window
        return seq // window * (window * (window + 1)) + rest * (rest + 1)
    return window * (window + 1) + 2 * window * (seq - window)


def _pairs(shape: TransformerShape, count: Callable[[AnyAttention, Term], Term]) -> Pairs:
    """`count` of each attention and the number of its layers, summed where only windows or rotations differ."""
    sums: Pairs = {}
    for attention, layers in windows(shape).items():
        if not isinstance(attention, Mixer):
            pairs, key = count(attention, layers), type(attention)
            sums[key] = sums[key] + pairs if key in sums else pairs
            if isinstance(attention, LatentAttention) and attention.indexer is not None:
                sums[Indexer] = count(replace(attention, indexer=None), layers)
    return sums


def windows(shape: TransformerShape) -> dict[AnyAttention, Term]:
    """Number of layers with each attention, where only windows make a difference, the whole one first."""
    counts: dict[AnyAttention, int] = {}
    for kind, count in shape.counts.items():
        key = kind.attention
        if isinstance(key, Attention):
            key = Attention(key.window, key.chunked, False, "none", reuses=key.reuses)
        if not isinstance(key, Mixer):
            counts[key] = counts.get(key, 0) + count
    order = sorted(counts, key=lambda one: one.window or 0)
    names = {key: "window" if key.window else "full" if isinstance(key, Attention) else "latent" for key in order}
    return {key: layers_named(shape, names[key], counts[key]) for key in order}


def score_flops(shape: TransformerShape, batch: Term, pairs: Pairs, *, absorbed: bool = False) -> dict[str, Term]:
    """FLOPs of queries · keys and weights · values; absorbed: over the latents, as decoding computes them."""
    n = Dimensions(shape)
    of_keys, of_values = [], []
    for attention, doubled in pairs.items():
        width = values = n.head_dim
        if attention is Indexer and shape.latent is not None:
            m = LatentDimensions(shape.latent)
            of_keys.append(batch * m.index_heads * (m.index_dim + 1) * doubled)  # and the sum of the heads' scores
            continue
        if attention is LatentAttention and shape.latent is not None:
            m = LatentDimensions(shape.latent)
            width = m.kv_rank + m.rope_dim if absorbed else m.nope_dim + m.rope_dim
            values = m.kv_rank if absorbed else m.value_dim
        of_keys.append(batch * n.n_heads * width * doubled)
        of_values.append(batch * n.n_heads * values * doubled)
    return {"keys": added(of_keys), "values": added(of_values)}


def state_flops(shape: TransformerShape, tokens: Term) -> dict[str, Term]:
    """FLOPs of each kind of state by its recurrence; chunked kernels compute more, by their choice of a chunk."""
    sums: dict[str, Term] = {}
    for mixer, layers in attention_groups(shape).items():
        if isinstance(mixer, Mixer) and mixer.flops:
            size = tokens * layers * mixer.flops
            sums[mixer.name] = sums[mixer.name] + size if mixer.name in sums else size
    return sums


def _forward(
    shape: TransformerShape, seq: Term, batch: Term, pairs: Pairs, *, absorbed: bool = False
) -> dict[str, int]:
    n, tokens = Dimensions(shape), batch * seq
    projections, ffn, router = [], [], []
    for attention, layers in attention_groups(shape).items():
        if isinstance(attention, Attention) and not attention.reuses:
            size = 4 * (tokens * layers * n.d_model * n.head_dim * (n.n_heads + n.n_kv_heads))
            if attention.gated:
                size = 2 * (tokens * layers * n.d_model * n.head_dim * (3 * n.n_heads + 2 * n.n_kv_heads))
            projections.append(size)
        else:
            projections.append(2 * (tokens * layers * added(attention_matrices(shape, attention).values())))
    each = 2 * shape.matrices_of_ffn
    for one, layers in ffn_layers(shape).items():
        m, routed = FfnDimensions(shape, one), tokens * layers
        size = each * (routed * n.d_model * m.d_ff)
        ffn.append(size if one.experts is None else m.active_experts * size)
        if one.shared_d_ff is not None:
            ffn.append(each * (routed * n.d_model * m.shared_d_ff))
        if one.shared_gate:
            ffn.append(2 * (routed * n.d_model))
        if one.experts is not None:
            router.append(2 * (routed * n.d_model * m.n_experts))
    scores = score_flops(shape, batch, pairs, absorbed=absorbed)
    alike = LatentAttention not in pairs
    terms: dict[str, int] = {
        "projections": added(projections),
        # twice for each pair: once for q·k, once for the weights times v
        "scores": 2 * scores["keys"] if alike else scores["keys"] + scores["values"],
        "ffn": added(ffn),
    }
    terms |= state_flops(shape, tokens)
    if shape.value_embeddings:
        layers = Symbol("value_layers", shape.value_embeddings)
        terms["value gates"] = 2 * (tokens * layers * n.d_model * n.n_kv_heads)
    if router:
        terms["router"] = added(router)
    if shape.lora_rank is not None:
        (one,) = shape.ffns
        terms["adapters"] = 2 * (tokens * n.n_layers * adapter_elements(shape, one.active))
    return {**terms, "head": 2 * (tokens * n.d_model * n.vocab)}


def backward_terms(shape: TransformerShape, forward: Mapping[str, int]) -> dict[str, int]:
    """FLOPs of the backward by component: twice the forward's, of a frozen matrix, without a gradient, once."""
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
    q·k in the attention's backward (FlashAttention), "selective" the whole of the attention's scores,
    "operators" the matmuls for keys, the output of attention and up, "full" every block.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    forward = dict(forward_flops(shape, seq_len, batch_size, pairs=pairs).terms)
    choose("recompute", recompute, RECOMPUTATIONS)
    terms: dict[str, int] = {f"forward {name}": term for name, term in forward.items()}
    # the head's backward counts too: its input and its weight both have gradients
    terms |= {f"backward {name}": term for name, term in backward_terms(shape, forward).items()}
    if recompute == "fused":
        terms["recomputed scores"] = forward["scores"] // 2
    elif recompute == "selective":
        terms["recomputed scores"] = forward["scores"]
    elif recompute == "operators":
        if not shape.plain or shape.most_experts > 1:
            raise ValueError("recompute 'operators' is counted of models like Llama alone: use 'full'")
        n, tokens = Dimensions(shape), Symbol("batch", batch_size) * Symbol("seq", shape.sequence(seq_len))
        d_ff = FfnDimensions(shape, next(iter(shape.ffns))).d_ff
        elements = n.n_layers * n.d_model * ((n.n_heads + n.n_kv_heads) * n.head_dim + d_ff)
        terms["recomputed matmuls"] = 2 * tokens * elements
    elif recompute == "full":
        terms |= {f"recomputed {name}": term for name, term in forward.items() if name != "head"}
    return breakdown(
        "training FLOPs",
        FLOPs,
        terms,
        "matrix multiplications of forward and backward, the backward "
        + ("exactly twice the forward; " if shape.lora_rank is None else "of a frozen matrix as much as its forward; ")
        + ("nothing recomputed (model FLOPs)" if recompute == "none" else f"recomputing: {recompute} (hardware FLOPs)")
        + f"; scores over {PAIRS[pairs]}",
    )


def training_estimates(
    shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1, *, pairs: str = "full"
) -> dict[str, FLOPs]:
    """The rules of thumb beside the exact count, forward and backward, for batch_size sequences; not to be added up.

    6N with and without the embeddings (Kaplan et al. 2020), PaLM's 6N + 12LHQT with all parameters (Chowdhery et al.
    2022, appendix B), and the matrix multiplications themselves.
    """
    terms = estimate_terms(shape, seq_len, batch_size)
    exact = training_flops(shape, seq_len, batch_size, pairs=pairs)
    return {**{name: FLOPs(int(term)) for name, term in terms.items()}, "exact": FLOPs(int(exact.total))}


def estimate_terms(shape: TransformerShape, seq_len: int | None = None, batch_size: int = 1) -> dict[str, Term]:
    """The rules of thumb with their formulas; of experts only those count that a token passes."""
    n, counted = Dimensions(shape), parameters(shape, active=True)
    tokens = Symbol("batch", positive("batch_size", batch_size)) * Symbol("seq", shape.sequence(seq_len))
    params = Symbol("n_params", int(counted.total))
    outside = Symbol("embedding_params", int(counted["embedding"]) + int(counted["positions"]) + int(counted["head"]))
    scores = 12 * n.n_layers * n.n_heads * n.head_dim * Symbol("seq", shape.sequence(seq_len))
    return {
        "6N, no embeddings": 6 * (params - outside) * tokens,
        "6N, all parameters": 6 * params * tokens,
        "PaLM 6N + 12LHQT": (6 * params + scores) * tokens,
    }
