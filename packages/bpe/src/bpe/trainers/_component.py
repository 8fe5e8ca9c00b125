"""Parts of a tokenizer's pipeline as tokenizers 0.23 has them: classes that keep what tokenizer.json says of a part."""

from __future__ import annotations

import inspect
from typing import Any

REQUIRED = inspect.Parameter.empty


class Regex:
    """A pattern that is a regular expression (Oniguruma); a str is that text itself."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern


class Component:
    """A part of a pipeline: its type and its options, by the names of tokenizer.json."""

    kind = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        signature = inspect.signature(type(self))
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        self.options: dict[str, Any] = {name: _plain(name, value) for name, value in bound.arguments.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the part as tokenizer.json has it."""
        return {"type": self.kind, **self.options}

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def component(kind: str, **defaults: Any) -> type[Component]:
    """Return the class of a part: its options in the order of their positions, with their defaults."""
    named = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=d) for name, d in defaults.items()
    ]
    signature = inspect.Signature(named)
    return type(kind, (Component,), {"kind": kind, "__signature__": signature, "__doc__": f"tokenizers' {kind}."})


def sequence(key: str) -> type[Component]:
    """Return the class of several parts in a row, whose list tokenizer.json calls `key`."""

    class Sequence(Component):
        """Parts that are applied one after another."""

        kind = "Sequence"

        def __init__(self, parts: list[Component]) -> None:
            self.options = {key: [part.to_json() for part in parts]}

    return Sequence


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Regex):
        return {"Regex": value.pattern}
    if name == "pattern" and isinstance(value, str):
        return {"String": value}
    if name == "behavior":
        return "".join(word.capitalize() for word in value.split("_"))
    return value
