"""Checks of arguments, each with a message that names the argument and its right values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from typing import TypeVar

    Value = TypeVar("Value")


def booleans(record: object, names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(getattr(record, name), bool):
            raise ValueError(f"{name} must be True or False, and {getattr(record, name)!r} is neither")


def whole(name: str, value: object, least: int = 0) -> int:
    """The value if it is an integer of at least `least`, else ValueError."""
    value = integer(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, and {value!r} is not")
    return value


def integer(value: object) -> object:
    """An integer of another library, such as NumPy's, as Python's own; anything else unchanged."""
    index = None if isinstance(value, int) else getattr(value, "__index__", None)
    return value if index is None else index()


def instance(name: str, value: object, kind: type, among: str) -> None:
    """TypeError for a value that is not of this class, such as a name in place of what it names."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {name} as a {kind.__name__}, got {value!r:.80}: {among}['…'] has those with a name")


def positive(name: str, value: object) -> int:
    """The value if it is an integer of at least one, else ValueError."""
    return whole(name, value, 1)


def named(kind: str, name: str, among: Mapping[str, Value]) -> Value:
    """The entry of this name in any case; KeyError with the names that begin so, or the nearest, else all of them."""
    if name in among:
        return among[name]
    lower = str(name).lower()
    if lower in among:
        return among[lower]
    import difflib  # only a mistake needs it

    near = [one for one in among if one.startswith(f"{lower}-")] or difflib.get_close_matches(lower, among, n=1)
    one_of = "one of " if len(near) > 1 else ""
    remedy = f"did you mean {one_of}{', '.join(map(repr, near))}?" if near else f"use one of {', '.join(among)}"
    raise KeyError(f"no {kind} is called {name!r}: {remedy}")


class Named(dict):  # type: ignore[type-arg]
    """A table of names, found in upper or lower case; KeyError with the nearest names for others."""

    def __init__(self, kind: str, entries: Mapping[str, object]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> object:
        return named(self.kind, name, self)


def choose(name: str, value: object, among: Iterable[str]) -> str:
    """The value if it is one of these names, else ValueError."""
    if value not in tuple(among):
        raise ValueError(f"{name} {value!r} is not known: use one of {', '.join(among)}")
    return str(value)
