"""The table of families in families.json: defaults of each class in transformers 5, other names of settings, and the
families that have a part."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """The contents of families.json."""
    return read()


def read() -> dict[str, Any]:
    """The same, from the file."""
    import json  # a shape by name does without

    with open(Path(__file__).with_name("families.json"), encoding="utf-8") as file:
        contents: dict[str, Any] = json.load(file)
    return contents


def defaults() -> dict[str, dict[str, Any]]:
    """The defaults of each class, of the settings that decide a shape."""
    classes: dict[str, dict[str, Any]] = tables()["defaults"]
    return classes


def having(part: str) -> list[str]:
    """The families with this part, such as "experts", or whose class differs so."""
    names: list[str] = tables()["families with"][part]
    return names
