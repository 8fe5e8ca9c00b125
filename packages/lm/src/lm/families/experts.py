"""Mixtures of experts: a router sends each token through some of many feed-forward layers, which compute one after the
other; a loss spreads the tokens. (Shazeer et al. 2017, arXiv:1701.06538)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.model import SwiGLU


class Load(NamedTuple):
    """Load of the experts of one layer: choices and sum of probabilities of each expert, (experts,)."""

    counts: Tensor
    probabilities: Tensor
    tokens: int


class Step(NamedTuple):
    """Choices of the experts of one layer in all of a step, (experts,), the number of tokens, and the step's losses."""

    counts: Tensor
    tokens: int
    losses: int


class Experts(nn.Module):
    """x (…, d_model) → the weighted sum of the outputs of the experts that each token chose. normalised: the weights of
    a token's experts add up to 1. bias: of the router. expert: makes one (d_model, d_ff)."""

    def __init__(
        self,
        config: Any,
        number: int,
        d_ff: int,
        *,
        normalised: bool = True,
        bias: bool = False,
        expert: Callable[[int, int], nn.Module] = SwiGLU,
    ) -> None:
        super().__init__()
        self.per_token: int = config.num_experts_per_tok
        if self.per_token > number:
            raise ValueError(f"num_experts_per_tok is {self.per_token}, and there are {number} experts")
        self.normalised, self.balance = normalised, float(config.router_aux_loss_coef)
        self.router = nn.Linear(config.d_model, number, bias=bias)
        self.experts = nn.ModuleList(expert(config.d_model, d_ff) for _ in range(number))
        self.load: Load | None = None  # of the last forward pass in training
        self.step: Step | None = None  # of a step of several micro-batches
        self.step_counts: Tensor | None = None  # the choices that the last balancing loss was computed from

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)  # (tokens, d_model)
        probabilities = F.softmax(self.router(rows), dim=-1, dtype=torch.float32)  # (tokens, experts)
        weights, numbers = probabilities.topk(self.per_token, dim=-1)  # (tokens, per_token)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        learns = torch.is_grad_enabled()
        if self.training:
            counts = torch.bincount(numbers.flatten(), minlength=len(self.experts))
            self.load = Load(counts, probabilities.sum(0), len(rows))
        y = torch.zeros_like(rows)
        # In training those that no token chose, too, which learn nothing by gradients of zero.
        for number in range(len(self.experts)) if learns else sorted(set(numbers.flatten().tolist())):
            token, place = torch.where(numbers == number)
            y.index_add_(0, token, (self.experts[number](rows[token]) * weights[token, place, None]).to(y.dtype))
        return y.view_as(x)


def balancing_loss(model: nn.Module, losses: int) -> Tensor | None:
    """losses · coefficient · experts · Σ share of choices · mean probability, over the experts; the mean of all layers.

    Each layer has its own loss (Fedus et al. 2021, arXiv:2101.03961): two that each use half of the experts do not make
    up for each other. It is least, losses · coefficient · per_token, where all experts are chosen alike. After
    begin_step, the losses of the micro-batches of a step add up to that of the whole batch.

    Args:
        model: A model in training, which has just computed a micro-batch.
        losses: The number of losses of this micro-batch.

    Returns:
        A scalar, None without experts.
    """
    terms = []
    for layer in layers_of(model):
        if layer.load is None:
            continue
        load = layer.load
        step = layer.step or Step(load.counts, load.tokens, losses)
        layer.step_counts = step.counts
        # The mean probability has the gradient; the choices have none.
        products = (step.counts / step.tokens * load.probabilities / step.tokens).sum()
        terms.append(step.losses * layer.balance * len(step.counts) * products)
        layer.load = None
    return torch.stack(terms).mean() if terms else None


def layers_of(model: nn.Module) -> list[Experts]:
    """The layers of experts of a model, in order."""
    return [module for module in model.modules() if isinstance(module, Experts)]


def begin_step(layers: Sequence[Experts], counts: Sequence[Tensor], tokens: int, losses: int) -> None:
    """Set the choices of all micro-batches of a step, of all processes, before the first of them is learned from."""
    for layer, own in zip(layers, counts, strict=True):
        layer.step = Step(own, tokens, losses)


def end_step(layers: Sequence[Experts]) -> list[float]:
    """Return how many times the mean load the largest was, in each layer, and forget the step."""
    counts = [layer.step_counts for layer in layers if layer.step_counts is not None]
    largest = torch.stack([own.max() * len(own) / own.sum() for own in counts]).tolist() if counts else []
    for layer in layers:  # the record, too, of a forward pass that activation checkpointing repeated
        layer.load = layer.step = layer.step_counts = None
    return largest
