"""Objectives of training: what a trainer minimizes, each in a file named after the setting train.objective."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.documents import IGNORE
from lm.model import Transformer
from lm.training.validation import Score

MicroBatch = tuple[Tensor, ...]  # inputs and targets, (rows, seq) int64 each, and what an objective adds to them


class Objective(nn.Module, ABC):
    """A micro-batch → the sum of its losses. A subclass is a method of training.

    Data-parallel wrappers exchange gradients when the backward pass of the module that they wrap ends, so that model
    and loss are one module.

    Args:
        model: The model that learns.
        config: Its training.
        end_of_text: The id that begins a document, where documents of a row do not see each other; else None.
        reference: The model that the run began with, if the objective compares with it and no adapters are trained.

    Attributes:
        is_uniform: True if every process has as many losses in every step.
        needs_start: True if the run must begin with weights.
        needs_reference: True if the first weights are compared with.
        updates: Updates of the weights by the same micro-batches.
        sums: Of figures beside the loss, since the trainer emptied it; each is reported as a mean over the losses.
    """

    is_uniform: ClassVar[bool] = False
    needs_start: ClassVar[bool] = False
    needs_reference: ClassVar[bool] = False

    def __init__(
        self, model: Transformer, config: TrainConfig, end_of_text: int | None, reference: Transformer | None = None
    ) -> None:
        super().__init__()
        self.model, self.config, self.end_of_text = model, config, end_of_text
        self.references = [] if reference is None else [reference]  # in a list: no part of what is trained and sharded
        self.updates = 1
        self.sums = defaultdict[str, float](float)

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        """ValueError: the data or a setting does not go with the objective: here, one that learns every token."""
        if data.masked:
            use = "dpo" if data.pairs else "sft"
            raise ValueError(f"the data marks what is learned, and {config.objective!r} learns all tokens: use {use!r}")

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        """Return the micro-batches to learn from. seed: a function of the run's seed, the step and the process."""
        return micro_batches

    @abstractmethod
    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        """Return the number of losses in micro-batches, over which the loss is a mean."""

    @abstractmethod
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        """Score about max_tokens held-out tokens; all if None. Score.tokens is the number of losses."""


def objective_of(name: str) -> type[Objective]:
    """Return the class of an objective: that of its file."""
    module = importlib.import_module(f"lm.training.objectives.{name}")
    objective: type[Objective] = next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and issubclass(value, Objective)
    )
    return objective


def spread_windows(tokens: Tokens, max_tokens: int | None, batch_size: int = 16) -> Iterator[MicroBatch]:
    """Yield windows of a packed file, spread over it, that hold about max_tokens tokens; all if None.

    Returns:
        Inputs and targets, (rows, window - 1) each; targets that are not learned are IGNORE.
    """
    assert tokens.window is not None
    assert tokens.mask is not None
    window, count = tokens.window, len(tokens) // tokens.window
    scored = count if max_tokens is None else min(count, max(1, max_tokens // window))
    starts = [i * count // scored * window for i in range(scored)]
    for first in range(0, scored, batch_size):
        places = [slice(start, start + window) for start in starts[first : first + batch_size]]
        ids = torch.stack([torch.as_tensor(tokens.ids[place].astype("int64")) for place in places])
        learned = torch.stack([torch.as_tensor(tokens.mask[place].astype("bool")) for place in places])
        yield ids[:, :-1], ids[:, 1:].masked_fill(~learned[:, 1:], IGNORE)
