"""The GPT-2 shape in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm.config import FFN, ModelConfig
from lm.interop.hf_config import Settings
from lm.interop.tensors import refuse_unsupported

# Their names of activations, and ours.
ACTIVATIONS: dict[str, FFN] = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_exact",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
}
# Values of our settings that it has.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "norm": ("layernorm",),
    "norm_placement": ("pre",),
    "sliding_window": (None,),
    "qk_norm": (False,),
    "value_embeddings": (False,),
    "logit_softcap": (None,),
    "ffn": tuple(ACTIVATIONS.values()),
}


def as_many_heads(config: ModelConfig) -> dict[str, tuple[Any, ...]]:
    """The values of a model whose heads of keys are those of queries, and together as wide as the model."""
    return {"num_kv_heads": (None, config.num_heads), "head_dim": (None, config.d_model / config.num_heads)}


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The contents of a config.json. ValueError: Hugging Face's GPT-2 cannot be this model, with what it lacks."""
    refuse_unsupported(config, "Hugging Face's GPT-2", SUPPORTED | as_many_heads(config))
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": None if config.d_ff == 4 * config.d_model else config.d_ff,
        "activation_function": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.ffn),
        "layer_norm_epsilon": config.norm_eps,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": config.tied_embeddings,
    }


def from_config(table: Mapping[str, Any], source: object) -> ModelConfig:
    """The configuration that a config.json describes.

    ValueError: what it asks for and this version does not do, by name.
    """
    settings = Settings(table, source)
    settings.take("model_type", str)
    settings.only("scale_attn_weights", (True,), True)
    settings.only("scale_attn_by_inverse_layer_idx", (False,), False)
    settings.only("add_cross_attention", (False,), False)
    settings.take("reorder_and_upcast_attn", bool, False)  # how it rounds, not what it computes
    activation = settings.only("activation_function", tuple(ACTIVATIONS), "gelu_new")
    d_model = settings.take("n_embd", int)
    config = ModelConfig(
        vocab_size=settings.take("vocab_size", int),
        context_length=settings.take("n_positions", int),
        num_layers=settings.take("n_layer", int),
        d_model=d_model,
        num_heads=settings.take("n_head", int),
        d_ff=settings.take("n_inner", int, 4 * d_model),
        ffn=ACTIVATIONS[activation],
        norm="layernorm",
        norm_eps=settings.take("layer_norm_epsilon", float, 1e-5),
        position="learned",
        tied_embeddings=settings.take("tie_word_embeddings", bool, True),
        bias=True,
    )
    settings.nothing_left()
    return config
