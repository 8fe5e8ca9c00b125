"""Parts of a tokenizer's pipeline as tokenizers 0.23 has them, made from the table of bpe.expressions.step_options."""

from __future__ import annotations

import inspect
from typing import Any

from bpe.expressions.step_options import REQUIRED, STEPS

# Options by their position, where tokenizers' classes take them in another order than files have them.
_POSITIONS = {"BPE": ("vocab", "merges", "cache_capacity", "dropout")}
_DEFAULTS: dict[str, Any] = {"prepend": "▁", "vocab": None, "merges": None, "cache_capacity": None}  # of classes alone


class Regex:
    """A pattern that is a regular expression (Oniguruma); a str is that text itself."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern


class Component:
    """A part of a pipeline: its type and its options, by the names of tokenizer.json."""

    kind = ""
    order: tuple[str, ...] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        bound = inspect.signature(type(self)).bind(*arguments, **options)
        bound.apply_defaults()
        self.options: dict[str, Any] = {name: _plain(name, bound.arguments[name]) for name in self.order}

    def to_json(self) -> dict[str, Any]:
        """Return the part as tokenizer.json has it."""
        return {"type": self.kind, **self.options}

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def components(part: str, *kinds: str) -> tuple[type[Component], ...]:
    """Return the classes of kinds of steps, and that of several steps in a row. part: a key of STEPS."""

    class Sequence(Component):
        """Parts that are applied one after another."""

        kind = "Sequence"

        def __init__(self, parts: list[Component]) -> None:
            self.options = {part: [one.to_json() for one in parts]}

    return *(_component(part, kind) for kind in kinds), Sequence


def _component(part: str, kind: str) -> type[Component]:
    """Return the class of a kind of step: its options by their positions, with their defaults."""
    defaults = {option: _DEFAULTS.get(option, default) for option, (_, default) in STEPS[part][kind].items()}
    positions = dict.fromkeys((*_POSITIONS.get(kind, ()), *defaults))
    named = [
        inspect.Parameter(
            option,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if (default := defaults.get(option)) is REQUIRED else default,
        )
        for option in positions
    ]
    members = {"kind": kind, "order": tuple(defaults), "__signature__": inspect.Signature(named)}
    return type(kind, (Component,), {**members, "__doc__": f"tokenizers' {kind}."})


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Regex):
        return {"Regex": value.pattern}
    if name == "pattern" and isinstance(value, str):
        return {"String": value}
    if name == "behavior":
        return "".join(word.capitalize() for word in value.split("_"))
    return value
