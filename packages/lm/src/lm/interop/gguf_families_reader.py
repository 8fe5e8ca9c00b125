"""GGUF files of the families: the configuration in a header, the inverse of gguf_families.describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lm import families
from lm.config import FrozenTable
from lm.families import rope as ropes
from lm.families.parts import FULL, SLIDING, FamilyConfig
from lm.interop.gguf_families import KINDS

if TYPE_CHECKING:
    from lm.interop.gguf_reader import Fields

# Layers of the Gemmas 2 and 3 of 27 billion parameters, whose scores have a factor that no file names.
LAYERS_OF_27B = {"gemma2": 46, "gemma3_text": 62}
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
LLAMA3_NAMES = {
    "rope_factor": "factor",
    "rope_low_freq_factor": "low_freq_factor",
    "rope_high_freq_factor": "high_freq_factor",
    "rope_original_context_length": "original_max_position_embeddings",
}


def family_of(architecture: str, fields: Fields) -> str | None:
    """The family of a file of this architecture; None for a model of lm.model's shapes."""
    if architecture == "llama" and fields.at("expert_count"):
        return "mixtral"
    if architecture in ("llama", "qwen3") and fields.at("rope.scaling.type", "none") in ("none", None):
        return None
    if architecture == "olmo2" and fields.at("attention.sliding_window"):
        return "olmo3"
    return next((family for family, kind in KINDS.items() if kind.architecture == architecture), None)


def family_config(
    family: str, sizes: Mapping[str, Any], fields: Fields, rope_scaling: Callable[..., dict[str, Any]]
) -> FamilyConfig:
    """The configuration in a header.

    Args:
        family: Of family_of.
        sizes: Those that all models have, by our names.
        fields: The header.
        rope_scaling: A function from the header, the width and the base of a rotation to the settings of ModelConfig
            that its factors come from.

    Raises:
        ValueError: A setting is not supported, by name.
    """
    kind: type[FamilyConfig] = families.family(family).Config
    settings = set(kind.settings().values())
    values = {**sizes, **{name: value for name, value in KINDS[family].only if name in settings}, "family": family}
    if sizes["num_layers"] == LAYERS_OF_27B.get(family):
        raise ValueError(f"{fields.path}: a Gemma of 27 billion parameters is not read from GGUF: take its folder")
    for key, name in KINDS[family].settings.items():
        if (value := fields.at(key)) is not None:
            values[name] = value
    if family.startswith("gemma") and "query_pre_attn_scalar" in settings:
        values["query_pre_attn_scalar"] = sizes["head_dim"]
    for name, tensors in (("bias", ("attn_q", "attn_qkv")), ("mlp_bias", ("ffn_up",))):
        if name in settings:
            values[name] = any(f"blk.0.{tensor}.bias" in fields.tensors for tensor in tensors)
    window = fields.at("attention.sliding_window")
    if window and window < sizes["context_length"] and "sliding_window" not in settings:
        raise ValueError(f"{fields.path}: attention.sliding_window = {window} is not supported of this architecture")
    if "sliding_window" in settings:
        values["sliding_window"] = window or None
    pattern = fields.at("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        values["layer_types"] = tuple(SLIDING if slides else FULL for slides in pattern)
    rope = rope_parameters(kind, values, fields, rope_scaling)
    if "original_max_position_embeddings" in settings:
        values["original_max_position_embeddings"] = rope.get(
            "original_max_position_embeddings", sizes["context_length"]
        )
    if kind.local_theta is not None:
        name, default = kind.local_theta
        local = float(fields.at("rope.freq_base_swa", rope["rope_theta"] if name == "rope_theta" else default))
        rope = {FULL: rope, SLIDING: {"rope_theta": local, "rope_type": "default"}}
    try:
        return kind(
            **{name: value for name, value in values.items() if name in (*settings, "family")},
            rope_parameters=FrozenTable(rope),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{fields.path}: {error}") from None


def rope_parameters(
    kind: type[FamilyConfig], values: Mapping[str, Any], fields: Fields, rope_scaling: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """The rotation of the layers that see all, as config.json has it."""
    head_dim, context = values["head_dim"], values["context_length"]
    rope: dict[str, Any] = {
        "rope_theta": float(fields.at("rope.freq_base", kind.default_theta)),
        "rope_type": "default",
    }
    share = int(fields.at("rope.dimension_count", head_dim)) / head_dim
    if share != 1.0:
        rope["partial_rotary_factor"] = share
    scaling = fields.at("rope.scaling.type", "none")
    factor = float(fields.at("rope.scaling.factor", 1.0))
    original = {"original_max_position_embeddings": fields.at("rope.scaling.original_context_length", context)}
    attention_factor = float(fields.at("rope.scaling.attn_factor", 1.0))
    if "rope_factors_long.weight" in fields.tensors:
        rope |= {
            f"{name}_factor": tuple(fields.array(f"rope_factors_{name}.weight").tolist()) for name in ("short", "long")
        }
        return {**rope, **original, "rope_type": "longrope", "attention_factor": attention_factor}
    if scaling == "linear":
        return {**rope, "rope_type": "linear", "factor": factor}
    if scaling == "yarn":
        rope |= {**original, "rope_type": "yarn", "factor": factor}
        rope |= {
            f"beta_{name}": fields.at(f"rope.scaling.yarn_beta_{name}", beta)
            for name, beta in (("fast", 32.0), ("slow", 1.0))
        }
        rope["attention_factor"] = ropes.attention_factor(rope, context) * attention_factor
        return rope | ({"truncate": False} if values["family"] == "gpt_oss" else {})
    if scaling not in ("none", None):
        raise ValueError(f"{fields.path}: rope scaling {scaling!r} is not supported in a GGUF file")
    factors = {LLAMA3_NAMES[name]: value for name, value in rope_scaling(fields, head_dim, rope["rope_theta"]).items()}
    return {**rope, **factors, "rope_type": "llama3" if len(factors) > 1 else "linear" if factors else "default"}
