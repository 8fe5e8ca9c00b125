"""The layers of a model: an attention or a state and a feed-forward layer, dense or of experts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from accounting.checks import booleans, choose, positive

QK_NORMS = ("none", "head", "width", "l2")
ROUTERS = ("softmax", "sigmoid", "softmax_of_chosen", "sigmoid_of_input")


@dataclass(frozen=True)
class Mixer:
    """A layer that mixes positions by a state of fixed size, or matrices beside attention, as rows of sizes.

    models/mixers.py has the published ones: Gated DeltaNet, Mamba, short convolutions.

    Args:
        name: the computation with the state, a component of the FLOPs; its first word names such layers.
        matrices: (name, rows, columns) of each matrix that every token passes; None: the width of the model.
        vectors: elements of each other parameter.
        norms: elements of each weight of a norm.
        state: elements of the state of a sequence, which is kept in fp32.
        newest: elements of the newest positions of a convolution, which are kept as a cache is.
        flops: of the state, for each token.
    """

    name: str
    matrices: tuple[tuple[str, int | None, int | None], ...] = ()
    vectors: tuple[int, ...] = ()
    norms: tuple[int, ...] = ()
    state: int = 0
    newest: int = 0
    flops: int = 0

    window = limit = beside = None
    chunked = sinks = rotated = reuses = False
    qk_norm = "none"


@dataclass(frozen=True)
class Attention:
    """Softmax attention with the heads of the shape.

    Args:
        window: positions that a query sees, its own included; None: all before it.
        chunked: the window begins at a multiple of its width and does not slide (Llama 4).
        rotated: queries and keys are rotated; None: if the position of the shape is "rope".
        qk_norm: one of QK_NORMS; None: that of the shape.
        sinks: one more score for each head (gpt-oss).
        gated: the output is multiplied by a gate as wide as the queries (Qwen3-Next).
        reuses: keys and values are those of an earlier layer (Gemma 3n).
        beside: a state beside the heads (Falcon-H1), or other matrices of the layer (Gemma 3n).
    """

    window: int | None = None
    chunked: bool = False
    rotated: bool | None = None
    qk_norm: str | None = None
    sinks: bool = False
    gated: bool = False
    reuses: bool = False
    beside: Mixer | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            positive("sliding_window", self.window)
        elif self.chunked:
            raise ValueError("chunked attention needs a window, the width of a chunk: give one")
        booleans(self, ("chunked", "sinks", "gated", "reuses"))
        if self.rotated is not None:
            booleans(self, ("rotated",))
        if self.qk_norm is not None:
            choose("qk_norm", self.qk_norm, QK_NORMS)

    @property
    def limit(self) -> int | None:
        """Most positions that a query sees."""
        return self.window


@dataclass(frozen=True)
class Indexer:
    """Heads that score all positions, of which attention sees the `top` best (DeepSeek-V3.2)."""

    heads: int
    width: int
    top: int

    def __post_init__(self) -> None:
        for name in ("heads", "width", "top"):
            positive(name, getattr(self, name))


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values come from a narrow latent, the cache.

    Args:
        q_rank: width of the queries' own latent, None if they are projected from the residual stream.
        kv_rank: width of the latent of keys and values.
        nope_dim: part of a query and key without rotation.
        rope_dim: part of a query and key with rotation.
        value_dim: width of a value.
        indexer: the heads that choose the positions that a query sees; None: it sees all.
    """

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    indexer: Indexer | None = None

    window = beside = None  # its cache has all positions, and all its layers are rotated
    chunked = sinks = reuses = False
    rotated = True
    qk_norm = "none"

    def __post_init__(self) -> None:
        for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim"):
            positive(name, getattr(self, name))
        if self.q_rank is not None:
            positive("q_rank", self.q_rank)
        elif self.indexer is not None:
            raise ValueError("an indexer reads the latent of the queries, and q_rank is None: give one")

    @property
    def limit(self) -> int | None:
        """Most positions that a query sees."""
        return None if self.indexer is None else self.indexer.top


AnyAttention = Attention | LatentAttention | Mixer


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer, or experts of which each token passes some.

    Args:
        d_ff: its width, of one expert where there are experts; None: that of the shape; 0: the layer has none.
        experts: number of experts, with a router of d_model × experts; None: one feed-forward layer without a router.
        experts_per_token: experts that each token passes.
        experts_held: experts whose weights this device stores; None: all.
        shared_d_ff: width of the feed-forward layer that every token passes beside its experts.
        shared_gate: the output of that layer is multiplied by a gate, a matrix of d_model × 1.
        router: one of ROUTERS: a softmax over all scores; a sigmoid of each, those chosen normalised to add up to one;
            a softmax over those chosen (gpt-oss); a sigmoid that multiplies the experts' input (Llama 4).
        router_bias: a bias for each expert's score.
    """

    d_ff: int | None = None
    _: KW_ONLY
    experts: int | None = None
    experts_per_token: int | None = None
    experts_held: int | None = None
    shared_d_ff: int | None = None
    shared_gate: bool = False
    router: str = "softmax"
    router_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("d_ff", "experts", "experts_per_token", "experts_held", "shared_d_ff"):
            if name == "d_ff" and self.d_ff == 0 and self.experts is None:
                continue  # a layer without one
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        booleans(self, ("shared_gate", "router_bias"))
        choose("router", self.router, ROUTERS)
        if (self.experts is None) != (self.experts_per_token is None):
            each = self.experts_per_token
            raise ValueError(f"experts {self.experts} and experts_per_token {each} go together: give both or neither")
        if self.experts is None and (self.experts_held or self.shared_d_ff or self.router_bias):
            raise ValueError("experts_held, shared_d_ff and router_bias need experts: give experts")
        if self.shared_gate and self.shared_d_ff is None:
            raise ValueError("shared_gate needs a shared feed-forward layer: give shared_d_ff")
        for name in ("experts_per_token", "experts_held"):
            if self.experts is not None and (getattr(self, name) or 1) > self.experts:
                raise ValueError(f"{name} {getattr(self, name)} is more than experts {self.experts}")

    @property
    def active(self) -> int:
        """Feed-forward layers that a token passes: experts_per_token, or the only one."""
        return self.experts_per_token or 1

    @property
    def held(self) -> int:
        """Feed-forward layers whose weights are stored here: all experts unless devices share them, or the only one."""
        return self.experts_held or self.experts or 1


@dataclass(frozen=True)
class Layer:
    """One layer; None: the attention, or the feed-forward layer, that the sizes of the shape describe."""

    attention: AnyAttention | None = None
    ffn: FeedForward | None = None


@dataclass(frozen=True)
class Kind:
    """A layer with nothing left open: see TransformerShape.kind."""

    attention: AnyAttention
    ffn: FeedForward

    @property
    def d_ff(self) -> int:
        return self.ffn.d_ff or 0


def pattern(layers: list[Layer]) -> tuple[Layer, ...]:
    """The shortest pattern that repeats to these layers, the last repetition possibly cut.

    >>> full, window = Layer(), Layer(Attention(window=8))
    >>> pattern([window, window, full, window, window, full, window]) == (window, window, full)
    True
    """
    for period in range(1, len(layers)):
        if all(layers[at] == layers[at - period] for at in range(period, len(layers))):
            return tuple(layers[:period])
    return tuple(layers)


def without_window(kind: Kind) -> Kind:
    attention = kind.attention
    if isinstance(attention, Attention) and attention.window is not None:
        return Kind(replace(attention, window=None, chunked=False), kind.ffn)
    return kind
