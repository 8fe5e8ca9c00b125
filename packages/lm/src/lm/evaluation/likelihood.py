"""Likelihoods of continuations: batched by length; what several continuations follow is computed once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.data import windows_of
from lm.families.parts import FamilyConfig
from lm.generation.decoder import without_training
from lm.generation.kv_cache import LayerStore
from lm.model import Transformer
from lm.tokenizer import BEGINS, prompt_ids

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
    context = model.config.context_length
    owned = [(owner, piece) for owner, one in enumerate(requests) for piece in split_to_context(one, context)]
    nats, greedy = [0.0] * len(requests), [True] * len(requests)
    with without_training(list(model.modules())):
        for index, likelihood in score(model, [piece for _, piece in owned], budget):
            owner = owned[index][0]
            if not math.isfinite(likelihood.nats):
                raise ValueError(f"the model's likelihoods are not numbers ({likelihood.nats}): its training diverged")
            nats[owner] += likelihood.nats
            greedy[owner] &= likelihood.greedy
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
    beginnings: dict[tuple[int, ...], list[int]] = {}
    for index, request in enumerate(requests):
        beginnings.setdefault(request.before, []).append(index)
    # Rotations that depend on the length of a text allow neither padding nor a shared beginning.
    if isinstance(model.config, FamilyConfig) and model.config.rope_depends_on_length:
        budget, beginnings = 0, {(index,): [index] for index in range(len(requests))}
    # Requests with a beginning of their own are rows, padded to the longest.
    alone = [indices[0] for indices in beginnings.values() if len(indices) == 1]
    alone.sort(key=lambda index: len(requests[index]))
    for group in batches(alone, lambda group: len(group) * max(len(requests[index]) for index in group), budget):
        ids = [requests[index].before + requests[index].ids for index in group]
        states = model.hidden(padded([one[:-1] for one in ids], model))
        begins = [len(requests[index].before) - 1 for index in group]
        yield from zip(group, judge(model, states, begins, [requests[index].ids for index in group]), strict=True)
    # Beginnings that several requests share go through the model once, those of one length together.
    together = sorted((before for before, indices in beginnings.items() if len(indices) > 1), key=len)

    def size_of(group: Sequence[tuple[int, ...]]) -> int:
        indices = [[requests[index] for index in beginnings[before]] for before in group]
        return sum(len(each) * max(map(len, each)) for each in indices)

    for _, same in itertools.groupby(together, key=len):
        for group_of_beginnings in batches(list(same), size_of, budget):
            indices = [index for before in group_of_beginnings for index in beginnings[before]]
            parents = [place for place, before in enumerate(group_of_beginnings) for _ in beginnings[before]]
            ids = [requests[index].ids for index in indices]
            states = continued(model, group_of_beginnings, parents, ids)
            yield from zip(indices, judge(model, states, [0] * len(ids), ids), strict=True)


def batches(things: Sequence[T], size: Callable[[Sequence[T]], int], budget: int) -> Iterator[list[T]]:
    """Runs of things whose size fits the budget, or of a single one."""
    batch = list[T]()
    for thing in things:
        if batch and size([*batch, thing]) > budget:
            yield batch
            batch = []
        batch.append(thing)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], model: Transformer) -> Tensor:
    """(rows, longest), each row filled up at its end, which what stands before it does not see."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=next(model.parameters()).device)


def continued(
    model: Transformer, prefixes: Sequence[tuple[int, ...]], parents: Sequence[int], ids: Sequence[tuple[int, ...]]
) -> Tensor:
    """Hidden states (len(ids), longest, d_model) before ids[i], after prefixes[parents[i]], all of one length."""
    config, weight = model.config, next(model.parameters())
    nothing = weight.new_empty(len(prefixes), config.kv_heads, 0, config.head_width)
    stores = [LayerStore(nothing, nothing) for _ in range(config.num_layers)]
    states = model.hidden(padded(prefixes, model), cache=[*stores])[parents, -1:]  # (len(ids), 1, d_model)
    rest = padded([one[:-1] for one in ids], model)
    if not rest.shape[1]:
        return states
    copies = [LayerStore(store.keys[parents], store.values[parents]) for store in stores]
    return torch.cat((states, model.hidden(rest, start=len(prefixes[0]), cache=[*copies])), 1)


def judge(
    model: Transformer, states: Tensor, begins: Sequence[int], ids: Sequence[tuple[int, ...]]
) -> list[Likelihood]:
    """The likelihood of each ids[i], by the hidden states (rows, length, d_model) of row i from begins[i] on."""
    rows = [row for row, one in enumerate(ids) for _ in one]
    places = [begin + place for begin, one in zip(begins, ids, strict=True) for place in range(len(one))]
    targets = torch.tensor([number for one in ids for number in one], device=states.device)
    nats, hits, size = list[Tensor](), list[Tensor](), max(1, LOGITS // model.config.vocab_rows)
    for some, expected in zip(torch.split(states[rows, places], size), torch.split(targets, size), strict=True):
        logits = model.logits(some)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        nats.append(F.cross_entropy(logits, expected, reduction="none").double().cpu())
        hits.append((logits.argmax(-1) == expected).cpu())
    counts = list(map(len, ids))
    parts = zip(torch.split(torch.cat(nats), counts), torch.split(torch.cat(hits), counts), strict=True)
    return [Likelihood(float(some.sum()), bool(all_hit.all())) for some, all_hit in parts]


def pair_request(tokenizer: Any, context: str, ending: str, *, is_chat: bool = False) -> tuple[Request, bytes]:
    """An ending after a context: the ids to score, and the bytes of the context that they begin with (the seam).

    The ids are those that the whole text has beyond what it shares with the context alone. Space at the context's end
    goes to the ending, where tokenizers join it to a word. A text begins with the token that begins one, where the
    tokenizer has such; an empty context is the token that ends one. With `is_chat` the context is that of a chat
    template: its special tokens are tokens, and it begins as it is. ValueError: it has neither.
    """
    bare = context if is_chat else context.rstrip()
    ending, context = context[len(bare) :] + ending, bare
    names = () if is_chat else [name for name in BEGINS if name in tokenizer.special_tokens][:1]
    begin = [tokenizer.special_tokens[name] for name in names]
    special: dict[str, Any] = {"allowed_special": "all"} if is_chat else {"disallowed_special": ()}
    head, whole = ([*begin, *tokenizer.encode(text, **special)] for text in (context, context + ending))
    start = min(shared((head, whole)), len(whole) - 1) if context else len(begin)
    before, ids = tuple(whole[:start] or first_of(tokenizer)), tuple(whole[start:])
    seam, written = (b"".join(map(tokenizer.decode_single_token_bytes, some)) for some in (head[start:], ids))
    return Request(before, ids), seam if written.startswith(seam) else b""


@torch.inference_mode()
def seam_nats(model: Transformer, token_bytes: Sequence[bytes], before: Sequence[int], seam: bytes) -> float:
    """-log of the probability that what a model writes after `before` begins with the bytes of a seam.

    That is the sum over the sequences of tokens whose last one alone reaches the end of the seam: they exclude each
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
    """The likelihood of each ending, given that the text's bytes begin with its context. An empty one is certain."""
    requests = [pair_request(tokenizer, *pair, is_chat=is_chat) for pair in pairs]
    scores, special = likelihoods(model, [one for one, _ in requests]), set(tokenizer.special_tokens.values())

    @functools.cache
    def token_bytes() -> list[bytes]:
        ids = range(tokenizer.n_vocab)
        return [b"" if i in special else tokenizer.decode_single_token_bytes(i) for i in ids]

    @functools.cache
    def of_seam(before: tuple[int, ...], seam: bytes) -> float:
        return seam_nats(model, token_bytes(), before, seam)

    results = list[Likelihood]()
    with without_training(list(model.modules())):
        for score, (one, seam), (_, ending) in zip(scores, requests, pairs, strict=True):
            nats = score.nats - (of_seam(one.before, seam) if seam and ending else 0.0)
            results.append(Likelihood(nats, score.greedy) if ending else Likelihood(0.0, True))
    return results


def shared(sequences: Sequence[Sequence[int]]) -> int:
    """The number of ids with which all sequences begin."""
    columns = enumerate(zip(*sequences, strict=False))
    return next((place for place, ids in columns if len(set(ids)) > 1), min(map(len, sequences)))


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
