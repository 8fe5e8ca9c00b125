"""Supervised fine-tuning: the cross-entropy of the tokens that the assistant writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lm.config import TrainConfig
from lm.data import Mixture
from lm.documents import IGNORE
from lm.training.objectives.next_token import NextToken
from lm.training.trainer import MicroBatch


class SupervisedFineTuning(NextToken):
    """Inputs and targets → the sum of the losses of the targets that are not IGNORE: a step takes their mean."""

    is_uniform: ClassVar[bool] = False

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        if not data.masked:
            raise ValueError("objective 'sft' learns the tokens that the data marks, and it marks none: `lm data chat`")
        if any(part.tokens.pairs for part in data.parts):
            raise ValueError("the data holds pairs, and objective 'sft' would learn both: use 'dpo'")
        if any(part.tokens.prompts for part in data.parts):
            raise ValueError("the data holds prompts without answers, which objective 'sft' learns: use 'grpo'")

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum(int((targets != IGNORE).sum()) for _, targets in micro_batches)
