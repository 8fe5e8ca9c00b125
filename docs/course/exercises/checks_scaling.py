"""The checks of chapter 8."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from grading import NOT_WRITTEN, Wrong, close, compare_speed, near, same, seconds
from recorded import Key, Runs, recorded

import accounting
import lm
from lm import reference

TO_SPEND = 1.1e12  # FLOPs, of 2.8e12 that all runs for sale cost
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # there in Triton's interpreter


def fit_power_law(yours: Callable[..., Any]) -> None:
    exact = [1e3, 1e5, 1e9]
    noisy = [(x, 3 * x**0.5 * noise) for x, noise in ((1e2, 1.1), (1e3, 0.9), (1e4, 1.0), (1e5, 1.2))]
    slope, offset = np.polyfit(*(np.log(column) for column in zip(*noisy, strict=True)), 1)
    for x, y, (a, b) in (
        (exact, [0.5 * value**-0.25 for value in exact], (0.5, -0.25)),
        (*map(list, zip(*noisy, strict=True)), (float(np.exp(offset)), float(slope))),
    ):
        answer = yours(x, y)
        if answer is None:
            raise Wrong(f"fit_power_law returns None: {NOT_WRITTEN}.")
        near(f"The exponent of fit_power_law({x}, {y})", answer[1], b, "Fit in logarithms.")
        near(f"The factor of fit_power_law({x}, {y})", answer[0], a, "The line gives log a.")


def isoflop_optimum(yours: Callable[..., Any]) -> None:
    sizes = [1e7, 3e7, 1e8, 3e8, 1e9]
    for best, noise in ((1e8, (0, 0, 0, 0, 0)), (4e7, (0, 0, 0, 0, 0)), (2e8, (0.01, -0.02, 0, 0.03, -0.01))):
        losses = [3 + 0.1 * np.log(size / best) ** 2 + off for size, off in zip(sizes, noise, strict=True)]
        square, line, _ = np.polyfit(np.log(sizes), losses, 2)
        shown = [round(float(loss), 3) for loss in losses]
        hint = "The lowest point of a·z² + b·z + c is at z = -b / 2a, and z is the logarithm of a size."
        right = float(np.exp(-line / (2 * square)))
        near(f"isoflop_optimum({sizes}, {shown})", yours(sizes, losses), right, hint, 1e-4)


def compute_optimal(yours: Callable[..., Any]) -> None:
    for law in ("besiroglu", "hoffmann-3"):
        surface = accounting.LAWS[law].surface
        for flops in (1e19, 5.76e23):
            answer = yours(flops, *surface)  # type: ignore[misc]
            if answer is None:
                raise Wrong(f"compute_optimal returns None: {NOT_WRITTEN}.")
            right = accounting.compute_optimal(flops, law=law)
            call = f"compute_optimal({flops:g}, …) of the law {law}"
            hint = "At the optimum alpha · A / N^alpha = beta · B / D^beta."
            near(f"The parameters of {call}", answer[0], float(right.parameters), hint, 1e-4)
            near(f"The tokens of {call}", answer[1], float(right.tokens), "D = flops / (6·N).", 1e-4)


def invented(best_rate: float, floor: float, beta: float) -> dict[Key, tuple[float, float]]:
    """A table of runs that follow the law of Hoffmann et al. exactly, but for what a wrong learning rate costs."""
    table: dict[Key, tuple[float, float]] = {}
    for width, rate, flops in itertools.product((16, 32, 48, 64, 96), (3e-3, 1e-2, 3e-2), (1e11, 2e11, 4e11, 1.6e12)):
        size = 50 * width**2 + 1000 * width
        loss = floor + 60 / size**0.35 + 140 / (flops / 6 / size) ** beta
        table[width, rate, flops] = (size, loss + 0.3 * abs(math.log(rate / best_rate)))
    return table


def predict(yours: Callable[..., Any]) -> str:
    for best_rate, floor, beta in ((1e-2, 1.5, 0.37), (3e-2, 1.0, 0.36), (3e-3, 2.0, 0.38)):
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
    return (
        f"  at {target:g} FLOPs you predict {loss:.3f} with {size:,.0f} parameters; of the recorded runs {best:,.0f} "
        f"parameters were best, with {losses[best]:.3f}; {runs.remaining:.3g} of {TO_SPEND:.3g} FLOPs are left"
    )


def written(name: str, out: Any) -> Any:
    """The output of a kernel, on the CPU; raises Wrong if nothing was written."""
    if bool(out.isnan().all()):
        raise Wrong(f"{name} writes nothing: its body is not written yet.")
    return out.cpu()


def softmax(kernel: Any, launch: Callable[..., Any]) -> str:
    torch.manual_seed(0)
    for rows, columns in ((1, 1), (3, 8), (5, 37), (2, 300)):
        x = torch.randn(rows, columns) * 5
        hint = "Where a row is shorter than BLOCK, load -inf instead, and store only what is there."
        close(
            f"softmax of {rows} rows of {columns}", written("softmax_kernel", launch(x.to(DEVICE))), x.softmax(-1), hint
        )
    large = torch.tensor([[1000.0, 1001.0]])
    close("softmax([[1000, 1001]])", launch(large.to(DEVICE)).cpu(), large.softmax(-1), "Take the largest off first.")
    x = torch.randn(64, 256)
    slow = seconds(lambda: launch(x.to(DEVICE)))
    where = "on the GPU" if DEVICE == "cuda" else "in the interpreter, where no kernel is fast"
    return compare_speed(f"64 rows of 256, {where}, beside torch's", slow, seconds(lambda: x.to(DEVICE).softmax(-1), 3))


def guarded(t: Any) -> Any:
    """A contiguous tensor behind which the memory is NaN, so that reading beyond the end shows."""
    memory = torch.full((t.numel() + 64 * t.shape[-1],), float("nan"), device=DEVICE)
    return memory[: t.numel()].view(t.shape).copy_(t)


LENGTHS = ((1, 16, 16, 16), (1, 1, 1, 16), (1, 20, 65, 16), (1, 45, 20, 16), (2, 50, 50, 32))  # heads, …, width


def attention_cases() -> Iterator[tuple[str, Any, Any, Any, bool]]:
    """A description, queries, keys, values and is_causal of each case."""
    torch.manual_seed(0)
    for heads, queries, keys, width in LENGTHS:
        q = 4 * torch.randn(heads, queries, width)
        k, v = torch.randn(2, heads, keys, width)
        for causal in (True, False) if queries == keys else (False,):
            words = f"{heads} heads, {queries} queries and {keys} keys of {width}{', causal' if causal else ''}"
            yield words, q, k, v, causal


def visible(q: Any, k: Any, causal: bool) -> Any:
    """The mask of a case."""
    return torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(0 if causal else k.shape[1])


def log_sums(q: Any, k: Any, causal: bool) -> Any:
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~visible(q, k, causal), -math.inf).logsumexp(-1)


def attention(kernel: Any, launch: Callable[..., Any]) -> str:
    for words, q, k, v, causal in attention_cases():
        out, logs = launch(*map(guarded, (q, k, v)), *([True] if causal else []))
        right = reference.attention(q, k, v, visible(q, k, causal))
        hint = "Hidden scores are -inf before the maximum is taken; when the maximum grows, both sums shrink."
        close(f"attention_forward of {words}", written("attention_kernel", out), right, hint, 1e-4)
        if bool(logs.isnan().all()):
            raise Wrong("attention_kernel writes nothing into logs.")
        hint = "It is the largest score, and the logarithm of the sum."
        close(f"logs of {words}", logs.cpu(), log_sums(q, k, causal), hint, 1e-4)
    q, k, v = torch.randn(3, 2, 128, 32).to(DEVICE).unbind()
    slow = seconds(lambda: launch(q, k, v, True))
    where = "on the GPU" if DEVICE == "cuda" else "in the interpreter, beside what lm calls on a CPU"
    return compare_speed(f"2 heads, 128 positions, {where}", slow, seconds(lambda: lm.attention.attention(q, k, v), 3))


class Saved:
    """The context of an autograd Function between its forward and its backward pass."""

    def __init__(self, tensors: tuple[Any, ...], is_causal: bool) -> None:
        self.saved_tensors, self.is_causal = tensors, is_causal


def attention_backward(keys_kernel: Any, queries_kernel: Any, function: Any) -> None:
    """With the right output and logs, so that no other kernel has to be right."""
    for words, q, k, v, causal in attention_cases():
        inputs = [t.clone().requires_grad_() for t in (q, k, v)]
        out = reference.attention(*inputs, visible(q, k, causal))
        gradient = torch.randn(out.shape)
        right = torch.autograd.grad(out, inputs, gradient)
        saved = Saved(tuple(map(guarded, (q, k, v, out.detach(), log_sums(q, k, causal)))), causal)
        dq, dk, dv, _ = function.backward(saved, guarded(gradient))
        hint = "dS = P · (dout vᵀ - row_sums), and scores were multiplied by scale: so are dq and dk."
        kernels = ("queries_kernel", "keys_kernel", "keys_kernel")
        for name, kernel, yours, ours in zip("qkv", kernels, (dq, dk, dv), right, strict=True):
            close(f"The gradient of {name} of {words}", written(kernel, yours), ours, hint, 1e-4)
    for causal in (True, False):  # all kernels together, and a gradient that is not contiguous
        yours, inputs = ([t.clone().to(DEVICE).requires_grad_() for t in (q, k, v)] for _ in range(2))
        out = function.apply(*yours, *([True] if causal else []))
        right = reference.attention(*inputs, visible(q, k, causal).to(DEVICE))
        close("FlashAttention.apply", out, right, "Is attention_kernel right?", 1e-4)
        gradients = (torch.autograd.grad(o.sum(), t) for o, t in ((out, yours), (right, inputs)))
        for name, mine, ours in zip("qkv", *gradients, strict=True):
            close(f"The gradient of {name} of FlashAttention.apply", mine, ours, "Are both kernels right?", 1e-4)


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
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
