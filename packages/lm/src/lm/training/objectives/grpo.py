"""Group relative policy optimization: of several answers to one prompt, those with more reward are made likelier.

    answers    a group of them to each prompt, drawn from the model at temperature 1
    reward     1 for an answer equal to that of the data, token by token, else 0
    advantage  reward - mean of the group; "grpo" divides it by the group's standard deviation
    loss       -min(r A, clip(r, 1 - ε, 1 + ε) A) of each token, with r = p(token) / p(token) when it was drawn

The loss of an answer is the mean over its tokens; with "dr_grpo" it is the sum over grpo_answer_tokens, so that
neither long answers nor groups that are nearly all right or wrong weigh more. The loss has no KL term. (Shao et al.
2024, arXiv:2402.03300; Liu et al. 2025, arXiv:2503.20783; the clip by Schulman et al. 2017, arXiv:1707.06347)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.data.batches import mix
from lm.device import autocast
from lm.documents import IGNORE
from lm.generation.stream import generate_batch
from lm.training.trainer import MicroBatch, Objective
from lm.training.validation import Score, spread_windows

ROWS = 64  # answers drawn at a time
Problem = tuple[list[int], list[int]]  # prompt, and the answer that is right


class GroupRelativePolicy(Objective):
    """Answers with their advantages → the sum of the answers' losses.

    sums: "reward"; "answer_length" in tokens; "clipped", the share of an answer's tokens without gradient.
    """

    needs_start: ClassVar[bool] = True

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        tokens = [part.tokens for part in data.parts] + list(data.heldout.values())
        if any(one.mask is None or one.window is None or one.pairs for one in tokens):
            raise ValueError("objective 'grpo' learns from prompts with one right answer: `lm data chat` prepares them")
        if not config.document_masking:
            raise ValueError("objective 'grpo' goes with document_masking, as a prompt is the beginning of a document")
        if config.dropout or config.parallel == "fsdp":
            raise ValueError("objective 'grpo' draws from the model that it trains: without dropout, and by ddp")

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        self.updates = self.config.grpo_updates
        numbers = itertools.count()  # of the problems of the step, however it is cut into micro-batches
        return [self.with_answers(batch, seed, numbers) for batch in micro_batches]

    @torch.no_grad()
    def with_answers(self, batch: MicroBatch, seed: int, numbers: Iterator[int]) -> MicroBatch:
        """Draw answers to the prompts of a batch of windows, each group by random numbers of its own.

        Args:
            batch: Inputs and targets.
            seed: Of the step.
            numbers: The number in the step of each problem.

        Returns:
            Inputs and targets (answers, seq), which are IGNORE outside of answers; advantages (answers, 1); log p of
            each target when it was drawn (answers, seq).
        """
        problems, size = self.problems(*batch), self.config.grpo_group_size
        seeds = [mix(mix(seed) ^ number) >> 2 for _, number in zip(problems, numbers, strict=False)]
        groups = self.answers(problems, samples=size, seeds=seeds)
        rewards = torch.tensor(
            [[float(answer == right) for answer in group] for (_, right), group in zip(problems, groups, strict=True)]
        ).reshape(-1, size)
        rows = [(prompt, answer) for (prompt, _), group in zip(problems, groups, strict=True) for answer in group]
        device = batch[0].device
        # Without a problem a row of no targets stands for the batch, so that every process has its backward pass.
        inputs, targets = (part.to(device) for part in padded(rows or [([0], [])]))
        if not rows:
            return inputs, targets, torch.zeros(1, 1, device=device), torch.zeros_like(targets, dtype=torch.float32)
        advantages = group_advantages(rewards, by_std=self.config.grpo_variant == "grpo").reshape(-1, 1).to(device)
        self.sums["reward"] += float(rewards.sum())
        self.sums["answer_length"] += sum(len(answer) for _, answer in rows)
        with autocast(device, self.config.precision):
            return inputs, targets, advantages, target_log_probs(self.model, inputs, targets)

    def problems(self, inputs: Tensor, targets: Tensor) -> list[Problem]:
        """The problems of a batch of windows, but for prompts that fill the context.

        ValueError: their answers do not end with one token.
        """
        assert self.end_of_text is not None  # as check() wants document_masking
        rows = zip(inputs.tolist(), targets.tolist(), strict=True)
        context = self.model.config.context_length
        every = (problem for row in rows for problem in problems_of(*row, self.end_of_text))
        problems = [(prompt, answer) for prompt, answer in every if len(prompt) < context]  # which have room to answer
        if len(ends := {answer[-1] for _, answer in problems}) > 1:
            raise ValueError(f"expected answers that end with one token, got {sorted(ends)}: end each with that token")
        return problems

    def answers(
        self, problems: Sequence[Problem], samples: int, seeds: Sequence[int], temperature: float = 1.0
    ) -> list[list[list[int]]]:
        """The model's own answers to each problem, with their end, if they came to it. seeds: one for each problem."""
        most, context = self.config.grpo_answer_tokens, self.model.config.context_length
        end = problems[0][1][-1] if problems else 0
        prompts = [prompt for prompt, _ in problems]
        device = self.model.embedding.weight.device
        with torch.autocast(device.type, enabled=False):
            groups = generate_batch(
                self.model,
                prompts,
                max_new_tokens=most,
                samples=samples,
                rows=ROWS,
                seed=seeds,
                stop_tokens=[end],
                when_full="end",
                temperature=temperature,
            )
        rooms = [min(most, context - len(prompt)) for prompt in prompts]
        return [
            [answer + [end] * (len(answer) < room) for answer in group]
            for group, room in zip(groups, rooms, strict=True)
        ]

    def forward(self, inputs: Tensor, targets: Tensor, advantages: Tensor, old_log_probs: Tensor) -> Tensor:
        log_probs, counts = target_log_probs(self.model, inputs, targets), targets != IGNORE
        losses, clipped = clipped_losses(advantages, log_probs, old_log_probs, self.config.grpo_clip)
        lengths = counts.sum(1).clamp(min=1)
        self.sums["clipped"] += float(((clipped & counts).sum(1) / lengths).sum()) / self.updates
        divisors = lengths if self.config.grpo_variant == "grpo" else self.config.grpo_answer_tokens
        return ((losses * counts).sum(1) / divisors).sum()

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum(int((batch[1] != IGNORE).any(1).sum()) for batch in micro_batches)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        count, reward = 0, 0.0
        for batch in spread_windows(tokens, max_tokens, ROWS):
            problems = self.problems(*batch)
            groups = self.answers(problems, samples=1, seeds=[0] * len(problems), temperature=0.0)
            reward += sum(answer == right for (_, right), (answer,) in zip(problems, groups, strict=True))
            count += len(problems)
        self.sums["reward"] += reward
        return Score(count - reward, count)


def problems_of(inputs: Sequence[int], targets: Sequence[int], end_of_text: int) -> Iterator[Problem]:
    """Yield the documents of a row as prompt and answer: its last run of targets, and what stands before it."""
    ids = [*inputs, targets[-1]]
    starts = [place for place, id in enumerate(inputs) if id == end_of_text]
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        learned = [place for place in range(start + 1, end) if targets[place - 1] != IGNORE]
        if learned:
            first, last = learned[-1], learned[-1] + 1
            while targets[first - 2] != IGNORE and first - 1 > start:
                first -= 1
            yield ids[start:first], ids[first:last]


def padded(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Prompts with answers → inputs and targets (rows, seq), filled up at their ends; targets of answers alone."""
    width = max(2, *(len(prompt) + len(answer) for prompt, answer in rows)) - 1
    inputs, targets = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), IGNORE)
    for row, (prompt, answer) in enumerate(rows):
        ids = torch.tensor(prompt + answer)
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(prompt) - 1 : len(ids) - 1] = ids[len(prompt) :]
    return inputs, targets


def target_log_probs(model: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, (rows, seq); 0 where it is IGNORE."""
    return -F.cross_entropy(model(inputs).float().transpose(1, 2), targets, ignore_index=IGNORE, reduction="none")


def group_advantages(rewards: Tensor, *, by_std: bool, eps: float = 1e-6) -> Tensor:
    """rewards (groups, group_size) → advantages. A group with equal rewards has none."""
    centered = rewards - rewards.mean(1, keepdim=True)
    return centered / (rewards.std(1, keepdim=True) + eps) if by_std else centered


def clipped_losses(advantages: Tensor, log_probs: Tensor, old_log_probs: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The loss of each token (rows, seq), and True where the clip leaves it no gradient. advantages: (rows, 1)."""
    ratio = (log_probs - old_log_probs).exp()
    free, bounded = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    return -torch.minimum(free, bounded), bounded < free
