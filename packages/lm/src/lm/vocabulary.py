"""Another vocabulary for a trained model: each new token begins as a combination of rows that the model has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.model import Transformer

Method = Literal["pieces", "ends", "mean", "normal"]
METHODS: tuple[Method, ...] = ("pieces", "ends", "mean", "normal")


def extend_vocabulary(
    model: Transformer, old_tokenizer: Any, new_tokenizer: Any, method: Method = "pieces", *, seed: int = 0
) -> Transformer:
    """Return a model of a new tokenizer's vocabulary, such as bpe.extend() makes, with the weights of another.

    A token that both tokenizers have, of the same bytes or a special token of the same name, keeps its rows of the
    embedding, of value embeddings and of the head. The rows of other tokens begin by a method:

    - "pieces": the mean of the rows of the tokens which the old tokenizer makes of its bytes. (Gee et al. 2022, Fast
      Vocabulary Transfer, arXiv:2402.09977)
    - "ends": the row of the last of these tokens where the token is read, and of the first in an untied head, which
      has to predict where the token begins. With tied embeddings as "pieces".
    - "mean": the mean of all rows. (Hewitt 2021, Initializing New Word Embeddings for Pretrained Language Models)
    - "normal": drawn from the normal distribution with the mean and the covariance of all rows. (Mundra et al. 2024,
      arXiv:2407.05841, who found it as good as more elaborate ways)

    New special tokens, whose letters say nothing of their use, begin as the mean of all rows, or by "normal".

    Args:
        model: The model, which is not changed.
        old_tokenizer: The bpe.Tokenizer that it was trained with.
        new_tokenizer: The bpe.Tokenizer of the result; any, not only a larger one.
        method: How new rows begin.
        seed: The seed of "normal".

    Returns:
        A model of the same class, device and dtype, without adapters and not fused.

    Raises:
        ValueError: The model has fewer ids than the old tokenizer, or the method is none of these.

    >>> import bpe, lm
    >>> old = bpe.train(["low lower lowest"], 258, special_tokens=[])
    >>> new = bpe.extend(old, ["lower lowest lower"], 260)
    >>> model = lm.Transformer(lm.ModelConfig(258, 8, 1, 16, 2, 24))
    >>> larger = lm.extend_vocabulary(model, old, new)
    >>> pieces = old.encode(new.decode([259]))
    >>> torch.allclose(larger.embedding.weight[259], model.embedding.weight[pieces].mean(0))
    True
    """
    if method not in METHODS:
        raise ValueError(f"expected a method of {', '.join(METHODS)}, got {method!r}")
    size = model.config.vocab_size
    if old_tokenizer.n_vocab > size:
        raise ValueError(f"expected the model's own tokenizer of at most {size} ids, got {old_tokenizer.n_vocab}")
    pieces = [pieces_of(number, old_tokenizer, new_tokenizer) for number in range(new_tokenizer.n_vocab)]
    weights = model.state_dict()
    reference = weights["embedding.weight"]
    with torch.device("meta"):
        extended = type(model)(dataclasses.replace(model.config, vocab_size=len(pieces)))
    generator = torch.Generator().manual_seed(seed)
    for name, rows in weights.items():
        if name == "head.weight" or name.endswith("embedding.weight"):
            which = "pieces" if method == "ends" and model.head is None else method
            weights[name] = combined(rows[:size], pieces, which, name == "head.weight", generator)
            weights[name] = F.pad(weights[name], (0, 0, 0, extended.config.vocab_rows - len(pieces))).to(rows)
    extended.load_state_dict(weights, assign=True)
    extended.requires_grad_(True)
    return extended.to(reference).train(model.training)


def pieces_of(number: int, old_tokenizer: Any, new_tokenizer: Any) -> list[int]:
    """Return the old ids of a new id: one for the same token, several for its pieces, none for a new special token."""
    try:
        token = new_tokenizer.decode_single_token_bytes(number)
    except KeyError:  # a gap between ids
        return []
    if new_tokenizer.is_special_token(number):
        same = old_tokenizer.special_tokens.get(token.decode())
        return [] if same is None else [same]
    try:
        same = old_tokenizer.encode_single_token(token)
        return [same] if not old_tokenizer.is_special_token(same) else old_tokenizer.encode_ordinary(token)
    except KeyError:
        return list(old_tokenizer.encode_ordinary(token))


def combined(
    rows: Tensor, pieces: Sequence[list[int]], method: Method, is_head: bool, generator: torch.Generator
) -> Tensor:
    """Return rows (new vocabulary, width), combined of the old rows, in float32 at least."""
    rows = rows if rows.dtype == torch.float64 else rows.float()
    if method == "ends":
        pieces = [of_token[:1] if is_head else of_token[-1:] for of_token in pieces]
    flat = torch.tensor([number for of_token in pieces for number in of_token], dtype=torch.int64, device=rows.device)
    sizes = torch.tensor([len(of_token) for of_token in pieces], device=rows.device)
    result = F.embedding_bag(flat, rows, sizes.cumsum(0) - sizes, mode="mean")
    other = rows.mean(0).expand_as(result)
    if method == "normal":
        values, vectors = torch.linalg.eigh(torch.cov(rows.T.double()))
        noise = torch.randn(result.shape, dtype=torch.float64, generator=generator).to(rows.device)
        other = (other + noise * values.clamp(min=0).sqrt() @ vectors.T).to(rows)
    is_new = sizes != 1 if method in ("mean", "normal") else sizes == 0
    return torch.where(is_new[:, None], other, result)
