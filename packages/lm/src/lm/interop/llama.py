"""The family of Llama in Hugging Face's words: Llama, Mistral (a window), Qwen2 (biases), Qwen3 (norms of queries and
keys).

Their rotary embedding turns the pairs (i, i + head_dim / 2), ours (2i, 2i + 1): the rows of queries and keys are
permuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm.config import ModelConfig
from lm.interop.hf_config import Settings
from lm.interop.tensors import Part, Table

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def family_of(config: ModelConfig) -> str:
    """The architecture that is this model. ValueError: there is none, with what it lacks."""

    def only(what: str) -> ValueError:
        return ValueError(f"Hugging Face has no architecture of this family with {what}: such a model is not exported")

    for name in ("value_embeddings", "logit_softcap"):
        if getattr(config, name):
            raise only(f"{name} {getattr(config, name)!r}")
    if config.norm != "rmsnorm":
        raise only(f"norm {config.norm!r} and position {config.position!r}")
    if config.norm_placement != "pre":
        raise only(f"norm_placement {config.norm_placement!r}")
    if config.position != "rope":
        raise only(f"norm 'rmsnorm' and position {config.position!r}")
    if config.ffn != "swiglu":
        raise only(f"ffn {config.ffn!r} and position 'rope'")
    if config.qk_norm and config.bias:
        raise only("qk_norm and biases in the feed-forward")
    if config.sliding_window is not None and config.bias:
        raise only("a window and biases in the feed-forward")
    if config.qk_norm:
        return "qwen3"
    return "llama" if config.sliding_window is None else "mistral"


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The contents of a config.json."""
    family = family_of(config)
    rope: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_type": "default"}
    if config.rope_scaling is not None:
        rope |= {"rope_type": "linear", "factor": config.rope_factor}
    if config.rope_scaling is not None and config.rope_original_context_length is not None:
        rope |= {
            "rope_type": "llama3",
            "low_freq_factor": config.rope_low_freq_factor,
            "high_freq_factor": config.rope_high_freq_factor,
            "original_max_position_embeddings": config.rope_original_context_length,
        }
    table: dict[str, Any] = {
        "architectures": [family.capitalize() + "ForCausalLM"],
        "model_type": family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,  # where transformers before version 5 looks
        "rope_parameters": rope,
        "tie_word_embeddings": config.tied_embeddings,
        "attention_dropout": 0.0,
    }
    if family == "llama":
        table |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    elif family == "mistral":
        table |= {"sliding_window": config.sliding_window}
    else:
        windowed = config.sliding_window is not None
        kind = "sliding_attention" if windowed else "full_attention"
        table |= {
            "attention_bias": False,
            "use_sliding_window": windowed,
            "sliding_window": config.sliding_window,
            "max_window_layers": 0 if windowed else config.num_layers,
            "layer_types": [kind] * config.num_layers,
        }
    return table


def is_beyond(table: Mapping[str, Any]) -> bool:
    """True for one that ModelConfig cannot say, and lm.families can: a rotation scaled by another rule, or a window in
    some of its layers only."""
    rope = table.get("rope_scaling") or table.get("rope_parameters")
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
    kinds, below, layers = table.get("layer_types"), table.get("max_window_layers"), table.get("num_hidden_layers")
    if isinstance(kinds, list):
        in_some = len(set(map(str, kinds))) > 1
    else:
        window = table.get("use_sliding_window") is True and table.get("sliding_window") is not None
        in_some = window and isinstance(below, int) and isinstance(layers, int) and 0 < below < layers
    return in_some or kind in ("yarn", "dynamic", "longrope")


def from_config(table: Mapping[str, Any], source: object) -> tuple[ModelConfig, frozenset[str]]:
    """The configuration that a config.json describes, and which of our biases their model does not have.

    ValueError: what it asks for and this version does not do, by name.
    """
    settings = Settings(table, source)
    family = settings.take("model_type", str)
    layers, d_model = settings.take("num_hidden_layers", int), settings.take("hidden_size", int)
    heads = settings.take("num_attention_heads", int)
    context = settings.take("max_position_embeddings", int)
    settings.only("hidden_act", ("silu", "swish"), "silu")
    settings.only("partial_rotary_factor", (1.0, None), None)
    settings.only("pretraining_tp", (1, None), None)
    head_dim = settings.take("head_dim", int, 128 if family == "qwen3" else None)
    attention_bias, mlp_bias = family == "qwen2", False
    if family in ("llama", "qwen3"):
        attention_bias = settings.take("attention_bias", bool, False)
    if family == "llama":
        mlp_bias = settings.take("mlp_bias", bool, False)
    biases = {
        "attention.qkv.bias": attention_bias,
        "attention.output.bias": attention_bias and family != "qwen2",
        "ffn.gate_up.bias": mlp_bias,
        "ffn.down.bias": mlp_bias,
    }
    config = ModelConfig(
        vocab_size=settings.take("vocab_size", int),
        context_length=context,
        num_layers=layers,
        d_model=d_model,
        num_heads=heads,
        d_ff=settings.take("intermediate_size", int),
        num_kv_heads=settings.take("num_key_value_heads", int, heads),
        head_dim=None if head_dim is None or head_dim * heads == d_model else head_dim,
        norm_eps=settings.take("rms_norm_eps", float, 1e-6),
        **_rope(settings),
        tied_embeddings=settings.take("tie_word_embeddings", bool, False),
        bias=any(biases.values()),
        sliding_window=_window(settings, family, layers),
        qk_norm=family == "qwen3",
    )
    settings.nothing_left()
    return config, frozenset(name for name, there in biases.items() if config.bias and not there)


def _rope(settings: Settings) -> dict[str, Any]:
    """Our settings of the rotary embedding: today's rope_parameters hold what rope_theta and rope_scaling held
    before."""
    theta = settings.take("rope_theta", float, None)
    ours: dict[str, Any] = {}
    for key in ("rope_parameters", "rope_scaling"):
        table = settings.take(key, dict, None)
        if not table:
            continue
        rope = Settings(table, f"{settings.source}, {key}")
        kinds = ("default", "linear", "llama3")
        older = rope.only("type", kinds, "default")
        kind = rope.only("rope_type", kinds, older)
        rope.only("partial_rotary_factor", (1.0, None), None)
        theta = rope.take("rope_theta", float, theta)
        if kind != "default":
            ours = {"rope_factor": rope.take("factor", float)}
        if kind == "llama3":
            ours |= {
                "rope_low_freq_factor": rope.take("low_freq_factor", float),
                "rope_high_freq_factor": rope.take("high_freq_factor", float),
                "rope_original_context_length": rope.take("original_max_position_embeddings", int),
            }
        rope.nothing_left()
    return {"rope_theta": 10000.0 if theta is None else theta, **ours}


MISTRAL_WINDOW = 4096  # what transformers takes where a Mistral's config.json does not say


def _window(settings: Settings, family: str, layers: int) -> int | None:
    unsaid = MISTRAL_WINDOW if family == "mistral" and "sliding_window" not in settings.table else None
    window: int | None = settings.take("sliding_window", int, unsaid)
    slides = settings.take("use_sliding_window", bool, False)
    below = settings.take("max_window_layers", int, layers)
    kinds = set(settings.take("layer_types", list, None) or ())
    if family == "llama" or (family != "mistral" and not slides):
        window = None
    elif family != "mistral" and not kinds:
        kinds = {"full_attention"} if below > 0 else set()
        kinds |= {"sliding_attention"} if below < layers else set()
    if len(kinds) > 1:
        raise ValueError(
            f"{settings.source}: its layers attend in ways of their own (layer_types), which is not supported"
        )
    windows = {"full_attention": None, "sliding_attention": window}
    kind = next(iter(kinds), None)
    if kind is not None and kind not in windows:
        raise ValueError(f"{settings.source}: layer_types {kind!r} is not supported")
    return window if kind is None else windows[kind]


def table(config: ModelConfig, absent: frozenset[str] = frozenset()) -> Table:
    """Their tensors that make up each of ours."""
    width = config.head_width
    q, kv, ff = config.num_heads * width, config.kv_heads * width, config.d_ff
    parts: Table = {"embedding.weight": (Part("model.embed_tokens.weight", config.vocab_size),)}
    for i in range(config.num_layers):
        theirs = f"model.layers.{i}."
        block: Table = {
            "attention_norm.weight": (Part(theirs + "input_layernorm.weight", config.d_model),),
            "ffn_norm.weight": (Part(theirs + "post_attention_layernorm.weight", config.d_model),),
        }
        for kind in ("weight", "bias") if config.bias else ("weight",):

            def gone(ours: str, kind: str = kind) -> bool:
                return f"{ours}.{kind}" in absent

            qkv, ffn = gone("attention.qkv"), gone("ffn.gate_up")
            block |= {
                f"attention.qkv.{kind}": (
                    Part(f"{theirs}self_attn.q_proj.{kind}", q, half_split=True, absent=qkv),
                    Part(f"{theirs}self_attn.k_proj.{kind}", kv, half_split=True, absent=qkv),
                    Part(f"{theirs}self_attn.v_proj.{kind}", kv, absent=qkv),
                ),
                f"attention.output.{kind}": (
                    Part(f"{theirs}self_attn.o_proj.{kind}", config.d_model, absent=gone("attention.output")),
                ),
                f"ffn.gate_up.{kind}": (
                    Part(f"{theirs}mlp.gate_proj.{kind}", ff, absent=ffn),
                    Part(f"{theirs}mlp.up_proj.{kind}", ff, absent=ffn),
                ),
                f"ffn.down.{kind}": (Part(f"{theirs}mlp.down_proj.{kind}", config.d_model, absent=gone("ffn.down")),),
            }
        if config.qk_norm:
            block["attention.q_norm.weight"] = (Part(theirs + "self_attn.q_norm.weight", width, half_split=True),)
            block["attention.k_norm.weight"] = (Part(theirs + "self_attn.k_norm.weight", width, half_split=True),)
        parts |= {f"blocks.{i}.{name}": value for name, value in block.items()}
    parts["final_norm.weight"] = (Part("model.norm.weight", config.d_model),)
    if not config.tied_embeddings:
        parts["head.weight"] = (Part("lm_head.weight", config.vocab_size),)
    return parts
