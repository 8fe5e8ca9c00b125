"""Find tokens that a model never learned, by their rows of the embedding or of the head.

    python packages/lm/examples/undertrained.py RUN [--tokenizer FILE] [--unused ID …] [--top N] [--json]

For a run that started from its seed the initialisation can be drawn again: the embedding row of a token that never
occurred has not moved, as embeddings have no weight decay. For other models, and where the embedding is also the head
(every step moves all its rows), the metric is that of Land and Bartolo 2024 (arXiv:2405.05417): rows of tokens that
never occur are pushed the same way, so their distance (1 - cosine) from the mean row of unused tokens is small.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm.interop.loading import load, tokenizer_of
from lm.model import Transformer
from lm.tokenizer import load_tokenizer
from lm.training import checkpoint
from lm.training.checkpoint import CHECKPOINTS, from_weights
from lm.training.run import is_run, read

# Bytes that no text in UTF-8 has.
NEVER = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])
MOVED = 1e-6  # of a row's length: what a conversion to another dtype and back may do


@dataclass(frozen=True)
class Undertrained:
    """Under-trained tokens, the most certain first.

    Attributes:
        metric: The metric's name: "moved" (of the embedding row since initialisation) or "distance" (from unused rows).
        threshold: The threshold: tokens at or below it are listed.
        tokens: (id, value of the metric).
        unused_ids: Ids of unused tokens that the others were compared with; empty for "moved".
    """

    metric: str
    threshold: float
    tokens: tuple[tuple[int, float], ...]
    unused_ids: tuple[int, ...] = ()


def undertrained(
    path: str | Path, tokenizer: Any = None, *, unused: Collection[int] = (), model: Transformer | None = None
) -> Undertrained:
    """Find the under-trained tokens of a run or of another program's model.

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
        listed = sorted((far, number) for number, far in enumerate(moved) if far <= MOVED)
        return Undertrained("moved", MOVED, tuple((number, far) for far, number in listed))
    unused_ids = sorted({*unused, *never_used(tokenizer, size)})
    if not unused_ids:
        raise ValueError(
            f"how {path} began is not known, nor an id that is certainly unused to hold others against: "
            "name the tokenizer with --tokenizer, or such ids with --unused"
        )
    rows = rows_of(model.head_weight, size)
    if start is not None:
        rows = rows - rows_of(start.head_weight, size)  # what training did, which is the same for all that are unused
    mean = rows[unused_ids].mean(dim=0, keepdim=True)
    # Rounded, so that rows that are the same come in the order of their ids.
    distances = (1 - torch.cosine_similarity(rows, mean, dim=1)).clamp(min=0).round(decimals=7).tolist()
    threshold = max(distances[number] for number in unused_ids)
    listed = sorted((far, number) for number, far in enumerate(distances) if far <= threshold)
    return Undertrained("distance", threshold, tuple((number, far) for far, number in listed), tuple(unused_ids))


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
    """Return the model before its first step where config.toml says how to rebuild it, else None.

    That is the initialisation by the run's seed; for a run that started from another run's weights, that run's
    beginning; and the step 0 of a model that was imported and then trained.
    """
    if not is_run(path):
        return None
    config = read(path)
    if config.start and config.start.get("kind") != "import":
        return beginning(Path(config.start["from"]), model)
    if config.start:
        checkpoints = path / CHECKPOINTS
        if not config.train or max(checkpoint.steps(checkpoints), default=0) == 0:
            return None
        first = checkpoint.load(checkpoints, 0) if 0 in checkpoint.steps(checkpoints) else None
        return None if first is None else alike(from_weights(config.model, first.model), model)
    if config.train is None:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.train.seed)
        return alike(Transformer(config.model), model)


def alike(start: Transformer, model: Transformer) -> Transformer:
    """A model on the device and in the dtype of another, so that a row which never moved is the same in both."""
    weight = model.embedding.weight
    return start.to(device=weight.device, dtype=weight.dtype)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    parser.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    parser.add_argument("--unused", type=int, nargs="+", default=[], metavar="ID", help="ids known to be unused")
    parser.add_argument("--top", type=int, help="list the first N (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    path = options.tokenizer or tokenizer_of(options.run)
    tokenizer = None if path is None else load_tokenizer(Path(path))
    result = undertrained(options.run, tokenizer, unused=options.unused)
    vocab = {} if tokenizer is None else tokenizer.vocab
    listed = result.tokens[: options.top]
    if options.json:
        lines = [
            {"id": number, "bytes": vocab[number].hex() if number in vocab else None, result.metric: value}
            for number, value in listed
        ]
        figures = {"metric": result.metric, "threshold": result.threshold, "unused": result.unused_ids}
        print(json.dumps({**figures, "count": len(result.tokens), "tokens": lines}, indent=1))
        return
    if result.metric == "moved":
        print(f"{len(result.tokens):,} tokens whose embeddings never moved")
    else:
        print(
            f"{len(result.tokens):,} tokens at most {result.threshold:.3g} (1 - cosine of their rows in the head) from "
            f"the mean of {len(result.unused_ids):,} unused ones, which is as far as those are themselves"
        )
    for number, value in listed:
        text = repr(vocab[number])[1:] if number in vocab else "no token"
        print(f"{number:>8}  {value:.6f}  {text}")


if __name__ == "__main__":
    main()
