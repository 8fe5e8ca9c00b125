"""Several documents in one row of tokens: which document a token is of, and how far into it."""

from __future__ import annotations

import torch
from torch import Tensor


def document_ids_of(ids: Tensor, end_of_text: int) -> Tensor:
    """The document of each token of ids (batch, seq), int64, counted from the left of its row.

    An end-of-text token begins a document, so that the first of its tokens is predicted from it alone, as generation
    does, and the last predicts the next one: every target stays one.
    """
    return (ids == end_of_text).cumsum(dim=1)


def positions_of(document_ids: Tensor | None, start: int | Tensor, length: int) -> slice | Tensor:
    """Positions of `length` tokens of each row: from `start` on, or of each in its own document.

    start: one for all rows, or of the one token of each row (batch,).
    """
    if document_ids is not None:
        if isinstance(start, Tensor) or start:
            raise ValueError(
                f"expected start 0 beside document_ids, got {start}: documents have positions of their own"
            )
        return positions_in(document_ids)
    return start[:, None] if isinstance(start, Tensor) else slice(start, start + length)


def positions_in(document_ids: Tensor) -> Tensor:
    """How far each token is into its document, a contiguous run of document_ids (batch, seq): int64 (batch, seq)."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand(document_ids.shape)
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values
