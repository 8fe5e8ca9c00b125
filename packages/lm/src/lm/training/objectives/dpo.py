"""Direct preference optimisation: of two answers the better one is made likelier, as far as the model began.

    loss = -log σ(β ((log p(better) - log p₀(better)) - (log p(worse) - log p₀(worse))))

p₀ is the model that the run began with. (Rafailov et al. 2023, arXiv:2305.18290)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lm.activation_checkpointing import recomputed
from lm.attention import attention, positions_in
from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.documents import IGNORE, document_ids_of
from lm.model import Attend, Transformer
from lm.training.trainer import MicroBatch, Objective
from lm.training.validation import Score, shared, spread_windows

# On a CPU attention by a mask is slower than to documents, by what a fifth of the tokens costs at 256 positions.
SHORTER = 0.25


class DirectPreference(Objective):
    """Micro-batches with shared prompts (see share_prompts) → the sum of the pairs' losses, in nats.

    sums: "preferred", the pairs whose better answer became likelier than the other. Without a reference, a model with
    adapters is its own.
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

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        assert self.end_of_text is not None
        # The kernel for documents on CUDA takes no mask, and compiled code wants rows of one length.
        shorter = 1.0 if self.config.compile == "on" or micro_batches[0][0].is_cuda else SHORTER
        return [share_prompts(inputs, targets, self.end_of_text, shorter) for inputs, targets in micro_batches]

    def forward(self, inputs: Tensor, targets: Tensor, positions: Tensor, answers: Tensor, both: Tensor) -> Tensor:
        assert self.end_of_text is not None  # as check() wants document_masking
        where: dict[str, Any] = {"document_ids": document_ids_of(inputs, self.end_of_text)}
        if both.any():
            recompute = self.config.activation_checkpointing == "selective"
            cache = [SharedPrompts(positions, answers, both, recompute)] * len(self.model.blocks)
            where = {"start": positions, "cache": cache}

        def log_likelihoods(model: Transformer) -> Tensor:
            """log p of each answer, (2 · pairs,): the sum over its targets."""
            learned = targets != IGNORE
            logits = model.logits(model.hidden(inputs, **where)[learned])  # (learned, vocab_size)
            wide = logits if logits.dtype == torch.float64 else logits.float()
            losses = F.cross_entropy(wide, targets[learned], reduction="none")
            return wide.new_zeros(int(answers.max()) + 1).index_add(0, answers[learned], -losses)

        likelihoods = log_likelihoods(self.model)
        with torch.no_grad(), self.reference() as reference:
            before = log_likelihoods(reference)
        rewards = self.config.dpo_beta * (likelihoods - before)
        margins = rewards[0::2] - rewards[1::2]
        self.sums["preferred"] += int((margins > 0).sum())
        return -F.logsigmoid(margins).sum()

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum((int(answers.max()) + 1) // 2 for _, _, _, answers, _ in micro_batches)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        was_training, nats, pairs = self.model.training, 0.0, 0
        self.model.eval()
        device = self.model.embedding.weight.device
        for batch, is_own in shared(list(spread_windows(tokens, max_tokens)), self.share):
            (prepared,) = self.prepare([tuple(part.to(device) for part in batch)], 0)
            loss = float(self(*prepared))
            if is_own:
                nats, pairs = nats + loss, pairs + self.count([prepared])
        self.model.train(was_training)
        return Score(nats, pairs)


class SharedPrompts:
    """Attention where two answers see the prompt before both, and not each other: a LayerCache that stores nothing.

    positions, answers, both (batch, seq): see share_prompts.
    """

    def __init__(self, positions: Tensor, answers: Tensor, both: Tensor, recompute: bool) -> None:
        self.recompute = recompute
        self.query, self.key = positions[:, None, :, None], positions[:, None, None, :]
        query, key = answers[:, None, :, None], answers[:, None, None, :]
        visible = (query == key) | (both[:, None, None, :] & (query == key + 1))  # (batch, 1, queries, keys)
        self.visible = visible & (self.query >= self.key)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None, attend: Attend = attention) -> Tensor:
        visible = self.visible if sliding_window is None else self.visible & (self.key > self.query - sliding_window)
        run = recomputed(attend) if self.recompute else attend
        return run(q, k, v, causal=False, mask=visible)


def share_prompts(inputs: Tensor, targets: Tensor, end_of_text: int, shorter: float) -> MicroBatch:
    """Rows of packed conversations, in turn the better and the worse of a pair → rows that have each prompt once.

    The prompt is what both begin with before the first target: the last token before an answer, which predicts it,
    stands before each answer. Rows stay as they are where they would not be shorter by the share `shorter`.

    Returns:
        Inputs, targets, positions in the conversation, number of the answer in the batch (-1: padding), and True for
        the tokens of the better answer that the worse one has, too; (batch, seq) each.
    """
    ids, learned = inputs.cpu().numpy(), (targets != IGNORE).cpu().numpy()
    answers, count = np.full_like(ids, -1), 0
    both, stays = np.zeros_like(learned), np.zeros_like(learned)
    for row, (own, marks) in enumerate(zip(ids, learned, strict=True)):
        borders = [0, *np.flatnonzero(own == end_of_text), len(own)]
        spans = [(begin, end) for begin, end in pairwise(borders) if marks[begin:end].any()]
        if len(spans) % 2:
            raise ValueError("a row has an odd number of answers: prepare pairs with `lm data preferences`")
        for (first, first_end), (second, second_end) in zip(spans[::2], spans[1::2], strict=True):
            size = min(first_end - first, second_end - second)
            one, other = slice(first, first + size), slice(second, second + size)
            common = int(np.argmax((own[one] != own[other]) | marks[one] | marks[other]))
            both[row, first : first + common] = True
            stays[row, first:first_end] = stays[row, second + common : second_end] = True
            answers[row, first:first_end], answers[row, second:second_end] = count, count + 1
            count += 2
    numbers = torch.from_numpy(answers).to(inputs.device)
    positions, length = positions_in(numbers), max(1, int(stays.sum(axis=1).max()))
    if length > (1 - shorter) * inputs.shape[1]:
        return inputs, targets, positions, numbers, torch.zeros_like(inputs, dtype=torch.bool)
    index, numbers, is_common = (
        torch.from_numpy(part).to(inputs.device)
        for part in (np.argsort(~stays, axis=1, kind="stable")[:, :length], np.where(stays, answers, -1), both)
    )
    return tuple(part.gather(1, index) for part in (inputs, targets, positions, numbers, is_common))
