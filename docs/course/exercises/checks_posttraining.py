"""Checks of the exercises of chapter 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import (
    NOT_WRITTEN,
    Wrong,
    close,
    drawing,
    followed,
    mistake,
    near,
    normal,
    same_function,
)
from torch import Tensor, nn

MASK = torch.tensor([[0.0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])


def tokenize(yours: Callable[..., Any]) -> None:
    numbers = drawing("tokenize_prompt_and_output")
    drawn = [[numbers.choices(range(90), k=numbers.randint(1, 6)) for _ in range(4)] for _ in range(2)]
    for prompts, outputs, padding in (
        ([[5, 6, 7], [8], [1, 2]], [[9], [10, 11, 12, 13], [3, 4]], 99),
        ([[5, 0, 7], [0]], [[9, 0], [0]], 0),  # the padding is an id of the text too, as an end of text is
        (*drawn, 99),
        ([[3, 4]], [[5]], 7),
    ):
        result = yours(prompts, outputs, padding)
        if result is None:
            raise Wrong(f"tokenize_prompt_and_output returns None: {NOT_WRITTEN}.")
        longest = max(len(prompt) + len(output) for prompt, output in zip(prompts, outputs, strict=True))
        ids, mask = torch.full((len(prompts), longest), padding), torch.zeros(len(prompts), longest)
        for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            ids[row, : len(prompt + output)] = torch.tensor(prompt + output)
            mask[row, len(prompt) : len(prompt + output)] = 1
        call = f"tokenize_prompt_and_output({prompts}, {outputs}, {padding})"
        close(f"The inputs of {call}", result[0], ids[:, :-1], "The last id of the longest row predicts nothing.")
        close(f"The labels of {call}", result[1], ids[:, 1:], "They are the ids one further.")
        hint = (
            "It belongs to the labels: the first label of an output is predicted from the last id of the prompt. "
            "An id equal to the padding may be part of the text."
        )
        close(f"The mask of {call}", result[2], mask[:, 1:], hint)


def log_probs(yours: Callable[..., Any]) -> None:
    for shape, scale in (((2, 3, 4), 1.0), ((2, 3, 4), 300.0), ((1, 3, 4), 1.0), ((3, 1, 4), 1.0)):
        labels = torch.tensor(drawing("log_probs").choices(range(4), k=shape[0] * shape[1])).view(shape[:2])
        hint = "log softmax(x) = x - log Σ exp(x), with the largest taken off first; the shape is that of labels."
        call = f"response_log_probs of logits {shape} of about {scale:g}"
        functions = (followed(function, labels) for function in (yours, label_log_probs))
        same_function(call, *functions, [normal(*shape, scale=scale)], hint)


def label_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    return -nn.functional.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")


def entropy(yours: Callable[..., Any]) -> None:
    def right(logits: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1)

    for shape, scale in (((2, 3, 4), 1.0), ((2, 3, 4), 300.0), ((1, 1, 9), 2.0)):
        hint = "Take p and log p from log_softmax: a p of 0 has the logarithm -inf."
        same_function(
            f"entropy of logits {shape} of about {scale:g}", yours, right, [normal(*shape, scale=scale)], hint
        )


def masked_mean(yours: Callable[..., Any]) -> None:
    def right(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
        return torch.where(mask > 0, values, 0).sum(dim) / mask.sum(dim)

    for last in ((), (0,), (1,), (-1,), (None,)):
        mask = torch.ones(3, 5) if last == (0,) else MASK
        call = f"masked_mean(values, mask{''.join(f', dim={dim}' for dim in last)})"
        functions = (followed(function, mask, *last) for function in (yours, right))
        values = normal(3, 5)
        values[0, 1] = values[2, 3] = 0  # a value of 0 counts as every other one
        same_function(call, *functions, [values], "Divide by the number of ones in the mask.")


def masked_normalize(yours: Callable[..., Any]) -> None:
    def right(values: Tensor, mask: Tensor, constant: float, dim: int | None = None) -> Tensor:
        return (values * mask).sum(dim) / constant

    for constant, *last in ((7.0,), (2.0, 0), (3.0, 1), (0.5, -1), (drawing("normalize").uniform(1, 9), None)):
        call = f"masked_normalize(values, mask, {constant:.4g}{''.join(f', dim={dim}' for dim in last)})"
        functions = (followed(function, MASK, constant, *last) for function in (yours, right))
        hint = "Without dim the sum is over all; dim=-1 is the last dimension. The divisor is the constant alone."
        same_function(call, *functions, [normal(3, 5)], hint)


def sft_step(yours: Callable[..., Any]) -> None:
    for steps, settings in ((1, {}), (4, {"constant": 3.0}), (3, {})):
        values = normal(3, 5).requires_grad_()
        before = normal(3, 5, seed=1)
        values.grad = before.clone()  # of the micro-batches before: gradients add up
        constant = settings.get("constant", 1.0)
        call = f"sft_step(log_probs, mask, {steps}{', constant=3.0' if settings else ''})"
        loss = yours(values, MASK, steps, **settings)
        if loss is None:
            raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
        right = float(-(values.detach() * MASK).sum(1).mean() / constant)
        hint = "A row's loss is a sum, not a mean."
        if not isinstance(loss, Tensor):
            raise Wrong(f"{call} gives {type(loss).__name__}, and should give a tensor.")
        if abs(float(loss.detach()) - right) < 1e-6:
            hint = "It is divided by accumulation_steps too."
        near(call, loss, right / steps, hint)
        gradient = -MASK / (3 * constant * steps)
        if torch.equal(values.grad, before):
            raise Wrong(f"{call} gives no gradient: call backward() on the loss.")
        hint = mistake(values.grad, [("Gradients of earlier micro-batches are kept.", gradient)], "Only outputs learn.")
        close(f"The gradient of {call}", values.grad, before + gradient, hint)


def normalized(rewards: Tensor, size: int, baseline: str, eps: float, normalizer: str) -> Tensor:
    groups = rewards.view(-1, size)
    off = groups - groups.mean(1, keepdim=True) if baseline == "mean" else groups
    divisor = {
        "std": groups.std(1, keepdim=True) + eps,
        "mean": groups.mean(1, keepdim=True) + eps,
        "none": torch.ones(len(groups), 1),
    }
    return (off / divisor[normalizer]).flatten()


def group_normalized(yours: Callable[..., Any]) -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1, 0.5, 2, -1, 3])
    rewards = torch.cat((rewards, normal(12).abs()))
    for size, *others in (
        (4,),
        (3, "mean", 0.5),
        (4, "mean", 1e-6, "none"),
        (6, "none", 1e-6, "none"),
        (4, "mean", 1e-6, "mean"),
        (8, "none", 0.25, "mean"),
        (6, "none", 0.5, "std"),
        (2, "mean", 1e-6, "std"),
    ):
        baseline, eps, normalizer = (*others, *("mean", 1e-6, "std")[len(others) :])
        groups = rewards.view(-1, size)
        biased = normalized(rewards, size, baseline, eps, "none").view(-1, size)
        biased = biased / (groups.std(1, keepdim=True, correction=0) + eps)
        mistakes = [("The deviation divides by n, and Tensor.std by n - 1.", biased.flatten())]
        whole = rewards - rewards.mean()
        mistakes.append(("The mean is of all rewards, and should be of each group.", whole))
        call = f"compute_group_normalized_rewards(rewards, {size}{''.join(f', {other!r}' for other in others)})"
        mine = yours(rewards, size, *others)
        hint = mistake(mine, mistakes, "The answers to a prompt stand one behind the other.")
        close(call, mine, normalized(rewards, size, baseline, eps, normalizer), hint)
    tiny = torch.tensor([1e-6, 0.0])
    right = (tiny - tiny.mean()) / (tiny.std() + 1e-6)
    hint = "eps is 1e-6 unless something else is passed."
    close("compute_group_normalized_rewards([1e-6, 0], 2)", yours(tiny, 2), right, hint)


def token_losses(
    log_probs: Tensor, advantages: Tensor, method: str, old: Tensor | None, clip: float | None, mask: Tensor | None
) -> Tensor:
    gain = advantages[:, None]
    if method == "none":
        return -gain * log_probs
    assert old is not None
    difference = log_probs - old
    if method == "gspo":
        assert mask is not None
        difference = (difference * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True) + 0 * difference
    ratio = difference.exp()
    if method == "noclip":
        return -ratio * gain
    assert clip is not None
    return -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)


def policy_gradient(yours: Callable[..., Any]) -> None:
    advantages = torch.tensor([1.0, -2.0, 0.5, 0.0, -1.0])
    for method, clip, length in (
        ("none", None, 6),
        ("none", None, 5),  # as many tokens as answers
        ("noclip", None, 6),
        ("grpo", 0.2, 6),
        ("grpo", 0.5, 5),
        ("gspo", 0.1, 6),
        ("gspo", 0.4, 5),
        ("gspo", 9.0, 300),  # so long that a product of ratios does not fit
    ):
        log_p, old = normal(5, length) + length // 300, normal(5, length, seed=1)
        mask = (normal(5, length, seed=2) > 0).float()
        mask[:, 3] = 1
        arguments = (method, old, clip, mask)
        call = f"compute_policy_gradient_loss(…, {method!r}, old_log_probs, {clip}, mask)"

        def of(function: Callable[..., Any], arguments: tuple[Any, ...] = arguments) -> Callable[..., Any]:
            return lambda log_probs: function(advantages, log_probs, *arguments)

        right = token_losses(log_p, advantages, *arguments)
        hint = "ratio = exp(log_probs - old_log_probs)."
        if clip is not None:
            ratio = (log_p - old).exp()
            clipped = ratio.clamp(1 - clip, 1 + clip)
            gain = advantages[:, None]
            mistakes = {
                "The larger of both was taken; the smaller gain is the safe one.": -torch.maximum(
                    ratio * gain, clipped * gain
                ),
                "The clipped ratio alone has no way back where it went too far the wrong way.": -clipped * gain,
                "This is the loss by tokens; gspo has one ratio for each answer.": token_losses(
                    log_p, advantages, "grpo", old, clip, mask
                ),
                "The mean is over all positions, and should be over those of the mask.": token_losses(
                    log_p, advantages, "gspo", old, clip, torch.ones_like(mask)
                ),
            }
            hint = mistake(of(yours)(log_p), mistakes.items(), hint)
        hint = mistake(of(yours)(log_p), [("A loss is what gets smaller: it is minus the gain.", -right)], hint)

        def ours(log_probs: Tensor, arguments: tuple[Any, ...] = arguments) -> Tensor:
            return token_losses(log_probs, advantages, *arguments)

        same_function(call, of(yours), ours, [log_p], hint)
    default = yours(advantages, log_p)
    close("compute_policy_gradient_loss(advantages, log_probs)", default, -advantages[:, None] * log_p)


def aggregated(losses: Tensor, mask: Tensor, normalization: str, constant: float | None) -> Tensor:
    if normalization == "constant":
        assert constant is not None
        return (losses * mask).sum() / constant
    return ((losses * mask).sum(1) / mask.sum(1)).mean()


def aggregate(yours: Callable[..., Any]) -> None:
    for last in ((), ("sequence",), ("constant", 7.0), ("constant", drawing("aggregate").uniform(1, 30))):
        whole = (*last, *("sequence", None)[len(last) :])
        call = f"aggregate_loss_across_microbatch(losses, mask{''.join(f', {value!r}' for value in last)})"
        functions = (followed(yours, MASK, *last), followed(aggregated, MASK, *whole))
        hint = "A token of a long answer weighs less with 'sequence', and the same with 'constant'."
        same_function(call, *functions, [normal(3, 5)], hint)


class Scorer(nn.Module):
    """A small model of ids that notes how many rows it gets at a time, and when their gradient comes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(normal(11, 6, seed=4))
        self.head = nn.Parameter(normal(6, 11, seed=5))
        self.rows: list[int] = []
        self.events: list[str] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.rows.append(len(ids))
        logits = torch.tanh(self.embedding[ids].cumsum(1)) @ self.head
        if logits.requires_grad:
            self.events.append("forward")
            logits.register_hook(lambda _: self.events.append("backward"))
        return logits


def train_step(yours: Callable[..., Any]) -> None:
    numbers = drawing("grpo_train_step")
    inputs, labels = (torch.tensor(numbers.choices(range(11), k=40)).view(8, 5) for _ in range(2))
    mask = (normal(8, 5, seed=6) > 0).float()
    mask[:, 1] = 1
    rewards = torch.tensor([1.0, 0, 0, 1, 0, 0, 1, 0]) + normal(8, seed=8).abs()
    with torch.no_grad():
        old = label_log_probs(Scorer()(inputs), labels) + normal(8, 5, seed=7, scale=0.3)
    for steps, most, settings in (
        (1, None, {}),
        (4, None, {}),
        (3, None, {"method": "grpo", "old_log_probs": old, "clip": 0.2}),
        (2, 0.05, {"normalizer": "none", "normalization": "constant", "constant": 20.0}),
        (8, None, {"method": "gspo", "old_log_probs": old, "clip": 0.1, "normalizer": "mean"}),
        (4, 100.0, {"baseline": "none", "method": "noclip", "old_log_probs": old}),
    ):
        mine, ours = Scorer(), Scorer()
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (mine, ours)]
        mine.embedding.grad = torch.ones_like(mine.embedding)  # of some step before
        names = ("baseline", "normalizer", "method", "clip", "normalization", "constant")
        words = "".join(f", {name}={settings[name]!r}" for name in names if name in settings)
        call = f"grpo_train_step(8 rows, group_size=4, accumulation_steps={steps}, max_norm={most}{words})"
        cut = () if steps == 1 else (steps, most)
        loss = yours(mine, optimizers[0], inputs, labels, mask, rewards, 4, *cut, **settings)
        if loss is None:
            raise Wrong(f"grpo_train_step returns None: {NOT_WRITTEN}.")
        choose = settings.get
        advantages = normalized(rewards, 4, choose("baseline", "mean"), 1e-6, choose("normalizer", "std"))
        method = choose("method", "none")
        losses = token_losses(
            label_log_probs(ours(inputs), labels), advantages, method, choose("old_log_probs"), choose("clip"), mask
        )
        right = aggregated(losses, mask, choose("normalization", "sequence"), choose("constant"))
        right.backward()
        if most is not None:
            nn.utils.clip_grad_norm_(ours.parameters(), most)
        optimizers[1].step()
        hint = "With 'sequence' a micro-batch counts by its share of the rows; with 'constant' the sums add up."
        near(f"The loss of {call}", loss, float(right.detach()), hint, 1e-4)
        for (name, p), q in zip(mine.named_parameters(), ours.parameters(), strict=True):
            close(f"The model's {name} after {call}", p, q, f"{hint} Gradients from before do not count.", 1e-4)
        if loss.requires_grad:
            raise Wrong(
                f"{call} returns a loss with its graph, which stays in memory as long as a log keeps it: detach."
            )
        if any(p.grad is not None and bool(p.grad.any()) for p in mine.parameters()):
            raise Wrong(f"{call} leaves gradients behind, which the next step would add to: zero_grad().")
        if max(mine.rows) > -(-8 // steps) or len(mine.rows) > steps:
            raise Wrong(f"{call} runs the model on {mine.rows} rows: cut the batch into {steps} micro-batches.")
        if mine.events != ["forward", "backward"] * (len(mine.events) // 2):
            raise Wrong(f"{call} keeps the graphs of all micro-batches: call backward() on each before the next one.")


def dpo_loss(yours: Callable[..., Any]) -> None:
    values = [normal(5, seed=seed, scale=4) for seed in range(4)]

    def right(chosen: Tensor, rejected: Tensor, base_chosen: Tensor, base_rejected: Tensor, beta: float) -> Tensor:
        return -nn.functional.logsigmoid(beta * ((chosen - base_chosen) - (rejected - base_rejected))).mean()

    for beta in (0.1, 2.0):
        margin = beta * ((values[0] - values[2]) - (values[1] - values[3]))
        mistakes = {
            "chosen and rejected have changed places.": -nn.functional.logsigmoid(-margin).mean(),
            "The reference is missing: only what changed against it counts.": -nn.functional.logsigmoid(
                beta * (values[0] - values[1])
            ).mean(),
            "The losses are summed, and should be averaged.": -nn.functional.logsigmoid(margin).sum(),
        }
        hint = mistake(yours(*values, beta), mistakes.items(), "")
        functions = (followed(function, beta) for function in (yours, right))
        same_function(f"dpo_loss(…, {beta})", *functions, values, hint, learn="01")
    far = torch.tensor([-1000.0])
    hint = "log sigmoid(-1000) is -1000: use torch.nn.functional.logsigmoid, not the logarithm of sigmoid."
    zero = torch.zeros(1)
    close("dpo_loss of a difference of -1000", yours(far, zero, zero, zero, 1.0), torch.tensor(1000.0), hint)


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    10: {
        "tokenize_prompt_and_output": tokenize,
        "response_log_probs": log_probs,
        "entropy": entropy,
        "masked_mean": masked_mean,
        "masked_normalize": masked_normalize,
        "sft_step": sft_step,
        "compute_group_normalized_rewards": group_normalized,
        "compute_policy_gradient_loss": policy_gradient,
        "aggregate_loss_across_microbatch": aggregate,
        "grpo_train_step": train_step,
        "dpo_loss": dpo_loss,
    }
}
