"""Architectures of Hugging Face beyond Llama's and GPT-2's, a file each; imported when one is first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm.config import ModelConfig
from lm.model import Transformer

if TYPE_CHECKING:
    from lm.families.parts import FamilyConfig

# model_type of config.json, and the file of its family.
FILES = {
    "cohere": "cohere",
    "cohere2": "cohere2",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "glm4": "glm4",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "granite": "granite",
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "olmo2": "olmo2",
    "olmo3": "olmo3",
    "olmoe": "olmoe",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
}


def family(model_type: str) -> Any:
    """The module of a family: its Config, Model, NAMES and ARCHITECTURE. ValueError: there is none."""
    if model_type not in FILES:
        raise ValueError(f"model_type {model_type!r} is not supported: it is one of {', '.join(FILES)}")
    return importlib.import_module(f"lm.families.{FILES[model_type]}")


def config_class(table: Mapping[str, Any]) -> type[ModelConfig]:
    """The class of the configuration in a run's [model]: a family's, or ModelConfig."""
    return family(table["family"]).Config if "family" in table else ModelConfig


def build(config: ModelConfig) -> Transformer:
    """A new model of this configuration, of a family or of lm.model's own shapes, with random weights."""
    if type(config) is ModelConfig:
        return Transformer(config)
    own: FamilyConfig = config  # type: ignore[assignment]
    return family(own.family).Model(own)  # type: ignore[no-any-return]
