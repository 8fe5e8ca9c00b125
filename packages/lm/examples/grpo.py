"""GRPO written out: a small model that adds numbers, wrongly at first, learns from being told which sums are right.

    python packages/lm/examples/grpo.py [--supervised 400] [--steps 60] [--seed 0]

    prompts  "27+45="                      a few problems
    sample   "72.", "62.", "72.", "7."     a group of answers to each, at temperature 1
    reward    1,     0,     1,     0       checked by adding: no model judges
    advantage reward - mean of the group, divided by its deviation: what is better than the model's usual answer
    update   answers with advantage above 0 become likelier, the others less likely

An answer may be used for several updates. Then the model is no more the one that wrote it, and the ratio of both
probabilities, within 1 ± CLIP, takes the place of the probability. The first part of the run learns by ordinary
training on some problems, so that some answers are right; a reward that never comes teaches nothing.
(Shao et al. 2024, arXiv:2402.03300; Schulman et al. 2017, arXiv:1707.06347 for the clip; names as in CS336's fifth
assignment.)
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import lm

VOCABULARY = "0123456789+=."
END = VOCABULARY.index(".")
LONGEST = 4  # tokens of an answer: three digits and the end
CLIP = 0.2
Problem = tuple[int, int]


def encode(text: str) -> list[int]:
    """Ids of characters."""
    return [VOCABULARY.index(character) for character in text]


def decode(ids: Sequence[int]) -> str:
    """Characters of ids."""
    return "".join(VOCABULARY[id] for id in ids)


def prompt_of(problem: Problem) -> list[int]:
    """What the model reads."""
    return encode(f"{problem[0]:02}+{problem[1]:02}=")


def reward(problem: Problem, answer: Sequence[int]) -> float:
    """1 for the sum and nothing else, 0 for anything else."""
    return float(decode(answer) == f"{sum(problem)}.")


def sample(model: lm.Transformer, problems: Sequence[Problem], group_size: int, seed: int) -> list[list[list[int]]]:
    """A group of answers to each problem, drawn as the model would have them; each with its end, where it has one."""
    groups = lm.generate_batch(
        model,
        [prompt_of(problem) for problem in problems],
        max_new_tokens=LONGEST,
        samples=group_size,
        rows=64,
        seed=seed,
        stop_tokens=[END],
    )
    return [[answer + [END] * (len(answer) < LONGEST) for answer in group] for group in groups]


def tokenize_prompt_and_output(
    prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, their next tokens, and which of these are of the output: each (batch, seq), padded with ends."""
    width = max(len(prompt) + len(output) for prompt, output in zip(prompts, outputs, strict=True))
    ids = torch.full((len(prompts), width), END)
    mask = torch.zeros(len(prompts), width)
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        ids[row, : len(prompt) + len(output)] = torch.tensor([*prompt, *output])
        mask[row, len(prompt) : len(prompt) + len(output)] = 1
    return ids[:, :-1], ids[:, 1:], mask[:, 1:]


def get_response_log_probs(model: lm.Transformer, inputs: Tensor, labels: Tensor) -> Tensor:
    """log p of each label: (batch, seq)."""
    return -F.cross_entropy(model(inputs).transpose(1, 2), labels, reduction="none")


def compute_group_normalized_rewards(rewards: Tensor, advantage_eps: float = 1e-6) -> Tensor:
    """Advantages of (groups, group_size) rewards. A group that is all right or all wrong has none."""
    centered = rewards - rewards.mean(1, keepdim=True)
    return centered / (rewards.std(1, keepdim=True) + advantage_eps)


def compute_grpo_clip_loss(advantages: Tensor, log_probs: Tensor, old_log_probs: Tensor, cliprange: float) -> Tensor:
    """The loss of each token, (batch, seq), of answers with these advantages (batch, 1).

    The smaller of two gains: so a ratio beyond the clip has no gradient where it went the right way already.
    """
    ratio = (log_probs - old_log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - cliprange, 1 + cliprange) * advantages)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens of each answer, then over answers."""
    return ((values * mask).sum(1) / mask.sum(1)).mean()


def update(
    model: lm.Transformer,
    optimizer: torch.optim.Optimizer,
    problems: Sequence[Problem],
    groups: Sequence[Sequence[Sequence[int]]],
    epochs: int,
) -> float:
    """Learns from groups of answers; the mean of their rewards."""
    rewards = torch.tensor(
        [[reward(problem, answer) for answer in group] for problem, group in zip(problems, groups, strict=True)]
    )
    advantages = compute_group_normalized_rewards(rewards).flatten()[:, None]
    inputs, labels, mask = tokenize_prompt_and_output(
        [prompt_of(problem) for problem, group in zip(problems, groups, strict=True) for _ in group],
        [answer for group in groups for answer in group],
    )
    with torch.no_grad():
        old_log_probs = get_response_log_probs(model, inputs, labels)
    for _ in range(epochs):
        log_probs = get_response_log_probs(model, inputs, labels)
        loss = masked_mean(compute_grpo_clip_loss(advantages, log_probs, old_log_probs, CLIP), mask)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(rewards.mean())


def imitate(model: lm.Transformer, optimizer: torch.optim.Optimizer, problems: Sequence[Problem]) -> float:
    """One step of ordinary training on right answers; the loss."""
    inputs, labels, mask = tokenize_prompt_and_output(
        [prompt_of(problem) for problem in problems], [encode(f"{sum(problem)}.") for problem in problems]
    )
    loss = -masked_mean(get_response_log_probs(model, inputs, labels), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def accuracy(model: lm.Transformer, problems: Sequence[Problem]) -> float:
    """The share of problems whose likeliest answer is right."""
    made = lm.generate_batch(
        model, [prompt_of(p) for p in problems], max_new_tokens=LONGEST, rows=64, temperature=0, stop_tokens=[END]
    )
    right = [reward(problem, [*answer, END]) for problem, (answer,) in zip(problems, made, strict=True)]
    return sum(right) / len(right)


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """The accuracy before and after, on problems that neither part saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--supervised", type=int, default=400, help="steps of ordinary training")
    parser.add_argument("--steps", type=int, default=60, help="steps of GRPO")
    parser.add_argument("--problems", type=int, default=32, help="of a step")
    parser.add_argument("--group-size", type=int, default=16, help="answers to a problem")
    parser.add_argument("--epochs", type=int, default=2, help="updates from the same answers")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    draw = random.Random(options.seed)
    everything = [(a, b) for a in range(100) for b in range(100)]
    draw.shuffle(everything)
    heldout, practice = everything[:500], everything[500:]
    model = lm.Transformer(lm.ModelConfig(len(VOCABULARY), 16, num_layers=2, d_model=64, num_heads=4, d_ff=176))

    optimizer = lm.optimizer.adamw(model, lr=3e-3)
    for _ in range(options.supervised):
        imitate(model, optimizer, draw.sample(practice, 64))
    before = accuracy(model, heldout)
    print(f"after {options.supervised} steps of ordinary training: {before:.1%} of the sums are right", flush=True)

    optimizer = lm.optimizer.adamw(model, lr=options.learning_rate, weight_decay=0.0)
    for step in range(1, options.steps + 1):
        problems = draw.sample(practice, options.problems)
        groups = sample(model, problems, options.group_size, seed=step * 1_000_000)
        mean = update(model, optimizer, problems, groups, options.epochs)
        if step % 10 == 0:
            print(f"step {step}: mean reward {mean:.3f}", flush=True)
    after = accuracy(model, heldout)
    print(f"after {options.steps} steps of GRPO: {after:.1%} of the sums are right")
    return before, after


if __name__ == "__main__":
    main()
