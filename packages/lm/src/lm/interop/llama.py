"""The family of Llama in Hugging Face's words: Llama, Mistral (a window), Qwen2 (biases), Qwen3 (norms of queries and
keys).

Their rotary embedding turns the pairs (i, i + head_dim / 2), ours (2i, 2i + 1): the rows of queries and keys are
permuted.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from lm.config import ModelConfig
from lm.families.parts import FamilyConfig
from lm.interop.tensors import Part, Table, refuse_unsupported

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# Their settings of a scaled rotation, and ours.
ROPE_NAMES = {
    "factor": "rope_factor",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "original_max_position_embeddings": "rope_original_context_length",
}


def family_of(config: ModelConfig) -> str:
    """The architecture that is this model. ValueError: there is none, with what it lacks."""
    family = "qwen3" if config.qk_norm else "llama" if config.sliding_window is None else "mistral"
    supported: dict[str, tuple[Any, ...]] = {
        "value_embeddings": (False,),
        "logit_softcap": (None,),
        "norm": ("rmsnorm",),
        "norm_placement": ("pre",),
        "position": ("rope",),
        "ffn": ("swiglu",),
        "bias": (False, True) if family == "llama" else (False,),
    }
    refuse_unsupported(config, f"Hugging Face's {family}", supported)
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


def plain(config: FamilyConfig, source: object) -> tuple[ModelConfig, frozenset[str]] | None:
    """The same model in lm.model's shapes, and which of our biases it does not have.

    None: only lm.families has it, for a rotation scaled by another rule, or a window in some of its layers.
    ValueError: heads that are rotated in part.
    """
    rope, windows = config.rope_parameters, {config.window(layer) for layer in range(config.num_layers)}
    if rope["rope_type"] not in ("default", "linear", "llama3") or len(windows) > 1:
        return None
    if "partial_rotary_factor" in rope:
        raise ValueError(f"{source}: partial_rotary_factor = {rope['partial_rotary_factor']!r} is not supported")
    mlp_bias = getattr(config, "mlp_bias", False)
    biases = {
        "attention.qkv.bias": config.bias,
        "attention.output.bias": config.bias and config.family != "qwen2",
        "ffn.gate_up.bias": mlp_bias,
        "ffn.down.bias": mlp_bias,
    }
    settings = {field.name: getattr(config, field.name) for field in fields(ModelConfig)} | {
        "num_kv_heads": config.kv_heads,
        "head_dim": None if config.head_width * config.num_heads == config.d_model else config.head_width,
        "bias": any(biases.values()),
        "sliding_window": windows.pop(),
        "rope_theta": rope["rope_theta"],
        **{ours: rope[theirs] for theirs, ours in ROPE_NAMES.items() if theirs in rope},
    }
    own = ModelConfig(**settings)
    return own, frozenset(name for name, there in biases.items() if own.bias and not there)


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
                f"ffn.gate_up.{kind}": (
                    Part(f"{theirs}mlp.gate_proj.{kind}", ff, absent=ffn),
                    Part(f"{theirs}mlp.up_proj.{kind}", ff, absent=ffn),
                ),
                f"attention.output.{kind}": (
                    Part(f"{theirs}self_attn.o_proj.{kind}", config.d_model, absent=gone("attention.output")),
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
