"""The table of families in families.json: defaults of each class, other names of settings, families with a part."""

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
        return dict(json.load(file))


def defaults() -> dict[str, dict[str, Any]]:
    """The defaults of each class, of the settings that decide a shape."""
    return dict(tables()["defaults"])


def having(part: str) -> list[str]:
    """The families with this part, such as "experts", or whose class differs so."""
    return list(tables()["families with"][part])
