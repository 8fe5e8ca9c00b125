"""Architectures of Hugging Face beyond Llama's and GPT-2's, imported when one is first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lm.config import ModelConfig

if TYPE_CHECKING:
    from lm.families.parts import FamilyModel
    from lm.model import Transformer

# model_type of config.json, and the file and the class of its model.
FILES = {
    "cohere": "cohere.Cohere",
    "cohere2": "cohere.Cohere2",
    "gemma": "gemma.Gemma",
    "gemma2": "gemma.Gemma2",
    "gemma3_text": "gemma.Gemma3",
    "glm4": "llama.Glm4",
    "gpt_neox": "gpt_neox.GPTNeoX",
    "gpt_oss": "gpt_oss.GptOss",
    "granite": "llama.Granite",
    "llama": "llama.Llama",
    "mistral": "llama.Mistral",
    "mixtral": "llama.Mixtral",
    "olmo2": "olmo.Olmo2",
    "olmo3": "olmo.Olmo3",
    "olmoe": "olmo.Olmoe",
    "phi3": "llama.Phi3",
    "qwen2": "qwen.Qwen2",
    "qwen3": "qwen.Qwen3",
    "qwen3_moe": "qwen.Qwen3Moe",
    "smollm3": "llama.SmolLM3",
    "starcoder2": "llama.Starcoder2",
}


def family(model_type: str) -> type[FamilyModel]:
    """The class of a family's models. ValueError: there is none."""
    if model_type not in FILES:
        raise ValueError(f"model_type {model_type!r} is not supported: it is one of {', '.join(FILES)}")
    file, name = FILES[model_type].split(".")
    return getattr(importlib.import_module(f"lm.families.{file}"), name)  # type: ignore[no-any-return]


def config_class(table: Mapping[str, object]) -> type[ModelConfig]:
    """The class of the configuration in a run's [model]: a family's, or ModelConfig."""
    return family(str(table["family"])).config_type if "family" in table else ModelConfig


def build(config: ModelConfig) -> Transformer:
    """A new model of this configuration, of a family or of lm.model's own shapes, with random weights."""
    if type(config) is not ModelConfig:
        return family(vars(config)["family"])(config)
    from lm.model import Transformer  # here: a configuration alone needs no torch

    return Transformer(config)
