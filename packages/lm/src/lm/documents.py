"""Several documents in one row of token ids."""

from __future__ import annotations

from torch import Tensor

IGNORE = -100  # a target that does not count, by torch's convention


def document_ids_of(ids: Tensor, end_of_text: int) -> Tensor:
    """The document of each token of ids (batch, seq), from the left of its row; an end-of-text token begins one."""
    return (ids == end_of_text).cumsum(dim=1)
