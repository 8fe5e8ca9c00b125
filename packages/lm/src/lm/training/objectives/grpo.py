"""Group relative policy optimization: of several answers to one prompt, those with more reward are made likelier.

advantage  (reward - baseline) / normalizer, both of the group of answers, which are drawn at temperature 1
loss       of each token, by the ratio r = p(token) / p(token) when it was drawn and the advantage A:
           none    -A log p                                                 REINFORCE
           noclip  -r A
           grpo    -min(r A, clip(r, 1 - ε, 1 + ε) A)
           gspo    the same, with the geometric mean of r over the answer as the r of each of its tokens
         + β (exp(d) - d - 1), d = log p₀ - log p, with p₀ the model that the run began with: Schulman's estimate of
           the KL divergence from it

The loss of an answer is the mean over its tokens ("sequence"), or the sum over grpo_answer_tokens ("constant"). CS336's
fifth assignment has these names. Dr. GRPO has normalizer "none" and normalization "constant"; MaxRL has normalizer
"mean". (Shao et al. 2024, arXiv:2402.03300; Liu et al. 2025, arXiv:2503.20783; Zheng et al. 2025, arXiv:2507.18071)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.data.batches import mix
from lm.data.problems import Fields, Problem, key_of, problems_of, read_fields
from lm.device import autocast
from lm.documents import IGNORE
from lm.generation.stream import generate_batch
from lm.tokenizer import kept_tokenizer, load_tokenizer
from lm.training.rewards import TOKENS, Reward, RewardFailed, rewards_of
from lm.training.trainer import MicroBatch, Objective
from lm.training.validation import Score, shared, spread_windows

ROWS = 64  # answers drawn at a time


class GroupRelativePolicy(Objective):
    """Answers with their advantages → the sum of the answers' losses.

    sums: "reward", and "reward/NAME" of each where there are several; "answer_length" in tokens; "clipped", the share
    of an answer's tokens without gradient; "kl".
    """

    needs_start: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    rewards: Sequence[Reward] = ()  # none: 1 for the answer of the data, token by token
    tokenizer: Any = None
    fields: Mapping[str, Fields] = {}

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        check_problems(config, data)
        if config.reward == TOKENS and any(part.tokens.prompts for part in data.parts):
            raise ValueError(f"reward {TOKENS!r} compares with answers, and the data has prompts alone: name another")

    @classmethod
    def needs_reference(cls, config: TrainConfig) -> bool:
        return config.grpo_kl > 0

    def open(self, data: Mixture, run_dir: Path, functions: Mapping[str, Callable[..., Any]]) -> None:
        if self.config.reward == TOKENS:
            return
        self.rewards = rewards_of(self.config.reward, functions)
        if (path := kept_tokenizer(run_dir)) is None:
            raise ValueError("a reward reads text, and the run has no tokenizer: name the data's by --tokenizer")
        self.tokenizer = load_tokenizer(path)
        fields = dict[str, Fields]()
        for tokens in (*(part.tokens for part in data.parts), *data.heldout.values()):
            for file, sha256 in tokens.fields:
                fields |= read_fields(file, sha256)
        self.fields = fields

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        self.updates = self.config.grpo_updates
        numbers = itertools.count()  # of the problems of the step, however it is cut into micro-batches
        return [self.with_answers(batch, seed, numbers) for batch in micro_batches]

    @torch.no_grad()
    def with_answers(self, batch: MicroBatch, seed: int, numbers: Iterator[int]) -> MicroBatch:
        """Draw answers to the prompts of a batch of windows, each group by random numbers of its own.

        Returns inputs and targets (answers, seq), IGNORE outside of answers; advantages (answers, 1); log p of each
        target when it was drawn (answers, seq), and with grpo_kl by the first model too.
        """
        size = self.config.grpo_group_size
        problems, groups = answers_to(self, batch, seed, numbers, self.config.grpo_answer_tokens, size)
        rewards = torch.tensor(self.judged(problems, groups)).reshape(-1, size)
        config, device, advantages = self.config, batch[0].device, torch.zeros(1, 1)
        inputs, targets = padded(problems, groups, device)
        if problems:
            advantages = group_advantages(rewards, baseline=config.grpo_baseline, normalizer=config.grpo_normalizer)
        self.sums["reward"] += float(rewards.sum())
        self.sums["answer_length"] += sum(len(answer) for group in groups for answer in group)
        with autocast(device, self.config.precision):
            batch = inputs, targets, advantages.reshape(-1, 1).to(device), target_log_probs(self.model, inputs, targets)
            if not self.config.grpo_kl:
                return batch
            with self.reference() as reference:
                return *batch, target_log_probs(reference, inputs, targets)

    def judged(self, problems: Sequence[Problem], groups: Sequence[Sequence[list[int]]]) -> list[float]:
        """The reward of each answer, those to one problem side by side. RewardFailed: see Reward."""
        pairs = [(problem, answer) for problem, group in zip(problems, groups, strict=True) for answer in group]
        if not self.rewards or not pairs:
            return [float(answer == right) for (_, right), answer in pairs]

        def text(ids: Sequence[int]) -> str:
            return str(self.tokenizer.decode(list(ids)))

        fields = list[Fields]()
        for problem, _ in pairs:  # the answer of the data is a field, too
            right = {"answer": text(problem[1][:-1])} if len(problem[1]) > 1 else {}
            fields.append({**right, **self.fields.get(key_of(problem), {})})
        # Rewards read answers without the token that ends them.
        ids = [answer[:-1] if answer[-1:] == problem[1][-1:] else list(answer) for problem, answer in pairs]
        columns: dict[str, Sequence[Any]] = {name: [row.get(name) for row in fields] for row in fields for name in row}
        columns["prompts"] = [text(prompt) for (prompt, _), _ in pairs]
        columns |= {"completions": [text(one) for one in ids], "completion_ids": ids}
        total = [0.0] * len(pairs)
        for reward in self.rewards:
            values = reward(columns, self.config.reward_timeout)
            total = [before + reward.weight * value for before, value in zip(total, values, strict=True)]
            if len(self.rewards) > 1:
                self.sums[f"reward/{reward.name}"] += sum(values)
        if self.config.grpo_normalizer == "mean" and min(total) < 0:
            mean = f"grpo_normalizer 'mean' divides by the mean reward, got a reward {min(total)}"
            raise RewardFailed(f"{mean}: choose another normalizer, or rewards of at least 0")
        return total

    def forward(
        self, inputs: Tensor, targets: Tensor, advantages: Tensor, old_log_probs: Tensor, first: Tensor | None = None
    ) -> Tensor:
        """The sum of the answers' losses. first: log p of each target by the model that the run began with."""
        config, counts = self.config, targets != IGNORE
        log_probs = target_log_probs(self.model, inputs, targets)
        clip = config.grpo_clip or CLIPS.get(config.grpo_method, math.inf)
        losses, clipped = policy_losses(advantages, log_probs, old_log_probs, counts, config.grpo_method, clip)
        lengths = counts.sum(1).clamp(min=1)
        if first is not None:
            difference = (first - log_probs) * counts
            divergence = difference.exp() - difference - 1
            losses = losses + config.grpo_kl * divergence
            self.sums["kl"] += float((divergence.detach().sum(1) / lengths).sum()) / self.updates
        self.sums["clipped"] += float(((clipped & counts).sum(1) / lengths).sum()) / self.updates
        divisors = lengths if config.grpo_normalization == "sequence" else config.grpo_answer_tokens
        return ((losses * counts).sum(1) / divisors).sum()

    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        return sum(int((batch[1] != IGNORE).any(1).sum()) for batch in micro_batches)

    @torch.no_grad()
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        count, reward = 0, 0.0
        for batch, is_own in shared(list(spread_windows(tokens, max_tokens, ROWS)), self.share):
            problems, groups = answers_to(self, batch, None, itertools.count(), self.config.grpo_answer_tokens)
            if is_own:
                reward, count = reward + sum(self.judged(problems, groups)), count + len(problems)
        self.sums["reward"] += reward
        return Score(count - reward, count)


def check_problems(config: TrainConfig, data: Mixture) -> None:
    """ValueError: the data or a setting does not go with an objective that draws answers."""
    name, tokens = f"objective {config.objective!r}", [part.tokens for part in data.parts] + list(data.heldout.values())
    if any(one.mask is None or one.window is None or one.pairs for one in tokens):
        raise ValueError(f"{name} learns from problems: `lm data prompts` or `lm data chat` prepares them")
    if not config.document_masking:
        raise ValueError(f"{name} goes with document_masking, as a prompt is the beginning of a document")
    if config.dropout or config.lora_dropout or config.parallel == "fsdp":
        raise ValueError(f"{name} draws from the model that it trains: without dropout, and by ddp")


def answers_to(
    objective: Objective, batch: MicroBatch, seed: int | None, numbers: Iterator[int], most: int, samples: int = 1
) -> tuple[list[Problem], list[list[list[int]]]]:
    """The problems of a batch of windows, and `samples` of the model's own answers to each, of at most `most` tokens.

    Prompts that fill the context are left out. An answer has its end, if the model came to it. seed: of the step, None
    for the likeliest answer; numbers: of each problem in the step. ValueError: the answers end with several tokens.
    """
    model, end_of_text = objective.model, objective.end_of_text
    assert end_of_text is not None  # as check_problems() wants document_masking
    rows = zip(batch[0].tolist(), batch[1].tolist(), strict=True)
    context = model.config.context_length
    every = (problem for row in rows for problem in problems_of(*row, end_of_text))
    problems = [(prompt, answer) for prompt, answer in every if len(prompt) < context]  # which have room to answer
    ends = {answer[-1] for _, answer in problems}
    if len(ends) > 1:
        raise ValueError(f"expected answers that end with one token, got {sorted(ends)}: end each with that token")
    if not problems:
        return [], []
    prompts = [prompt for prompt, _ in problems]
    seeds = [0 if seed is None else mix(mix(seed) ^ next(numbers)) >> 2 for _ in problems]
    how: dict[str, Any] = {"max_new_tokens": most, "stop_tokens": list(ends), "when_full": "end"}
    with torch.autocast(model.embedding.weight.device.type, enabled=False):
        how |= {"samples": samples, "rows": ROWS, "temperature": 0.0 if seed is None else 1.0}
        groups = generate_batch(model, prompts, seed=seeds, **how)
    rooms = [min(most, context - len(prompt)) for prompt in prompts]
    return problems, [
        [answer + list(ends) * (len(answer) < room) for answer in group]
        for group, room in zip(groups, rooms, strict=True)
    ]


def padded(
    problems: Sequence[Problem], groups: Sequence[Sequence[list[int]]], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Prompts with every answer of their groups as inputs and targets (rows, seq), at least a row."""
    rows = [(prompt, answer) for (prompt, _), group in zip(problems, groups, strict=True) for answer in group]
    rows = rows or [([0], [])]
    width = max(2, *(len(prompt) + len(answer) for prompt, answer in rows)) - 1
    inputs, targets = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), IGNORE)
    for row, (prompt, answer) in enumerate(rows):
        ids = torch.tensor(prompt + answer)
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(prompt) - 1 : len(ids) - 1] = ids[len(prompt) :]
    return inputs.to(device), targets.to(device)


def target_log_probs(model: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """log p of each target, (rows, seq); 0 where it is IGNORE."""
    return -F.cross_entropy(model(inputs).float().transpose(1, 2), targets, ignore_index=IGNORE, reduction="none")


def group_advantages(rewards: Tensor, *, baseline: str = "mean", normalizer: str = "std", eps: float = 1e-6) -> Tensor:
    """rewards (groups, group_size) → advantages. A group with equal rewards has none, unless the baseline is "none"."""
    mean = rewards.mean(1, keepdim=True)
    centered = rewards - mean if baseline == "mean" else rewards
    if normalizer == "none":
        return centered
    return centered / ((rewards.std(1, keepdim=True) if normalizer == "std" else mean) + eps)


CLIPS = {"grpo": 0.2, "gspo": 4e-3}  # what clips where grpo_clip is not given


def policy_losses(
    advantages: Tensor, log_probs: Tensor, old_log_probs: Tensor, counts: Tensor, method: str, clip: float
) -> tuple[Tensor, Tensor]:
    """The loss of each token (rows, seq), and True where the clip leaves no gradient."""
    if method == "none":
        return -advantages * log_probs, torch.zeros_like(counts)
    logs = log_probs - old_log_probs
    if method == "gspo":
        logs = ((logs * counts).sum(1, keepdim=True) / counts.sum(1, keepdim=True).clamp(min=1)).expand_as(counts)
    ratio = logs.exp()
    free = ratio * advantages
    if method == "noclip":
        return -free, torch.zeros_like(counts)
    bounded = ratio.clamp(1 - clip, 1 + clip) * advantages
    return -torch.minimum(free, bounded), bounded < free
