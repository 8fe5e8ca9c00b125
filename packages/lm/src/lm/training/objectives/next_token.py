"""Pretraining: the cross-entropy of every next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from lm.data import Tokens
from lm.documents import IGNORE
from lm.families.experts import balancing_loss
from lm.training.trainer import MicroBatch, Objective
from lm.training.validation import Score, evaluate, sums_of_losses


class NextToken(Objective):
    """Inputs and targets → the sum of the targets' losses, with the balancing loss of experts."""

    is_uniform: ClassVar[bool] = True
    balances: ClassVar[bool] = True

    def forward(self, inputs: Tensor, targets: Tensor, special: int | None = None) -> Tensor:
        """The sum of the losses; in evaluation that, and the sum of the losses of targets that are `special`: (2,)."""
        losses = sums_of_losses(self.model, inputs, targets, self.end_of_text, special)
        if not self.model.training:
            return losses
        balance = balancing_loss(self.model, int((targets != IGNORE).sum()))
        return losses[0] if balance is None else losses[0] + balance

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum(targets.numel() for _, targets in micro_batches)

    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        how: dict[str, Any] = {"document_masking": self.end_of_text is not None, "summed": self, "share": self.share}
        return evaluate(self.model, tokens, max_tokens=max_tokens, **how)
