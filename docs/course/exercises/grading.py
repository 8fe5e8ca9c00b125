"""Compare a student's value with the right one, and describe the difference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

NOT_WRITTEN = "its body is not written yet, or has no return"


class Wrong(Exception):
    """A wrong result of an exercise, in words for the student."""


def shown(value: object) -> str:
    """A value in one line of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else text[:150] + " … " + text[-40:]


def same(call: str, yours: object, right: object, hint: str = "") -> None:
    """Raise Wrong, with the place of the first difference, unless two values are equal."""
    if type(yours) is type(right) and yours == right:
        return
    if yours is None:
        raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
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


def near(call: str, yours: Any, right: float, hint: str = "", tolerance: float = 1e-6) -> None:
    """Raise Wrong unless two numbers are equal but for rounding."""
    if yours is None:
        raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
    try:
        number = float(yours.detach() if hasattr(yours, "detach") else yours)
    except (TypeError, ValueError):
        raise Wrong(f"{call} gives {shown(yours)}, and should give a number.") from None
    if not math.isclose(number, right, rel_tol=tolerance, abs_tol=tolerance):
        raise Wrong(f"{call} gives {number:.6g}, and should give {right:.6g}. {hint}".rstrip())


def close(call: str, yours: Any, right: Any, hint: str = "", tolerance: float = 1e-5) -> None:
    """Raise Wrong, with the place of the first difference, unless two tensors are equal but for rounding."""
    import torch

    if yours is None:
        raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
    if not isinstance(yours, torch.Tensor):
        raise Wrong(f"{call} gives {shown(yours)}, and should give a tensor.")
    if yours.shape != right.shape:
        raise Wrong(f"{call} has the shape {tuple(yours.shape)}, and should have {tuple(right.shape)}. {hint}".rstrip())
    if yours.dtype != right.dtype:
        raise Wrong(f"{call} is {yours.dtype}, and should be {right.dtype}. {hint}".rstrip())
    if not right.numel():
        return
    yours, right = yours.detach(), right.detach()
    difference = (yours.double() - right.double()).abs()
    wrong = ~(difference <= tolerance * (1 + right.double().abs().max()))  # a NaN is wrong too
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        words = f"differs first at index {place}: {float(yours[place]):.6g}, and should be {float(right[place]):.6g}"
        raise Wrong(f"{call} {words}; {int(wrong.sum())} of {wrong.numel()} numbers differ. {hint}".rstrip())


def equal(yours: Any, right: Any, tolerance: float = 1e-5) -> bool:
    """True if two tensors, or lists of tensors, are equal but for rounding."""
    pairs = zip(yours, right, strict=True) if isinstance(right, list) else [(yours, right)]
    try:
        for mine, ours in pairs:
            close("", mine, ours, tolerance=tolerance)
    except Wrong:
        return False
    return True


def mistake(yours: Any, mistakes: Iterable[tuple[str, Any]], hint: str, tolerance: float = 1e-5) -> str:
    """The sentence of the usual mistake that gives what the student's code gives; the hint if it is none of them."""
    return next((words for words, wrong in mistakes if equal(yours, wrong, tolerance)), hint)


def with_weights(module: Any, state: Mapping[str, Any]) -> Any:
    """A student's module with these weights; Wrong where it has others, or has them under other names."""
    name, own = type(module).__name__, module.state_dict()
    if not own and state:
        raise Wrong(f"{name} has no weights: its body is not written yet.")
    for key in state:
        if key not in own:
            raise Wrong(f"{name} has no weight {key!r}; it has {', '.join(own)}.")
        if own[key].shape != state[key].shape:
            shapes = f"{tuple(own[key].shape)}, and should have {tuple(state[key].shape)}"
            raise Wrong(f"The weight {key!r} of {name} has the shape {shapes}.")
    for key in own:
        if key not in state:
            raise Wrong(
                f"{name} has {key!r}, which is no weight of it. (A table that is not learned is a buffer with "
                "persistent=False.)"
            )
    module.load_state_dict(state)
    return module


def seconds(run: Callable[[], object], times: int = 1) -> float:
    """Seconds of a call, the shortest of several."""
    shortest = math.inf
    for _ in range(times):
        began = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def compare_speed(what: str, yours: float, ours: float, whose: str = "ours") -> str:
    """A line that says how much faster the package is, or is not."""
    factor = yours / max(ours, 1e-9)
    if factor >= 1.5:
        words = f"{whose} is {factor:,.{0 if factor >= 10 else 1}f} times faster"
    else:
        words = f"yours is about as fast as {whose}"
    return f"  {what}: yours {in_units(yours)}, {whose} {in_units(ours)}; {words}"


def in_units(time: float) -> str:
    """Seconds, or milliseconds where there are few."""
    return f"{time:.3f} s" if time >= 0.1 else f"{time * 1000:.3g} ms"
