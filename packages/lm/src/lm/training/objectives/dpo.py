"""Direct preference optimisation: of two answers the better one is made likelier, as far as the model began.

    loss = -log σ(β ((log p(better) - log p₀(better)) - (log p(worse) - log p₀(worse))))

p₀ is the model that the run began with. (Rafailov et al. 2023, arXiv:2305.18290)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.documents import IGNORE, document_ids_of
from lm.model import Transformer
from lm.training.trainer import MicroBatch, Objective
from lm.training.validation import Score, shared, spread_windows


class DirectPreference(Objective):
    """Inputs and targets of packed pairs → the sum of the pairs' losses, in nats.

    The documents of a row that have targets are, in turn, the better and the worse answer of a pair. sums: "preferred",
    the pairs whose better answer became likelier than the other. Without a reference, a model with adapters is its own.
    """

    needs_start: ClassVar[bool] = True

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        if not data.pairs:
            raise ValueError("objective 'dpo' learns from pairs, got data without: `lm data preferences` makes them")
        if not config.document_masking:
            raise ValueError("objective 'dpo' goes with document_masking: else the second of a pair sees the first")

    @classmethod
    def needs_reference(cls, config: TrainConfig) -> bool:
        return True

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        document_ids = self.document_ids(inputs)
        answers, count = numbered(targets, document_ids)
        likelihoods = log_likelihoods(self.model, inputs, targets, document_ids, answers, count)
        with torch.no_grad(), self.reference() as reference:
            before = log_likelihoods(reference, inputs, targets, document_ids, answers, count)
        rewards = self.config.dpo_beta * (likelihoods - before)  # (2 · pairs,)
        margins = rewards[0::2] - rewards[1::2]
        self.sums["preferred"] += int((margins > 0).sum())
        return -F.logsigmoid(margins).sum()

    def document_ids(self, inputs: Tensor) -> Tensor:
        """The document of each token."""
        assert self.end_of_text is not None  # as check() wants document_masking
        return document_ids_of(inputs, self.end_of_text)

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum(numbered(targets, self.document_ids(inputs))[1] // 2 for inputs, targets in micro_batches)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        was_training, nats, pairs = self.model.training, 0.0, 0
        self.model.eval()
        device = self.model.embedding.weight.device
        for batch, is_own in shared(list(spread_windows(tokens, max_tokens)), self.share):
            loss = float(self(*(part.to(device) for part in batch)))
            if is_own:
                nats, pairs = nats + loss, pairs + self.count([batch])
        self.model.train(was_training)
        return Score(nats, pairs)


def numbered(targets: Tensor, document_ids: Tensor) -> tuple[Tensor, int]:
    """Return the number of each counting target's answer in the batch, from 0, and the number of answers."""
    counts = targets != IGNORE
    rows = torch.arange(len(targets), device=targets.device)[:, None].expand_as(targets)
    keys = torch.stack((rows[counts], document_ids[counts]))
    answers, numbers = torch.unique_consecutive(keys, dim=1, return_inverse=True)
    if bool((answers[0].bincount() % 2).any()):
        raise ValueError("a row has an odd number of answers: prepare pairs with `lm data preferences`")
    return numbers, answers.shape[1]


def log_likelihoods(
    model: Transformer, inputs: Tensor, targets: Tensor, document_ids: Tensor, answers: Tensor, count: int
) -> Tensor:
    """log p of each answer, (count,): the sum over its targets."""
    counts = targets != IGNORE
    logits = model.logits(model.hidden(inputs, document_ids)[counts])  # (targets that count, vocab_size)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide.new_zeros(count).index_add(0, answers, -F.cross_entropy(wide, targets[counts], reduction="none"))
