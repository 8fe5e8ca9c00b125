"""Shapes from files: a Hugging Face config.json, or the config.toml of an lm run.

A family that is not known is refused by name rather than guessed: a wrong guess would be a wrong budget.
"""

from __future__ import annotations

import os

from accounting.models.published import SHAPES, named
from accounting.record import fields
from accounting.shape import LatentAttention, TransformerShape, positive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text")
FAMILIES = ("gpt2", *_LLAMA_LIKE, "gpt_oss", "llama4_text", "llama4", "deepseek_v3")
_WITHOUT_SWITCH = ("mistral", "mixtral", "qwen2")  # these have biases or not, whatever attention_bias says
_FREE = (
    "norm_eps",
    "norm_placement",
    "logit_softcap",
)  # settings of lm that cost nothing, as those of rotary positions do


def find(name: str) -> TransformerShape:
    """The shape of a known name, a config.json, a config.toml, or a folder with one of them in it."""
    if name in SHAPES:
        return SHAPES[name]
    path = name
    if os.path.isdir(path):
        inside = [os.path.join(path, file) for file in ("config.toml", "config.json")]
        path = next((file for file in inside if os.path.exists(file)), "")
        if not path:
            raise FileNotFoundError(f"{name} has neither config.json nor config.toml in it: give the file itself")
    if not os.path.exists(path):
        if os.sep in name or name.endswith((".json", ".toml")):
            raise FileNotFoundError(
                f"there is no file {name}: give a config.json, an lm run, or one of {', '.join(SHAPES)}"
            )
        return named(name)
    return from_run(path) if path.endswith(".toml") else from_huggingface(path)


def from_huggingface(path: str) -> TransformerShape:
    """The shape that a config.json describes; ValueError for a family or a setting whose cost is not known here."""
    import json

    with open(path, encoding="utf-8") as file:
        try:
            config = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds {type(config).__name__}, and a config.json holds an object")
    return from_config(config)


def from_config(config: Mapping[str, Any]) -> TransformerShape:
    """The shape that the contents of a config.json describe."""
    family = config.get("model_type")
    if family == "gpt2":
        return _gpt2(config)
    if family == "gpt_oss":
        return _gpt_oss(config)
    if family == "llama4" and isinstance(config.get("text_config"), dict):
        return from_config({"model_type": "llama4_text", **config["text_config"]})
    if family == "llama4_text":
        return _llama4(config)
    if family == "deepseek_v3":
        return _deepseek(config)
    if family in _LLAMA_LIKE:
        return _llama_like(str(family), config)
    raise ValueError(f"model_type {family!r} is not known: it must be one of {', '.join(FAMILIES)}")


def from_run(path: str) -> TransformerShape:
    """The shape of an lm run from its config.toml; settings that cost nothing are left out."""
    import tomllib

    with open(path, "rb") as file:
        try:
            model = tomllib.load(file).get("model")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
    if not isinstance(model, dict):
        raise ValueError(f"{path} has no [model] table: give the config.toml of an lm run")
    known = set(fields(TransformerShape))
    others = [name for name in model if name not in known and name not in _FREE and not name.startswith("rope_")]
    if others:
        raise ValueError(f"{path} sets {', '.join(others)}, whose cost is not known here")
    if isinstance(model.get("ffn"), str):
        model["ffn"] = model["ffn"].removesuffix("_exact")  # of two ways to compute a GELU, which cost as much
    if isinstance(given := model.get("value_embeddings"), bool):  # there in every other layer, the last among them
        layers = model.get("num_layers")
        model["value_embeddings"] = (layers + 1) // 2 if given and isinstance(layers, int) else 0
    try:
        return TransformerShape(**{name: value for name, value in model.items() if name in known})
    except TypeError as error:
        raise ValueError(f"{path} does not describe a model: {error}") from None


def _gpt2(config: Mapping[str, Any]) -> TransformerShape:
    width = _need(config, "n_embd")
    activation = config.get("activation_function", "gelu_new")
    if config.get("add_cross_attention"):
        raise ValueError("add_cross_attention is set, and attention to another sequence is not known here")
    return TransformerShape(
        _need(config, "vocab_size"),
        _need(config, "n_positions"),
        _need(config, "n_layer"),
        width,
        _need(config, "n_head"),
        _may(config, "n_inner", 4 * width),
        ffn=_activation(activation, gated=False),
        norm="layernorm",
        position="learned",
        tied_embeddings=_tied(config, True),
        bias=True,
    )


def _llama_like(family: str, config: Mapping[str, Any]) -> TransformerShape:
    gemma = family.startswith("gemma")
    activation = (
        config.get("hidden_activation") or config.get("hidden_act") or ("gelu_pytorch_tanh" if gemma else "silu")
    )
    layers = _need(config, "num_hidden_layers")
    if config.get("mlp_bias"):
        raise ValueError("mlp_bias is set, and feed-forward biases without attention biases are not known here")
    if config.get("attention_bias") and family not in _WITHOUT_SWITCH:
        raise ValueError("attention_bias is set, and biases on attention alone are not known here")
    window, windowed = _window(family, config, layers)
    experts, each = _experts(family, config)
    return TransformerShape(
        _need(config, "vocab_size"),
        _need(config, "max_position_embeddings"),
        layers,
        _need(config, "hidden_size"),
        _need(config, "num_attention_heads"),
        _need(config, each),
        num_kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim") or (256 if gemma else None),
        ffn=_activation(activation, gated=True),
        tied_embeddings=_tied(config, gemma),
        qkv_bias=True if family == "qwen2" else None,
        qk_norm=family in ("qwen3", "qwen3_moe", "gemma3_text"),
        post_norm=family in ("gemma2", "gemma3_text"),
        sliding_window=window,
        sliding_window_layers=windowed,
        experts=experts,
        experts_per_token=None if experts is None else _need(config, "num_experts_per_tok"),
    )


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    """vocab_size, context_length, num_layers, d_model, num_heads."""
    names = ("vocab_size", "max_position_embeddings", "num_hidden_layers", "hidden_size", "num_attention_heads")
    vocab, context, layers, width, heads = (_need(config, name) for name in names)
    return vocab, context, layers, width, heads


def _gpt_oss(config: Mapping[str, Any]) -> TransformerShape:
    """Biases everywhere, the router's too, a sink for each head, and a window in every other layer."""
    layers = _need(config, "num_hidden_layers")
    kinds = config.get("layer_types") or [("sliding_attention", "full_attention")[at % 2] for at in range(layers)]
    return TransformerShape(
        *_sizes(config),
        _need(config, "intermediate_size"),
        num_kv_heads=_need(config, "num_key_value_heads"),
        head_dim=_need(config, "head_dim"),
        ffn="clamped_swiglu",
        tied_embeddings=_tied(config, False),
        bias=True,
        sliding_window=_need(config, "sliding_window"),
        sliding_window_layers=sum(kind == "sliding_attention" for kind in kinds),
        experts=_need(config, "num_local_experts"),
        experts_per_token=_may(config, "num_experts_per_tok", 4),
        router="softmax_of_chosen",
        router_bias=True,
        attention_sinks=True,
    )


def _llama4(config: Mapping[str, Any]) -> TransformerShape:
    """A shared expert beside the others; chunked attention is counted as whole, as it is to 8,192 positions."""
    layers, step = _need(config, "num_hidden_layers"), _may(config, "interleave_moe_layer_step", 1)
    listed = config.get("moe_layers")
    with_experts = len(listed) if isinstance(listed, list) else layers // step
    dense = layers - with_experts
    rotated = config.get("no_rope_layers") or [(at + 1) % 4 > 0 for at in range(layers)]  # 1 where they are rotated
    return TransformerShape(
        *_sizes(config),
        _need(config, "intermediate_size"),
        num_kv_heads=_need(config, "num_key_value_heads"),
        head_dim=_may(config, "head_dim", 128),
        tied_embeddings=_tied(config, False),
        experts=_need(config, "num_local_experts"),
        experts_per_token=_may(config, "num_experts_per_tok", 1),
        dense_layers=dense,
        dense_d_ff=_need(config, "intermediate_size_mlp") if dense else None,
        dense_interleaved=dense > 0,
        shared_d_ff=_need(config, "intermediate_size"),
        router="sigmoid_of_input",
        unrotated_layers=sum(not one for one in rotated),
        qk_l2_norm=bool(config.get("use_qk_norm", True)),
    )


def _deepseek(config: Mapping[str, Any]) -> TransformerShape:
    """Latent attention, dense layers first, shared experts; without the layers that predict further tokens."""
    width = _need(config, "moe_intermediate_size")
    dense = _may(config, "first_k_dense_replace", 0)
    return TransformerShape(
        *_sizes(config),
        width,
        head_dim=_need(config, "qk_nope_head_dim") + _need(config, "qk_rope_head_dim"),
        tied_embeddings=_tied(config, False),
        experts=_need(config, "n_routed_experts"),
        experts_per_token=_need(config, "num_experts_per_tok"),
        dense_layers=dense,
        dense_d_ff=_need(config, "intermediate_size") if dense else None,
        shared_d_ff=_may(config, "n_shared_experts", 0) * width or None,
        router="sigmoid",
        latent=LatentAttention(
            None if config.get("q_lora_rank") is None else _need(config, "q_lora_rank"),
            _need(config, "kv_lora_rank"),
            _need(config, "qk_nope_head_dim"),
            _need(config, "qk_rope_head_dim"),
            _need(config, "v_head_dim"),
        ),
    )


def _experts(family: str, config: Mapping[str, Any]) -> tuple[int | None, str]:
    """(experts of a layer, the name under which a config.json has the width of one); every layer has them or none."""
    if family == "mixtral":
        return _need(config, "num_local_experts"), "intermediate_size"
    if family != "qwen3_moe":
        return None, "intermediate_size"
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise ValueError(
            "mlp_only_layers or decoder_sparse_step is set, and experts in some layers alone are not known here"
        )
    return _need(config, "num_experts" if "num_experts" in config else "num_local_experts"), "moe_intermediate_size"


def _window(family: str, config: Mapping[str, Any], layers: int) -> tuple[int | None, int | None]:
    """(window, layers that have it); each family says it in its own way."""
    window = config.get("sliding_window")
    if not window or (family.startswith("qwen") and not config.get("use_sliding_window")):
        return None, None
    kinds = config.get("layer_types")
    if kinds:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ValueError(f"layer_types must list the kind of each of {layers} layers, and it gives {kinds!r:.80}")
        windowed = sum(kind == "sliding_attention" for kind in kinds)
    elif family == "gemma2":  # every other layer, the first one included
        windowed = (layers + 1) // 2
    elif family == "gemma3_text":  # all but every sixth
        windowed = layers - layers // positive("sliding_window_pattern", _may(config, "sliding_window_pattern", 6))
    elif family.startswith("qwen"):  # the layers from max_window_layers on
        windowed = max(0, layers - _may(config, "max_window_layers", 28))
    else:
        windowed = layers
    return (window, None if windowed == layers else windowed) if windowed else (None, None)


def _activation(name: object, *, gated: bool) -> str:
    if not isinstance(name, str):
        raise ValueError(f"config.json must name the activation, and it gives {name!r}")
    kind = "silu" if name in ("silu", "swish") else "gelu" if name.startswith("gelu") else name
    known = {"silu": "swiglu", "gelu": "geglu"} if gated else {"silu": "silu", "gelu": "gelu"}
    if kind not in known:
        raise ValueError(f"activation {name!r} is not known here: it must be silu or gelu")
    return known[kind]


def _need(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"config.json must give {name} as a whole number, and it gives {value!r}")
    return value


def _may(config: Mapping[str, Any], name: str, otherwise: int) -> int:
    return otherwise if config.get(name) is None else _need(config, name)


def _tied(config: Mapping[str, Any], otherwise: bool) -> bool:
    value = config.get("tie_word_embeddings", otherwise)
    if not isinstance(value, bool):
        raise ValueError(f"config.json must give tie_word_embeddings as true or false, and it gives {value!r}")
    return value
