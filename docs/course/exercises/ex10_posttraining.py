"""Exercises of chapter 10: after pretraining. Fill in the bodies, then run `python grade.py 10`."""

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


def group_advantages(rewards: Tensor, group_size: int, eps: float = 1e-6, divide: bool = True) -> Tensor:
    """Of each reward (batch,) the mean of its group taken off, and with `divide` over (standard deviation + eps).

    The answers to a prompt stand one behind the other, group_size of them. Tensor.std is the deviation.
    """


def grpo_clip_loss(advantages: Tensor, log_probs: Tensor, old_log_probs: Tensor, clip: float) -> Tensor:
    """-min(ratio · A, clamp(ratio, 1 - clip, 1 + clip) · A) of each token, ratio = exp(log_probs - old_log_probs).

    advantages: (batch, 1); log_probs, old_log_probs: (batch, seq).
    """


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> Tensor:
    """The mean of -log sigmoid(beta · ((chosen - reference_chosen) - (rejected - reference_rejected))).

    Each is the log-probability of whole answers, (batch,). It should survive differences of a thousand.
    """
