"""The shape of a decoder-only Transformer: everything that decides what it costs, and nothing else."""

from __future__ import annotations

from accounting.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from dataclasses import KW_ONLY

FFNS = ("swiglu", "clamped_swiglu", "geglu", "gelu", "silu", "relu2")
GATED = ("swiglu", "clamped_swiglu", "geglu")
NORMS = ("rmsnorm", "layernorm", "none")
POSITIONS = ("rope", "learned", "none")
ATTENTION_TARGETS = ("query", "key", "value", "output")
ADAPTED = (*ATTENTION_TARGETS, "gate", "up", "down", "qkv", "gate_up")  # matrices that may have an adapter
ROUTERS = ("softmax", "sigmoid", "softmax_of_chosen", "sigmoid_of_input")


class LatentAttention(Record):
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values come of a narrow latent, which alone is cached.

    Args:
        q_rank: width of the queries' own latent, None where they come of the residual stream.
        kv_rank: width of the latent of keys and values.
        nope_dim: part of a query and key without rotation.
        rope_dim: part of a query and key with rotation.
        value_dim: width of a value.
    """

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim"):
            positive(name, getattr(self, name))
        if self.q_rank is not None:
            positive("q_rank", self.q_rank)


class TransformerShape(Record):
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
        ffn: one of FFNS; those of GATED have three matrices, the others two. clamped_swiglu is gpt-oss's.
        norm: one of NORMS.
        position: one of POSITIONS.
        tied_embeddings: whether the head is the embedding.
        bias: on every matrix but the head, and on LayerNorm.
        sliding_window: positions that a query sees, its own included.
        sliding_window_layers: layers with that window; all of them unless given.
        qkv_bias: bias of queries, keys and values, where it is another than that of the rest.
        qk_norm: one RMSNorm weight of head_dim each for queries and keys.
        post_norm: a second norm after each sublayer.
        experts: feed-forward layers of a block, and a router of d_model × experts.
        experts_per_token: of them those that each token passes.
        experts_held: of one device among several, those whose weights it has.
        vocab_multiple: what the rows of the vocabulary are a multiple of.
        dense_layers: of a shape with experts, the layers that have one feed-forward layer of dense_d_ff instead.
        dense_d_ff: its width.
        dense_interleaved: whether those are spread over the depth (Llama 4) instead of the first ones (DeepSeek V3).
        shared_d_ff: width of the feed-forward layer that every token passes beside its experts.
        router: one of ROUTERS, what makes weights of the scores of experts: a softmax over all of them, or a sigmoid
            of each, those chosen made to add up to one; a softmax over those chosen (gpt-oss); a sigmoid that what the
            expert reads is multiplied by (Llama 4).
        router_bias: a bias of each expert's score.
        attention_sinks: one more score for each head.
        latent: multi-head latent attention.
        unrotated_layers: layers without rotary positions, the last of every so many (Llama 4).
        qk_l2_norm: queries and keys of rotated layers are divided by their root mean square (Llama 4).
        value_embeddings: layers that add to their values an embedding of the token, of vocab rows × key heads, by a
            gate of d_model × key heads.
        lora_rank: rank of low-rank adapters beside the matrices of the blocks, which alone are trained then.
        lora_targets: the matrices that have one, of ADAPTED ("qkv" and "gate_up" where those are one matrix); each
            of them unless given.

    Raises:
        ValueError: it names the value, the bound and what to do.

    >>> TransformerShape(50257, 1024, num_layers=12, d_model=768, num_heads=12, d_ff=3072).head_width
    64
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
    sliding_window_layers: int | None = None
    qkv_bias: bool | None = None
    qk_norm: bool = False
    post_norm: bool = False
    experts: int | None = None
    experts_per_token: int | None = None
    experts_held: int | None = None
    vocab_multiple: int = 1
    dense_layers: int = 0
    dense_d_ff: int | None = None
    dense_interleaved: bool = False
    shared_d_ff: int | None = None
    router: str = "softmax"
    router_bias: bool = False
    attention_sinks: bool = False
    latent: LatentAttention | None = None
    unrotated_layers: int = 0
    qk_l2_norm: bool = False
    value_embeddings: int = 0
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff", "vocab_multiple"):
            positive(name, getattr(self, name))
        for name in (
            "num_kv_heads",
            "head_dim",
            "sliding_window",
            "sliding_window_layers",
            "experts",
            "experts_per_token",
            "experts_held",
            "lora_rank",
        ):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        for name in ("tied_embeddings", "bias", "qk_norm", "post_norm", "dense_interleaved", "qk_l2_norm"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, and {getattr(self, name)!r} is neither")
        if self.qkv_bias is not None and not isinstance(self.qkv_bias, bool):
            raise ValueError(f"qkv_bias must be True, False or None for that of bias, and {self.qkv_bias!r} is neither")
        choose("ffn", self.ffn, FFNS)
        choose("norm", self.norm, NORMS)
        choose("position", self.position, POSITIONS)
        choose("router", self.router, ROUTERS)
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}: "
                f"change one of them, or give head_dim"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads {self.kv_heads} does not divide num_heads {self.num_heads}: "
                f"every key head serves the same number of query heads"
            )
        if self.position == "rope" and self.head_width % 2:
            raise ValueError(f"head_dim {self.head_width} is odd, and rope turns pairs: make it even")
        if self.sliding_window_layers is not None and self.sliding_window is None:
            raise ValueError(
                f"sliding_window_layers {self.sliding_window_layers} has no meaning without a sliding_window: give one"
            )
        if self.sliding_window_layers is not None and self.sliding_window_layers > self.num_layers:
            raise ValueError(
                f"sliding_window_layers {self.sliding_window_layers} is more than num_layers {self.num_layers}"
            )
        if (self.experts is None) != (self.experts_per_token is None):
            raise ValueError(
                f"experts {self.experts} and experts_per_token {self.experts_per_token} go together: give "
                "both or neither"
            )
        if self.experts is not None and self.active_experts > self.experts:
            raise ValueError(f"experts_per_token {self.experts_per_token} is more than experts {self.experts}")
        if isinstance(self.value_embeddings, bool) or not isinstance(self.value_embeddings, int):
            raise ValueError(
                f"value_embeddings must be a whole number of layers, and {self.value_embeddings!r} is not one"
            )
        if not 0 <= self.value_embeddings <= self.num_layers:
            raise ValueError(f"value_embeddings {self.value_embeddings} is no number of the {self.num_layers} layers")
        if self.value_embeddings and self.latent is not None:
            raise ValueError("latent attention has no values to which value_embeddings could be added: leave one out")
        self._check_layers_of_several_kinds()
        if self.held_experts > (self.experts or 1):
            raise ValueError(f"experts_held {self.experts_held} is more than experts {self.experts}")
        self._check_adapters()

    def _check_layers_of_several_kinds(self) -> None:
        for size in (self.dense_d_ff, self.shared_d_ff):
            if size is not None:
                positive("dense_d_ff and shared_d_ff", size)
        if self.experts is None and (self.dense_layers or self.dense_d_ff or self.shared_d_ff or self.router_bias):
            raise ValueError(
                "dense_layers, dense_d_ff, shared_d_ff and router_bias are of a shape with experts: give experts"
            )
        if not 0 <= self.dense_layers <= self.num_layers or (self.dense_layers > 0) != (self.dense_d_ff is not None):
            raise ValueError(
                f"dense_layers {self.dense_layers} and dense_d_ff {self.dense_d_ff} go together, of num_layers "
                f"{self.num_layers}"
            )
        if isinstance(self.unrotated_layers, bool) or not 0 <= self.unrotated_layers <= self.num_layers:
            raise ValueError(f"unrotated_layers {self.unrotated_layers} is no number of the {self.num_layers} layers")
        if (self.unrotated_layers or self.qk_l2_norm) and (self.position != "rope" or self.latent is not None):
            raise ValueError("unrotated_layers and qk_l2_norm are of rotated queries and keys: use position='rope'")

    def _check_adapters(self) -> None:
        if self.lora_rank is None:
            if self.lora_targets is not None:
                raise ValueError(f"lora_targets {self.lora_targets} have no meaning without a lora_rank: give one")
            return
        if self.beyond_lm or self.value_embeddings:
            raise ValueError(
                f"lora_rank {self.lora_rank}: adapters are not counted for latent attention, shared experts, dense "
                "layers beside experts, attention sinks or value embeddings"
            )
        targets = self.adapted
        for name in targets:
            choose("lora_targets", name, ADAPTED)
        if not targets or len(set(targets)) < len(targets):
            raise ValueError(f"lora_targets {targets} must name at least one matrix, and each once")
        for whole, parts in (("qkv", ("query", "key", "value")), ("gate_up", ("gate", "up"))):
            if whole in targets and set(parts) & set(targets):
                raise ValueError(f"lora_targets {targets} name {whole} and a part of it: name one of them")
        if not self.gated and {"gate", "gate_up"} & set(targets):
            raise ValueError(f"lora_targets {targets} name a gate, and ffn {self.ffn!r} has none: leave it out")

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
        """head_dim, or d_model / num_heads."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and the head: vocab_size rounded up to vocab_multiple."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def gated(self) -> bool:
        return self.ffn in GATED

    @property
    def active_experts(self) -> int:
        """Feed-forward layers a token passes in each block: experts_per_token, or the only one."""
        return 1 if self.experts_per_token is None else self.experts_per_token

    @property
    def held_experts(self) -> int:
        """Feed-forward layers of each block whose weights are here: all experts, unless devices share them, or the only
        one."""
        return (self.experts or 1) if self.experts_held is None else self.experts_held

    @property
    def expert_layers(self) -> int:
        """Layers with experts, or all of them where there are none."""
        return self.num_layers - self.dense_layers

    @property
    def beyond_lm(self) -> bool:
        """Whether it has what `lm` and a mixture of its layers have not: it is counted as transformers computes it."""
        of_ffn = self.dense_layers or self.shared_d_ff or self.router_bias or self.router != "softmax"
        of_attention = self.attention_sinks or self.latent or self.unrotated_layers or self.qk_l2_norm
        return bool(of_ffn or of_attention or self.ffn == "clamped_swiglu")

    @property
    def windowed_layers(self) -> int:
        """Layers that see no further than the sliding_window."""
        if self.sliding_window is None:
            return 0
        return self.num_layers if self.sliding_window_layers is None else self.sliding_window_layers

    @property
    def biased_qkv(self) -> bool:
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def norms(self) -> int:
        """Norms as wide as the model: two or four a block and one before the head."""
        return 0 if self.norm == "none" else self.num_layers * (4 if self.post_norm else 2) + 1

    def sequence(self, seq_len: int | None) -> int:
        """seq_len, or the whole context; learned positions end at context_length, the others do not."""
        length = self.context_length if seq_len is None else positive("seq_len", seq_len)
        if self.position == "learned" and length > self.context_length:
            raise ValueError(
                f"seq_len {length} is beyond the {self.context_length} learned positions: "
                f"shorten it, or make a shape with a larger context_length"
            )
        return length


def no_value_embeddings(shape: TransformerShape, what: str) -> None:
    """ValueError for a shape with value embeddings, of which this is not counted."""
    if shape.value_embeddings:
        raise ValueError(f"{what} is not counted of shapes with value embeddings")


def positive(name: str, value: object) -> int:
    """The value if it is a whole number of at least one, else ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number of at least 1, and {value!r} is not one")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, and {value} is not")
    return value


def unknown(kind: str, name: str, among: Iterable[str]) -> KeyError:
    """What to raise for a name that is not one of these: with those that begin so, or the nearest, and all of them."""
    import difflib  # here, because nothing but a mistake needs it

    known = list(among)
    begin = [one for one in known if one.startswith(f"{name.lower()}-")]
    near = begin or difflib.get_close_matches(name, known, n=1)
    meant = ""
    if near:
        one_of = "one of " if len(near) > 1 else ""
        meant = f"did you mean {one_of}{', '.join(map(repr, near))}? Else "
    return KeyError(f"no {kind} is called {name!r}: {meant}use one of {', '.join(known)}")


def choose(name: str, value: object, among: tuple[str, ...]) -> str:
    """The value if it is one of these names, else ValueError."""
    if value not in among:
        raise ValueError(f"{name} {value!r} is not known: use one of {', '.join(among)}")
    return str(value)
