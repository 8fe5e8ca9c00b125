"""The exercise of Stanford's CS336 on learning rates: plain SGD whose rate falls with the square root of the step.

    python packages/lm/examples/sgd.py [--rates 10 100 1000] [--steps 10] [--seed 0]

The weights are a matrix W of n normal numbers times five, the loss is the mean of their squares, and step t = 0, 1, …
subtracts rate / sqrt(t + 1) times the gradient 2 W / n. So each step multiplies W by 1 - 2 rate / (n sqrt(t + 1)).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

RATES = (1e1, 1e2, 1e3)


class SGD(torch.optim.Optimizer):
    """w ← w - rate / sqrt(t + 1) · gradient, t counted for each weight from 0."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], rate: float) -> None:
        if not rate > 0:
            raise ValueError(f"a learning rate must be more than 0, and {rate} is not")
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                done = self.state[weight].get("t", 0)
                weight -= group["lr"] / math.sqrt(done + 1) * weight.grad
                self.state[weight]["t"] = done + 1
        return loss


def exercise(rate: float, steps: int = 10, *, shape: tuple[int, int] = (10, 10), seed: int = 0) -> list[float]:
    """The loss before each of the steps."""
    if steps < 1:
        raise ValueError(f"the exercise takes at least 1 step, and {steps} is not")
    weights = torch.nn.Parameter(5 * torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
    optimizer = SGD([weights], rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (weights**2).mean()
        losses.append(float(loss.detach()))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return losses


def finding(losses: dict[float, list[float]]) -> str:
    """The result in words, one sentence a rate and one that compares them."""
    sentences = []
    for rate, values in losses.items():
        first, last = values[0], values[-1]
        if not last <= first:
            grown = f"by {last / first:.1e} times" if math.isfinite(last) else "beyond every number"
            sentences.append(f"rate {rate:g} diverges: the loss grows {grown} in {len(values)} steps")
        elif last < 1e-9 * first:
            arrived = next(i for i, value in enumerate(values) if value < 1e-9 * first)
            sentences.append(f"rate {rate:g} arrives: the loss is 0, to rounding, after {arrived} steps")
        else:
            sentences.append(f"rate {rate:g} falls slowly: to {last / first:.2f} of the loss in {len(values)} steps")
    best = min(losses, key=lambda rate: losses[rate][-1] if math.isfinite(losses[rate][-1]) else math.inf)
    return f"{'; '.join(sentences)}. Of these, {best:g} is the best."


def in_columns(losses: dict[float, list[float]]) -> str:
    """The losses for a terminal, a column for each rate."""
    lines = [["step", *(f"rate {rate:g}" for rate in losses)]]
    lines += [
        [str(i), *(f"{value:.6g}" for value in step)] for i, step in enumerate(zip(*losses.values(), strict=True))
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    losses = {rate: exercise(rate, options.steps, seed=options.seed) for rate in options.rates}
    print(in_columns(losses))
    print(finding(losses))


if __name__ == "__main__":
    main()
