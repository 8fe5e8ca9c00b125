"""Likelihoods of continuations: batched by length; what several continuations follow is computed once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.data import windows_of
from lm.families.parts import FamilyConfig
from lm.generation.kv_cache import LayerStore
from lm.model import Transformer
from lm.special_tokens import BEGINS, prompt_ids

T = TypeVar("T")

BUDGET = 8192  # tokens of a batch, padding included
LOGITS = 1 << 24  # logits that are held at once
NEGLIGIBLE = 1e-12  # probability of the beginning of a seam that is not followed further


@dataclass(frozen=True)
class Request:
    """Ids to be scored, and at least one id before them."""

    before: tuple[int, ...]
    ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.before) + len(self.ids)


@dataclass(frozen=True)
class Likelihood:
    """-log p(ids | before) in nats, and whether each of the ids was the likeliest in its place."""

    nats: float
    greedy: bool


@torch.inference_mode()
def likelihoods(model: Transformer, requests: Sequence[Request], *, budget: int = BUDGET) -> list[Likelihood]:
    """The likelihood of each request. budget: the most tokens of a batch, padding included (a single request may have
    more).

    What does not fit the context loses the beginning of what stands before it; ids that alone do not fit are scored in
    stretches of half a context, each after as much as fits. ValueError: a request without ids, an id outside the
    vocabulary, or a model whose likelihoods are not numbers.
    """
    size = model.config.vocab_size
    for request in requests:
        if not request.before or not request.ids:
            raise ValueError("a request needs at least one id to score and one before it")
        for number in itertools.chain(request.before, request.ids):
            if not 0 <= number < size:
                raise ValueError(f"id {number} is outside the model's vocabulary of {size}: use its own tokenizer")
    owners, pieces = list[int](), list[Request]()
    for owner, request in enumerate(requests):
        for piece in split_to_context(request, model.config.context_length):
            owners.append(owner)
            pieces.append(piece)
    was_training = model.training
    model.eval()
    nats, greedy = [0.0] * len(requests), [True] * len(requests)
    try:
        for index, likelihood in score(model, pieces, budget):
            if not math.isfinite(likelihood.nats):
                raise ValueError(f"the model's likelihoods are not numbers ({likelihood.nats}): its training diverged")
            nats[owners[index]] += likelihood.nats
            greedy[owners[index]] &= likelihood.greedy
    finally:
        model.train(was_training)
    return [Likelihood(n, g) for n, g in zip(nats, greedy, strict=True)]


def split_to_context(request: Request, context: int) -> Iterator[Request]:
    """Split a request into some that fit the context, whose likelihoods add up to its own."""
    before, ids = request.before, request.ids
    stretch = max(1, context // 2)
    while len(ids) > context:
        yield Request(before[-(context + 1 - stretch) :], ids[:stretch])
        before, ids = (before + ids[:stretch])[-context:], ids[stretch:]
    yield Request(before[-(context + 1 - len(ids)) :], ids)


def score(model: Transformer, requests: Sequence[Request], budget: int) -> Iterator[tuple[int, Likelihood]]:
    """Yield (index, likelihood) of each request, grouped by length; all fit the context."""
    if isinstance(model.config, FamilyConfig) and model.config.rope_depends_on_length:
        for index, request in enumerate(requests):
            yield index, score_alone(model, [request])[0]
        return
    beginnings: dict[tuple[int, ...], list[int]] = {}
    for index, request in enumerate(requests):
        beginnings.setdefault(request.before, []).append(index)
    alone = [indices[0] for indices in beginnings.values() if len(indices) == 1]
    alone.sort(key=lambda index: len(requests[index]))
    for group in batches(alone, [len(requests[index]) for index in alone], budget):
        yield from zip(group, score_alone(model, [requests[index] for index in group]), strict=True)
    together = sorted((before for before, indices in beginnings.items() if len(indices) > 1), key=len)
    for size, same in itertools.groupby(together, key=len):
        prefixes = list(same)
        longest = [max(len(requests[index].ids) for index in beginnings[before]) for before in prefixes]
        sizes = [(size + longer) * len(beginnings[before]) for before, longer in zip(prefixes, longest, strict=True)]
        for some in batches(prefixes, sizes, budget, whole=True):
            indices = [index for before in some for index in beginnings[before]]
            parents = [place for place, before in enumerate(some) for _ in beginnings[before]]
            ids = [requests[index].ids for index in indices]
            yield from zip(indices, score_together(model, some, parents, ids), strict=True)


def batches(things: Iterable[T], sizes: Sequence[int], budget: int, *, whole: bool = False) -> Iterator[list[T]]:
    """Runs of things that fit the budget: rows as long as the longest, or, with whole, the sum of sizes."""
    batch, used = list[T](), 0
    for thing, size in zip(things, sizes, strict=True):
        needed = used + size if whole else max(used, size)
        if batch and (needed if whole else needed * (len(batch) + 1)) > budget:
            yield batch
            batch, needed = [], size
        batch.append(thing)
        used = needed
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(rows, longest), each row filled up at its end, which what stands before it does not see."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)


def score_alone(model: Transformer, requests: Sequence[Request]) -> list[Likelihood]:
    """Each request as a row of its own."""
    device = next(model.parameters()).device
    hidden = model.hidden(padded([(request.before + request.ids)[:-1] for request in requests], device))
    rows = [row for row, request in enumerate(requests) for _ in request.ids]
    places = [len(request.before) - 1 + place for request in requests for place in range(len(request.ids))]
    targets = torch.tensor([number for request in requests for number in request.ids], device=device)
    return sum_by_request(
        *nats_and_hits(model, hidden[rows, places], targets), [len(request.ids) for request in requests]
    )


def score_together(
    model: Transformer, prefixes: Sequence[tuple[int, ...]], parents: Sequence[int], ids: Sequence[tuple[int, ...]]
) -> list[Likelihood]:
    """ids[i] after prefixes[parents[i]]; the prefixes are of one length, and each goes through the model once."""
    config, weight = model.config, next(model.parameters())
    size, device = len(prefixes[0]), weight.device

    def empty(length: int) -> Tensor:
        return torch.empty(
            (len(prefixes), config.kv_heads, length, config.head_width), dtype=weight.dtype, device=device
        )

    stores = [LayerStore(empty(size), empty(size), 0) for _ in range(config.num_layers)]
    last = model.hidden(torch.tensor(prefixes, device=device), cache=[*stores])[:, -1]  # (prefixes, d_model)
    states = [last[list(parents)]]
    longer = [i for i in range(len(ids)) if len(ids[i]) > 1]
    if longer:
        of = torch.tensor([parents[i] for i in longer], device=device)
        rest = padded([ids[i][:-1] for i in longer], device)
        room = (0, 0, 0, rest.shape[1])  # after the positions that are filled
        grown = [LayerStore(F.pad(s.keys[of], room), F.pad(s.values[of], room), size) for s in stores]
        hidden = model.hidden(rest, start=size, cache=[*grown])
        rows = [row for row, i in enumerate(longer) for _ in ids[i][1:]]
        states.append(hidden[rows, [place for i in longer for place in range(len(ids[i]) - 1)]])
    targets = [row[0] for row in ids] + [number for i in longer for number in ids[i][1:]]
    nats, hits = nats_and_hits(model, torch.cat(states), torch.tensor(targets, device=device))
    firsts = sum_by_request(nats[: len(ids)], hits[: len(ids)], [1] * len(ids))
    others = sum_by_request(nats[len(ids) :], hits[len(ids) :], [len(ids[i]) - 1 for i in longer])
    for i, other in zip(longer, others, strict=True):
        firsts[i] = Likelihood(firsts[i].nats + other.nats, firsts[i].greedy and other.greedy)
    return firsts


def nats_and_hits(model: Transformer, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """For hidden (n, d_model) and targets (n,): nats, float64, and True if the likeliest, both on the CPU."""
    nats, hits = [], []
    rows = max(1, LOGITS // model.config.vocab_rows)
    for some, expected in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
        logits = model.logits(some)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        nats.append(F.cross_entropy(logits, expected, reduction="none"))
        hits.append(logits.argmax(-1) == expected)
    return torch.cat(nats).double().cpu(), torch.cat(hits).cpu()


def sum_by_request(nats: Tensor, hits: Tensor, counts: Sequence[int]) -> list[Likelihood]:
    """Sum the nats of each request, which has counts[i] targets in order."""
    parts = zip(torch.split(nats, list(counts)), torch.split(hits, list(counts)), strict=True) if counts else ()
    return [Likelihood(float(some.sum()), bool(all_hit.all())) for some, all_hit in parts]


@dataclass(frozen=True)
class Pair:
    """An ending after a context, as the ids that the whole text has beyond what it shares with the context alone.

    Attributes:
        request: The ids to score, which may begin with bytes of the context.
        seam: Those bytes.
    """

    request: Request
    seam: bytes = b""


def pair_request(tokenizer: Any, context: str, ending: str, *, is_chat: bool = False) -> Pair:
    """The ids of an ending after a context.

    Space at the context's end goes to the ending, where tokenizers join it to a word. A text begins with the token that
    begins one, where the tokenizer has such; an empty context is the token that ends one. With `is_chat` the context is
    that of a chat template: its special tokens are tokens, and it begins as it is. ValueError: it has neither.
    """
    bare = context if is_chat else context.rstrip()
    ending, context = context[len(bare) :] + ending, bare
    names = () if is_chat else [name for name in BEGINS if name in tokenizer.special_tokens][:1]
    begin = [tokenizer.special_tokens[name] for name in names]
    special: dict[str, Any] = {"allowed_special": "all"} if is_chat else {"disallowed_special": ()}
    head, whole = ([*begin, *tokenizer.encode(text, **special)] for text in (context, context + ending))
    shared = next((i for i, (one, other) in enumerate(zip(head, whole, strict=False)) if one != other), len(head))
    shared = min(shared, len(whole) - 1) if context else len(begin)
    before, ids = tuple(whole[:shared] or first_of(tokenizer)), tuple(whole[shared:])
    seam, written = (b"".join(map(tokenizer.decode_single_token_bytes, some)) for some in (head[shared:], ids))
    return Pair(Request(before, ids), seam if written.startswith(seam) else b"")


@torch.inference_mode()
def seam_nats(model: Transformer, token_bytes: Sequence[bytes], before: Sequence[int], seam: bytes) -> float:
    """-log of the probability that what a model writes after `before` begins with the bytes of a seam.

    That is the sum over the sequences of tokens of which only the last reaches the end of the seam: they exclude each
    other, and whatever begins with the seam begins with one of them. Those of less than NEGLIGIBLE are left out.
    """
    total, open_ones = 0.0, [(tuple(before), seam, 1.0)]
    while open_ones:
        ids, rest, probability = open_ones.pop()
        recent = torch.tensor([ids[-model.config.context_length :]], device=model.embedding.weight.device)
        chances = model.logits(model.hidden(recent)[:, -1])[0].double().softmax(-1).tolist()
        for token, (data, chance) in enumerate(zip(token_bytes, chances, strict=False)):
            if data.startswith(rest):
                total += probability * chance
            elif data and rest.startswith(data) and probability * chance > NEGLIGIBLE:
                open_ones.append(((*ids, token), rest[len(data) :], probability * chance))
    return -math.log(total)


def pair_likelihoods(
    model: Transformer, tokenizer: Any, pairs: Sequence[tuple[str, str]], *, is_chat: bool = False
) -> list[Likelihood]:
    """The likelihood of each ending after its context, by bytes: of the tokens of the whole text, given that what is
    written begins with the context. An empty ending is certain.
    """
    requests = [pair_request(tokenizer, *pair, is_chat=is_chat) for pair in pairs]
    scores = likelihoods(model, [pair.request for pair in requests])
    has_seam, special = any(pair.seam for pair in requests), set(map(int, tokenizer.special_tokens.values()))
    ids = range(tokenizer.n_vocab if has_seam else 0)
    token_bytes = [b"" if i in special else tokenizer.decode_single_token_bytes(i) for i in ids]
    of_seam = functools.lru_cache(maxsize=None)(functools.partial(seam_nats, model, token_bytes))
    was_training = model.training
    model.eval()
    try:
        return [
            Likelihood(score.nats - (of_seam(pair.request.before, pair.seam) if pair.seam else 0.0), score.greedy)
            if ending
            else Likelihood(0.0, True)
            for score, pair, (_, ending) in zip(scores, requests, pairs, strict=True)
        ]
    finally:
        model.train(was_training)


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
