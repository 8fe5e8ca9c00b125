"""Checks of arguments."""

from __future__ import annotations

from operator import index


def integer(name: str, value: int, least: int = 1) -> int:
    """The argument of that name as an int, from `least` to 2**63 - 1. TypeError: not a whole number. ValueError."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if not least <= number < 1 << 63:
        raise ValueError(f"{name} is {value}; it takes a number from {least} to 2**63 - 1")
    return number
