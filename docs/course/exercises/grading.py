"""How a student's value is compared with the right one, and what is said where they differ."""

from __future__ import annotations

import time
from collections.abc import Callable


class Wrong(Exception):
    """What an exercise gives that it should not, in words for the student."""


def shown(value: object) -> str:
    """A value in one line of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else text[:150] + " … " + text[-40:]


def same(call: str, yours: object, right: object, hint: str = "") -> None:
    """Raise Wrong, with the place of the first difference, unless two values are equal."""
    if type(yours) is type(right) and yours == right:
        return
    if yours is None:
        raise Wrong(f"{call} returns None: its body is not written yet, or has no return.")
    if isinstance(yours, (list, tuple)) and isinstance(right, (list, tuple)) and type(yours) is type(right):
        place = next(
            (i for i, (a, b) in enumerate(zip(yours, right, strict=False)) if a != b), min(len(yours), len(right))
        )
        if place < len(yours) and place < len(right):
            words = f"differs first at index {place}: {shown(yours[place])}, and should be {shown(right[place])}."
        else:
            words = f"has {len(yours)} items, and should have {len(right)}."
        raise Wrong(f"{call} {words} {hint}".rstrip())
    raise Wrong(f"{call} gives {shown(yours)}, and should give {shown(right)}. {hint}".rstrip())


def seconds(run: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compare_speed(what: str, yours: float, ours: float) -> str:
    """A line that says how much faster the package is, or is not."""
    factor = yours / max(ours, 1e-9)
    words = f"ours is {factor:,.0f} times faster" if factor >= 1.5 else "yours is about as fast as ours"
    return f"  {what}: yours {yours:.3f} s, ours {ours:.3f} s; {words}"
