"""Tokens that a model never learned: their rows of the embedding, or of the head, are what they are without any text.

A run that was made here has a known beginning, the initialisation by its seed: the row of a token that never stood in
the input is still the same, as embeddings have no weight decay. Where the beginning is not known, or the embedding is
the head too, whose every row each step moves, the sign is that of Land and Bartolo 2024 (arXiv:2405.05417): rows of
tokens that never occur are pushed the same way, so their distance (1 - cosine) from the mean of rows known to be unused
is small.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm.interop.loading import load
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.run import read_config

# Bytes that no text in UTF-8 has.
NEVER = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])
MOVED = 1e-6  # of a row's length: what a conversion to another dtype and back may do
KINSHIP = 10.0  # standard deviations beyond what rows of two unrelated models have in common


@dataclass(frozen=True)
class Undertrained:
    """Tokens that are under-trained, the surest first: (id, sign). sign says what the number is, and limit its bound.

    known: ids of which it is known that no text has them, and against which the others were held; none where the
        beginning is
    known.
    """

    sign: str
    limit: float
    tokens: tuple[tuple[int, float], ...]
    known: tuple[int, ...] = ()


def undertrained(
    path: str | Path, tokenizer: Any = None, *, unused: Collection[int] = (), model: Transformer | None = None
) -> Undertrained:
    """Finds the under-trained tokens of a run or of another program's model.

    Args:
        path: The run or the model, as for lm.load.
        tokenizer: Says which ids have no token, or a byte that no text has.
        unused: Ids known to be unused, beside those.
        model: The model at `path`, where it is loaded already, on the device that is to compute.

    Raises:
        ValueError: How the model began is not known, and no id is known to be unused.
    """
    model = load(path) if model is None else model
    size = model.config.vocab_size
    for number in unused:
        if not 0 <= number < size:
            raise ValueError(f"id {number} is outside the model's vocabulary of {size}")
    start = beginning(Path(path), model)
    if start is not None and model.head is not None and not unused:
        now, then = rows_of(model.embedding.weight, size), rows_of(start.embedding.weight, size)
        moved = ((now - then).norm(dim=1) / then.norm(dim=1).clamp(min=1e-30)).tolist()
        found = sorted((far, number) for number, far in enumerate(moved) if far <= MOVED)
        return Undertrained("moved", MOVED, tuple((number, far) for far, number in found))
    known = sorted({*unused, *never_used(tokenizer, size)})
    if not known:
        raise ValueError(
            f"how {path} began is not known, nor an id that is certainly unused to hold others against: "
            "name the tokenizer with --tokenizer, or such ids with --unused"
        )
    rows = rows_of(model.head_weight, size)
    if start is not None:
        rows = rows - rows_of(start.head_weight, size)  # what training did, which is the same for all that are unused
    mean = rows[known].mean(dim=0, keepdim=True)
    # Rounded, so that rows that are the same come in the order of their ids.
    distances = (1 - torch.cosine_similarity(rows, mean, dim=1)).clamp(min=0).round(decimals=7).tolist()
    limit = max(distances[number] for number in known)
    found = sorted((far, number) for number, far in enumerate(distances) if far <= limit)
    return Undertrained("distance", limit, tuple((number, far) for far, number in found), tuple(known))


def rows_of(weight: Tensor, size: int) -> Tensor:
    """The rows of the ids, in fp64, where the weight is; on a device that has no fp64 (Apple's), on the CPU."""
    rows = weight.detach()[:size]
    return (rows.cpu() if rows.device.type == "mps" else rows).double()


def never_used(tokenizer: Any, size: int) -> list[int]:
    """Ids that no text has: those without a token, and the bytes that are in no UTF-8."""
    if tokenizer is None:
        return []
    vocab = tokenizer.vocab
    return [i for i in range(size) if i not in vocab or (len(vocab[i]) == 1 and vocab[i][0] in NEVER)]


def beginning(path: Path, model: Transformer) -> Transformer | None:
    """The model before its first step, where it is known: a run's initialisation by its seed.

    A run that began from an imported model began elsewhere: its rows have no direction in common with the
    initialisation's.
    """
    if not (path / "config.toml").is_file():
        return None
    config, training, _ = read_config(path)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(training.seed)
        start = Transformer(config)
    kept = checkpoint.steps(path / "checkpoints")
    if 0 in kept:  # an imported model, which has a beginning only once it was trained further
        first = checkpoint.load(path / "checkpoints", 0)
        if first is None or len(kept) == 1:
            return None
        start.load_state_dict(first.model)
        return alike(start, model)
    start = alike(start, model)
    now, then = (rows_of(one.embedding.weight, config.vocab_size) for one in (model, start))
    kinship = float(torch.cosine_similarity(now, then, dim=1).mean())
    return start if kinship > KINSHIP / now.numel() ** 0.5 else None


def alike(start: Transformer, model: Transformer) -> Transformer:
    """A model on the device and in the dtype of another, so that a row which never moved is the same in both."""
    weight = model.embedding.weight
    return start.to(device=weight.device, dtype=weight.dtype)
