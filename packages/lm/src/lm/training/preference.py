"""Direct preference optimisation: of two answers the better one is made likelier, as far as the model began.

    loss = -log σ(β ((log p(better) - log p₀(better)) - (log p(worse) - log p₀(worse))))

p₀ is the model that the run began with. (Rafailov et al. 2023, arXiv:2305.18290)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm import lora
from lm.data import Tokens
from lm.documents import IGNORE, document_ids_of
from lm.model import Transformer
from lm.training.validation import Score


class PreferenceLoss(nn.Module):
    """Inputs and targets of packed pairs → the sum of the pairs' losses, in nats.

    The documents of a row that have targets are, in turn, the better and the worse answer of a pair.

    Args:
        model: The model that learns.
        end_of_text: The id that begins a document.
        beta: How fast the loss falls as the model moves away from p₀.
        reference: p₀; None for a model with adapters, which is its own without them.
    """

    def __init__(self, model: Transformer, end_of_text: int, beta: float, reference: Transformer | None) -> None:
        super().__init__()
        self.model, self.end_of_text, self.beta = model, end_of_text, beta
        self.references = [] if reference is None else [reference]  # in a list: no part of what is trained and sharded
        self.preferred = 0  # pairs since it was set to 0 whose better answer became likelier than the other

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """inputs, targets (batch, seq) int64; a target of IGNORE is none of an answer → a scalar."""
        document_ids = document_ids_of(inputs, self.end_of_text)
        answers, count = numbered(targets, document_ids)
        likelihoods = log_likelihoods(self.model, inputs, targets, document_ids, answers, count)
        with torch.no_grad(), self.reference() as reference:
            before = log_likelihoods(reference, inputs, targets, document_ids, answers, count)
        rewards = self.beta * (likelihoods - before)  # (2 · pairs,)
        margins = rewards[0::2] - rewards[1::2]
        self.preferred += int((margins > 0).sum())
        return -F.logsigmoid(margins).sum()

    @contextlib.contextmanager
    def reference(self) -> Iterator[Transformer]:
        """The model that the run began with."""
        if self.references:
            yield self.references[0]
            return
        was_training = self.model.training
        lora.enable(self.model, False)
        try:
            yield self.model.eval()
        finally:
            self.model.train(was_training)
            lora.enable(self.model, True)


def numbered(targets: Tensor, document_ids: Tensor) -> tuple[Tensor, int]:
    """The answers of a batch, counted from 0: of each target that counts its answer's number, and how many there are.

    Raises:
        ValueError: A row has an odd number of them, and so no pairs.
    """
    counts = targets != IGNORE
    rows = torch.arange(len(targets), device=targets.device)[:, None].expand_as(targets)
    keys = torch.stack((rows[counts], document_ids[counts]))
    found, numbers = torch.unique_consecutive(keys, dim=1, return_inverse=True)
    if bool((found[0].bincount() % 2).any()):
        raise ValueError("a row has an odd number of answers: prepare pairs with `lm data preferences`")
    return numbers, found.shape[1]


def log_likelihoods(
    model: Transformer, inputs: Tensor, targets: Tensor, document_ids: Tensor, answers: Tensor, count: int
) -> Tensor:
    """log p of each answer, (count,): the sum over its targets."""
    counts = targets != IGNORE
    logits = model.logits(model.hidden(inputs, document_ids)[counts])  # (targets that count, vocab_size)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide.new_zeros(count).index_add(0, answers, -F.cross_entropy(wide, targets[counts], reduction="none"))


def count_pairs(inputs: Tensor, targets: Tensor, end_of_text: int) -> int:
    """Pairs in a batch."""
    return numbered(targets, document_ids_of(inputs, end_of_text))[1] // 2


@torch.no_grad()
def evaluate_pairs(loss: PreferenceLoss, tokens: Tokens, max_tokens: int | None, batch_size: int = 16) -> Score:
    """The loss of the pairs in a file, in windows spread over it that hold about max_tokens tokens; all if None.

    Returns:
        Nats over pairs. `loss.preferred` counts the pairs whose better answer became likelier.
    """
    assert tokens.window is not None
    assert tokens.mask is not None
    window, device = tokens.window, loss.model.embedding.weight.device
    count = len(tokens) // window
    wanted = count if max_tokens is None else min(count, max(1, max_tokens // window))
    chosen = [i * count // wanted for i in range(wanted)]
    was_training, nats, pairs = loss.model.training, 0.0, 0
    loss.model.eval()
    for first in range(0, wanted, batch_size):
        places = [slice(i * window, (i + 1) * window) for i in chosen[first : first + batch_size]]
        ids = torch.stack([torch.as_tensor(tokens.ids[place].astype("int64")) for place in places]).to(device)
        marks = torch.stack([torch.as_tensor(tokens.mask[place].astype("bool")) for place in places]).to(device)
        inputs, targets = ids[:, :-1], ids[:, 1:].masked_fill(~marks[:, 1:], IGNORE)
        pairs += count_pairs(inputs, targets, loss.end_of_text)
        nats += float(loss(inputs, targets))
    loss.model.train(was_training)
    return Score(nats, pairs)
