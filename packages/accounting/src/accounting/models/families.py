"""The families of transformers: their settings, as a config.json names them, to shapes.

A family that is not here is refused by name rather than guessed: a wrong guess would be a wrong budget. Each family is
tested against transformers' model on the meta device (tests/test_budget_against_transformers.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.checks import positive
from accounting.layer import AnyAttention, Attention, DeltaAttention, FeedForward, LatentAttention, Layer, pattern
from accounting.shape import TransformerShape

ALIASES = {  # the same layers
    **{"kimi_k2": "deepseek_v3", "llama4": "llama4_text", "gemma3": "gemma3_text", "qwen3_vl_text": "qwen3"},
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "qwen2"),
    "qwen3_vl_moe_text": "qwen3_moe",
}

SIZES = (
    *("vocab_size", "max_position_embeddings", "num_hidden_layers", "hidden_size", "num_attention_heads"),
    *("num_key_value_heads", "intermediate_size"),
)


def _defaults(*sizes: int | None, **more: Any) -> dict[str, Any]:
    """Defaults of a class: SIZES, and what it has besides or otherwise."""
    return {**dict(zip(SIZES, sizes, strict=True)), "tie_word_embeddings": False, "hidden_act": "silu", **more}


_GELU: dict[str, Any] = {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}
_LATENT: dict[str, Any] = {
    **{"q_lora_rank": 1536, "kv_lora_rank": 512},
    **{"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
}
# of the classes in transformers 5
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": _defaults(32000, 2048, 32, 4096, 32, None, 11008),
    "mistral": _defaults(32000, 131072, 32, 4096, 32, 8, 14336, sliding_window=4096),
    "mixtral": _defaults(32000, 131072, 32, 4096, 32, 8, 14336, num_local_experts=8, num_experts_per_tok=2),
    "qwen2": _defaults(151936, 32768, 32, 4096, 32, 32, 22016, sliding_window=4096, max_window_layers=28),
    "qwen3": _defaults(151936, 32768, 32, 4096, 32, 32, 22016, sliding_window=4096, max_window_layers=28, head_dim=128),
    "qwen2_moe": _defaults(
        *(151936, 32768, 24, 2048, 16, 16, 5632),
        **{"moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4, "qkv_bias": True},
        **{"shared_expert_intermediate_size": 5632, "sliding_window": 4096, "max_window_layers": 28},
    ),
    "qwen3_moe": _defaults(
        *(151936, 32768, 24, 2048, 32, 4, 6144),
        **{"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "sliding_window": 4096},
    ),
    "qwen3_next": _defaults(
        *(151936, 32768, 48, 2048, 16, 2, 5632),
        **{"moe_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10, "head_dim": 256},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128},
        **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 512},
    ),
    "gemma": _defaults(256000, 8192, 28, 3072, 16, 16, 24576, head_dim=256, **_GELU),
    "gemma2": _defaults(256000, 8192, 26, 2304, 8, 4, 9216, head_dim=256, sliding_window=4096, **_GELU),
    "gemma3_text": _defaults(262208, 131072, 26, 2304, 8, 4, 9216, head_dim=256, sliding_window=4096, **_GELU),
    "phi3": _defaults(32064, 4096, 32, 3072, 32, None, 8192),
    "olmo2": _defaults(50304, 2048, 32, 4096, 32, None, 11008),
    "olmo3": _defaults(50304, 2048, 32, 4096, 32, None, 11008, sliding_window=4096),
    "olmoe": _defaults(50304, 4096, 16, 2048, 16, None, 2048, num_experts=64, num_experts_per_tok=8),
    "smollm3": _defaults(128256, 32768, 36, 2048, 16, 4, 11008, tie_word_embeddings=True, no_rope_layer_interval=4),
    "glm": _defaults(151552, 131072, 40, 4096, 32, 2, 13696, head_dim=128, attention_bias=True),
    "glm4": _defaults(151552, 131072, 40, 4096, 32, 2, 13696, head_dim=128, attention_bias=True),
    "glm4_moe": _defaults(
        *(151552, 131072, 46, 4096, 96, 8, 10944),
        **{"moe_intermediate_size": 1408, "n_routed_experts": 128, "num_experts_per_tok": 8},
        **{"n_shared_experts": 1, "first_k_dense_replace": 1},
    ),
    "cohere": _defaults(256000, 8192, 40, 8192, 64, None, 22528, tie_word_embeddings=True),
    "cohere2": _defaults(256000, 8192, 40, 8192, 64, None, 22528, tie_word_embeddings=True, sliding_window=4096),
    "granite": _defaults(32000, 2048, 32, 4096, 32, None, 11008),
    "starcoder2": _defaults(49152, 4096, 30, 3072, 24, 2, 12288, use_bias=True, **_GELU),
    "gpt_neox": _defaults(50432, 2048, 44, 6144, 64, None, 24576, hidden_act="gelu", attention_bias=True),
    "opt": _defaults(50272, 2048, 12, 768, 12, None, 3072, hidden_act="relu", tie_word_embeddings=True),
    "bloom": _defaults(250880, 2048, 2, 64, 8, None, None, hidden_act="gelu", tie_word_embeddings=True),
    "falcon": _defaults(
        *(65024, 2048, 32, 4544, 71, None, None),
        **{"hidden_act": "gelu", "tie_word_embeddings": True, "multi_query": True, "parallel_attn": True},
    ),
    "deepseek_v2": _defaults(
        *(102400, 2048, 32, 4096, 32, None, 11008),
        **{"moe_intermediate_size": 1407, "n_routed_experts": 64, "n_shared_experts": 2, **_LATENT},
    ),
    "deepseek_v3": _defaults(
        *(129280, 4096, 61, 7168, 128, None, 18432),
        **{"moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, **_LATENT},
        **{"n_shared_experts": 1, "first_k_dense_replace": 3},
    ),
    "gpt_oss": _defaults(
        *(201088, 131072, 36, 2880, 64, 8, 2880),
        **{"num_local_experts": 128, "num_experts_per_tok": 4, "head_dim": 64, "sliding_window": 128},
        **{"attention_bias": True},
    ),
    "llama4_text": _defaults(
        *(202048, 131072, 48, 5120, 40, 8, 8192),
        **{"num_local_experts": 16, "num_experts_per_tok": 1, "head_dim": 128, "intermediate_size_mlp": 16384},
        **{"use_qk_norm": True, "no_rope_layer_interval": 4, "attention_chunk_size": 8192},
    ),
    "gpt2": _defaults(50257, 1024, 12, 768, 12, None, None, hidden_act="gelu_new", tie_word_embeddings=True),
    "arcee": _defaults(32000, 4096, 32, 2560, 32, None, 18432, hidden_act="relu2"),
    "seed_oss": _defaults(155136, 524288, 64, 4096, 80, 8, 27648, head_dim=128, attention_bias=True),
    "ernie4_5": _defaults(103424, 131072, 18, 1024, 16, 2, 3072, head_dim=128, tie_word_embeddings=True),
    "ministral": _defaults(32000, 131072, 32, 4096, 32, 8, 14336, sliding_window=4096),
    "ministral3": _defaults(131072, 262144, 34, 4096, 32, 8, 14336, head_dim=128),
    "helium": _defaults(48000, 4096, 24, 2560, 20, 20, 7040, head_dim=128),
    "hunyuan_v1_dense": _defaults(290943, 2048, 32, 4096, 32, None, 11008),
    "iquestcoder": _defaults(76800, 131072, 80, 5120, 40, 8, 27648, head_dim=128),
    "internlm3": _defaults(128512, 32768, 48, 4096, 32, 2, 10240, head_dim=128),
    "hyperclovax": _defaults(32000, 2048, 32, 4096, 32, None, 11008, use_post_norm=True),
    "stablelm": _defaults(50304, 4096, 32, 2560, 32, 32, 6912),
    "cwm": _defaults(128256, 131072, 64, 6144, 48, 8, 21504, head_dim=128, sliding_window=8192),
    "exaone4": _defaults(102400, 2048, 32, 4096, 32, 32, 16384, sliding_window=4096),
    "vaultgemma": _defaults(256000, 8192, 26, 2304, 8, 4, 9216, head_dim=256, sliding_window=4096, **_GELU),
    "granite_swa": _defaults(100352, 8192, 24, 2560, 20, 4, 8192, sliding_window=128, tie_word_embeddings=True),
    "jais2": _defaults(
        *(150272, 8192, 32, 3328, 26, None, 26624),
        **{"head_dim": 128, "hidden_act": "relu2", "attention_bias": True, "mlp_bias": True},
    ),
    "nemotron": _defaults(256000, 4096, 32, 6144, 48, None, 24576, hidden_act="relu2"),
    "granitemoe": _defaults(32000, 2048, 32, 4096, 32, None, 11008, num_local_experts=8, num_experts_per_tok=2),
    "granitemoeshared": _defaults(32000, 2048, 32, 4096, 32, None, 11008, num_local_experts=8, num_experts_per_tok=2),
    "flex_olmo": _defaults(100352, 4096, 32, 4096, 32, None, 11008, num_experts=7, num_experts_per_tok=5),
    "phimoe": _defaults(32064, 131072, 32, 4096, 32, 8, 6400, num_local_experts=16, num_experts_per_tok=2),
    "minimax_m2": _defaults(
        *(200064, 196608, 62, 3072, 48, 8, 1536),
        **{"head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8},
    ),
    "mellum": _defaults(
        *(98304, 131072, 28, 2304, 32, 4, 7168),
        **{"head_dim": 128, "num_local_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 896},
        **{"sliding_window": 1024},
    ),
    "dots1": _defaults(152064, 2048, 62, 4608, 32, 32, 10944, moe_intermediate_size=1408, first_k_dense_replace=0),
    "solar_open": _defaults(
        *(196608, 131072, 48, 4096, 64, 8, None),
        **{"head_dim": 128, "moe_intermediate_size": 1280, "n_routed_experts": 128, "num_experts_per_tok": 8},
        **{"n_shared_experts": 1},
    ),
    "ernie4_5_moe": _defaults(
        *(103424, 131072, 28, 2560, 20, 4, 12288),
        **{"moe_intermediate_size": 1536, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2},
        **{"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
        tie_word_embeddings=True,
    ),
    "youtu": _defaults(128256, 131072, 32, 2048, 16, None, 6144, **_LATENT, tie_word_embeddings=True),
    "glm4_moe_lite": _defaults(
        *(154880, 202752, 47, 2048, 20, None, 10240),
        **{"moe_intermediate_size": 1536, "n_routed_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1},
        **{**_LATENT, "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256, "first_k_dense_replace": 1},
    ),
}
FAMILIES = tuple(DEFAULTS)
RENAMED = {  # other names of a setting
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "ffn_dim": "intermediate_size",
    "ffn_hidden_size": "intermediate_size",
    "num_kv_heads": "num_key_value_heads",
    "activation_function": "hidden_act",
    "activation": "hidden_act",
    "hidden_activation": "hidden_act",
    "moe_num_experts": "n_routed_experts",
    "moe_k": "num_experts_per_tok",
    "moe_num_shared_experts": "n_shared_experts",
}
OWN_FFN_NAME = ("gpt2", "opt", "bloom", "falcon")  # their classes do not read intermediate_size
PLAIN_FFN = ("gpt2", "starcoder2", "gpt_neox", "opt", "bloom", "falcon", "arcee", "jais2", "nemotron")  # without a gate
LAYERNORM = (*(name for name in PLAIN_FFN if name != "arcee"), "cohere", "cohere2", "stablelm", "phimoe")
BIASED_QKV = ("glm", "glm4", "glm4_moe", "seed_oss")  # attention_bias leaves the output out
SWITCHLESS = (
    *("mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2", "opt", "bloom", "falcon", "gpt2", "cwm"),
    *("ministral", "ministral3", "exaone4", "minimax_m2", "stablelm", "ernie4_5", "ernie4_5_moe"),
)
MLP_BIAS = (
    *("llama", "granite", "smollm3", "arcee", "cwm", "helium", "hyperclovax", "iquestcoder", "internlm3", "jais2"),
    *("nemotron", "seed_oss", "granite_swa"),
)
QK_NORM = ("qwen3", "qwen3_moe", "qwen3_next", "gemma3_text", "hunyuan_v1_dense", "dots1", "exaone4", "mellum")
WIDE_QK_NORM = ("olmo2", "olmo3", "olmoe", "flex_olmo", "minimax_m2")
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu")
SHARED_EXPERTS = ("glm4_moe", "deepseek_v2", "deepseek_v3", "dots1", "solar_open", "ernie4_5_moe", "glm4_moe_lite")
EXPERTS = (
    *("mixtral", "olmoe", "gpt_oss", "llama4_text", "granitemoe", "granitemoeshared", "flex_olmo", "phimoe"),
    *("minimax_m2", "mellum", *SHARED_EXPERTS),
)
# all layers but the last of each pattern have a window, or all but the first
WINDOW_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "gpt_oss": 2, "exaone4": 4, "vaultgemma": 2}
WINDOWS_AFTER = {"cwm": 4, "granite_swa": 4}
MOST_LISTED = 1 << 14  # layers of a file, which are compared one by one to find their period
ROUTERS = {
    **dict.fromkeys(("deepseek_v3", "glm4_moe", "dots1", "solar_open", "glm4_moe_lite", "minimax_m2"), "sigmoid"),
    **dict.fromkeys(("gpt_oss", "granitemoe", "granitemoeshared"), "softmax_of_chosen"),
}
REFUSED = {  # settings whose cost is not counted unless they have this value
    "add_cross_attention": False,
    "do_layer_norm_before": True,
    "layer_norm_elementwise_affine": True,
    "_remove_final_layer_norm": False,
    "qk_layernorm": False,
    "lm_head_bias": False,
}


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
    return ALIASES.get(family, family), config


def shape_of_family(family: str, config: Mapping[str, Any]) -> TransformerShape:
    """The shape of a model of this family; ValueError for a family or a setting whose cost is not known."""
    if family not in DEFAULTS:
        raise ValueError(
            f"model_type {family!r} is not known: describe it by --layers, --d-model, --heads, --d-ff and --vocab, or "
            f"TransformerShape(…); known are {', '.join(FAMILIES)}"
        )
    renamed = {
        RENAMED.get(name, name): value
        for name, value in config.items()
        if (value is not None or name not in RENAMED) and not (name == "intermediate_size" and family in OWN_FFN_NAME)
    }
    settings = _Settings(family, {**DEFAULTS[family], **renamed})
    for name, value in REFUSED.items():
        if settings.get(name, value) not in (value, None):
            raise ValueError(f"{name} is {settings.get(name)!r}, and its cost is not known here")
    return settings.shape()


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
        latent, uniform = isinstance(depth[0].attention, LatentAttention), len(set(depth)) == 1
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
        name = "moe_intermediate_size" if "moe_intermediate_size" in DEFAULTS[self.family] else "intermediate_size"
        d_ff = 4 * width if self.get(name) is None else self.whole(name)
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
        if family in LATENT:
            ranks = None if self.get("q_lora_rank") is None else self.whole("q_lora_rank")
            names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            return LatentAttention(ranks, *map(self.whole, names))
        kind = self.kind(at, layers)
        if kind == "linear_attention":
            parts = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
            return DeltaAttention(*(self.whole(f"linear_{part}") for part in parts))
        sizes = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
        window = self.whole(sizes[kind]) if kind in sizes else None
        rotated = None
        if family in ("smollm3", "llama4_text"):
            rotated = None if self.rotated(at, layers) else False
        elif family == "cohere2" or (family == "exaone4" and self.get("sliding_window") is not None):
            rotated = None if window else False
        norm = None
        if family == "llama4_text" and rotated is None and self.switch("use_qk_norm"):
            norm = "l2"
        chunked, sinks, gated = (
            kind == "chunked_attention",
            family in ("gpt_oss", "granite_swa"),
            family == "qwen3_next",
        )
        return Attention(window, chunked, rotated, norm, sinks, gated)

    def kind(self, at: int, layers: int) -> str:
        """The kind of one layer's attention: each family says it in its own way."""
        family, kinds = self.family, self.listed("layer_types", layers)
        if kinds is not None and family not in ("mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"):
            counted = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
            if not isinstance(kinds[at], str) or kinds[at] not in counted:
                raise ValueError(f"layer_types has {kinds[at]!r:.80}, whose cost is not known here")
            return str(kinds[at])
        if family == "qwen3_next":
            return "linear_attention" if (at + 1) % 4 else "full_attention"
        if family == "llama4_text":
            chunked = self.rotated(at, layers) and self.get("attention_chunk_size")
            return "chunked_attention" if chunked else "full_attention"
        sliding = self.get("sliding_window") is not None
        if family in WINDOW_PATTERNS:
            turn = self.get("sliding_window_pattern", WINDOW_PATTERNS[family])
            sliding = sliding and (at + 1) % positive("sliding_window_pattern", turn) > 0
        elif family in WINDOWS_AFTER:
            sliding = sliding and at % WINDOWS_AFTER[family] > 0
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
        family = self.family
        if family in EXPERTS:
            name = "n_routed_experts" if family in SHARED_EXPERTS else "num_local_experts"
            name = "num_experts" if family in ("olmoe", "flex_olmo") else name
        elif family in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
            # older files of Qwen 3 say num_local_experts
            name = "num_local_experts" if self.get("num_local_experts") else "num_experts"
        else:
            return None
        if not self.has_experts(at):
            name = "intermediate_size_mlp" if family == "llama4_text" else "intermediate_size"
            return FeedForward(self.whole(name))
        shared = None
        if family in ("qwen2_moe", "qwen3_next"):
            shared = self.whole("shared_expert_intermediate_size") or None
        elif family == "granitemoeshared" and self.get("shared_intermediate_size"):
            shared = self.whole("shared_intermediate_size")
        elif family in SHARED_EXPERTS:
            copies = self.whole("n_shared_experts") if self.get("n_shared_experts") else 0
            shared = copies * self.whole("moe_intermediate_size") or None
        elif family == "llama4_text":
            shared = self.whole("intermediate_size")
        return FeedForward(
            experts=self.whole(name),
            experts_per_token=self.whole("num_experts_per_tok"),
            shared_d_ff=shared,
            shared_gate=family in ("qwen2_moe", "qwen3_next") and shared is not None,
            router="sigmoid_of_input" if family == "llama4_text" else ROUTERS.get(family, "softmax"),
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
        if self.family in SHARED_EXPERTS:
            return at >= (self.whole("first_k_dense_replace") if self.get("first_k_dense_replace") else 0)
        if self.family == "llama4_text":
            listed = self.listed("moe_layers")
            if listed is not None:
                return at in listed
            return (at + 1) % positive("interleave_moe_layer_step", self.get("interleave_moe_layer_step", 1)) == 0
        if self.family in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
            step = positive("decoder_sparse_step", self.get("decoder_sparse_step", 1))
            return at not in (self.listed("mlp_only_layers") or []) and (at + 1) % step == 0
        return True

    def head_dim(self, width: int) -> int | None:
        heads = self.whole("num_attention_heads")
        if self.get("head_dim") is not None:
            return self.whole("head_dim")
        return width // heads if self.family == "glm4_moe" and width % heads else None

    def kv_heads(self) -> int | None:
        if self.family in ("gpt2", "opt", "bloom", "gpt_neox"):
            return None
        if self.family == "falcon" and not self.switch("new_decoder_architecture"):
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
        if self.family in PLAIN_FFN:
            activations = {"silu": "silu", "gelu": "gelu", "relu": "relu", "relu2": "relu2"}
        if kind not in activations:
            raise ValueError(f"activation {name!r:.80} is not known here: it must be one of {', '.join(activations)}")
        return activations[kind]

    def norms(self) -> dict[str, Any]:
        """Norms and positions."""
        family = self.family
        doubled = family in ("gemma2", "gemma3_text", "glm4") or (
            family == "hyperclovax" and self.switch("use_post_norm")
        )
        sizes: dict[str, Any] = {"post_norm": doubled}
        if family in QK_NORM or (family == "glm4_moe" and self.switch("use_qk_norm")):
            sizes["qk_norm"] = True
        elif family in WIDE_QK_NORM or (family == "cohere" and self.switch("use_qk_norm")):
            sizes["qk_norm"] = "width"
        if family in LAYERNORM:
            sizes |= {"norm": "layernorm", "norm_bias": None if family == "gpt2" else not family.startswith("cohere")}
        if family in ("cohere", "cohere2") or (family == "stablelm" and self.switch("use_parallel_residual")):
            sizes["block_norms"] = 1
        if family == "exaone4":  # two after the sublayers, none before: what they save differs
            sizes["block_norms"] = 2
        if family == "falcon" and self.switch("parallel_attn"):
            count = self.get("num_ln_in_parallel_attn") or (2 if self.switch("new_decoder_architecture") else 1)
            sizes["block_norms"] = 2 if count == 2 else 1
        if family in ("gpt2", "opt"):
            sizes |= {"position": "learned", "extra_positions": 2 if family == "opt" else 0}
        if family == "bloom" or (family == "falcon" and self.switch("alibi")):
            sizes |= {"position": "alibi", "embedding_norm": family == "bloom"}
        return sizes

    def biases(self) -> dict[str, Any]:
        family = self.family
        if family == "opt" and self.get("word_embed_proj_dim") not in (None, self.get("hidden_size")):
            raise ValueError("word_embed_proj_dim differs from hidden_size, and its cost is not known here")
        if family in ("gpt2", "bloom", "opt"):
            return {"bias": self.switch("enable_bias", True)}
        if family in ("starcoder2", "falcon", "ernie4_5", "ernie4_5_moe"):
            return {"bias": self.switch("bias" if family == "falcon" else "use_bias")}
        if family == "stablelm":
            return {"qkv_bias": self.switch("use_qkv_bias")}
        attention = family not in SWITCHLESS and self.switch("attention_bias")
        mlp = self.switch("mlp_bias") or family in ("gpt_neox", "gpt_oss")
        if self.switch("mlp_bias") and family not in MLP_BIAS:
            raise ValueError(f"mlp_bias is set, and its cost in {family} is not known here")
        if family in ("qwen2", "qwen2_moe"):
            return {"qkv_bias": self.switch("qkv_bias", True)}
        if attention and mlp:
            return {"bias": True}
        sizes: dict[str, Any] = {"qkv_bias": True} if attention else {}
        if attention and (family not in BIASED_QKV or self.switch("attention_out_bias")):
            sizes["output_bias"] = True
        return sizes | ({"ffn_bias": True} if mlp else {})
