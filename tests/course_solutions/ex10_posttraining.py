"""A solution of the exercises of chapter 10."""

import torch
from torch import Tensor


def tokenize_prompt_and_output(
    prompts: list[list[int]], outputs: list[list[int]], padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(prompt) + len(output) for prompt, output in zip(prompts, outputs, strict=True))
    ids = torch.full((len(prompts), longest), padding)
    mask = torch.zeros(len(prompts), longest)
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        both = prompt + output
        ids[row, : len(both)] = torch.tensor(both)
        mask[row, len(prompt) : len(both)] = 1.0
    return ids[:, :-1], ids[:, 1:], mask[:, 1:]


def response_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    return (values * mask).sum(dim) / mask.sum(dim)


def masked_normalize(values: Tensor, mask: Tensor, constant: float, dim: int | None = None) -> Tensor:
    return (values * mask).sum(dim) / constant


def sft_step(log_probs: Tensor, mask: Tensor, accumulation_steps: int, constant: float = 1.0) -> Tensor:
    loss = -masked_normalize(log_probs, mask, constant, dim=1).mean() / accumulation_steps
    loss.backward()
    return loss


def group_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6, divide: bool = True) -> Tensor:
    groups = rewards.view(-1, group_size)
    advantages = groups - groups.mean(1, keepdim=True)
    if divide:
        advantages = advantages / (groups.std(1, keepdim=True) + eps)
    return advantages.flatten()


def grpo_clip_loss(advantages: Tensor, log_probs: Tensor, old_log_probs: Tensor, clip: float) -> Tensor:
    ratio = (log_probs - old_log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> Tensor:
    margin = beta * ((chosen - reference_chosen) - (rejected - reference_rejected))
    return -torch.nn.functional.logsigmoid(margin).mean()
