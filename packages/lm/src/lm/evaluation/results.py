"""From the likelihoods of a set's items to its measures, each with its standard error; as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lm.columns import in_columns
from lm.evaluation.tasks import CHOICE, TEXT


@dataclass(frozen=True)
class Scored:
    """An item's likelihoods: of each ending its nats, tokens, bytes, and whether each token was the likeliest."""

    item: int
    gold: int
    nats: tuple[float, ...]
    tokens: tuple[int, ...]
    bytes: tuple[int, ...]
    greedy: tuple[bool, ...]


@dataclass(frozen=True)
class Measure:
    """A measure of a set and its standard error, which one item alone has not."""

    value: float
    error: float | None


@dataclass(frozen=True)
class Result:
    """The measures of a model on a set: `items` of its `total` items were evaluated."""

    task: str
    fingerprint: str
    items: int
    total: int
    measures: dict[str, Measure]


def measures(kind: str, items: Sequence[Scored]) -> dict[str, Measure]:
    """The measures of a kind of set.

    choice: acc takes the likeliest ending, acc_norm the one likeliest a byte, acc_norm_token a token; chance guesses.
    word: acc, whether the word is what greedy decoding would write; perplexity of a word.
    text: bits_per_byte, and perplexity of a token; their errors take documents to be drawn at random.
    """
    if kind == CHOICE:
        return {
            "acc": accuracy(items, lambda item, i: item.nats[i]),
            "acc_norm": accuracy(items, lambda item, i: item.nats[i] / item.bytes[i]),
            "acc_norm_token": accuracy(items, lambda item, i: item.nats[i] / item.tokens[i]),
            "chance": Measure(math.fsum(1 / len(item.nats) for item in items) / len(items), None),
        }
    nats = [item.nats[0] for item in items]
    if kind == TEXT:
        bits = ratio(nats, [item.bytes[0] for item in items], 1 / math.log(2))
        return {"bits_per_byte": bits, "perplexity": exponential(ratio(nats, [item.tokens[0] for item in items]))}
    return {"acc": mean([float(item.greedy[0]) for item in items]), "perplexity": exponential(mean(nats))}


def accuracy(items: Sequence[Scored], cost: Callable[[Scored, int], float]) -> Measure:
    """The share of items whose ending of the least cost is the right one; of equal costs the first counts."""
    return mean([float(min(range(len(item.nats)), key=lambda i: cost(item, i)) == item.gold) for item in items])


def mean(values: Sequence[float]) -> Measure:
    """The mean, and its standard error: the deviation of the sample divided by √n."""
    return ratio(values, [1] * len(values))


def ratio(above: Sequence[float], below: Sequence[float], scale: float = 1.0) -> Measure:
    """Σ above / Σ below · scale, and its standard error to the first order; for a mean, below is 1 throughout."""
    count, whole = len(above), math.fsum(below)
    value = math.fsum(above) / whole
    if count < 2:
        return Measure(value * scale, None)
    squares = math.fsum((a - value * b) ** 2 for a, b in zip(above, below, strict=True))
    return Measure(value * scale, math.sqrt(squares * count / (count - 1)) / whole * scale)


def exponential(measure: Measure) -> Measure:
    """e to a measure, and the error of that to the first order; infinite where it is beyond floats."""
    try:
        value = math.exp(measure.value)
    except OverflowError:
        return Measure(math.inf, None)
    return Measure(value, None if measure.error is None else value * measure.error)


def as_table(results: Sequence[Result]) -> str:
    """A line for each measure, in columns."""
    rows = [("set", "items", "measure", "value", "± error")]
    for result in results:
        of = "" if result.items == result.total else f" of {result.total:,}"
        for number, (name, measure) in enumerate(result.measures.items()):
            error = "" if measure.error is None else f"{measure.error:.4f}"
            first = ("", "") if number else (result.task, f"{result.items:,}{of}")
            rows.append((*first, name, f"{measure.value:.4f}", error))
    return in_columns(rows, right=(1, 3, 4))


def as_json(results: Sequence[Result], model: str, fingerprint: str) -> dict[str, Any]:
    """The same for programs: each set by its name, with its measures and, under NAME_stderr, their errors."""
    sets: dict[str, dict[str, Any]] = {}
    for result in results:
        table: dict[str, Any] = {"items": result.items, "total": result.total, "sha256": result.fingerprint}
        for name, measure in result.measures.items():
            table[name] = measure.value if math.isfinite(measure.value) else None
            if measure.error is not None:
                table[f"{name}_stderr"] = measure.error
        sets[result.task] = table
    return {"model": model, "model_sha256": fingerprint, "sets": sets}
