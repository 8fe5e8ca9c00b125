"""The families of transformers: their settings, as a config.json names them, to shapes.

A family that is not here is refused by name rather than guessed. Each is tested against transformers' model on the meta
device (tests/test_budget_against_transformers.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.checks import positive
from accounting.layer import AnyAttention, Attention, FeedForward, Indexer, LatentAttention, Layer, Mixer, pattern
from accounting.models import mixers
from accounting.models.defaults import defaults, having, tables
from accounting.models.mixers import NOTHING
from accounting.shape import TransformerShape

MOST_LISTED = 1 << 14  # layers of a file, which are compared one by one to find their period


def from_config(config: Mapping[str, Any]) -> TransformerShape:
    """The shape that the contents of a config.json describe; of a multimodal model that of its text_config.

    Missing fields have the defaults of transformers' class.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"expected the contents of a config.json as a dict, got {type(config).__name__}")
    return shape_of_family(*text_of(config))


def text_of(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The family of the decoder that a config.json describes, and its settings."""
    family, inner = str(config.get("model_type")), config.get("text_config")
    if isinstance(inner, dict):
        family = str(inner.get("model_type") or f"{family}_text")
        config = inner
    return tables()["aliases"].get(family, family), config


def shape_of_family(family: str, config: Mapping[str, Any]) -> TransformerShape:
    """The shape of a model of this family; ValueError for a family or a setting whose cost is not known."""
    if family not in defaults():
        raise ValueError(
            f"model_type {family!r} is not known: describe it by --layers, --d-model, --heads, --d-ff and --vocab, or "
            f"TransformerShape(…); known are {', '.join(defaults())}"
        )
    renamed = {
        tables()["renamed"].get(name, name): value
        for name, value in config.items()
        if (value is not None or name not in tables()["renamed"])
        and not (name == "intermediate_size" and family in having("own ffn name"))
    }
    settings = _Settings(family, _listed_layers(family, {**defaults()[family], **renamed}))
    for name, value in tables()["refused"].items():
        if settings.get(name, value) not in (value, None):
            raise ValueError(f"{name} is {settings.get(name)!r}, and its cost is not known here")
    return settings.shape()


def _listed_layers(family: str, values: dict[str, Any]) -> dict[str, Any]:
    """Settings of Nemotron-H with its layers as a list, and of Gemma 3n with a list of equal widths as one width."""
    widths = values.get("intermediate_size")
    if isinstance(widths, list) and widths and all(width == widths[0] for width in widths):
        values["intermediate_size"] = widths[0]
    if family == "nemotron_h":
        text = values.get("hybrid_override_pattern")
        if values.get("layer_types") is None and isinstance(text, str):
            if set(text) - set(tables()["nemotron"]):
                raise ValueError(
                    f"expected hybrid_override_pattern of {', '.join(tables()['nemotron'])}, got {text!r:.80}"
                )
            values["layer_types"] = [tables()["nemotron"][one] for one in text]
        kinds = values.setdefault("layer_types", list(tables()["nemotron"].values()))
        values["num_hidden_layers"] = len(kinds) if isinstance(kinds, list) else 0
    return values


class _Settings:
    """The settings of one config.json, with the defaults of its family."""

    def __init__(self, family: str, values: dict[str, Any]) -> None:
        self.family, self.values = family, values

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def whole(self, name: str) -> int:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"config.json must give {name} as a whole number, and it gives {value!r:.80}")
        return value

    def switch(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"config.json must give {name} as true or false, and it gives {value!r:.80}")
        return value

    def listed(self, name: str, length: int | None = None) -> list[Any] | None:
        """A list, of `length` entries if given; None where it is missing or empty."""
        value = self.values.get(name)
        if value is None or value == []:
            return None
        if not isinstance(value, list) or (length is not None and len(value) != length):
            size = "" if length is None else f" of {length} entries, one for each layer"
            raise ValueError(f"config.json must give {name} as a list{size}, and it gives {value!r:.80}")
        return value

    def shape(self) -> TransformerShape:
        """The shape of the model."""
        layers, width = self.whole("num_hidden_layers"), self.whole("hidden_size")
        if positive("num_hidden_layers", layers) > MOST_LISTED:
            raise ValueError(f"num_hidden_layers {layers:.3g} is more than {MOST_LISTED:,}: give fewer")
        depth = [Layer(self.attention(at, layers), self.ffn(at)) for at in range(layers)]
        latent, uniform = all(not isinstance(one.attention, Attention) for one in depth), len(set(depth)) == 1
        sizes: dict[str, Any] = {}
        only, ffn = depth[0].attention, depth[0].ffn
        experts: dict[str, Any] = {}
        if ffn is not None:
            experts = {"experts": ffn.experts, "experts_per_token": ffn.experts_per_token}
        if uniform and ffn is None and only is not None and only == Attention(only.window):
            sizes["sliding_window"] = only.window
        elif uniform and only == Attention() and ffn == FeedForward(**experts):
            sizes |= experts
        else:
            simple = [Layer(None if one.attention == Attention() else one.attention, one.ffn) for one in depth]
            body = pattern(simple)
            run = next((at for at in range(layers) if simple[at] != simple[0]), 0) if len(body) == layers else 0
            sizes |= {"leading": tuple(simple[:run]), "layers": pattern(simple[run:])}
        name = "moe_intermediate_size" if "moe_intermediate_size" in defaults()[self.family] else "intermediate_size"
        d_ff = 4 * width if self.get(name) is None else self.whole(name)
        if self.family == "lfm2" and self.switch("block_auto_adjust_ff_dim", True):
            d_ff = int(2 * d_ff / 3)
            if (factor := self.get("block_ffn_dim_multiplier", 1.0)) is not None:
                d_ff = (step := self.get("block_multiple_of", 256)) * -(-int(factor * d_ff) // step)
        return TransformerShape(
            self.whole("vocab_size"),
            self.whole("max_position_embeddings"),
            layers,
            width,
            self.whole("num_attention_heads"),
            d_ff,
            num_kv_heads=None if latent else self.kv_heads(),
            head_dim=None if latent else self.head_dim(width),
            ffn=self.activation(),
            tied_embeddings=self.switch("tie_word_embeddings"),
            **self.norms(),
            **self.biases(),
            **sizes,
        )

    def attention(self, at: int, layers: int) -> AnyAttention:
        """Attention of one layer."""
        family = self.family
        kind = self.kind(at, layers)
        if kind in ("linear_attention", "conv", "mamba"):
            return self.mixer()
        if kind in ("moe", "mlp"):
            return NOTHING
        if family in having("latent attention"):
            ranks = None if self.get("q_lora_rank") is None else self.whole("q_lora_rank")
            names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            rank, nope, rope, value = map(self.whole, names)
            indexer = None
            if self.get("index_topk") is not None:
                indexer = Indexer(*map(self.whole, ("index_n_heads", "index_head_dim", "index_topk")))
            return LatentAttention(ranks, rank, nope, rope, value, indexer)
        sizes = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
        window = self.whole(sizes[kind]) if kind in sizes else None
        rotated = None
        if family in ("smollm3", "llama4_text"):
            rotated = None if self.rotated(at, layers) else False
        elif family == "cohere2" or (family == "exaone4" and self.get("sliding_window") is not None):
            rotated = None if window else False
        norm, beside, reuses = None, None, False
        if family == "falcon_h1":
            beside = self.mixer()
        elif family == "gemma3n_text":
            reuses = at >= layers - self.whole("num_kv_shared_layers")
            beside = self.per_layer(at == 0)
        if family == "llama4_text" and rotated is None and self.switch("use_qk_norm"):
            norm = "l2"
        sinks, gated = family in ("gpt_oss", "granite_swa"), family in having("gated delta")
        return Attention(window, kind == "chunked_attention", rotated, norm, sinks, gated, reuses, beside)

    def mixer(self) -> Mixer:
        """The state of a layer without softmax attention, or beside it."""
        family, width = self.family, self.whole("hidden_size")
        if family in (*having("gated delta"), "olmo_hybrid"):
            parts = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
            sizes = [self.whole(f"linear_{part}") for part in parts]
            return mixers.delta(*sizes, merged=family == "qwen3_next")
        if family == "kimi_linear":
            names = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
            return mixers.kimi_delta(*map(self.whole, names))
        if family == "minimax":
            heads = self.whole("num_attention_heads")
            return mixers.lightning(heads, self.head_dim(width) or width // heads)
        if family in ("lfm2", "lfm2_moe"):
            return mixers.short_convolution(width, self.whole("conv_L_cache"), bias=self.switch("conv_bias"))
        if self.switch("mamba_proj_bias"):
            raise ValueError("mamba_proj_bias is set, and its cost is not known here")
        bias = self.switch("mamba_conv_bias", True)
        if family == "jamba":
            inner, state, kernel = (self.whole(f"mamba_{name}") for name in ("expand", "d_state", "d_conv"))
            rank = -(-width // 16) if self.get("mamba_dt_rank") == "auto" else self.whole("mamba_dt_rank")
            return mixers.mamba(inner * width, state, rank, kernel, convolution_bias=bias, norms=True)
        heads = self.whole("mamba_n_heads")
        norm = family != "falcon_h1" or self.switch("mamba_rms_norm")
        if family == "nemotron_h":
            each = self.whole("mamba_d_head")
        else:
            each = (self.whole("mamba_d_ssm") if family == "falcon_h1" else self.whole("mamba_expand") * width) // heads
        sizes = [self.whole(f"mamba_{name}") for name in ("d_state", "n_groups", "d_conv")]
        return mixers.mamba2(heads, each, *sizes, convolution_bias=bias, norm=norm)

    def per_layer(self, first: bool) -> Mixer:
        """The matrices and vectors of Gemma 3n beside attention; the first layer has those of the whole model too."""
        rank, side = self.whole("laurel_rank"), self.whole("hidden_size_per_layer_input")
        names = ("altup_num_inputs", "hidden_size", "vocab_size_per_layer_input")
        inputs, width, rows = map(self.whole, names)
        matrices: list[tuple[str, int | None, int | None]] = [
            ("laurel down", None, rank),
            ("laurel up", rank, None),
            ("gate of a layer's embedding", None, side),
            ("up from a layer's embedding", side, None),
            ("projection to a layer's embedding", None, side),
            ("router of residual streams", None, inputs),
            ("mixing of residual streams", inputs, inputs * inputs + inputs),
        ]
        if first:  # of the residual streams beyond the first
            matrices += [(f"residual stream {at + 1}", None, None) for at in range(2 * (inputs - 1))]
        norms = (*3 * [width], *([side] if first else []))
        # the router is read twice, and the streams are mixed by one matrix of inputs × inputs for each position
        again = 2 * inputs * width + 2 * inputs * inputs * width
        return Mixer("altup mixing", tuple(matrices), (rows * side, width), norms, flops=again)

    def kind(self, at: int, layers: int) -> str:
        """The kind of one layer's attention: each family says it in its own way."""
        family, kinds = self.family, self.listed("layer_types", layers)
        if kinds is not None and family not in ("mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"):
            counted = tables()["other layers"]
            if not isinstance(kinds[at], str) or kinds[at] not in counted:
                raise ValueError(f"layer_types has {kinds[at]!r:.80}, whose cost is not known here")
            return str(counted[kinds[at]])
        if family in (*having("gated delta"), "olmo_hybrid"):
            return "linear_attention" if (at + 1) % 4 else "full_attention"
        if family == "minimax":
            return "full_attention" if (at + 1) % 2 else "linear_attention"
        if family == "kimi_linear":
            return "full_attention" if at % 4 == 0 and at else "linear_attention"
        if family in ("bamba", "granitemoehybrid", "lfm2"):
            name = {"bamba": "attn_layer_indices", "lfm2": "full_attn_idxs"}.get(family, "attention_layers")
            numbers = self.listed(name)
            attends = family == "lfm2" if numbers is None else at in numbers
            return "full_attention" if attends else "linear_attention"
        if family == "jamba":
            period, offset = (self.whole(f"attn_layer_{name}") for name in ("period", "offset"))
            return "full_attention" if at % positive("attn_layer_period", period) == offset else "linear_attention"
        if family == "llama4_text":
            chunked = self.rotated(at, layers) and self.get("attention_chunk_size")
            return "chunked_attention" if chunked else "full_attention"
        sliding = self.get("sliding_window") is not None
        if family in tables()["window after"]:
            turn = self.get("sliding_window_pattern", tables()["window after"][family])
            sliding = sliding and (at + 1) % positive("sliding_window_pattern", turn) > 0
        elif family in tables()["window before"]:
            sliding = sliding and at % tables()["window before"][family] > 0
        elif family in ("qwen2", "qwen3", "qwen2_moe"):
            sliding = sliding and self.switch("use_sliding_window") and at >= self.whole("max_window_layers")
        elif family == "qwen3_moe":
            sliding = sliding and self.switch("use_sliding_window")
        elif family == "smollm3":
            sliding = sliding and self.switch("use_sliding_window") and not self.rotated(at, layers)
        elif family not in ("mistral", "mixtral", "phi3", "starcoder2", "ministral", "ministral3"):
            sliding = False
        return "sliding_attention" if sliding else "full_attention"

    def rotated(self, at: int, layers: int) -> bool:
        """True for a layer with rotary positions, of families that leave some without."""
        switches = self.listed("no_rope_layers", layers)
        if switches is not None:
            return bool(switches[at])
        return (at + 1) % positive("no_rope_layer_interval", self.get("no_rope_layer_interval")) > 0

    def ffn(self, at: int) -> FeedForward | None:
        """The feed-forward layer of one layer; None where all have the same."""
        family, name = self.family, tables()["experts"].get(self.family)
        if name is None:
            return None
        if family in having("qwen experts") and self.get("num_local_experts"):  # in older files of Qwen 3
            name = "num_local_experts"
        if family == "granitemoehybrid" and not self.get(name):
            return FeedForward(self.whole("shared_intermediate_size"))
        if family == "nemotron_h" and self.kind(at, self.whole("num_hidden_layers")) not in ("moe", "mlp"):
            return FeedForward(0)
        if not self.has_experts(at):
            name = "intermediate_size_mlp" if family == "llama4_text" else "intermediate_size"
            return FeedForward(self.whole(name))
        shared = None
        if (width := tables()["shared ffn"].get(family)) is not None:
            shared = self.whole(width) or None if self.get(width) is not None else None
        elif family in having("shared experts"):
            copies = self.whole("n_shared_experts") if self.get("n_shared_experts") else 0
            shared = copies * self.whole("moe_intermediate_size") or None
        return FeedForward(
            experts=self.whole(name),
            experts_per_token=self.whole("num_experts_per_tok"),
            shared_d_ff=shared,
            shared_gate=family in having("shared gate") and shared is not None,
            router="sigmoid_of_input" if family == "llama4_text" else tables()["routers"].get(family, "softmax"),
            router_bias=family in ("gpt_oss", "ernie4_5_moe"),
        )

    def has_experts(self, at: int) -> bool:
        """True for a layer with experts, of families that leave some without."""
        kinds = self.listed("mlp_layer_types")
        if kinds is not None and at < len(kinds):
            return bool(kinds[at] == "sparse")
        if self.family == "ernie4_5_moe":
            first, last = self.get("moe_layer_start_index"), self.get("moe_layer_end_index")
            interval = positive("moe_layer_interval", self.get("moe_layer_interval"))
            return first <= at and (last < 0 or at <= last) and (at + 1) % interval == 0
        if self.family == "nemotron_h":
            return self.kind(at, self.whole("num_hidden_layers")) == "moe"
        if self.family == "jamba":
            period = positive("expert_layer_period", self.get("expert_layer_period"))
            return self.whole("num_experts") > 1 and at % period == self.whole("expert_layer_offset")
        if self.family == "lfm2_moe":
            return at >= self.whole("num_dense_layers")
        if self.family in having("shared experts"):
            return at >= (self.whole("first_k_dense_replace") if self.get("first_k_dense_replace") else 0)
        if self.family == "llama4_text":
            listed = self.listed("moe_layers")
            if listed is not None:
                return at in listed
            return (at + 1) % positive("interleave_moe_layer_step", self.get("interleave_moe_layer_step", 1)) == 0
        if self.family in having("qwen experts"):
            step = positive("decoder_sparse_step", self.get("decoder_sparse_step", 1))
            return at not in (self.listed("mlp_only_layers") or []) and (at + 1) % step == 0
        return True

    def head_dim(self, width: int) -> int | None:
        heads = self.whole("num_attention_heads")
        if self.get("head_dim") is not None:
            return self.whole("head_dim")
        return width // heads if self.family == "glm4_moe" and width % heads else None

    def kv_heads(self) -> int | None:
        if self.family in ("gpt2", "gptj", "opt", "bloom", "gpt_neox"):
            return None
        falcon = self.family == "falcon" and not self.switch("new_decoder_architecture")
        if falcon or self.family == "gpt_bigcode":
            return 1 if self.switch("multi_query") else None
        return None if self.get("num_key_value_heads") is None else self.whole("num_key_value_heads")

    def activation(self) -> str:
        name = self.get("hidden_act")
        if not isinstance(name, str):
            raise ValueError(f"config.json must name the activation, and it gives {name!r:.80}")
        if self.family == "gpt_oss" and name == "silu":
            return "clamped_swiglu"
        kind = "silu" if name in ("silu", "swish") else "gelu" if name.startswith("gelu") else name
        activations = {"silu": "swiglu", "gelu": "geglu"}
        if self.family in having("plain ffn"):
            gelu = "gelu_new" if name == "gelu_new" and self.family in ("phi", "gptj") else "gelu"
            activations = {"silu": "silu", "gelu": gelu, "relu": "relu", "relu2": "relu2"}
        if kind not in activations:
            raise ValueError(f"activation {name!r:.80} is not known here: it must be one of {', '.join(activations)}")
        return activations[kind]

    def norms(self) -> dict[str, Any]:
        """Norms and positions."""
        family = self.family
        sizes = dict(tables()["norms and positions"].get(family, {}))
        if family == "hyperclovax":
            sizes["post_norm"] = self.switch("use_post_norm")
        if family in ("cohere", "glm4_moe") and self.switch("use_qk_norm"):
            sizes["qk_norm"] = "width" if family == "cohere" else True
        if family == "granitemoehybrid" and self.get("position_embedding_type") != "rope":
            sizes["position"] = "none"
        if family == "stablelm" and self.switch("use_parallel_residual"):
            sizes |= {"block_norms": 1, "parallel": True}
        if family == "falcon":
            if self.switch("alibi"):
                sizes["position"] = "alibi"
            if self.switch("parallel_attn"):
                repeated = self.switch("new_decoder_architecture")
                count = self.get("num_ln_in_parallel_attn") or (2 if repeated else 1)
                sizes |= {"block_norms": 2 if count == 2 else 1, "parallel": True, "repeated_keys": repeated}
        return sizes

    def biases(self) -> dict[str, Any]:
        family = self.family
        if family == "opt" and self.get("word_embed_proj_dim") not in (None, self.get("hidden_size")):
            raise ValueError("word_embed_proj_dim differs from hidden_size, and its cost is not known here")
        if (name := tables()["bias named"].get(family)) is not None:
            return {"bias": self.switch(name, name == "enable_bias")}
        if family == "stablelm":
            return {"qkv_bias": self.switch("use_qkv_bias")}
        attention = family not in having("no attention_bias") and self.switch("attention_bias")
        mlp = self.switch("mlp_bias") or family in ("gpt_neox", "gpt_oss", "gptj")
        if self.switch("mlp_bias") and family not in having("mlp_bias"):
            raise ValueError(f"mlp_bias is set, and its cost in {family} is not known here")
        if family in ("qwen2", "qwen2_moe"):
            return {"qkv_bias": self.switch("qkv_bias", True)}
        if attention and mlp:
            return {"bias": True}
        sizes: dict[str, Any] = {"qkv_bias": True} if attention else {}
        if attention and (family not in having("attention bias without output") or self.switch("attention_out_bias")):
            sizes["output_bias"] = True
        return sizes | ({"ffn_bias": True} if mlp else {})
