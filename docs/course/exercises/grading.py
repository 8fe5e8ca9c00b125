"""Compare a student's value with the right one, and describe the difference."""

from __future__ import annotations

import functools
import inspect
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

NOT_WRITTEN = "its body is not written yet, or has no return"
ENOUGH = 3.0  # seconds of timing after which no further run is timed


class Wrong(Exception):
    """A wrong result of an exercise, in words for the student."""


class State:
    """The settings that all checks of one grading share.

    Attributes:
        seed: Inputs that are drawn depend on it. It is the date, so that answers cannot be copied from a table.
        file, module: The student's file, and the name under which it was imported.
        is_timing: True while a function is timed, and its arguments are not compared.
    """

    seed = int(time.strftime("%Y%m%d"))
    file, module = Path(), ""
    is_timing = False


def drawing(name: str) -> random.Random:
    """A generator of random numbers for one exercise, the same for a seed."""
    return random.Random(f"{State.seed} {name}")


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """A tensor of normal numbers, the same for a seed of the grading and one of the call."""
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * State.seed + seed)) * scale


def snapshot(value: Any) -> Any:
    """A copy of what a function could change in place: tensors, arrays and containers."""
    if hasattr(value, "requires_grad"):
        return value.detach().clone()
    if type(value).__module__ == "numpy" and hasattr(value, "copy"):
        return value.copy()
    if isinstance(value, (list, tuple)):
        return [snapshot(each) for each in value]
    if isinstance(value, dict):
        return {key: snapshot(each) for key, each in value.items()}
    return set(value) if isinstance(value, set) else value


def is_unchanged(value: Any, before: Any) -> bool:
    """True if a value is as in its snapshot; NaN equals NaN."""
    if hasattr(before, "requires_grad") or type(before).__module__ == "numpy":
        if value.shape != before.shape or value.dtype != before.dtype:
            return False
        return str(getattr(value, "device", "")) == "meta" or bool(((value == before) | (value != value)).all())
    if isinstance(value, (list, tuple)):
        return len(value) == len(before) and all(map(is_unchanged, value, before))
    if isinstance(value, dict):
        return value.keys() == before.keys() and all(is_unchanged(value[key], before[key]) for key in value)
    return value == before if isinstance(value, set) else True


def watched(name: str, function: Any) -> Any:
    """A student's function that raises Wrong when it changes one of its arguments in place."""
    if not inspect.isfunction(function):
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        if State.is_timing:
            return function(*arguments, **settings)
        before = snapshot([*arguments, *settings.values()])
        result = function(*arguments, **settings)
        for place, (value, copy) in enumerate(zip((*arguments, *settings.values()), before, strict=True)):
            if not is_unchanged(value, copy):
                raise Wrong(
                    f"{name} changes its argument {place + 1} in place, which whoever calls it still needs: "
                    "make a new value."
                )
        return result

    return call


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
    if not math.isclose(number, right, rel_tol=tolerance, abs_tol=min(tolerance, 1e-6)):
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


def same_function(
    call: str, yours: Any, ours: Any, inputs: Iterable[Any], hint: str = "", tolerance: float = 1e-5, learn: str = ""
) -> None:
    """Raise Wrong unless two functions of tensors, or two modules, have the same values and the same gradients.

    Gradients are compared for every input of floating-point numbers, or for those only whose places are the digits of
    `learn`, and for the parameters of modules.
    """
    import torch

    inputs = list(inputs)
    places = [int(c) for c in learn] if learn else [i for i, t in enumerate(inputs) if floating(t)]
    results: list[tuple[Any, dict[str, Any]]] = []
    close(call, yours(*inputs), ours(*inputs), hint, tolerance)  # without gradients: a function may change leaves
    for function in (yours, ours):
        leaves = [t.detach().clone().requires_grad_(i in places) if floating(t) else t for i, t in enumerate(inputs)]
        # a leaf cannot be changed in place: that a function does so is to be said in our words
        out = function(*[t.view_as(t) if i in places else t for i, t in enumerate(leaves)])
        sources = {f"argument {i + 1}": leaves[i] for i in places}
        sources |= dict(getattr(function, "named_parameters", dict)())
        results.append((out, sources))
    (mine, my_sources), (right, sources) = results
    close(call, mine, right, hint, tolerance)
    if not right.requires_grad:
        return
    if not mine.requires_grad:
        raise Wrong(f"{call} has the right values and no gradient: leave out no_grad(), detach() and .data.")
    weight = normal(*right.shape, seed=77)
    gradients = [
        torch.autograd.grad((out.float() * weight).sum(), list(each.values()), allow_unused=True)
        for out, each in ((mine, {name: my_sources[name] for name in sources}), (right, sources))
    ]
    for name, my_gradient, gradient in zip(sources, *gradients, strict=True):
        if gradient is None:
            continue
        if my_gradient is None:
            raise Wrong(f"No gradient reaches {name} of {call}: leave out detach() and .data.")
        words = f"{call} has the right values; its gradient for {name}"
        close(words, my_gradient, gradient, "Is a part of it detached?", max(tolerance, 1e-4))


def followed(function: Callable[..., Any], *last: Any) -> Callable[..., Any]:
    """A function of tensors alone, whose last arguments are these."""
    return lambda *tensors: function(*tensors, *last)


def floating(value: Any) -> bool:
    """True for a tensor of floating-point numbers."""
    return hasattr(value, "is_floating_point") and bool(value.is_floating_point())


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
    parameters = dict(module.named_parameters())
    for key in state:
        if key not in parameters or not parameters[key].requires_grad:
            raise Wrong(f"The weight {key!r} of {name} is not a parameter that learns: make it an nn.Parameter.")
    module.load_state_dict(state)
    return module


def seconds(run: Callable[[], object], times: int = 1) -> float:
    """Seconds of a call, the shortest of several; of fewer if they take long."""
    shortest, first = math.inf, time.perf_counter()
    State.is_timing = True
    try:
        for _ in range(times):
            began = time.perf_counter()
            run()
            shortest = min(shortest, time.perf_counter() - began)
            if time.perf_counter() - first > ENOUGH:
                break
    finally:
        State.is_timing = False
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
