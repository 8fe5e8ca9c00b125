"""The shape of a decoder-only Transformer: everything that decides its cost, and nothing else.

A shape is a list of layers, each an attention and a feed-forward layer. Most models repeat one layer, which the sizes
of TransformerShape describe; others have some `leading` layers and then repeat a pattern of several, `layers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

from accounting.checks import booleans, choose, positive, whole
from accounting.layer import (
    QK_NORMS,
    AnyAttention,
    Attention,
    FeedForward,
    Kind,
    LatentAttention,
    Layer,
    Mixer,
    without_window,
)

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from accounting.checks import Value

FFNS = ("swiglu", "clamped_swiglu", "geglu", "gelu", "gelu_new", "silu", "relu", "relu2")
GATED = ("swiglu", "clamped_swiglu", "geglu")
NORMS = ("rmsnorm", "layernorm", "none")
POSITIONS = ("rope", "learned", "alibi", "none")
ATTENTION_TARGETS = ("query", "key", "value", "output")
ADAPTED = (*ATTENTION_TARGETS, "gate", "up", "down", "qkv", "gate_up")  # matrices that may have an adapter


class NotCounted(ValueError):
    """A quantity that is not counted of a shape."""


@dataclass(frozen=True)
class TransformerShape:
    """A shape, checked when it is made.

    Args:
        vocab_size: tokens; embedding and head have as many rows, rounded up to vocab_multiple.
        context_length: positions of the longest sequence.
        num_layers: blocks.
        d_model: width of the residual stream.
        num_heads: query heads.
        d_ff: width of a feed-forward layer, of one expert where there are experts.
        num_kv_heads: key and value heads; as many as query heads unless given.
        head_dim: width of a head; d_model / num_heads unless given.
        ffn: one of FFNS; those of GATED have three matrices, the others two. clamped_swiglu is gpt-oss's,
            gelu_new the GELU that transformers computes by an operator for each step of its formula (Phi, GPT-J).
        norm: one of NORMS.
        position: one of POSITIONS.
        tied_embeddings: the head is the embedding.
        bias: on every matrix but the head and routers, and on LayerNorm.
        sliding_window: positions that a query sees in every layer, its own included.
        qkv_bias: bias of queries, keys and values, where it differs from that of the rest.
        output_bias: bias of attention's output matrix, where it differs.
        ffn_bias: bias of the feed-forward matrices, where it differs.
        norm_bias: bias of every LayerNorm, where it differs.
        norm_weights: norms have weights; False: they only divide (OLMo, nanochat).
        qk_norm: True or "head": one RMSNorm weight of head_dim each for queries and keys; "width": one as wide as all
            heads together (OLMo 2); "l2": heads are divided by their root mean square (Llama 4).
        post_norm: a second norm after each sublayer.
        block_norms: norms of a block as wide as the model, if neither two nor, with post_norm, four.
        parallel: attention and the feed-forward layer read the same input (GPT-J), behind one norm or one each.
        repeated_keys: attention gets a key and a value for each query head, whatever the number of key heads (Falcon
            40B): it decides the memory of training alone.
        embedding_norm: a norm after the embedding (BLOOM).
        head_bias: a bias of the head (Phi).
        experts: experts of each layer, and a router of d_model × experts.
        experts_per_token: experts that each token passes.
        vocab_multiple: number that the rows of the vocabulary are a multiple of.
        extra_positions: rows of learned positions beyond context_length (OPT has two).
        value_embeddings: layers that add to their values an embedding of the token, of vocab rows × key heads, by a
            gate of d_model × key heads.
        lora_rank: rank of low-rank adapters beside the matrices of the blocks, which alone are trained then.
        lora_targets: the matrices that have one, of ADAPTED ("qkv" and "gate_up" where those are one matrix); each
            of them unless given.
        leading: layers before the pattern, each once (DeepSeek-V3 has three with a dense feed-forward layer).
        layers: the pattern of layers, repeated to num_layers; one layer of the sizes above unless given.

    Raises:
        ValueError: it names the value, the bound and the remedy.

    >>> TransformerShape(50257, 1024, num_layers=12, d_model=768, num_heads=12, d_ff=3072).head_width
    64
    >>> alternating = (Layer(Attention(window=128)), Layer())
    >>> TransformerShape(50257, 1024, 5, 768, 12, 3072, layers=alternating).windowed_layers
    3
    """

    vocab_size: int
    context_length: int
    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    _: KW_ONLY
    num_kv_heads: int | None = None
    head_dim: int | None = None
    ffn: str = "swiglu"
    norm: str = "rmsnorm"
    position: str = "rope"
    tied_embeddings: bool = False
    bias: bool = False
    sliding_window: int | None = None
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    ffn_bias: bool | None = None
    norm_bias: bool | None = None
    norm_weights: bool = True
    qk_norm: bool | str = False
    post_norm: bool = False
    block_norms: int | None = None
    parallel: bool = False
    repeated_keys: bool = False
    embedding_norm: bool = False
    head_bias: bool = False
    experts: int | None = None
    experts_per_token: int | None = None
    vocab_multiple: int = 1
    extra_positions: int = 0
    value_embeddings: int = 0
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] | None = None
    leading: tuple[Layer, ...] = ()
    layers: tuple[Layer, ...] = (Layer(),)

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff", "vocab_multiple"):
            positive(name, getattr(self, name))
        for name in ("num_kv_heads", "head_dim", "sliding_window", "experts", "experts_per_token", "lora_rank"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        booleans(self, ("tied_embeddings", "bias", "norm_weights", "head_bias", "post_norm", "embedding_norm"))
        booleans(self, ("parallel", "repeated_keys"))
        for name in ("qkv_bias", "output_bias", "ffn_bias", "norm_bias"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"{name} must be True, False or None for that of bias, and {getattr(self, name)!r} is neither"
                )
        choose("ffn", self.ffn, FFNS)
        choose("norm", self.norm, NORMS)
        choose("position", self.position, POSITIONS)
        if not isinstance(self.qk_norm, bool):
            choose("qk_norm", self.qk_norm, QK_NORMS)
        for name in ("block_norms", "extra_positions"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.extra_positions and self.position != "learned":
            raise ValueError(f"extra_positions {self.extra_positions} are rows of learned positions: leave them out")
        self._check_layers()
        self._check_heads()
        if not 0 <= whole("value_embeddings", self.value_embeddings) <= self.num_layers:
            raise ValueError(f"value_embeddings {self.value_embeddings} is more than num_layers {self.num_layers}")
        if self.value_embeddings and not all(isinstance(kind.attention, Attention) for kind in self.counts):
            raise ValueError("value_embeddings need the values of softmax attention: leave them out")
        self._check_adapters()

    def _check_layers(self) -> None:
        for name in ("leading", "layers"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(layer, Layer) for layer in value):
                raise ValueError(f"expected {name} as a tuple of Layer, got {value!r:.80}")
        if not self.layers:
            raise ValueError("layers is empty: give at least one Layer")
        if len(self.leading) > self.num_layers:
            raise ValueError(f"leading has {len(self.leading)} layers, and num_layers is {self.num_layers}: give fewer")
        listed = [layer for layer in (*self.leading, *self.layers) if layer.attention is None or layer.ffn is None]
        if not any(layer.ffn is None for layer in listed) and (self.experts or self.experts_per_token):
            raise ValueError("experts would change nothing, as every layer has its own ffn: leave it out")
        if not any(layer.attention is None for layer in listed) and self.sliding_window:
            raise ValueError("sliding_window would change nothing, as every layer has its own attention: leave it out")

    def _check_heads(self) -> None:
        kinds = [kind.attention for kind in self.counts if isinstance(kind.attention, Attention)]
        if not kinds:
            for name, value in (("num_kv_heads", self.num_kv_heads), ("head_dim", self.head_dim)):
                if value is not None:
                    raise ValueError(f"{name} {value} would change nothing without softmax attention: leave it out")
            return
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}: give head_dim")
        if self.num_heads % self.kv_heads:
            raise ValueError(f"num_kv_heads {self.kv_heads} does not divide num_heads {self.num_heads}: give a divisor")
        if any(one.rotated for one in kinds) and self.position != "rope":
            raise ValueError(f"rotated layers need position 'rope', got {self.position!r}")
        if any(one.rotated for one in kinds) and self.head_width % 2:
            raise ValueError(f"head_dim {self.head_width} is odd, and rope turns pairs: make it even")
        if any(one.qk_norm == "l2" and not one.rotated for one in kinds):
            raise ValueError("qk_norm 'l2' is of rotated queries and keys: rotate them, or use another")

    def _check_adapters(self) -> None:
        if self.lora_rank is None:
            if self.lora_targets is not None:
                raise ValueError(f"lora_targets {self.lora_targets} have no meaning without a lora_rank: give one")
            return
        if len(self.matrix_kinds) > 1 or not self.plain or self.value_embeddings:
            raise ValueError(
                f"lora_rank {self.lora_rank}: adapters are not counted for latent attention, linear attention, shared "
                "experts, dense layers beside experts, attention sinks or value embeddings"
            )
        targets = self.adapted
        if not isinstance(targets, tuple) or not targets or len(set(targets)) < len(targets):
            raise ValueError(f"expected lora_targets as a tuple of at least one matrix, each once, got {targets!r}")
        for name in targets:
            choose("lora_targets", name, ADAPTED)
        for name, parts in (("qkv", ("query", "key", "value")), ("gate_up", ("gate", "up"))):
            if name in targets and set(parts) & set(targets):
                raise ValueError(f"lora_targets {targets} name {name} and a part of it: name one of them")
        if not self.gated and {"gate", "gate_up"} & set(targets):
            raise ValueError(f"lora_targets {targets} name a gate, and ffn {self.ffn!r} has none: leave it out")

    def kind(self, layer: Layer) -> Kind:
        """A layer with what it leaves open filled in from the sizes of the shape."""
        attention = Attention(self.sliding_window) if layer.attention is None else layer.attention
        if isinstance(attention, Attention):
            norm = "head" if self.qk_norm is True else self.qk_norm or "none"
            attention = replace(
                attention,
                rotated=self.position == "rope" if attention.rotated is None else attention.rotated,
                qk_norm=norm if attention.qk_norm is None else attention.qk_norm,
            )
        ffn = layer.ffn or FeedForward(experts=self.experts, experts_per_token=self.experts_per_token)
        return Kind(attention, replace(ffn, d_ff=self.d_ff if ffn.d_ff is None else ffn.d_ff))

    @cached_property
    def _resolved(self) -> tuple[list[Kind], list[Kind]]:
        kinds = {layer: self.kind(layer) for layer in {*self.leading, *self.layers}}
        return [kinds[layer] for layer in self.leading], [kinds[layer] for layer in self.layers]

    def kind_at(self, depth: int) -> Kind:
        """The kind of one layer, counted from 0 at the bottom."""
        leading, pattern = self._resolved
        return leading[depth] if depth < len(leading) else pattern[(depth - len(leading)) % len(pattern)]

    @cached_property
    def counts(self) -> Mapping[Kind, int]:
        """Number of layers of each kind, in the order in which they come first."""
        return self.counts_below(self.num_layers)

    def counts_below(self, depth: int) -> dict[Kind, int]:
        """The same of the lowest `depth` layers."""
        leading, pattern = self._resolved
        periods, rest = divmod(max(0, depth - len(leading)), len(pattern))
        parts = ((leading[:depth], 1), (pattern, periods), (pattern[:rest], 1))
        counts = _sums((kind, times) for kinds, times in parts for kind in kinds)
        return {kind: count for kind, count in counts.items() if count}

    def between(self, first: int, after: int) -> TransformerShape:
        """The layers from `first` to before `after`, as a shape of their own."""
        at = len(self.leading)
        leading, turn = self.leading[first:after], max(0, first - at) % len(self.layers)
        layers = self.layers[turn:] + self.layers[:turn]
        if after <= at:  # nothing of the pattern
            leading, layers = leading[:-1], leading[-1:]
        return replace(self, num_layers=after - first, leading=leading, layers=layers)

    @cached_property
    def matrix_kinds(self) -> Mapping[Kind, int]:
        """Number of layers of each kind, where windows make no difference."""
        return _sums((without_window(kind), count) for kind, count in self.counts.items())

    @cached_property
    def attentions(self) -> Mapping[AnyAttention, int]:
        """Number of layers of each attention, where windows make no difference."""
        return _sums((kind.attention, count) for kind, count in self.matrix_kinds.items())

    @cached_property
    def mixers(self) -> Mapping[Mixer, int]:
        """Number of layers of each state, in place of attention or beside it."""
        pairs = ((one if isinstance(one, Mixer) else one.beside, count) for one, count in self.attentions.items())
        return _sums((mixer, count) for mixer, count in pairs if mixer is not None and mixer.name != "nothing")

    @cached_property
    def ffns(self) -> Mapping[FeedForward, int]:
        """Number of layers with each feed-forward layer."""
        return _sums((kind.ffn, count) for kind, count in self.matrix_kinds.items())

    @cached_property
    def plain(self) -> bool:
        """True if `lm` of this repository can build it, windows aside."""
        return (
            len(self.matrix_kinds) == 1
            and self.ffn in ("swiglu", "geglu", "gelu", "silu", "relu2")
            and self.block_norms is None
            and not (self.parallel or self.repeated_keys)
            and self.norm_weights
            and not (self.embedding_norm or self.extra_positions or self.head_bias)
            and self.position != "alibi"
            and all(bias in (None, self.bias) for bias in (self.output_bias, self.ffn_bias, self.norm_bias))
            and all(
                isinstance(one, Attention)
                and not (one.sinks or one.gated or one.chunked or one.reuses or one.beside)
                and one.qk_norm in ("none", "head")
                and one.rotated == (self.position == "rope")
                for one in self.attentions
            )
            and all(one.shared_d_ff is None and one.router == "softmax" and not one.router_bias for one in self.ffns)
        )

    @property
    def adapted(self) -> tuple[str, ...]:
        """The matrices of a block that have an adapter: lora_targets, or each of them; none without a lora_rank."""
        if self.lora_rank is None:
            return ()
        if self.lora_targets is not None:
            return self.lora_targets
        return (*ATTENTION_TARGETS, *(("gate", "up", "down") if self.gated else ("up", "down")))

    @property
    def kv_heads(self) -> int:
        """num_kv_heads, or as many as there are query heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def head_width(self) -> int:
        """head_dim, or d_model / num_heads; of latent attention the width of a query."""
        for kind in self.counts:
            if isinstance(kind.attention, LatentAttention):
                return kind.attention.nope_dim + kind.attention.rope_dim
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def latent(self) -> LatentAttention | None:
        """The latent attention of the first layer that has one."""
        return next((one for one in self.attentions if isinstance(one, LatentAttention)), None)

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and the head: vocab_size rounded up to vocab_multiple."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def gated(self) -> bool:
        return self.ffn in GATED

    @property
    def matrices_of_ffn(self) -> int:
        """Matrices of one feed-forward layer."""
        return 3 if self.gated else 2

    @property
    def most_experts(self) -> int:
        """Experts of the layer that has most, at least 1."""
        return max(one.experts or 1 for one in self.ffns)

    @property
    def windowed_layers(self) -> int:
        """Layers that see no further than a window."""
        return sum(count for kind, count in self.counts.items() if kind.attention.window is not None)

    @property
    def biased_qkv(self) -> bool:
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def biased_output(self) -> bool:
        return self.bias if self.output_bias is None else self.output_bias

    @property
    def biased_ffn(self) -> bool:
        return self.bias if self.ffn_bias is None else self.ffn_bias

    @property
    def biased_norm(self) -> bool:
        """LayerNorm alone may have a bias."""
        return self.norm == "layernorm" and (self.bias if self.norm_bias is None else self.norm_bias)

    @property
    def norms_of_block(self) -> int:
        return (4 if self.post_norm else 2) if self.block_norms is None else self.block_norms

    @property
    def weighted_norms(self) -> int:
        """Of the norms those with a weight, and a bias if any."""
        return self.norms if self.norm_weights else 0

    @property
    def norms(self) -> int:
        """Norms as wide as the model: those of the blocks, one before the head, and one after the embedding if any."""
        return 0 if self.norm == "none" else self.num_layers * self.norms_of_block + 1 + self.embedding_norm

    def sequence(self, seq_len: int | None) -> int:
        """seq_len, or the whole context; learned positions end at context_length, the others do not."""
        length = self.context_length if seq_len is None else positive("seq_len", seq_len)
        if self.position == "learned" and length > self.context_length:
            most = self.context_length
            raise ValueError(f"seq_len {length} is beyond the {most} learned positions: lengthen context_length")
        return length


def _sums(pairs: Iterable[tuple[Value, int]]) -> dict[Value, int]:
    sums: dict[Value, int] = {}
    for key, count in pairs:
        sums[key] = sums.get(key, 0) + count
    return sums


def no_value_embeddings(shape: TransformerShape, quantity: str) -> None:
    """NotCounted for a shape with value embeddings, of which this quantity is not counted."""
    if shape.value_embeddings:
        raise NotCounted(f"{quantity} is not counted of shapes with value embeddings")
