"""A model on sets of items: what is not done yet is computed, longest first, and kept as it comes."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from lm.config import to_table
from lm.data import windows_of
from lm.evaluation.kept import keeping
from lm.evaluation.likelihood import Request, likelihoods
from lm.evaluation.results import Result, Scored, measures
from lm.evaluation.tasks import TEXT, Item, Task
from lm.model import Transformer
from lm.progress import progress_bar
from lm.special_tokens import BEGINS, prompt_ids

AT_ONCE = 1 << 15  # tokens between two times that results are kept


def evaluate_tasks(
    model: Transformer,
    tokenizer: Any,
    tasks: Sequence[Task],
    *,
    folder: str | Path | None = None,
    limit: int | None = None,
    stride: int | None = None,
    progress: bool = False,
) -> list[Result]:
    """Return the scores of a model on each task. tokenizer: a bpe.Tokenizer, the model's own.

    folder: where items are kept as they are done, and found again by the fingerprints of model, tokenizer and task.
    limit: so many items of each, spread evenly. stride: of windows over a text, as for lm.evaluate (the context, if not
        given).
    """
    context = model.config.context_length
    stride = context if stride is None else stride
    if not 1 <= stride <= context:
        raise ValueError(f"stride {stride} must be from 1 to the model's context of {context}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if tokenizer.n_vocab > model.config.vocab_size:
        raise ValueError(f"expected a tokenizer of at most {model.config.vocab_size} tokens, got {tokenizer.n_vocab}")
    about: dict[str, str | int] = {"model": model_fingerprint(model), "tokenizer": tokenizer.fingerprint}
    results = []
    for task in tasks:
        numbers = item_numbers(len(task.items), limit)
        of_task = {**about, "data": task.fingerprint} | ({"stride": stride} if task.kind == TEXT else {})
        with contextlib.ExitStack() as stack:
            done: dict[int, Scored] = {}
            keep = None
            if folder is not None:
                done, keep = stack.enter_context(keeping(folder, task.name, of_task))
            missing = [number for number in numbers if number not in done]
            options = {"initial": len(numbers) - len(missing), "disable": not progress}
            bar = stack.enter_context(progress_bar(task.name, len(numbers), "item", **options))
            for items in scored(model, tokenizer, task, missing, stride):
                done |= {item.item: item for item in items}
                if keep is not None:
                    keep(items)
                bar.update(len(items))
        items = [done[number] for number in numbers]
        results.append(Result(task.name, task.fingerprint, len(items), len(task.items), measures(task.kind, items)))
    return results


def item_numbers(count: int, limit: int | None) -> list[int]:
    """The numbers of the items to evaluate."""
    return list(range(count)) if limit is None or limit >= count else [i * count // limit for i in range(limit)]


def scored(
    model: Transformer, tokenizer: Any, task: Task, numbers: Sequence[int], stride: int
) -> Iterator[list[Scored]]:
    """The items of these numbers, some at a time, those that take most memory first."""
    context = model.config.context_length
    requests = {
        number: [
            [pair_request(tokenizer, item.context, ending)]
            if task.kind != TEXT
            else windows(tokenizer, ending, context, stride)
            for ending in item.endings
        ]
        for number, item in ((number, task.items[number]) for number in numbers)
    }
    lengths = {number: max(len(r.before) for each in own for r in each) for number, own in requests.items()}
    waiting, size = list[int](), 0
    order = sorted(numbers, key=lambda number: -lengths[number])
    for place, number in enumerate(order):
        waiting.append(number)
        size += sum(len(request) for each in requests[number] for request in each)
        if size < AT_ONCE and place + 1 < len(order):
            continue
        flat = [request for number in waiting for each in requests[number] for request in each]
        results = iter(likelihoods(model, flat))
        items = []
        for number in waiting:
            parts = [[(request, next(results)) for request in each] for each in requests.pop(number)]
            item = task.items[number]
            items.append(
                Scored(
                    number,
                    item.gold,
                    tuple(sum(likelihood.nats for _, likelihood in each) for each in parts),
                    tuple(sum(len(request.ids) for request, _ in each) for each in parts),
                    tuple(sizes(task.kind, item)),
                    tuple(all(likelihood.greedy for _, likelihood in each) for each in parts),
                )
            )
        yield items
        waiting, size = [], 0


def sizes(kind: str, item: Item) -> Iterator[int]:
    """The bytes of each ending, without the space that joins it to the context."""
    for ending in item.endings:
        text = ending if kind == TEXT else ending.removeprefix(" ")
        yield len(text.encode("utf-8", "replace"))


def pair_request(tokenizer: Any, context: str, ending: str) -> Request:
    """The ids of an ending after a context: those that the whole text has beyond what it shares with the context alone.

    Space at the context's end goes to the ending, where tokenizers join it to a word. A text begins with the token that
    begins one, where the tokenizer has such; an empty context is the token that ends one. ValueError: it has neither.
    """
    bare = context.rstrip()
    ending, context = context[len(bare) :] + ending, bare
    begin = [tokenizer.special_tokens[name] for name in BEGINS if name in tokenizer.special_tokens][:1]
    head, whole = ([*begin, *tokenizer.encode(text, disallowed_special=())] for text in (context, context + ending))
    shared = next((i for i, (one, other) in enumerate(zip(head, whole, strict=False)) if one != other), len(head))
    shared = min(shared, len(whole) - 1) if context else len(begin)
    return Request(tuple(whole[:shared] or first_of(tokenizer)), tuple(whole[shared:]))


def first_of(tokenizer: Any) -> list[int]:
    """The ids that a text is scored after if nothing stands before it."""
    first = prompt_ids(tokenizer, "")
    if not first:
        raise ValueError("the tokenizer has no <|endoftext|> and no token that begins a text, for an empty context")
    return first


def windows(tokenizer: Any, text: str, context: int, stride: int) -> list[Request]:
    """A text as the windows over it: every token once, the first after the token that begins or ends a text."""
    whole = [*first_of(tokenizer), *tokenizer.encode(text, disallowed_special=())]
    spans = windows_of(len(whole) - 1, context, stride)
    return [Request(tuple(whole[begin : first + 1]), tuple(whole[first + 1 : end + 1])) for begin, first, end in spans]


def model_fingerprint(model: Transformer) -> str:
    """SHA-256, in hex, of the model's configuration and weights."""
    digest = hashlib.sha256(json.dumps(to_table(model.config), sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
