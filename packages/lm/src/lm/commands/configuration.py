"""The settings of a command line: a preset or a TOML file, and `--section.key value` put over it; and their help."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.resources
import os
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import lm.depth
from lm.config import (
    SECTIONS,
    ModelConfig,
    TrainConfig,
    comments_of,
    did_you_mean,
    from_table,
    nearest,
    override,
    read_toml,
    settable,
    to_table,
)
from lm.families import config_class
from lm.files import no_model

SET = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)=(?P<path>.+?)(?:@(?P<weight>[0-9.eE+-]+))?$")
CONFIG = "config.toml"  # of a run, in its folder
MODEL_FILES = (".gguf", ".pt", ".bin")  # of other programs
WIDTH, COLUMN = 100, 40  # of the settings' help


def configuration(name: str, settings: list[str]) -> tuple[ModelConfig, TrainConfig]:
    """The configuration of a file or preset, with the command line's settings put over it."""
    tables = tables_of(name, settings)
    return model_of(tables), from_table(TrainConfig, tables.get("train", {}), "train")


def configuration_to_train(name: str, settings: list[str]) -> tuple[ModelConfig | None, TrainConfig]:
    """The same, also by another model's name; no model if there is no [model] and init_from names one."""
    tables = tables_of(name, settings)
    train = from_table(TrainConfig, tables.get("train", {}), "train")
    return None if not tables.get("model") and train.init_from != "scratch" else model_of(tables), train


def configuration_of_depth(depth: int, vocab_size: int, settings: list[str]) -> tuple[ModelConfig, TrainConfig]:
    """The configuration that lm.depth gives, with the command line's settings put over it."""
    sections = zip(SECTIONS, lm.depth.configuration_of(depth, vocab_size), strict=True)
    tables = {section: to_table(config) for section, config in sections}
    del tables["train"]["warmup_steps"]  # it follows from `steps`, which a setting may change
    for setting, value in pairs_of(settings):
        override(tables, setting, value, SECTIONS)
    return model_of(tables), from_table(TrainConfig, tables["train"], "train")


def model_of(tables: Mapping[str, Mapping[str, Any]]) -> ModelConfig:
    """The model of [model], which may be one of a family."""
    table = tables.get("model", {})
    return from_table(config_class(table), table, "model")


def tables_of(name: str, settings: list[str]) -> dict[str, dict[str, Any]]:
    """The tables of a file or preset, with the command line's settings put over them."""
    tables = {} if names_model(name) else read_configuration(name)
    for section in tables:
        # A run's own config.toml has [data] and [start] too, which say nothing of the model.
        if section not in SECTIONS and section not in ("data", "start"):
            raise KeyError(f"{name} has a section [{section}]{did_you_mean(section, SECTIONS)}")
        if not isinstance(tables[section], dict):
            raise TypeError(f"{name}: {section} must be a table, got {tables[section]!r}: write [{section}]")
    for setting, value in pairs_of(settings):
        override(tables, setting, value, SECTIONS)
    return tables


def pairs_of(settings: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each setting and its value. ValueError: one lacks its value."""
    words = iter(settings)
    for setting in words:
        if not setting.startswith("--"):
            raise ValueError(f"{setting!r} stands where a setting should: write --section.key value")
        setting, equals, value = setting.partition("=")
        following = value if equals else next(words, None)
        if following is None:
            raise ValueError(f"{setting} lacks its value: write {setting} VALUE")
        yield setting, following


def read_configuration(name: str) -> dict[str, Any]:
    """The tables of a TOML file, of the one in the folder of a run, or of a preset."""
    if name in presets():
        return read_toml(str(importlib.resources.files("lm") / "presets" / f"{name}.toml"))
    if os.path.isdir(name) and not os.path.isfile(os.path.join(name, CONFIG)):
        raise no_model(name)
    if os.path.exists(name):
        return read_toml(os.path.join(name, CONFIG) if os.path.isdir(name) else name)
    near = did_you_mean(name, presets()) if nearest(name, presets()) else f": the presets are {', '.join(presets())}"
    raise FileNotFoundError(f"{name!r} is neither a file nor a preset{near}")


def names_model(name: str) -> bool:
    """True if a name is another program's model: on the Hub, a file, or a folder that is not a run."""
    described = any(os.path.isfile(os.path.join(name, file)) for file in ("config.json", "adapter_config.json"))
    is_folder = described and not os.path.isfile(os.path.join(name, CONFIG))
    return name not in presets() and (is_folder or name.startswith("hf://") or name.endswith(MODEL_FILES))


def is_of_a_run(tables: Mapping[str, Any]) -> bool:
    """True if a run wrote a configuration: it has hashes of its data, or its origin."""
    data = tables.get("data")
    sets = (data, *data.values()) if isinstance(data, dict) else ()
    return "start" in tables or any("train_sha256" in one for one in sets if isinstance(one, dict))


def data_of(name: str, data: list[str] | None) -> str | dict[str, Any]:
    """Return the data for lm.data.open_data: the command line's --data, else the [data] of the configuration.

    On the command line it is one folder or file, or sets as NAME=PATH or NAME=PATH@WEIGHT, each with a --data of its
    own. In a configuration it is path = "…" in [data], or path and weight in [data.NAME] for each set. ValueError:
    neither says.
    """
    if data and len(data) == 1 and (os.path.exists(data[0]) or not SET.match(data[0])):
        return data[0]
    sets: dict[str, Any] = {}
    for text in data or ():
        if (parts := SET.match(text)) is None:
            raise ValueError(f"--data {text} is one of several, and has no name: write --data NAME={text}")
        if parts["name"] in sets:
            raise ValueError(f"--data names {parts['name']!r} twice: give each set a name of its own")
        sets[parts["name"]] = {"path": parts["path"]}
        if parts["weight"] is not None:
            try:
                sets[parts["name"]]["weight"] = float(parts["weight"])
            except ValueError:
                message = f"the weight of the set {parts['name']!r} must be a number, got {parts['weight']!r}"
                raise ValueError(message) from None
    if sets:
        return sets
    table = {} if names_model(name) else read_configuration(name).get("data", {})
    if isinstance(table.get("path"), str):
        return str(table["path"])
    sets = {key: value for key, value in table.items() if isinstance(value, dict) and "path" in value}
    if not sets:
        raise ValueError(f"{name} says nothing of the data: write --data FOLDER, or a [data] table with its path")
    return sets


def presets() -> list[str]:
    """The names of the configurations that come with the package."""
    folder = importlib.resources.files("lm") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def describe(name: str, kind: type, values: Mapping[str, Any] | None = None) -> str:
    """The settings of a section, a line or more each: its option, its value (None: its default), and its meaning."""
    comments, hints, lines = comments_of(kind), typing.get_type_hints(kind), list[str]()
    for key, field in settable(kind).items():
        value = field.default if values is None else values.get(key, field.default)
        about = [comments.get(key, "").removesuffix(".")]
        if typing.get_origin(hints[key]) is typing.Literal:
            about.append(f"one of {', '.join(typing.get_args(hints[key]))}")
        if values is not None and value != field.default is not dataclasses.MISSING:
            about.append(f"default {spelled(field.default)}")
        head = f"  --{name}.{key} {'needed' if value is dataclasses.MISSING else spelled(value)}"
        wrapped = textwrap.wrap("; ".join(filter(None, about)), WIDTH - COLUMN) or [""]
        if len(head) >= COLUMN:
            lines.append(head)
            head = ""
        lines += [f"{before:<{COLUMN}}{line}".rstrip() for before, line in zip_longest([head], wrapped, fillvalue="")]
    return "\n".join(lines)


def spelled(value: object) -> str:
    """A value as a command line takes it."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.lower() if value in (None, True, False) else text


class WithSettings(argparse.RawDescriptionHelpFormatter):
    """Puts every setting below a command's help; not below the usage alone, which stands above an error."""

    is_usage = True

    def start_section(self, heading: str | None) -> None:
        self.is_usage = False
        super().start_section(heading)

    def format_help(self) -> str:
        text = super().format_help()
        sections = (f"\n[{name}]\n{describe(name, kind)}\n" for name, kind in SECTIONS.items())
        return text if self.is_usage else f"{text}\nsettings, with their defaults:\n{''.join(sections)}"
