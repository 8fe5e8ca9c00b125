"""Exercises of chapter 0: tensors, gradients, modules. Fill in the bodies, then run `python grade.py 0`."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def center_rows(x: Tensor) -> Tensor:
    """x (…, columns) with the mean of each row taken off, so that each row sums to 0."""


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """The Euclidean distance of each row of a (n, d) to each row of b (m, d): (n, m), without a loop.

    Rows may lie near each other and far from 0.
    """


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a function at x, which gives a scalar: a tensor of the shape of x.

    x itself stays as it is: it need not require a gradient before, and does not after.
    """


class Polynomial(nn.Module):
    """x (…) → Σ coefficients[k] · x^k, k from 0 to degree.

    `coefficients`: a parameter (degree + 1,), zeros at first.
    """

    def __init__(self, degree: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        pass


def fit(module: nn.Module, x: Tensor, y: Tensor, steps: int, learning_rate: float) -> list[float]:
    """Change a module's parameters by gradient descent so that module(x) comes near y; the loss before each step.

    The loss is the mean of (module(x) - y)². A step takes learning_rate times its gradient off each parameter that
    has one. Gradients of earlier steps, or from before the call, do not count.
    """
