"""The checks of chapter 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, normal, same, same_function, with_weights
from torch import Tensor, nn


def center_rows(yours: Callable[..., Any]) -> None:
    for shape in ((3, 4), (5,), (2, 3, 4), (4, 4)):
        hint = "The mean of each row is over the last dimension; keepdim=True leaves a column that fits beside x."
        ours = centered
        same_function(f"center_rows(x {shape})", yours, ours, [normal(*shape) + 3], hint)


def centered(x: Tensor) -> Tensor:
    return x - x.sum(-1, keepdim=True) / x.shape[-1]


def pairwise_distances(yours: Callable[..., Any]) -> None:
    for n, m, d in ((3, 4, 2), (1, 5, 3), (4, 4, 1), (6, 1, 7)):
        hint = "a[:, None] is (n, 1, d) and b[None] is (1, m, d): their difference is (n, m, d)."
        a, b = normal(n, d), normal(m, d, seed=1)
        same_function(f"pairwise_distances(a {(n, d)}, b {(m, d)})", yours, distances, [a, b], hint)
    a, b = normal(30, 2) + 1000, normal(4, 2, seed=1) + 1000  # torch.cdist multiplies matrices from 26 rows on
    hint = "a² + b² - 2ab loses the difference of large numbers: subtract first, then square."
    close("pairwise_distances of rows near (1000, 1000)", yours(a, b), distances(a, b), hint, 1e-3)


def distances(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([torch.stack([(row - other).norm() for other in b]) for row in a])


def first_three(x: Tensor) -> Tensor:
    """The gradient of three times the first number."""
    out = torch.zeros(x.numel())
    out[0] = 3
    return out.view(x.shape)


def gradient(yours: Callable[..., Any]) -> None:
    for name, function, derivative in (
        ("sum of squares", lambda x: (x * x).sum(), lambda x: 2 * x),
        ("sum of sines", lambda x: x.sin().sum(), torch.cos),
        ("3 · first number", lambda x: 3 * x.flatten()[0], first_three),
    ):
        for shape in ((4,), (2, 3)):
            x = normal(*shape)
            close(f"gradient({name}, x {shape})", yours(function, x), derivative(x), "backward() fills x.grad.")
            if x.requires_grad or x.grad is not None:
                raise Wrong("gradient leaves its mark on x: take a copy (x.detach().clone()) and ask for its gradient.")
    x = normal(3).requires_grad_()
    x.grad = torch.ones(3)
    close("gradient of an x that has a gradient already", yours(lambda x: (x * x).sum(), x), 2 * x.detach())
    if x.grad is None or not torch.equal(x.grad, torch.ones(3)) or not x.requires_grad:
        raise Wrong("gradient changes x.grad, which belongs to somebody else: work on a copy of x.")


class Ours(nn.Module):
    """Horner's rule."""

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(degree + 1))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for coefficient in self.coefficients.flip(0):
            out = out * x + coefficient
        return out


def polynomial(yours: Callable[..., Any]) -> None:
    for degree, shape in ((3, (5,)), (0, (4,)), (2, (2, 3)), (1, ())):
        ours = Ours(degree)
        student = with_weights(yours(degree), ours.state_dict())
        close(f"The initial coefficients of Polynomial({degree})", yours(degree).coefficients, torch.zeros(degree + 1))
        with torch.no_grad():
            ours.coefficients += normal(degree + 1, seed=degree)
        with_weights(student, ours.state_dict())
        hint = "The first coefficient belongs to x⁰, which is 1."
        same_function(f"Polynomial({degree})(x {shape})", student, ours, [normal(*shape, seed=7)], hint)


class Pair(nn.Module):
    """A polynomial, and another one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = Ours(2), Ours(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)  # type: ignore[no-any-return]


def fit(yours: Callable[..., Any]) -> None:
    x, y = normal(20), normal(20, seed=1)
    for steps, rate in ((1, 0.1), (5, 0.05), (0, 0.1)):
        mine, ours = Pair(), Pair()
        mine.used.coefficients.grad = torch.ones(3)
        losses = yours(mine, x, y, steps, rate)
        if losses is None:
            raise Wrong(f"fit returns None: {NOT_WRITTEN}.")
        right = []
        for _ in range(steps):
            loss = (ours(x) - y).square().mean()
            (gradient,) = torch.autograd.grad(loss, [ours.used.coefficients])
            right.append(loss.item())
            with torch.no_grad():
                ours.used.coefficients -= rate * gradient
        call = f"fit(module, x, y, {steps}, {rate})"
        hint = "Gradients add up: clear them before each step. Change parameters under torch.no_grad(), in place."
        for name, p in mine.named_parameters():
            close(f"{name} after {call}", p, dict(ours.named_parameters())[name], hint)
        if any(isinstance(loss, Tensor) for loss in losses):
            raise Wrong(f"{call} returns tensors, which keep their graphs in memory: loss.item() is a number.")
        same(f"The number of losses of {call}", len(losses), steps)
        close(f"The losses of {call}", torch.tensor(losses), torch.tensor(right), "The loss before each step.")


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    0: {
        "center_rows": center_rows,
        "pairwise_distances": pairwise_distances,
        "gradient": gradient,
        "Polynomial": polynomial,
        "fit": fit,
    }
}
