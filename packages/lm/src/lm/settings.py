"""The settings of a command line: a preset or a TOML file, and `--section.key value` put over it."""

from __future__ import annotations

import importlib.resources
import os

from lm.config import ModelConfig, TrainConfig, did_you_mean, from_table, override, read_toml

SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig}


def configuration(name: str, settings: list[str]) -> tuple[ModelConfig, TrainConfig]:
    """The configuration of a file or preset, with the command line's settings put over it."""
    if name in presets():
        tables = read_toml(str(importlib.resources.files("lm") / "presets" / f"{name}.toml"))
    elif os.path.exists(name):
        tables = read_toml(name)
    else:
        raise FileNotFoundError(f"{name!r} is neither a file nor a preset{did_you_mean(name, presets())}")
    for section in tables:
        # A run's own config.toml has [data] too, which says nothing of the model.
        if section not in SECTIONS and section != "data":
            raise KeyError(f"{name} has a section [{section}]{did_you_mean(section, SECTIONS)}")
    pairs = iter(settings)
    for setting in pairs:
        if not setting.startswith("--"):
            raise ValueError(f"{setting!r} stands where a setting should: write --section.key value")
        setting, equals, value = setting.partition("=")
        if not equals:
            following = next(pairs, None)
            if following is None:
                raise ValueError(f"{setting} lacks its value: write {setting} VALUE")
            value = following
        override(tables, setting, value, SECTIONS)
    model = from_table(ModelConfig, tables.get("model", {}), "model")
    return model, from_table(TrainConfig, tables.get("train", {}), "train")


def presets() -> list[str]:
    """The names of the configurations that come with the package."""
    folder = importlib.resources.files("lm") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
