"""Mixtures of experts: a router sends each token through some of many feed-forward layers; a loss spreads the tokens.

By plain code: one expert after the other computes the tokens that chose it. (Shazeer et al. 2017, arXiv:1701.06538)
"""

from __future__ import annotations

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


class Experts(nn.Module):
    """x (…, d_model) → the weighted sum of the outputs of the experts that each token chose.

    Args:
        config: Its num_experts_per_tok is the number that a token passes, its router_aux_loss_coef that of the loss.
        number: Number of experts.
        d_ff: Width inside an expert.
        normalised: The weights of those that a token chose add up to 1.
        bias: The router has a bias.
    """

    def __init__(self, config: Any, number: int, d_ff: int, *, normalised: bool = True, bias: bool = False) -> None:
        super().__init__()
        self.per_token: int = config.num_experts_per_tok
        self.normalised, self.balance = normalised, float(config.router_aux_loss_coef)
        self.router = nn.Linear(config.d_model, number, bias=bias)
        self.experts = nn.ModuleList(self.expert(config.d_model, d_ff) for _ in range(number))
        self.load: Load | None = None  # of the last forward pass in training

    def expert(self, d_model: int, d_ff: int) -> nn.Module:
        """A new expert."""
        return SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)  # (tokens, d_model)
        probabilities = F.softmax(self.router(rows), dim=-1, dtype=torch.float32)  # (tokens, experts)
        weights, numbers = probabilities.topk(self.per_token, dim=-1)  # (tokens, per_token)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        learns = torch.is_grad_enabled()
        if self.training and learns:
            counts = torch.bincount(numbers.flatten(), minlength=len(self.experts))
            self.load = Load(counts, probabilities.sum(0), len(rows))
        y = torch.zeros_like(rows)
        # In training those that no token chose, too, which learn nothing by gradients of zero.
        for number in range(len(self.experts)) if learns else sorted(set(numbers.flatten().tolist())):
            token, place = torch.where(numbers == number)
            y.index_add_(0, token, (self.experts[number](rows[token]) * weights[token, place, None]).to(y.dtype))
        return y.view_as(x)


def balancing_loss(model: nn.Module) -> Tensor | None:
    """coefficient · experts · Σ choices per token · mean probability, over the experts; of all layers together.

    It is least, coefficient · per_token, where all experts are chosen alike. (Fedus et al. 2021, arXiv:2101.03961)
    Of the last forward pass in training, whose record is then forgotten; None without experts.
    """
    layers = [module for module in model.modules() if isinstance(module, Experts) and module.load is not None]
    loads = [layer.load for layer in layers if layer.load is not None]
    if not loads:
        return None
    tokens = sum(load.tokens for load in loads)
    counts = torch.stack([load.counts for load in loads]).sum(0) / tokens
    probabilities = torch.stack([load.probabilities for load in loads]).sum(0) / tokens
    for layer in layers:
        layer.load = None
    return layers[0].balance * len(counts) * (counts * probabilities).sum()
