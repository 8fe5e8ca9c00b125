"""Token ids, and several documents in one row of them: the document of each token and its position."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IGNORE = -100  # a target that does not count, by torch's convention


def document_ids_of(ids: Tensor, end_of_text: int) -> Tensor:
    """The document of each token of ids (batch, seq), from the left of its row; an end-of-text token begins one."""
    return (ids == end_of_text).cumsum(dim=1)


def positions_of(ids: Tensor, document_ids: Tensor | None, start: int | Tensor, context_length: int) -> slice | Tensor:
    """Positions of ids (batch, seq): from `start`, one or of each row (batch,), or of each token in its document."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"expected a tensor of token ids, got {type(ids).__name__}: write torch.tensor(ids)[None]")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"expected token ids of an integer dtype, got {ids.dtype}")
    if ids.ndim != 2:
        raise ValueError(f"expected token ids (batch, seq), got {tuple(ids.shape)}: for one sequence pass ids[None]")
    if not ids.shape[1]:
        raise ValueError("expected at least one token, got none: begin with the end-of-text token")
    if isinstance(start, int) and start + ids.shape[1] > context_length:
        raise ValueError(f"a sequence of {start + ids.shape[1]} tokens is longer than the context of {context_length}")
    if document_ids is not None:
        if isinstance(start, Tensor) or start:
            raise ValueError(f"expected start 0 beside document_ids, got {start}: documents have their own positions")
        return positions_in(document_ids)
    return start[:, None] if isinstance(start, Tensor) else slice(start, start + ids.shape[1])


def embed_checked(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """embedding(ids). ValueError: an id has no row (on a CPU; CUDA's own assertion fails later)."""
    try:
        return embedding(ids)  # type: ignore[no-any-return]
    except IndexError:
        size, low, high = embedding.num_embeddings, int(ids.min()), int(ids.max())
        message = f"token ids from {low} to {high} are not all in the vocabulary of {size}"
        raise ValueError(f"{message}: use the model's own tokenizer") from None


def positions_in(document_ids: Tensor) -> Tensor:
    """Position of each token in its document, a contiguous run of document_ids (batch, seq): int64 (batch, seq)."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand(document_ids.shape)
    is_first = torch.ones_like(document_ids, dtype=torch.bool)
    is_first[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(is_first, index, 0).cummax(dim=1).values
