"""The family of Llama in Hugging Face's words: Llama, Mistral (a window), Qwen2 (biases of queries, keys and values
alone), Qwen3 (norms of queries and keys)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from lm.config import ModelConfig
from lm.families.parts import FamilyConfig
from lm.interop.tensors import refuse_unsupported

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
NONE, ALL, OF_ATTENTION = (False, False, False), (True, True, True), (True, True, False)
# Which of (queries, keys and values; attention's output; feed-forward) each may have biases of.
BIASES = {
    "llama": (NONE, ALL, OF_ATTENTION, (False, False, True)),
    "mistral": (NONE,),
    "qwen2": ((True, False, False),),
    "qwen3": (NONE, OF_ATTENTION),
}
# Values of our settings that these architectures have.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "value_embeddings": (False,),
    "logit_softcap": (None,),
    "norm": ("rmsnorm",),
    "norm_placement": ("pre",),
    "position": ("rope",),
    "ffn": ("swiglu",),
}
# Their settings of a scaled rotation, and ours.
ROPE_NAMES = {
    "factor": "rope_factor",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "original_max_position_embeddings": "rope_original_context_length",
}


def name_of(config: ModelConfig) -> str:
    """The architecture that is the nearest to this model."""
    if config.qk_norm:
        return "qwen3"
    if config.has_bias("qkv") and not (config.has_bias("output") or config.has_bias("ffn")):
        return "qwen2"
    return "llama" if config.sliding_window is None else "mistral"


def biases(*, qkv: bool, output: bool, ffn: bool) -> dict[str, Any]:
    """The settings of a model with these biases."""
    if qkv == output == ffn:
        return {"bias": qkv}
    return {f"{part}_bias": True for part, has in (("qkv", qkv), ("output", output), ("ffn", ffn)) if has}


def family_of(config: ModelConfig) -> str:
    """The architecture that is this model. ValueError: there is none, with what it lacks."""
    family = name_of(config)
    refuse_unsupported(config, f"Hugging Face's {family}", SUPPORTED)
    has = config.has_bias("qkv"), config.has_bias("output"), config.has_bias("ffn")
    if has not in BIASES[family]:
        names = "qkv_bias {}, output_bias {} and ffn_bias {}".format(*has)
        raise ValueError(f"Hugging Face's {family} has no model with {names}: such a model is not exported")
    return family


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The contents of a config.json."""
    family = family_of(config)
    rope: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_type": "default"}
    if config.rope_scaling is not None:
        rope |= {"rope_type": "linear", "factor": config.rope_factor}
    if config.rope_scaling is not None and config.rope_original_context_length is not None:
        rope |= {"rope_type": "llama3", **{theirs: getattr(config, ours) for theirs, ours in ROPE_NAMES.items()}}
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
    if family == "qwen2" and config.head_width * config.num_heads == config.d_model:
        del table["head_dim"]  # which its class has not
    if family == "llama":
        table |= {"attention_bias": config.has_bias("qkv"), "mlp_bias": config.has_bias("ffn")}
    elif family == "mistral":
        table |= {"sliding_window": config.sliding_window}
    else:
        windowed = config.sliding_window is not None
        kind = "sliding_attention" if windowed else "full_attention"
        table |= {"attention_bias": config.has_bias("qkv")} if family == "qwen3" else {}
        table |= {
            "use_sliding_window": windowed,
            "sliding_window": config.sliding_window,
            "layer_types": [kind] * config.num_layers,
            **({"max_window_layers": 0} if windowed else {}),
        }
    return table


def plain(config: FamilyConfig, source: object) -> ModelConfig | None:
    """The same model in lm.model's shapes.

    None: only lm.families has it, for a rotation scaled by another rule, or a window in some of its layers.
    ValueError: heads that are rotated in part.
    """
    rope, windows = config.rope_parameters, {config.window(layer) for layer in range(config.num_layers)}
    if rope["rope_type"] not in ("default", "linear", "llama3") or len(windows) > 1:
        return None
    if "partial_rotary_factor" in rope:
        raise ValueError(f"{source}: partial_rotary_factor = {rope['partial_rotary_factor']!r} is not supported")
    of_output, of_ffn = config.bias and config.family != "qwen2", getattr(config, "mlp_bias", False)
    settings = {field.name: getattr(config, field.name) for field in fields(ModelConfig)} | {
        "num_kv_heads": config.kv_heads,
        "head_dim": None if config.head_width * config.num_heads == config.d_model else config.head_width,
        "bias": False,
        **biases(qkv=config.bias, output=of_output, ffn=of_ffn),
        "sliding_window": windows.pop(),
        "rope_theta": rope["rope_theta"],
        **{ours: rope[theirs] for theirs, ours in ROPE_NAMES.items() if theirs in rope},
    }
    return ModelConfig(**settings)
