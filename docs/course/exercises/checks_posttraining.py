"""Checks of the exercises of chapter 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, mistake, near
from torch import Tensor


def some(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


MASK = torch.tensor([[0.0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])


def tokenize(yours: Callable[..., Any]) -> None:
    prompts, outputs = [[5, 6, 7], [8], [1, 2]], [[9], [10, 11, 12, 13], [3, 4]]
    result = yours(prompts, outputs, 99)
    if result is None:
        raise Wrong(f"tokenize_prompt_and_output returns None: {NOT_WRITTEN}.")
    ids = torch.tensor([[5, 6, 7, 9, 99], [8, 10, 11, 12, 13], [1, 2, 3, 4, 99]])
    mask = torch.tensor([[0.0, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
    call = f"tokenize_prompt_and_output({prompts}, {outputs}, 99)"
    close(f"The inputs of {call}", result[0], ids[:, :-1], "The last id of the longest row predicts nothing.")
    close(f"The labels of {call}", result[1], ids[:, 1:], "They are the ids one further.")
    hint = "It belongs to the labels: the first label of an output is predicted from the last id of the prompt."
    close(f"The mask of {call}", result[2], mask, hint)


def log_probs(yours: Callable[..., Any]) -> None:
    labels = torch.tensor([[0, 3, 1], [2, 2, 0]])
    for scale in (1.0, 300.0):
        logits = some(2, 3, 4, scale=scale)
        right = torch.stack(
            [
                torch.stack([row[i] - row.logsumexp(0) for row, i in zip(a, b, strict=True)])
                for a, b in zip(logits, labels, strict=True)
            ]
        )
        hint = "log softmax(x) = x - log Σ exp(x), with the largest taken off first."
        close(f"response_log_probs of logits of about {scale:g}", yours(logits, labels), right, hint)


def entropy(yours: Callable[..., Any]) -> None:
    for scale in (1.0, 300.0):
        logits = some(2, 3, 4, scale=scale)
        right = torch.distributions.Categorical(logits=logits).entropy()
        hint = "Take p and log p from log_softmax: a p of 0 has the logarithm -inf."
        close(f"entropy of logits of about {scale:g}", yours(logits), right, hint)


def masked_mean(yours: Callable[..., Any]) -> None:
    values = some(3, 5)
    for dim in (None, 0, 1, -1):
        mask = torch.ones(3, 5) if dim == 0 else MASK
        right = (values * mask).sum() / mask.sum() if dim is None else (values * mask).sum(dim) / mask.sum(dim)
        answer = yours(values, mask) if dim is None else yours(values, mask, dim)
        close(f"masked_mean(values, mask, dim={dim})", answer, right, "Divide by the number of ones in the mask.")


def masked_normalize(yours: Callable[..., Any]) -> None:
    values = some(3, 5)
    for dim, constant in ((None, 7.0), (0, 2.0), (1, 3.0)):
        right = ((values * MASK).sum() if dim is None else (values * MASK).sum(dim)) / constant
        answer = yours(values, MASK, constant) if dim is None else yours(values, MASK, constant, dim)
        close(f"masked_normalize(values, mask, {constant}, dim={dim})", answer, right)


def sft_step(yours: Callable[..., Any]) -> None:
    for steps, settings in ((1, {}), (4, {"constant": 3.0})):
        values = some(3, 5).requires_grad_()
        constant = settings.get("constant", 1.0)
        call = f"sft_step(log_probs, mask, {steps}{', constant=3.0' if settings else ''})"
        loss = yours(values, MASK, steps, **settings)
        if loss is None:
            raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
        near(
            call,
            loss,
            float(-(values.detach() * MASK).sum(1).mean() / constant / steps),
            "A row's loss is a sum, not a mean.",
        )
        if values.grad is None:
            raise Wrong(f"{call} gives no gradient: call backward() on the loss.")
        close(f"The gradient of {call}", values.grad, -MASK / (3 * constant * steps), "Only the output is learned.")


def group_advantages(yours: Callable[..., Any]) -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1, 0.5, 2, -1, 3])
    for size, settings in ((4, {}), (3, {"eps": 0.5}), (4, {"divide": False}), (6, {"eps": 1e-6, "divide": True})):
        groups = rewards.view(-1, size)
        centered = groups - groups.mean(1, keepdim=True)
        divided = centered / (groups.std(1, keepdim=True) + settings.get("eps", 1e-6))
        mistakes = {
            "The deviation divides by n, and Tensor.std by n - 1.": centered
            / (groups.std(1, keepdim=True, correction=0) + settings.get("eps", 1e-6)),
            "The mean is of all rewards, and should be of each group.": rewards.view(-1, size) - rewards.mean(),
        }
        right = (divided if settings.get("divide", True) else centered).flatten()
        call = f"group_advantages(rewards, {size}{''.join(f', {k}={v}' for k, v in settings.items())})"
        mine = yours(rewards, size, **settings)
        flat = [(words, wrong.flatten()) for words, wrong in mistakes.items()]
        close(call, mine, right, mistake(mine, flat, "The answers to a prompt stand one behind the other."))
    tiny = torch.tensor([1e-6, 0.0])
    right = (tiny - tiny.mean()) / (tiny.std() + 1e-6)
    close("group_advantages([1e-6, 0], 2)", yours(tiny, 2), right, "eps is 1e-6 unless something else is passed.")


def grpo_clip_loss(yours: Callable[..., Any]) -> None:
    new, old = some(4, 6), some(4, 6, seed=1)
    advantages = torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    ratio = (new - old).exp()
    for clip in (0.2, 0.5):
        clipped = ratio.clamp(1 - clip, 1 + clip)
        right = -torch.minimum(ratio * advantages, clipped * advantages)
        mistakes = {
            "The larger of both was taken; the smaller gain is the safe one.": -torch.maximum(
                ratio * advantages, clipped * advantages
            ),
            "A loss is what gets smaller: it is minus the gain.": -right,
            "The clipped ratio alone has no way back where it went too far the wrong way.": -clipped * advantages,
        }
        mine = yours(advantages, new, old, clip)
        close(f"grpo_clip_loss(…, {clip})", mine, right, mistake(mine, mistakes.items(), "ratio = exp(new - old)."))


def dpo_loss(yours: Callable[..., Any]) -> None:
    values = [some(5, seed=seed, scale=4) for seed in range(4)]
    for beta in (0.1, 2.0):
        margin = beta * ((values[0] - values[2]) - (values[1] - values[3]))
        right = -torch.nn.functional.logsigmoid(margin).mean()
        mistakes = {
            "chosen and rejected have changed places.": -torch.nn.functional.logsigmoid(-margin).mean(),
            "The reference is missing: only what changed against it counts.": -torch.nn.functional.logsigmoid(
                beta * (values[0] - values[1])
            ).mean(),
            "The losses are summed, and should be averaged.": 5 * right,
        }
        mine = yours(*values, beta)
        close(f"dpo_loss(…, {beta})", mine, right, mistake(mine, mistakes.items(), ""))
    far = torch.tensor([-1000.0])
    hint = "log sigmoid(-1000) is -1000: use torch.nn.functional.logsigmoid, not the logarithm of sigmoid."
    zero = torch.zeros(1)
    close("dpo_loss of a difference of -1000", yours(far, zero, zero, zero, 1.0), torch.tensor(1000.0), hint)


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    10: {
        "tokenize_prompt_and_output": tokenize,
        "response_log_probs": log_probs,
        "entropy": entropy,
        "masked_mean": masked_mean,
        "masked_normalize": masked_normalize,
        "sft_step": sft_step,
        "group_advantages": group_advantages,
        "grpo_clip_loss": grpo_clip_loss,
        "dpo_loss": dpo_loss,
    }
}
