"""A solution of the exercises of chapter 0."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def center_rows(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b[None]).square().sum(-1).sqrt()


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    function(leaf).backward()
    return leaf.grad


class Polynomial(nn.Module):
    def __init__(self, degree: int) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(degree + 1))

    def forward(self, x: Tensor) -> Tensor:
        powers = x[..., None] ** torch.arange(len(self.coefficients))
        return powers @ self.coefficients


def fit(module: nn.Module, x: Tensor, y: Tensor, steps: int, learning_rate: float) -> list[float]:
    losses = []
    for _ in range(steps):
        module.zero_grad()
        loss = (module(x) - y).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in module.parameters():
                if p.grad is not None:
                    p -= learning_rate * p.grad
        losses.append(loss.item())
    return losses
