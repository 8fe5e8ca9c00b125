"""Scaling laws of one's own runs: how the loss depends on size, tokens and compute, each number with its interval.

parabola   of each budget the loss is a parabola in log N; its lowest points give N* and the loss as power laws of the
           budget C (Hoffmann et al. 2022, arXiv:2203.15556, approach 2)
surface    loss = E + A / N^α + B / D^β for all runs at once (approach 3), by Huber's loss of the logarithms from
           several starts, as Besiroglu et al. 2024, arXiv:2404.10102, found to be needed
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

BOOTSTRAPS = 200  # times that the runs are drawn again, for an interval
HUBER = 1e-3


@dataclass(frozen=True)
class TrainedModel:
    """One trained model: its parameters, the tokens that it read, the FLOPs of that, and the loss in nats a token."""

    parameters: float
    tokens: float
    flops: float
    loss: float


@dataclass(frozen=True)
class Interval:
    """A value with its 95% interval over bootstrap samples; no interval where they could not be fitted."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def text(self, form: str = ",.0f") -> str:
        """value (low – high)."""
        whole = format(self.value, form)
        return whole if math.isnan(self.low) else f"{whole} ({format(self.low, form)} – {format(self.high, form)})"


@dataclass(frozen=True)
class Parabola:
    """The lowest point of each budget's parabola, and what two power laws make of them."""

    budgets: tuple[float, ...]
    best_sizes: tuple[float, ...]
    best_losses: tuple[float, ...]
    size_law: tuple[float, float]  # log N* = first + second · log C
    loss_law: tuple[float, float]  # log loss = first + second · log C

    def best_size(self, flops: float) -> float:
        """The parameters that are best at a budget."""
        return math.exp(self.size_law[0] + self.size_law[1] * math.log(flops))

    def best_loss(self, flops: float) -> float:
        """The loss of the best size at a budget."""
        return math.exp(self.loss_law[0] + self.loss_law[1] * math.log(flops))


def fit_parabola(runs: Sequence[TrainedModel]) -> Parabola:
    """Fits a parabola to each budget that has three sizes, and power laws through their lowest points.

    Raises:
        ValueError: Fewer than two budgets have a lowest point.
    """
    budgets, sizes, losses = [], [], []
    for budget, some in by_budget(runs).items():
        if len({run.parameters for run in some}) < 3:
            continue
        x = np.log([run.parameters for run in some])
        middle = float(x.mean())
        bend, slope, level = (float(c) for c in np.polyfit(x - middle, [run.loss for run in some], 2))
        if bend <= 0:
            continue  # no lowest point
        budgets.append(budget)
        sizes.append(math.exp(middle - slope / (2 * bend)))
        losses.append(level - slope * slope / (4 * bend))
    if len(budgets) < 2 or min(losses) <= 0:
        raise ValueError(
            f"{len(budgets)} of the budgets have a size that is best, and a law takes two: try other sizes"
        )
    size_law, loss_law = (power_law(budgets, values) for values in (sizes, losses))
    return Parabola(tuple(budgets), tuple(sizes), tuple(losses), size_law, loss_law)


def by_budget(runs: Sequence[TrainedModel]) -> dict[float, list[TrainedModel]]:
    """The runs of each budget: FLOPs to two digits, since steps are whole numbers."""
    grouped: dict[float, list[TrainedModel]] = {}
    for run in sorted(runs, key=lambda run: (run.flops, run.parameters)):
        grouped.setdefault(float(f"{run.flops:.1e}"), []).append(run)
    return grouped


def power_law(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """a and b of log y = a + b · log x, by least squares."""
    b, a = np.polyfit(np.log(x), np.log(y), 1)
    return float(a), float(b)


@dataclass(frozen=True)
class Surface:
    """loss = E + A / N^α + B / D^β."""

    floor: float  # E
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss of so many parameters after so many tokens."""
        return float(self.floor + self.a / parameters**self.alpha + self.b / tokens**self.beta)

    def best_size(self, flops: float) -> float:
        """The parameters that are best at a budget of 6 N D FLOPs."""
        share = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        return float(share * (flops / 6) ** (self.beta / (self.alpha + self.beta)))


def fit_surface(runs: Sequence[TrainedModel], start: Surface | None = None) -> Surface:
    """Fits the surface to all runs; from `start` alone where that is given, else from a grid of starts.

    Raises:
        ValueError: There are fewer than five runs, as many as the law has constants.
    """
    if len(runs) < 5:
        raise ValueError(f"{len(runs)} runs are not enough for a law of five constants: train more sizes or budgets")
    n, d, losses = (
        torch.tensor([math.log(value) for value in values], dtype=torch.float64)
        for values in zip(*((run.parameters, run.tokens, run.loss) for run in runs), strict=True)
    )

    def descend(values: Sequence[float], iterations: int) -> tuple[float, list[float]]:
        """The error that L-BFGS reaches from these values, and where; infinite where an exponent is not positive."""
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([x], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_change=1e-12)

        def error() -> torch.Tensor:
            e, a, b, alpha, beta = x.unbind()
            fitted = torch.stack((a - alpha * n, b - beta * d, e.expand_as(n))).logsumexp(0)
            return torch.nn.functional.huber_loss(fitted, losses, reduction="sum", delta=HUBER) / HUBER

        def closure() -> float:
            optimizer.zero_grad()
            loss = error()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()  # type: ignore[return-value]

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        reached = float(error().detach())
        is_law = math.isfinite(reached) and bool((x[3:] > 0).all())
        return reached if is_law else math.inf, x.detach().tolist()

    if start is None:
        lowest = math.log(min(run.loss for run in runs))
        grid = itertools.product((lowest - 1.5, lowest - 0.3), (2.0, 6.0), (2.0, 6.0), (0.3, 0.6), (0.3, 0.6))
        nearest = sorted(descend(values, 40) for values in grid)[:4]  # only they go on to the end
        fits = [descend(values, 300) for _, values in nearest]
    else:
        fits = [descend((math.log(start.floor), math.log(start.a), math.log(start.b), start.alpha, start.beta), 60)]
    lowest_error, best = min(fits)
    if lowest_error == math.inf:
        raise ValueError("no surface fits the runs: train more sizes or budgets")
    return Surface(*(math.exp(value) for value in best[:3]), *best[3:])


def bootstrapped(
    runs: Sequence[TrainedModel], measure: Callable[[Sequence[TrainedModel]], tuple[float, ...]], seed: int = 0
) -> tuple[Interval, ...]:
    """The numbers of `measure` for the runs, each with its 95% interval: over runs drawn again within each budget.

    Draws that it refuses do not count.
    """
    drawn, generator, groups = [], random.Random(seed), list(by_budget(runs).values())
    for _ in range(BOOTSTRAPS):
        try:
            numbers = measure([run for some in groups for run in generator.choices(some, k=len(some))])
        except (ValueError, OverflowError):
            continue
        if all(map(math.isfinite, numbers)):
            drawn.append(numbers)
    values = measure(runs)
    if len(drawn) < BOOTSTRAPS // 4:
        return tuple(Interval(value) for value in values)
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    return tuple(Interval(value, float(a), float(b)) for value, a, b in zip(values, low, high, strict=True))
