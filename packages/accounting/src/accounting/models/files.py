"""Shapes from files: a Hugging Face config.json, or the config.toml of an lm run."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import lru_cache
from typing import Any

from accounting.checks import named
from accounting.models.families import from_config, text_of
from accounting.models.published import SHAPES
from accounting.shape import TransformerShape

_FREE = ("norm_eps", "norm_placement", "logit_softcap")  # settings of lm that cost nothing, as rope_… do


def find(name: str) -> TransformerShape:
    """The shape of a name, a config.json, a config.toml, a folder with one of them, or owner/name on the Hub."""
    if name.lower() in SHAPES:
        return SHAPES[name.lower()]
    path = _file(name)
    if not path:
        raise FileNotFoundError(f"{name} has neither config.json nor config.toml in it: give the file itself")
    if not os.path.exists(path):
        from accounting.models import hub  # few shapes come from there

        if hub.NAME.fullmatch(name) and not name.endswith((".json", ".toml")):
            return from_config(_hub_config(name))
        if os.sep in name or name.endswith((".json", ".toml")):
            raise FileNotFoundError(
                f"there is no file {name}: give a config.json, an lm run, or one of {', '.join(SHAPES)}"
            )
        return named("shape", name, SHAPES)
    if path.endswith(".gguf"):
        from accounting.models.gguf import from_gguf  # nor from such files

        return from_gguf(path)
    return from_run(path) if path.endswith(".toml") else from_huggingface(path)


@lru_cache(maxsize=8)  # a report asks for the settings that no table counts, too
def _hub_config(name: str) -> dict[str, Any]:
    from accounting.models import hub

    return parsed(hub.contents(name), f"the config.json of {name}")


def _file(name: str) -> str:
    """The name, or of a folder the file in it that describes a shape, "" if there is none."""
    inside = [os.path.join(name, file) for file in ("config.toml", "config.json")]
    return next(filter(os.path.exists, inside), "") if os.path.isdir(name) else name


def from_huggingface(path: str) -> TransformerShape:
    """The shape that a config.json describes; ValueError for a family or a setting whose cost is not known here."""
    return from_config(contents(path))


def contents(path: str) -> dict[str, Any]:
    """The settings in a config.json, of a multimodal model those beside its text model too."""
    with open(path, "rb") as file:
        return parsed(file.read(), path)


def parsed(data: bytes, name: str) -> dict[str, Any]:
    """The settings in the contents of a config.json; ValueError with its name for anything else."""
    import json

    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{name} holds {type(config).__name__}, and a config.json holds an object")
    return config


def not_counted(name: str) -> list[str]:
    """Settings of a config.json whose parameters are not in the shape: towers, and layers for further tokens."""
    path = _file(name)
    if not name or name.lower() in SHAPES or path.endswith((".toml", ".gguf")):
        return []
    config = contents(path) if os.path.exists(path) else _hub_config(name)
    towers = [key for key in config if key.startswith(("vision", "audio")) and key.endswith("_config") and config[key]]
    _, text = text_of(config)
    return towers + ["num_nextn_predict_layers"] * bool(text.get("num_nextn_predict_layers"))


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
    if "family" in model:
        words = f"{path} is the run of a {model['family']!r}, which is counted from a config.json"
        raise ValueError(f"{words}: give that of an export (lm export), or of the folder that the run began with")
    names = {field.name for field in fields(TransformerShape)}
    others = [name for name in model if name not in names and name not in _FREE and not name.startswith("rope_")]
    if others:
        raise ValueError(f"{path} sets {', '.join(others)}, whose cost is not known here")
    if isinstance(model.get("ffn"), str):
        model["ffn"] = model["ffn"].removesuffix("_exact")  # of two ways to compute a GELU, which cost as much
    if isinstance(enabled := model.get("value_embeddings"), bool):  # in every other layer, the last among them
        layers = model.get("num_layers")
        model["value_embeddings"] = (layers + 1) // 2 if enabled and isinstance(layers, int) else 0
    try:
        return TransformerShape(**{name: value for name, value in model.items() if name in names})
    except TypeError as error:
        raise ValueError(f"{path} does not describe a model: {error}") from None
