"""lm.model's own shapes among Hugging Face's: Llama, Mistral, Qwen 2, Qwen 3 and GPT-2."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from lm.config import FrozenTable, ModelConfig
from lm.families import FILES, family
from lm.families.gpt2 import ACTIVATIONS, GPT2Config
from lm.families.parts import FamilyConfig

# Settings of rope_parameters, and our fields.
ROPE_NAMES = {
    "factor": "rope_factor",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "original_max_position_embeddings": "rope_original_context_length",
}
NAMES = ("gpt2", *FILES)  # of model_type


def config_type(model_type: str) -> type[FamilyConfig]:
    """The class of a family's configurations; model_type: one of NAMES."""
    return GPT2Config if model_type == "gpt2" else family(model_type).config_type


def name_of(config: ModelConfig) -> str:
    """The model_type that is the nearest to a model."""
    if isinstance(config, FamilyConfig):
        return config.family
    if config.position == "learned":
        return "gpt2"
    if config.qk_norm:
        return "qwen3"
    if config.has_bias("qkv") and not (config.has_bias("output") or config.has_bias("ffn")):
        return "qwen2"
    return "llama" if config.sliding_window is None else "mistral"


def as_family(config: ModelConfig) -> FamilyConfig:
    """The same model as Hugging Face describes it. ValueError: it has no such model, with the setting that differs."""
    if isinstance(config, FamilyConfig):
        return config
    name = name_of(config)
    kind, windowed = config_type(name), config.sliding_window is not None
    rope: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_type": "default"}
    if config.rope_scaling is not None:
        scaling = {key: getattr(config, field) for key, field in ROPE_NAMES.items()}
        linear = {"rope_type": "linear", "factor": config.rope_factor}
        rope |= linear if config.rope_original_context_length is None else {"rope_type": "llama3", **scaling}
    activations = (setting for setting, activation in ACTIVATIONS.items() if activation == config.ffn)
    # Qwen 2 has no setting of the width of a head; where it is the usual one, none is written.
    usual_width = name == "qwen2" and config.head_width * config.num_heads == config.d_model
    values = {field.name: getattr(config, field.name) for field in fields(ModelConfig)} | {
        "num_kv_heads": config.kv_heads,
        "head_dim": None if usual_width else config.head_width,
        "bias": config.has_bias("qkv"),
        "mlp_bias": config.has_bias("ffn"),
        "use_sliding_window": windowed,
        "max_window_layers": 0,
        "activation_function": next(activations, "gelu_new"),
    }
    names = {*kind.settings().values()} - (set() if windowed else {"max_window_layers"})
    own = {field: values[field] for field in names if field in values}
    candidate = kind(family=name, rope_parameters=FrozenTable(rope), **own)
    back = plain(candidate, name)
    for setting, value in comparable(config).items():
        if back is None or comparable(back)[setting] != value:
            about = f"{value} and position {config.position!r}" if setting != "biases" else value
            raise ValueError(f"Hugging Face's {name} has no model with {about}: such a model is not exported")
    return candidate


def comparable(config: ModelConfig) -> dict[str, str]:
    """The settings that tell models apart, as text. GPT-2 always has biases: where the model has none they are 0."""
    parts = {name: getattr(config, name) for name in vars(config) if not name.endswith("bias")}
    parts |= {"num_kv_heads": config.kv_heads, "head_dim": config.head_width, "vocab_multiple": 1}
    has = config.has_bias("qkv"), config.has_bias("output"), config.has_bias("ffn")
    biases = "" if config.position == "learned" else "qkv_bias {}, output_bias {} and ffn_bias {}".format(*has)
    return {name: f"{name} {value!r}" for name, value in parts.items()} | {"biases": biases}


def biases(*, qkv: bool, output: bool, ffn: bool) -> dict[str, Any]:
    """The settings of a model with these biases."""
    if qkv == output == ffn:
        return {"bias": qkv}
    return {f"{part}_bias": True for part, has in (("qkv", qkv), ("output", output), ("ffn", ffn)) if has}


def plain(config: FamilyConfig, source: object) -> ModelConfig | None:
    """The same model in lm.model's shapes, None where only lm.families has it. ValueError: heads rotated in part."""
    settings = {field.name: getattr(config, field.name) for field in fields(ModelConfig)}
    if isinstance(config, GPT2Config):
        return ModelConfig(**settings | {"ffn": ACTIVATIONS[config.activation_function]})
    rope, windows = config.rope_parameters, {config.window(layer) for layer in range(config.num_layers)}
    is_own = config.family in ("llama", "mistral", "qwen2", "qwen3")
    if not is_own or rope["rope_type"] not in ("default", "linear", "llama3") or len(windows) > 1:
        return None
    if "partial_rotary_factor" in rope:
        raise ValueError(f"{source}: partial_rotary_factor = {rope['partial_rotary_factor']!r} is not supported")
    of_output, of_ffn = config.bias and config.family != "qwen2", getattr(config, "mlp_bias", False)
    return ModelConfig(
        **settings
        | {
            "num_kv_heads": config.kv_heads,
            "head_dim": None if config.head_width * config.num_heads == config.d_model else config.head_width,
            "bias": False,
            **biases(qkv=config.bias, output=of_output, ffn=of_ffn),
            "sliding_window": windows.pop(),
            "rope_theta": rope["rope_theta"],
            **{name: rope[setting] for setting, name in ROPE_NAMES.items() if setting in rope},
        }
    )
