"""The parts that the families share: configuration, attention, the block of Llama, and the model around the blocks."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from lm.config import FrozenTable, ModelConfig
from lm.families import rope as ropes
from lm.model import Attention, RMSNorm, SwiGLU, Transformer, apply_rotary_emb, norm

if TYPE_CHECKING:
    from accounting import TransformerShape

SLIDING, FULL = "sliding_attention", "full_attention"
# Sizes by the names of most config.json.
SIZES = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "rms_norm_eps": "norm_eps",
    "tie_word_embeddings": "tied_embeddings",
}
# Names of tensors, {beginning of lm's name: Hugging Face's names of the parts that it is made of}.
Names = dict[str, str | tuple[str, ...]]
LLAMA_NAMES: Names = {
    "embedding": "model.embed_tokens",
    "blocks.*.attention_norm": "model.layers.*.input_layernorm",
    "blocks.*.attention.qkv": tuple(f"model.layers.*.self_attn.{part}_proj" for part in "qkv"),
    "blocks.*.attention.output": "model.layers.*.self_attn.o_proj",
    "blocks.*.ffn_norm": "model.layers.*.post_attention_layernorm",
    "blocks.*.ffn.gate_up": ("model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"),
    "blocks.*.ffn.down": "model.layers.*.mlp.down_proj",
    "final_norm": "model.norm",
    "head": "lm_head",
}
QK_NORM_NAMES: Names = {f"blocks.*.attention.{one}_norm": f"model.layers.*.self_attn.{one}_norm" for one in "qk"}
GPT2_NAMES: Names = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "blocks.*.attention_norm": "transformer.h.*.ln_1",
    "blocks.*.attention.qkv": "transformer.h.*.attn.c_attn",
    "blocks.*.attention.output": "transformer.h.*.attn.c_proj",
    "blocks.*.ffn_norm": "transformer.h.*.ln_2",
    "blocks.*.ffn.up": "transformer.h.*.mlp.c_fc",
    "blocks.*.ffn.down": "transformer.h.*.mlp.c_proj",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
}
# Settings of config.json that are read with some values only; the first is written.
SILU: Mapping[str, tuple[Any, ...]] = {"hidden_act": ("silu", "swish")}
UNBIASED: Mapping[str, tuple[Any, ...]] = {"attention_bias": (False,)}


@dataclass(frozen=True, kw_only=True)
class FamilyConfig(ModelConfig):
    """A model of one of Hugging Face's architectures; each family adds its own settings."""

    family: str  # model_type of its config.json
    rope_parameters: FrozenTable  # as config.json has them: one table, or one for each kind of attention
    norm_eps: float = 1e-6
    layer_types: tuple[str, ...] = ()  # "sliding_attention" or "full_attention" of each layer; (): all alike

    renamed: ClassVar[Mapping[str, str]] = {}  # {setting of config.json: field}, beside SIZES
    aliases: ClassVar[Mapping[str, str]] = {}  # {another name of a setting of config.json: the one that is written}
    ignored: ClassVar[tuple[str, ...]] = ()  # settings of config.json without effect
    absent: ClassVar[tuple[str, ...]] = ()  # fields without a setting in config.json
    fixed: ClassVar[Mapping[str, tuple[Any, ...]]] = SILU  # {setting of config.json: its supported values}
    full_every: ClassVar[int | None] = None  # every layer of this number has full attention where layer_types is ()
    default_theta: ClassVar[float] = 10000.0
    rotates_neighbours: ClassVar[bool] = False  # the pairs (2i, 2i + 1) of a head
    default_partial: ClassVar[float] = 1.0  # the share of a head that is rotated
    local_theta: ClassVar[tuple[str, float] | None] = None  # where windows have another rotation: its name and default
    rope_renamed: ClassVar[Mapping[str, str]] = {}  # rope_type of older files, and today's

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layer_types and self.full_every is not None:
            kinds = (SLIDING if (layer + 1) % self.full_every else FULL for layer in range(self.num_layers))
            object.__setattr__(self, "layer_types", tuple(kinds))
        if self.layer_types and (len(self.layer_types) != self.num_layers or set(self.layer_types) - {SLIDING, FULL}):
            raise ValueError(f"expected {self.num_layers} layer_types, {SLIDING} or {FULL}, got {self.layer_types}")
        for parameters in self.rope_tables.values() if self.position == "rope" else ():
            ropes.check(parameters, self.head_width)

    @classmethod
    def settings(cls) -> dict[str, str]:
        """Names of the settings of a config.json, each with its field."""
        settings = {field: name for name, field in (*SIZES.items(), *cls.renamed.items())}
        own = [field.name for field in dataclasses.fields(cls) if field.name not in INHERITED]
        names = [*SIZES.values(), *cls.renamed.values(), *own]
        return {settings.get(name, name): name for name in dict.fromkeys(names) if name not in cls.absent}

    @property
    def unused(self) -> set[str]:
        """Settings of ModelConfig that this family does not have."""
        return {field.name for field in dataclasses.fields(ModelConfig)} - set(self.settings().values())

    @property
    def rope_tables(self) -> Mapping[str, Any]:
        """Parameters of rotation by the kind of attention; only FULL where all have the same."""
        return self.rope_parameters if FULL in self.rope_parameters else {FULL: self.rope_parameters}

    @property
    def rope_depends_on_length(self) -> bool:
        """True if the rotation of a token depends on the length of what it is read with."""
        return self.rope_parameters.get("rope_type") in ropes.BY_LENGTH

    @property
    def rope_changes_at(self) -> int | None:
        """Length beyond which all of a text has another rotation (longrope)."""
        is_longrope = self.rope_parameters.get("rope_type") == "longrope"
        return self.rope_parameters["original_max_position_embeddings"] if is_longrope else None

    @property
    def query_scale(self) -> float:
        """Factor of the queries beside attention's own 1 / √head_dim."""
        return 1.0

    def window(self, layer: int) -> int | None:
        """Positions that a query of this layer sees, None for all."""
        return self.sliding_window if not self.layer_types or self.layer_types[layer] == SLIDING else None

    def rope_of(self, layer: int) -> FrozenTable | None:
        """Parameters of this layer's rotation; None for a layer without."""
        by_kind = FULL in self.rope_parameters
        return FrozenTable(self.rope_parameters[self.layer_types[layer]]) if by_kind else self.rope_parameters

    def shape(self) -> TransformerShape:
        from accounting.models.families import from_config  # here, because nothing but a budget needs it

        return from_config(self.to_huggingface())

    def to_huggingface(self) -> dict[str, Any]:
        """The contents of its config.json."""
        fixed = {name: values[0] for name, values in self.fixed.items() if values[0] is not None}
        # The id of padding that transformers' class has by default may lie outside the vocabulary.
        table: dict[str, Any] = {"model_type": self.family, "pad_token_id": None, **fixed}
        for setting, name in self.settings().items():
            value = self.kv_heads if name == "num_kv_heads" else getattr(self, name)
            if value != () and (name, value) != ("head_dim", None):
                table[setting] = list(value) if isinstance(value, tuple) else value
        if self.position != "rope":
            return table
        rope = dict(self.rope_parameters)
        if rope.get("rope_type") == "dynamic":  # Hugging Face's is the unscaled context, which has no end
            table["max_position_embeddings"] = rope.pop("original_max_position_embeddings")
        return {**table, "rope_parameters": rope}


INHERITED = {field.name for field in dataclasses.fields(FamilyConfig)} - {"layer_types"}


class FamilyAttention(Attention):
    """Attention of one layer: its own window, scale and rotation."""

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config)
        self.rotation = ropes.rotate_neighbours if config.rotates_neighbours else apply_rotary_emb
        self.sliding_window, self.query_scale = config.window(layer), config.query_scale

    def rotate(self, q: Tensor, k: Tensor, rope: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.rotation(q, rope) * self.query_scale, self.rotation(k, rope)


class BiaslessOutputAttention(FamilyAttention):
    """Attention whose queries, keys and values may have biases, and its output none."""

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.output = nn.Linear(self.num_heads * self.head_dim, config.d_model, bias=False)


class WideNormAttention(FamilyAttention):
    """Attention whose queries and keys are normalised over all heads together (OLMo)."""

    def __init__(self, config: FamilyConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.q_norm = RMSNorm(self.num_heads * self.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(self.num_kv_heads * self.head_dim, config.norm_eps)

    def project(self, x: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        widths = [heads * self.head_dim for heads in (self.num_heads, self.num_kv_heads, self.num_kv_heads)]
        q, k, v = self.qkv(x).split(widths, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in (self.q_norm(q), self.k_norm(k), v))
        return q, k, v


class LlamaBlock(nn.Module):
    """Attention, then feed-forward, each of its normalised input and added to it; forward: as lm.model.Block."""

    def __init__(self, model: FamilyModel, layer: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.attention_norm = model.norm()
        self.attention = model.attention_type(model.config, layer)
        self.ffn_norm = model.norm()
        self.ffn = model.feed_forward(layer)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), *context))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class SandwichBlock(LlamaBlock):
    """Attention, then feed-forward, each between two norms and added to its input."""

    def __init__(self, model: FamilyModel, layer: int) -> None:
        super().__init__(model, layer)
        self.attention_post_norm = model.norm()
        self.ffn_post_norm = model.norm()

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y = self.attention(self.attention_norm(x), *context)
        x = x + self.dropout(self.attention_post_norm(y))
        return x + self.dropout(self.ffn_post_norm(self.ffn(self.ffn_norm(x))))  # type: ignore[no-any-return]


class FamilyModel(Transformer):
    """A model of Llama's blocks, each with the rotation of its layer; a family replaces the parts that differ. NAME is
    that among `architectures` of a config.json, without "ForCausalLM"; NAMEConfig stands in the same file."""

    names: ClassVar[Names] = LLAMA_NAMES  # of its tensors in a Hugging Face folder
    config_type: ClassVar[type[FamilyConfig]]  # that of its name
    block_type: ClassVar[type[LlamaBlock]] = LlamaBlock
    attention_type: ClassVar[Any] = FamilyAttention  # called with the configuration and the number of the layer
    config: Any  # of config_type

    def __init_subclass__(cls) -> None:
        cls.config_type = getattr(sys.modules[cls.__module__], f"{cls.__name__}Config")

    def block(self, layer: int) -> nn.Module:
        return self.block_type(self, layer)

    def norm(self) -> nn.Module:
        """A norm of a new block."""
        return norm(self.config)

    def feed_forward(self, layer: int) -> nn.Module:
        """The feed-forward layer of a new block."""
        return SwiGLU(self.config.d_model, self.config.d_ff)

    def ropes(self, positions: Tensor | slice, x: Tensor) -> list[Tensor | None]:
        config = self.config

        @functools.cache
        def rotation(parameters: FrozenTable | None) -> Tensor | None:
            if parameters is None:
                return None
            return ropes.rotation_at(parameters, config.head_width, config.context_length, positions, x)

        return [rotation(config.rope_of(layer)) for layer in range(config.num_layers)]

    @staticmethod
    def from_hf(tensors: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """The tensors of a Hugging Face folder as `names` has them, if they lie there in another way."""
        return tensors

    @staticmethod
    def to_hf(tensors: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """The inverse of from_hf."""
        return tensors


class ScaledEmbedding(nn.Embedding):
    """An embedding whose rows are multiplied by a factor; as the head's weight they are not."""

    scale = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * torch.tensor(self.scale, dtype=self.weight.dtype)


def scale_embedding(model: Transformer, scale: float) -> None:
    """Multiply a model's embedding by a factor, in place."""
    model.embedding.__class__ = ScaledEmbedding
    model.embedding.scale = scale  # type: ignore[assignment]
