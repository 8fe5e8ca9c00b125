"""The checks of chapter 8."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from grading import NOT_WRITTEN, Wrong, close, compare_speed, drawing, near, normal, same, seconds
from recorded import Key, Runs, recorded

import accounting
import lm
from lm import reference

TO_SPEND = 1.1e12  # FLOPs, of 2.8e12 that all runs for sale cost
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # there in Triton's interpreter


def memory() -> contextlib.AbstractContextManager[list[int]]:
    """The interpreter's memory, checked; a GPU's is as it is."""
    if DEVICE == "cuda":
        return contextlib.nullcontext([1])
    from bounds import checked_memory

    return checked_memory()


def fit_power_law(yours: Callable[..., Any]) -> None:
    numbers = drawing("fit_power_law")
    factor, exponent = numbers.uniform(0.1, 50), numbers.uniform(-2, 2)
    exact = sorted(numbers.uniform(1, 1e9) for _ in range(5))
    noisy = [(x, 3 * x**0.5 * numbers.uniform(0.7, 1.4)) for x in (1e2, 1e3, 1e4, 1e5)]
    slope, offset = np.polyfit(*(np.log(column) for column in zip(*noisy, strict=True)), 1)
    for x, y, (a, b) in (
        ([1e3, 1e5, 1e9], [0.5 * value**-0.25 for value in (1e3, 1e5, 1e9)], (0.5, -0.25)),
        (exact, [factor * value**exponent for value in exact], (factor, exponent)),
        (*map(list, zip(*noisy, strict=True)), (float(np.exp(offset)), float(slope))),
    ):
        answer = yours(x, y)
        if answer is None:
            raise Wrong(f"fit_power_law returns None: {NOT_WRITTEN}.")
        near(f"The exponent of fit_power_law({x}, {y})", answer[1], b, "Fit in logarithms.")
        near(f"The factor of fit_power_law({x}, {y})", answer[0], a, "The line gives log a.")


def isoflop_optimum(yours: Callable[..., Any]) -> None:
    numbers = drawing("isoflop_optimum")
    sizes = [1e7, 3e7, 1e8, 3e8, 1e9]
    noise = [numbers.uniform(-0.03, 0.03) for _ in sizes]
    for best, offsets in ((1e8, [0] * 5), (4e7, [0] * 5), (2e8, noise), (numbers.uniform(3e7, 3e8), [0] * 5)):
        losses = [3 + 0.1 * np.log(size / best) ** 2 + off for size, off in zip(sizes, offsets, strict=True)]
        square, line, _ = np.polyfit(np.log(sizes), losses, 2)
        shown = [round(float(loss), 3) for loss in losses]
        hint = "The lowest point of a·z² + b·z + c is at z = -b / 2a, and z is the logarithm of a size."
        right = float(np.exp(-line / (2 * square)))
        near(f"isoflop_optimum({sizes}, {shown})", yours(sizes, losses), right, hint, 1e-4)


def compute_optimal(yours: Callable[..., Any]) -> None:
    numbers = drawing("compute_optimal")
    surfaces = [(law, accounting.LAWS[law].surface) for law in ("besiroglu", "hoffmann-3")]
    surfaces.append(
        (
            "of drawn constants",
            (1.5, numbers.uniform(100, 900), numbers.uniform(100, 9000), numbers.uniform(0.2, 0.5), 0.3),
        )
    )
    for law, surface in surfaces:
        _, A, B, alpha, beta = surface  # type: ignore[misc]
        for flops in (1e19, 5.76e23, numbers.uniform(1e18, 1e24)):
            answer = yours(flops, *surface)  # type: ignore[misc]
            if answer is None:
                raise Wrong(f"compute_optimal returns None: {NOT_WRITTEN}.")
            size = (alpha * A / (beta * B) * (flops / 6) ** beta) ** (1 / (alpha + beta))
            call = f"compute_optimal({flops:g}, …) of the law {law}"
            hint = "At the optimum alpha · A / N^alpha = beta · B / D^beta."
            near(f"The parameters of {call}", answer[0], size, hint, 1e-4)
            near(f"The tokens of {call}", answer[1], flops / (6 * size), "D = flops / (6·N).", 1e-4)


def invented(best_rate: float, floor: float, beta: float) -> dict[Key, tuple[float, float]]:
    """A table of runs that follow the law of Hoffmann et al. exactly, but for what a wrong learning rate costs."""
    table: dict[Key, tuple[float, float]] = {}
    for width, rate, flops in itertools.product((16, 32, 48, 64, 96), (3e-3, 1e-2, 3e-2), (1e11, 2e11, 4e11, 1.6e12)):
        size = 50 * width**2 + 1000 * width
        loss = floor + 60 / size**0.35 + 140 / (flops / 6 / size) ** beta
        table[width, rate, flops] = (size, loss + 0.3 * abs(math.log(rate / best_rate)))
    return table


def predict(yours: Callable[..., Any]) -> Callable[[], str]:
    drawn = drawing("predict").uniform(0.8, 2.5)
    for best_rate, floor, beta in ((1e-2, 1.5, 0.37), (3e-2, 1.0, 0.36), (3e-3, drawn, 0.38)):
        runs = Runs(invented(best_rate, floor, beta), 2 * 1e11 + 5 * 7e11, below=1.6e12)
        answer = yours(runs, 1.6e12)
        if answer is None:
            raise Wrong(f"predict returns None: {NOT_WRITTEN}.")
        size, rate, loss = answer
        law = (0.35 * 60 / (beta * 140)) ** (1 / (0.35 + beta)) * (1.6e12 / 6) ** (beta / (0.35 + beta))
        lowest = floor + 60 / law**0.35 + 140 / (1.6e12 / 6 / law) ** beta
        call = f"predict(runs that follow a law of exponents 0.35 and {beta}, 1.6e12)"
        same(f"The learning rate of {call}", rate, best_rate, "It is the one of the lowest loss.")
        hint = "Fit both power laws to what the parabolas say of each budget, and put flops into them."
        near(f"The parameters of {call}, within a quarter,", size, law, hint, 0.25)
        near(f"The loss of {call}, within 3%,", loss, lowest, hint, 0.03)
    table = recorded()
    target = max(flops for _, _, flops in table)
    runs = Runs(table, TO_SPEND, target)
    size, rate, loss = yours(runs, target)
    losses: dict[float, float] = {}
    for (_, _, flops), (parameters, loss_there) in table.items():
        if flops == target:
            losses[parameters] = min(loss_there, losses.get(parameters, math.inf))
    best = min(losses, key=losses.__getitem__)
    nearest = min(losses, key=lambda recorded_size: abs(math.log(recorded_size / size)))
    call = f"predict(the recorded runs, {target:g})"
    near(f"The loss of {call}, within 4%,", loss, losses[best], "The smaller runs say more than that.", 0.04)
    if losses[nearest] > 1.02 * losses[best]:
        raise Wrong(f"{call} says {size:,.0f} parameters: their loss was {losses[nearest]}, the best {losses[best]}.")
    line = (
        f"  at {target:g} FLOPs you predict {loss:.3f} with {size:,.0f} parameters; of the recorded runs {best:,.0f} "
        f"parameters were best, with {losses[best]:.3f}; {runs.remaining:.3g} of {TO_SPEND:.3g} FLOPs are left"
    )
    return lambda: line


def written(name: str, out: Any, stores: list[int]) -> Any:
    """The output of a kernel, on the CPU; raises Wrong if nothing was written, or NaN alone."""
    if bool(out.isnan().all()):
        if not sum(stores):
            raise Wrong(f"{name} writes nothing: its body is not written yet.")
        raise Wrong(f"{name} writes NaN alone: it divides 0 by 0. Does it read every tile?")
    return out.cpu()


def softmax(kernel: Any, launch: Callable[..., Any]) -> Callable[[], str]:
    numbers = drawing("softmax_kernel")
    for rows, columns in ((1, 1), (3, 8), (5, 37), (2, 300), (numbers.randint(2, 9), numbers.randint(65, 127))):
        x = normal(rows, columns, scale=5)
        hint = "Where a row is shorter than BLOCK, load -inf instead, and store only what is there."
        call = f"softmax of {rows} rows of {columns}"
        with memory() as stores:
            out = launch(x.to(DEVICE))
        close(call, written("softmax_kernel", out, stores), x.softmax(-1), hint)
    large = torch.tensor([[1000.0, 1001.0]])
    hint = "Take the largest off first."
    close("softmax([[1000, 1001]])", launch(large.to(DEVICE)).cpu(), large.softmax(-1), hint, 2e-4)
    x = normal(64, 256).to(DEVICE)
    where = "on the GPU" if DEVICE == "cuda" else "in the interpreter, where no kernel is fast"
    what = f"64 rows of 256, {where}, beside torch's"
    return lambda: compare_speed(what, seconds(lambda: launch(x)), seconds(lambda: x.softmax(-1), 3))


def guarded(t: Any) -> Any:
    """A contiguous tensor behind which the memory is NaN, so that reading beyond the end shows."""
    larger = torch.full((t.numel() + 64 * t.shape[-1],), float("nan"), device=DEVICE)
    return larger[: t.numel()].view(t.shape).copy_(t)


LENGTHS = ((1, 16, 16, 16), (1, 1, 1, 16), (1, 20, 65, 16), (1, 45, 20, 16), (2, 50, 50, 32))  # heads, …, width


def attention_cases() -> Iterator[tuple[str, Any, Any, Any, bool]]:
    """A description, queries, keys, values and is_causal of each case."""
    for number, (heads, queries, keys, width) in enumerate(LENGTHS):
        q = normal(heads, queries, width, seed=number, scale=4)
        k, v = normal(2, heads, keys, width, seed=100 + number)
        for causal in (True, False) if queries == keys else (False,):
            words = f"{heads} heads, {queries} queries and {keys} keys of {width}{', causal' if causal else ''}"
            yield words, q, k, v, causal


def visible(q: Any, k: Any, causal: bool) -> Any:
    """The mask of a case."""
    return torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(0 if causal else k.shape[1])


def log_sums(q: Any, k: Any, causal: bool) -> Any:
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~visible(q, k, causal), -math.inf).logsumexp(-1)


def attention(kernel: Any, launch: Callable[..., Any]) -> Callable[[], str]:
    for words, q, k, v, causal in attention_cases():
        with memory() as stores:
            out, logs = launch(*map(guarded, (q, k, v)), *([True] if causal else []))
        right = reference.attention(q, k, v, visible(q, k, causal))
        hint = "Hidden scores are -inf before the maximum is taken; when the maximum grows, both sums shrink."
        close(f"attention_forward of {words}", written("attention_kernel", out, stores), right, hint, 1e-4)
        if bool(logs.isnan().all()):
            raise Wrong("attention_kernel writes nothing into logs.")
        hint = "It is the largest score, and the logarithm of the sum."
        close(f"logs of {words}", logs.cpu(), log_sums(q, k, causal), hint, 1e-4)
    q, k, v = normal(3, 2, 128, 32).to(DEVICE).unbind()
    where = "on the GPU" if DEVICE == "cuda" else "in the interpreter, beside what lm calls on a CPU"

    def speed() -> str:
        lm.attention.attention(q, k, v)  # its first call may compile
        slow = seconds(lambda: launch(q, k, v, True))
        fast = seconds(lambda: lm.attention.attention(q, k, v), 3)
        return compare_speed(f"2 heads, 128 positions, {where}", slow, fast)

    return speed


class Saved:
    """The context of an autograd Function between its forward and its backward pass."""

    def __init__(self, tensors: tuple[Any, ...], is_causal: bool) -> None:
        self.saved_tensors, self.is_causal = tensors, is_causal


def attention_backward(keys_kernel: Any, queries_kernel: Any, function: Any) -> None:
    """With the right output and logs, so that no other kernel has to be right."""
    for words, q, k, v, causal in attention_cases():
        inputs = [t.clone().requires_grad_() for t in (q, k, v)]
        out = reference.attention(*inputs, visible(q, k, causal))
        gradient = normal(*out.shape, seed=200)
        right = torch.autograd.grad(out, inputs, gradient)
        saved = Saved(tuple(map(guarded, (q, k, v, out.detach(), log_sums(q, k, causal)))), causal)
        with memory() as stores:
            dq, dk, dv, _ = function.backward(saved, guarded(gradient))
        hint = "dS = P · (dout vᵀ - row_sums), and scores were multiplied by scale: so are dq and dk."
        kernels = ("queries_kernel", "keys_kernel", "keys_kernel")
        for name, kernel, yours, ours in zip("qkv", kernels, (dq, dk, dv), right, strict=True):
            close(f"The gradient of {name} of {words}", written(kernel, yours, stores), ours, hint, 1e-4)
    for causal in (True, False):  # all kernels together, and a gradient that is not contiguous
        yours, inputs = ([t.clone().to(DEVICE).requires_grad_() for t in (q, k, v)] for _ in range(2))
        out = function.apply(*yours, *([True] if causal else []))
        right = reference.attention(*inputs, visible(q, k, causal).to(DEVICE))
        close("FlashAttention.apply", out, right, "Is attention_kernel right?", 1e-4)
        gradients = (torch.autograd.grad(o.sum(), t) for o, t in ((out, yours), (right, inputs)))
        for name, mine, ours in zip("qkv", *gradients, strict=True):
            close(f"The gradient of {name} of FlashAttention.apply", mine, ours, "Are both kernels right?", 1e-4)


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
    8: {
        "fit_power_law": fit_power_law,
        "isoflop_optimum": isoflop_optimum,
        "predict": predict,
        "compute_optimal": compute_optimal,
        "softmax_kernel and softmax": softmax,
        "attention_kernel and attention_forward": attention,
        "keys_kernel and queries_kernel and FlashAttention": attention_backward,
    }
}
