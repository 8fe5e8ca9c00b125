"""Generation: tokens one at a time, over a key/value cache that is allocated once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from lm.model import Transformer


class LayerStore:
    """Keys and values of one layer: (batch, kv_heads, capacity, head_dim) each, filled up to position `length`."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values, self.length = keys, values, 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends k, v (batch, kv_heads, seq, head_dim) and gives views of all that was appended so far."""
        start, end = self.length, self.length + k.shape[2]
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Cache:
    """Keys and values of all layers, for `capacity` positions (the model's context, if not given), and how many are filled."""

    def __init__(self, model: Transformer, batch: int = 1, capacity: int | None = None) -> None:
        config, weight = model.config, model.embedding.weight
        self.capacity = config.context_length if capacity is None else capacity
        size = (config.num_layers, 2, batch, config.kv_heads, self.capacity, config.head_width)
        self.layers = [LayerStore(k, v) for k, v in torch.zeros(size, dtype=weight.dtype, device=weight.device)]

    @property
    def length(self) -> int:
        return self.layers[0].length

    def clear(self) -> None:
        """Forgets all, and keeps the memory."""
        for layer in self.layers:
            layer.length = 0


def next_logits(model: Transformer, ids: Tensor, cache: Cache) -> Tensor:
    """Appends ids (batch, seq) to what the cache holds; the logits (batch, vocab_size) of what follows them."""
    hidden = model.hidden(ids, start=cache.length, cache=cache.layers)  # type: ignore[arg-type]
    return model.logits(hidden[:, -1])


def generate(
    model: Transformer,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    stop_tokens: Collection[int] = (),
    when_full: str = "slide",
) -> list[int]:
    """The tokens that stream() yields, as a list."""
    return list(
        stream(
            model,
            ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop_tokens=stop_tokens,
            when_full=when_full,
        )
    )


def stream(
    model: Transformer,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    stop_tokens: Collection[int] = (),
    when_full: str = "slide",
) -> Iterator[int]:
    """Yields the tokens that follow ids, each as soon as it is chosen, until max_new_tokens or a stop token (not yielded).

    Settings are those of choose(). seed: the same seed gives the same tokens; None draws another one each time.
    when_full: past the context length "slide" forgets the older half and reads the younger again; "refuse" raises ValueError
    before it begins, if the prompt and max_new_tokens together would not fit.
    """
    config = model.config
    prompt = [int(i) for i in ids]
    if not prompt:
        raise ValueError("the prompt has no tokens: begin with the end-of-text token if there is nothing to begin with")
    if (bad := max(prompt)) >= config.vocab_size or (bad := min(prompt)) < 0:
        raise ValueError(
            f"token id {bad} is not in the vocabulary of {config.vocab_size}: use the tokenizer of the run"
        )
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, and {max_new_tokens} is not")
    check_sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    if when_full not in ("slide", "refuse"):
        raise ValueError(f"when_full {when_full!r} is unknown: use 'slide' or 'refuse'")
    if when_full == "refuse" and len(prompt) + max_new_tokens > config.context_length:
        raise ValueError(
            f"a prompt of {len(prompt)} tokens and max_new_tokens {max_new_tokens} are more than the context of "
            f"{config.context_length}: shorten one of them, or let when_full be 'slide'"
        )
    generator = torch.Generator(device=model.embedding.weight.device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    choice = functools.partial(
        choose,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        generator=generator,
    )
    return _stream(model, prompt, max_new_tokens, choice, frozenset(stop_tokens))


def _stream(
    model: Transformer,
    prompt: list[int],
    max_new_tokens: int,
    choice: Callable[..., int],
    stop_tokens: frozenset[int],
) -> Iterator[int]:
    context, device = model.config.context_length, model.embedding.weight.device
    text = list(prompt)
    unread = text[-context:]
    cache = Cache(model, capacity=min(context, len(unread) + max_new_tokens))
    for _ in range(max_new_tokens):
        if cache.length + len(unread) > context:
            cache.clear()
            unread = text[-max(1, context // 2) :]
        # Inference mode is left before each yield: a generator that held it would put its caller into it.
        with torch.inference_mode():
            logits = next_logits(model, torch.tensor([unread], device=device), cache)[0]
            token = choice(logits, seen=text)
        if token in stop_tokens:
            return
        yield token
        text.append(token)
        unread = [token]


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    seen: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> int:
    """One token from logits (vocab,).

    In this order: repetition_penalty divides the positive and multiplies the negative logits of the tokens in `seen`
    (Keskar et al. 2019); temperature 0 takes the likeliest, any other divides; top_k keeps the likeliest k; top_p the fewest
    whose probabilities reach p (Holtzman et al. 2019); min_p those at least p times as likely as the likeliest
    (Nguyen et al. 2024).
    """
    if repetition_penalty != 1.0:
        index = torch.tensor(seen, dtype=torch.int64, device=logits.device)
        was = logits[index]
        logits = logits.index_put((index,), torch.where(was > 0, was / repetition_penalty, was * repetition_penalty))
    if temperature == 0 or top_k == 1:
        return int(logits.argmax())
    logits = logits.float() / temperature
    candidates = None
    if top_k is not None and top_k < len(logits):
        logits, candidates = logits.topk(top_k)  # sorted, so that top_p below sorts k of them and not the vocabulary
    probabilities = logits.softmax(-1)
    if top_p is not None and top_p < 1.0:
        ordered, order = probabilities.sort(descending=True)
        kept = ordered.cumsum(0) - ordered < top_p  # the one that crosses p is kept
        probabilities = probabilities.index_fill(0, order[~kept], 0.0)
    if min_p is not None and min_p > 0.0:
        probabilities = probabilities.where(probabilities >= min_p * probabilities.max(), 0.0)
    # The largest of p / e, with e exponential, is drawn with probability p: multinomial's result without its checks.
    noise = torch.empty_like(probabilities).exponential_(generator=generator)
    drawn = int((probabilities / noise).argmax())
    return drawn if candidates is None else int(candidates[drawn])


def check_sampling(
    temperature: float, top_k: int | None, top_p: float | None, min_p: float | None, repetition_penalty: float
) -> None:
    """ValueError for a setting out of its range, with the range."""
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0, and {temperature} is not")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, and {top_k} is not")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be more than 0 and at most 1, and {top_p} is not")
    if min_p is not None and not 0 <= min_p <= 1:
        raise ValueError(f"min_p must be from 0 to 1, and {min_p} is not")
    if not repetition_penalty > 0:
        raise ValueError(f"repetition_penalty must be more than 0, and {repetition_penalty} is not")
