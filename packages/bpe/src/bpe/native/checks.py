"""Checks of arguments."""

from __future__ import annotations

from operator import index


def whole(name: str, value: int) -> int:
    """The argument of that name as an int. TypeError: it is not a whole number. ValueError: not from 1 to 2**63 - 1."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if not 1 <= number < 1 << 63:
        raise ValueError(f"{name} is {value}; it takes a number from 1 to 2**63 - 1")
    return number
