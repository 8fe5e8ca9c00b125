"""Exercises of chapter 10: after pretraining. Fill in the bodies, then run `python grade.py 10`."""

from collections.abc import Callable

import torch
from torch import Tensor


def tokenize_prompt_and_output(
    prompts: list[list[int]], outputs: list[list[int]], padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of prompt + output, padded behind to the longest: (inputs, labels, mask), each (batch, longest - 1).

    The labels are the ids one further than the inputs. The mask is 1.0 where a label belongs to the output, else 0.0.
    """


def response_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """log p of each label: logits (batch, seq, vocab), labels (batch, seq) → (batch, seq)."""


def entropy(logits: Tensor) -> Tensor:
    """-Σ p log p of each position: (batch, seq, vocab) → (batch, seq). Logits may be large."""


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The mean of the values where the mask is 1, along a dimension or over all."""


def masked_normalize(values: Tensor, mask: Tensor, constant: float, dim: int | None = None) -> Tensor:
    """The sum of the values where the mask is 1, divided by a constant, along a dimension or over all."""


def sft_step(log_probs: Tensor, mask: Tensor, accumulation_steps: int, constant: float = 1.0) -> Tensor:
    """One micro-batch of supervised fine-tuning: compute the loss, call backward() on it, and return it.

    The loss of a row is minus masked_normalize of its log_probs (batch, seq). The loss is the mean over rows, divided
    by accumulation_steps.
    """


def compute_group_normalized_rewards(
    rewards: Tensor, group_size: int, baseline: str = "mean", eps: float = 1e-6, normalizer: str = "std"
) -> Tensor:
    """The advantage of each reward (batch,). The answers to a prompt stand one behind the other, group_size of them.

    baseline: "mean" takes the mean of the group off, "none" takes off nothing.
    normalizer: "std" divides by (standard deviation of the group + eps), with Tensor.std; "mean" by (mean of the
    group's rewards + eps), as MaxRL does; "none" does not divide.
    """


def compute_policy_gradient_loss(
    advantages: Tensor,
    log_probs: Tensor,
    method: str = "none",
    old_log_probs: Tensor | None = None,
    clip: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The loss of each token, (batch, seq). advantages (batch,); log_probs, old_log_probs, mask (batch, seq).

    With r = exp(log_probs - old_log_probs) of each token, and A the advantage of its answer:
    "none": -A · log_probs;  "noclip": -r · A;  "grpo": -min(r · A, clamp(r, 1 - clip, 1 + clip) · A);
    "gspo": as "grpo", with one r for all tokens of an answer: exp of the mean of log_probs - old_log_probs over the
    tokens where the mask is 1.
    """


def aggregate_loss_across_microbatch(
    losses: Tensor, mask: Tensor, normalization: str = "sequence", constant: float | None = None
) -> Tensor:
    """One loss of the losses (batch, seq) where the mask is 1.

    "sequence": the mean over each answer, and the mean of these. "constant": the sum of all, divided by the constant.
    """


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
    """One step of the optimizer on a batch of answers. Returns the loss of the whole batch, without its graph.

    model(ids) gives logits. inputs, labels, mask, old_log_probs: (batch, seq), rewards: (batch,). Advantages are those
    of the whole batch, with the default eps. The rows are cut into accumulation_steps micro-batches (Tensor.chunk), one
    after another: the step is the same for any number of them, even where their sizes differ. If max_norm is given, the
    norm of all gradients is clipped to it (torch.nn.utils.clip_grad_norm_). Gradients from before do not count, and
    none are left.
    """


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> Tensor:
    """The mean of -log sigmoid(beta · ((chosen - reference_chosen) - (rejected - reference_rejected))).

    Each is the log-probability of whole answers, (batch,). It should survive differences of a thousand.
    """
