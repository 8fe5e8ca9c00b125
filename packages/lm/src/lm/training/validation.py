"""Scoring a text by a model: every token counted once, in nats and in bits per byte."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lm.data import Tokens, windows_of
from lm.data.mixture import BLOCK
from lm.documents import IGNORE, document_ids_of
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.progress import progress_bar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Score:
    """The score of a text. Its fields are sums, so that the scores of parts add up."""

    nats: float  # of all predictions
    tokens: int  # predictions
    bytes: float | None = None  # of text that they stand for; None if not known
    text_nats: float | None = None  # of the predictions that are not end-of-text tokens; None: as nats

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits for a byte of text, which compare between tokenizers and with compressors.

        The bits of the tokens of the text over its bytes in UTF-8; end-of-text tokens count on neither side.
        """
        nats = self.nats if self.text_nats is None else self.text_nats
        return None if self.bytes is None else nats / self.bytes / math.log(2)

    def __str__(self) -> str:
        bits = "" if self.bits_per_byte is None else f", {self.bits_per_byte:.4f} bits per byte"
        return f"loss {self.loss:.4f} nats a token{bits}, over {self.tokens:,} tokens"


def mixed(scores: Sequence[tuple[float, Score]]) -> Score:
    """Return the expected score of a mixture, from the shares and the scores of its sets."""
    if len(scores) == 1:
        return scores[0][1]
    tokens, whole = sum(score.tokens for _, score in scores), sum(share for share, _ in scores)
    sizes = [share * score.bytes / score.tokens for share, score in scores if score.bytes is not None]
    size = sum(sizes) / whole * tokens if len(sizes) == len(scores) else None
    text = sum(share * (s.nats if s.text_nats is None else s.text_nats) / s.tokens for share, s in scores)
    nats = sum(share * score.loss for share, score in scores)
    return Score(nats / whole * tokens, tokens, size, text / whole * tokens)


def sums_of_losses(
    model: Transformer, inputs: Tensor, targets: Tensor, end_of_text: int | None = None, special: int | None = None
) -> Tensor:
    """Return the sum of the targets' losses in nats, and that of the targets that are `special`: (2,).

    inputs (batch, seq); targets (batch, scored) of the last `scored` inputs; IGNORE does not count.
    end_of_text: the id that begins a document, if the documents of a row do not see each other.
    """
    document_ids = None if end_of_text is None else document_ids_of(inputs, end_of_text)
    hidden = model.hidden(inputs, document_ids)[:, inputs.shape[1] - targets.shape[1] :]
    settings: dict[str, Any] = {"vocab_size": model.config.vocab_size, "softcap": model.config.logit_softcap}
    total = chunked_cross_entropy(hidden, model.head_weight, targets, reduction="sum", **settings)
    if special is None:
        return torch.stack((total, torch.zeros_like(total)))
    places = torch.eq(targets, special)
    ends = chunked_cross_entropy(hidden[places], model.head_weight, targets[places], reduction="sum", **settings)
    return torch.stack((total, ends))


@torch.inference_mode()
def evaluate(
    model: Transformer,
    tokens: Tokens | NDArray[Any],
    *,
    context_length: int | None = None,
    stride: int | None = None,
    max_tokens: int | None = None,
    batch_size: int = 16,
    document_masking: bool = False,
    summed: Callable[[Tensor, Tensor, int | None], Tensor] | None = None,
    share: tuple[int, int] = (0, 1),
    progress: bool = False,
) -> Score:
    """Score every token exactly once, so that the sum is the compressed size of the text in nats.

    The first token is predicted from end_of_text where tokens.end_of_text names it, as documents were joined by it in
    training; else it costs log(vocab_size), as it would without a model. Where tokens.mask says that only some tokens
    are learned, only those are scored, and `bytes` is not known.

    Args:
        model: The model.
        tokens: The text.
        context_length: Length of a window; the model's by default.
        stride: Distance of windows; context_length by default. All but the first context_length tokens are predicted
            from at least context_length - stride tokens before them.
        max_tokens: Score about that many, in windows spread evenly over the text; `bytes` is then in proportion.
        batch_size: Windows at a time.
        document_masking: Documents do not see each other, as in training with it.
        summed: A callable used instead of sums_of_losses of the model, with inputs, targets and the end-of-text id.
        share: Rank and number of processes that score the text together; each score is then a part, whose fields add
            up to the whole score.
        progress: Show a live line on stderr.
    """
    if not isinstance(tokens, Tokens):
        if not hasattr(tokens, "dtype"):
            remedy = "use lm.data.open_tokens for files"
            raise TypeError(f"expected lm.data.Tokens or an array of ids, got {type(tokens).__name__}: {remedy}")
        tokens = Tokens(path=Path("an array"), ids=tokens, sha256="")
    config = model.config
    context = config.context_length if context_length is None else context_length
    stride = context if stride is None else stride
    if not 1 <= stride <= context <= config.context_length or batch_size < 1:
        bounds = f"1 <= stride <= context_length <= {config.context_length} and batch_size >= 1"
        raise ValueError(f"expected {bounds}, got {stride}, {context} and {batch_size}")

    # The windows: all of them, or max_tokens spread evenly; windows without a token to learn are left out.
    ids, mask, before = tokens.ids, tokens.mask, tokens.end_of_text
    targets = len(ids) - (before is None)  # ids[1:], where nothing is known to stand before the first
    windows = list(windows_of(targets, context, stride)) if targets else []
    shift = len(ids) - targets  # target i is token i + shift
    if mask is not None:
        windows = [window for window in windows if mask[window[1] + shift : window[2] + shift].any()]
        if not windows:
            raise ValueError(f"none of the tokens in {tokens.path} is to be learned, so there is nothing to score")
    if max_tokens is not None and len(windows) * stride > max_tokens:
        count = max(1, max_tokens // stride)
        windows = [windows[i * len(windows) // count] for i in range(count)]
    sums, scored, scored_ends = [0.0, 0.0], 0, 0
    if mask is None and before is None and share[0] == 0 and (not windows or windows[0][0] == 0):
        sums[0], scored = math.log(config.vocab_size), 1
    if document_masking and before is None:
        raise ValueError("documents are told apart by the end-of-text token, and the tokens do not say which that is")
    separator = before if document_masking else None
    summed = summed or (lambda inputs, targets, special: sums_of_losses(model, inputs, targets, separator, special))

    # Windows of one shape are scored together, in eval mode; the mode is put back.
    device, was_training = model.embedding.weight.device, model.training
    model.eval()
    total = sum(end - first for _, first, end in windows)
    try:
        with progress_bar("evaluate", total, "token", unit_scale=True, disable=not progress) as bar:
            for group, is_own in shared(list(batch_windows(windows, batch_size)), share):
                begin, first, end = group[0]
                rows = np.empty((len(group), end - begin + 1), dtype=np.int64)
                for row, (start, _, stop) in zip(rows, group, strict=True):
                    # Input i is the token before target i: targets are ids[1:], or all ids after end_of_text.
                    if before is None:
                        row[:] = ids[start : stop + 1]
                    else:
                        row[1:] = ids[start:stop]
                        row[0] = ids[start - 1] if start else before
                both = torch.from_numpy(rows).to(device)
                scored_targets = both[:, 1 + first - begin :]
                if mask is not None:
                    marks = np.stack([mask[start + shift : stop + shift] for _, start, stop in group])
                    scored_targets = scored_targets.masked_fill(torch.from_numpy(marks == 0).to(device), IGNORE)
                losses = summed(both[:, :-1], scored_targets, before).tolist()
                if is_own:
                    sums = [total + loss for total, loss in zip(sums, losses, strict=True)]
                    scored += int((scored_targets != IGNORE).sum())
                    scored_ends += 0 if before is None else int((scored_targets == before).sum())
                    bar.update(len(group) * (end - first))
    finally:
        model.train(was_training)

    # The bytes of the scored text, in proportion to its tokens without the end-of-text tokens.
    size, text = None, len(ids)
    if before is not None:
        blocks = (np.asarray(ids[begin : begin + BLOCK]) for begin in range(0, len(ids), BLOCK))
        text -= sum(int(np.count_nonzero(block == before)) for block in blocks)
    if tokens.bytes and mask is None and text:
        size = tokens.bytes * (scored - scored_ends) / text
    return Score(sums[0], scored, size or None, sums[0] - sums[1])


def shared(items: Sequence[Item], share: tuple[int, int]) -> Iterator[tuple[Item, bool]]:
    """Yield the items of one process (rank, number of processes), each with True."""
    # Processes with parts of a model compute each batch together: one without an item repeats the last, with False.
    rank, size = share
    for first in range(0, len(items), size):
        yield items[min(first + rank, len(items) - 1)], first + rank < len(items)


def spread_windows(tokens: Tokens, max_tokens: int | None, batch_size: int = 16) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets (rows, window - 1) of windows spread over a packed file, about max_tokens in all."""
    assert tokens.window is not None
    assert tokens.mask is not None
    window, count = tokens.window, len(tokens) // tokens.window
    scored = count if max_tokens is None else min(count, max(1, max_tokens // window))
    starts = [i * count // scored * window for i in range(scored)]
    for first in range(0, scored, batch_size):
        places = [slice(start, start + window) for start in starts[first : first + batch_size]]
        ids = torch.stack([torch.as_tensor(tokens.ids[place].astype("int64")) for place in places])
        learned = torch.stack([torch.as_tensor(tokens.mask[place].astype("bool")) for place in places])
        yield ids[:, :-1], ids[:, 1:].masked_fill(~learned[:, 1:], IGNORE)


def batch_windows(windows: list[tuple[int, int, int]], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield batches of at most `most` windows of equal length and equal number of scored tokens."""
    for _, run in itertools.groupby(windows, key=lambda window: (window[2] - window[0], window[2] - window[1])):
        while group := list(itertools.islice(run, most)):
            yield group
