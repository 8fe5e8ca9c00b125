"""Distillation: the model learns the probabilities that a teacher has for each next token. (Hinton et al. 2015)

    forward   KL(teacher ‖ model): all that the teacher may write becomes likely
    reverse   KL(model ‖ teacher): what the teacher hardly writes becomes unlikely (Gu et al. 2023, MiniLLM)

The tokens are the data's, or the model's own answers to its prompts (Agarwal et al. 2023).
arXiv:1503.02531, 2306.08543, 2306.13649
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lm.config import TrainConfig
from lm.data import Mixture
from lm.documents import IGNORE, document_ids_of
from lm.training.objectives.grpo import answers_to, check_problems, padded
from lm.training.objectives.sft import SupervisedFineTuning
from lm.training.trainer import MicroBatch


class Distillation(SupervisedFineTuning):
    """Inputs and targets → the sum of the divergences at the targets that are not IGNORE, in nats."""

    balances: ClassVar[bool] = False
    draws: ClassVar[bool] = True

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        if config.distill_answer_tokens:
            check_problems(config, data)
        elif any(part.tokens.pairs or part.tokens.prompts for part in data.parts):
            raise ValueError("objective 'distill' learns text or conversations, got pairs or prompts alone")

    def open(self, data: Mixture, run_dir: Path, functions: Mapping[str, Callable[..., Any]]) -> None:
        student, teacher = self.model.config, self.references[0].config
        if teacher.vocab_size != student.vocab_size or teacher.context_length < student.context_length:
            sizes = f"{teacher.vocab_size} tokens and a context of {teacher.context_length}"
            own = f"the model {student.vocab_size} and {student.context_length}"
            remedy = "choose one with as many, and a context that is at least as long"
            raise ValueError(f"the teacher {self.config.teacher} has {sizes}, {own}: {remedy}")

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        most, numbers = self.config.distill_answer_tokens, itertools.count()
        if not most:
            return micro_batches
        device = self.model.embedding.weight.device
        return [padded(*answers_to(self, batch, seed, numbers, most), device) for batch in micro_batches]

    def forward(self, inputs: Tensor, targets: Tensor, special: int | None = None) -> Tensor:
        if not self.model.training:
            return super().forward(inputs, targets, special)
        learned, teacher = targets != IGNORE, self.references[0]
        documents = None if self.end_of_text is None else document_ids_of(inputs, self.end_of_text)
        student_log_probs = self.model.logits(self.model.hidden(inputs, documents)[learned]).float().log_softmax(-1)
        with torch.no_grad():
            teacher_log_probs = teacher.logits(teacher.hidden(inputs, documents)[learned]).float().log_softmax(-1)
        if self.config.distill_divergence == "forward":
            return (teacher_log_probs.exp() * (teacher_log_probs - student_log_probs)).sum()
        return (student_log_probs.exp() * (student_log_probs - teacher_log_probs)).sum()
