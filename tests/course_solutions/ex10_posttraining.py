"""A solution of the exercises of chapter 10."""

from collections.abc import Callable

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


def compute_group_normalized_rewards(
    rewards: Tensor, group_size: int, baseline: str = "mean", eps: float = 1e-6, normalizer: str = "std"
) -> Tensor:
    groups = rewards.view(-1, group_size)
    mean = groups.mean(1, keepdim=True)
    advantages = groups - mean if baseline == "mean" else groups
    if normalizer == "std":
        advantages = advantages / (groups.std(1, keepdim=True) + eps)
    elif normalizer == "mean":
        advantages = advantages / (mean + eps)
    return advantages.flatten()


def compute_policy_gradient_loss(
    advantages: Tensor,
    log_probs: Tensor,
    method: str = "none",
    old_log_probs: Tensor | None = None,
    clip: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    A = advantages[:, None]
    if method == "none":
        return -A * log_probs
    log_ratio = log_probs - old_log_probs
    if method == "gspo":
        log_ratio = ((log_ratio * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)).expand_as(log_probs)
    ratio = log_ratio.exp()
    if method == "noclip":
        return -ratio * A
    return -torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)


def aggregate_loss_across_microbatch(
    losses: Tensor, mask: Tensor, normalization: str = "sequence", constant: float | None = None
) -> Tensor:
    if normalization == "constant":
        return (losses * mask).sum() / constant
    return ((losses * mask).sum(1) / mask.sum(1)).mean()


def grpo_train_step(
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    mask: Tensor,
    rewards: Tensor,
    group_size: int,
    accumulation_steps: int = 1,
    max_norm: float | None = None,
    baseline: str = "mean",
    normalizer: str = "std",
    method: str = "none",
    old_log_probs: Tensor | None = None,
    clip: float | None = None,
    normalization: str = "sequence",
    constant: float | None = None,
) -> Tensor:
    advantages = compute_group_normalized_rewards(rewards, group_size, baseline, normalizer=normalizer)
    optimizer.zero_grad()
    total = torch.zeros(())
    for rows in torch.arange(len(inputs)).chunk(accumulation_steps):
        log_probs = response_log_probs(model(inputs[rows]), labels[rows])
        old = None if old_log_probs is None else old_log_probs[rows]
        losses = compute_policy_gradient_loss(advantages[rows], log_probs, method, old, clip, mask[rows])
        loss = aggregate_loss_across_microbatch(losses, mask[rows], normalization, constant)
        if normalization == "sequence":
            loss = loss * len(rows) / len(inputs)
        loss.backward()
        total += loss.detach()
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return total


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> Tensor:
    margin = beta * ((chosen - reference_chosen) - (rejected - reference_rejected))
    return -torch.nn.functional.logsigmoid(margin).mean()
