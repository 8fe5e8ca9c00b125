"""The tokens that follow a text, for one text or for many, and as text while they come."""

from __future__ import annotations

import codecs
from collections import abc
from collections.abc import Collection, Iterator
from typing import Any

from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler, Sequence
from lm.model import Transformer

PAUSE = 0.02  # seconds of the tokens that a call of C may choose before they are yielded


def generate(
    model: Transformer,
    ids: abc.Sequence[int],
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
    """Continues a text.

    Args:
        model: The model, on any device.
        ids: The token ids to continue, at least one.
        max_new_tokens: How many tokens at most.
        temperature: 0 takes the likeliest token; otherwise the logits are divided by it.
        top_k: Only the k likeliest tokens may be drawn.
        top_p: Only the fewest tokens whose probabilities reach p together may be drawn.
        min_p: Only tokens at least this share as likely as the likeliest may be drawn.
        repetition_penalty: Divides the positive logits of tokens that came before, and multiplies their negative ones.
        seed: The same seed gives the same tokens; None draws others each time.
        stop_tokens: Ids that end the text; the result leaves them out.
        when_full: What happens at the end of the model's context. "slide" forgets the older half and reads the younger
            half again, "end" ends the text, "refuse" raises ValueError before anything is generated if it would come to
            that.

    Returns:
        The ids that follow, without `ids` themselves.

    Raises:
        TypeError: `ids` is text.
        ValueError: An id is not in the vocabulary, or a setting is out of its range.

    >>> import lm
    >>> config = lm.ModelConfig(vocab_size=50, context_length=16, num_layers=1, d_model=16, num_heads=2, d_ff=24)
    >>> model = lm.Transformer(config)
    >>> len(lm.generate(model, [1, 2, 3], max_new_tokens=5, seed=0))
    5
    """
    return list(stream(**locals()))  # whose parameters are the same


def stream(
    model: Transformer,
    ids: abc.Sequence[int],
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
    """As generate(), but yields each id as soon as it is chosen; the arguments are checked at once."""
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    request: dict[str, Any] = {"max_new_tokens": max_new_tokens, "sampling": sampling, "seed": seed}
    request |= {"stop_tokens": stop_tokens, "when_full": when_full}
    prompt = Sequence(model.config, ids, **request).prompt
    capacity = min(model.config.context_length, len(prompt) + max_new_tokens)
    scheduler = Scheduler(model, rows=1, capacity=capacity)
    scheduler.add(prompt, **request)
    return tokens_of(scheduler)


def tokens_of(scheduler: Scheduler) -> Iterator[int]:
    """Yield the tokens of a scheduler's only sequence."""
    while scheduler.sequences:
        yield from (token for _, token in scheduler.step(PAUSE) if token is not None)


def generate_batch(
    model: Transformer,
    prompts: abc.Sequence[abc.Sequence[int]],
    *,
    max_new_tokens: int,
    samples: int = 1,
    rows: int = 16,
    seed: int | abc.Sequence[int] | None = None,
    stop_tokens: Collection[int] = (),
    when_full: str = "slide",
    **settings: Any,
) -> list[list[list[int]]]:
    """Continues many texts together.

    Sample j of a prompt has the tokens that generate() alone gives with seed + j, whatever stands beside it: the texts
    are of their own lengths, and none is padded.

    Args:
        model: The model, on any device.
        prompts: Token ids of each text.
        max_new_tokens: How many tokens at most for each.
        samples: How many continuations of each prompt.
        rows: How many texts at a time.
        seed: Of the first sample of each prompt: one for all, which then draw the same random numbers, or one for each.
        stop_tokens: Ids that end a text.
        when_full: As for generate().
        **settings: The settings of Sampling: temperature, top_k, top_p, min_p, repetition_penalty.

    Returns:
        For each prompt a list of its samples, each a list of ids.

    >>> import lm
    >>> config = lm.ModelConfig(vocab_size=50, context_length=16, num_layers=1, d_model=16, num_heads=2, d_ff=24)
    >>> model = lm.Transformer(config)
    >>> made = lm.generate_batch(model, [[1], [2, 3]], max_new_tokens=4, samples=2)
    >>> [[len(one) for one in of_prompt] for of_prompt in made]
    [[4, 4], [4, 4]]
    """
    if samples < 1 or rows < 1:
        raise ValueError(f"samples {samples} and rows {rows} must be at least 1")
    request: dict[str, Any] = {"max_new_tokens": max_new_tokens, "stop_tokens": stop_tokens, "when_full": when_full}
    request["sampling"] = Sampling(**settings)
    argument: Any = prompts
    if isinstance(argument, str | bytes) or not isinstance(argument, abc.Iterable):
        raise TypeError(f"expected prompts to be lists of token ids, got {prompts!r}")
    seeds = [seed] * len(prompts) if seed is None or isinstance(seed, int) else list(seed)
    if len(seeds) != len(prompts):
        raise ValueError(f"expected a seed for each of {len(prompts)} prompts, got {len(seeds)}")
    for prompt, first in zip(prompts, seeds, strict=True):
        Sequence(model.config, prompt, seed=first, **request)  # refused before the first is continued
    capacity = min(model.config.context_length, max(map(len, prompts), default=1) + max_new_tokens)
    scheduler = Scheduler(model, rows=min(rows, max(1, len(prompts) * samples)), capacity=capacity)
    results: list[list[list[int]]] = []
    for prompt, first in zip(prompts, seeds, strict=True):
        results.append([])
        for j in range(samples):
            while not scheduler.room:
                scheduler.step(PAUSE)
            sequence = scheduler.add(prompt, seed=None if first is None else first + j, **request)
            results[-1].append(sequence.tokens)
    while scheduler.sequences:
        scheduler.step(PAUSE)
    return results


class StreamDecoder:
    """Decodes tokens as they come: whole characters, nothing of a stop string and nothing after it.

    Args:
        tokenizer: Of the tokens.
        stop: Strings that end the text; what may become one is held back.

    Attributes:
        stopped: True once one of them has come.
    """

    def __init__(self, tokenizer: Any, stop: abc.Sequence[str] = ()) -> None:
        if isinstance(stop, str) or "" in stop:
            raise ValueError(f"expected stop to be a list of strings that are not empty, got {stop!r}")
        self.tokenizer, self.stop = tokenizer, tuple(stop)
        self.characters = codecs.getincrementaldecoder("utf-8")("replace")
        self.pending = ""
        self.stopped: str | None = None  # the stop string that has come

    def feed(self, token: int) -> str:
        """The text that is certain after this token; a space that begins it stays, since it goes on from a prompt.
        Nothing for an id that the tokenizer does not have: a model may have more rows than that has tokens."""
        try:
            text = self.characters.decode(self.tokenizer.decode_single_token_bytes(token))
        except KeyError:
            return ""
        return self._give(text, last=False)

    def finish(self) -> str:
        """The rest of the text, if no stop string has come."""
        return self._give(self.characters.decode(b"", final=True), last=True)

    def _give(self, text: str, last: bool) -> str:
        if self.stopped is not None:
            return ""
        text = self.pending + text
        places = [(place, stop) for stop in self.stop if (place := text.find(stop)) >= 0]
        if places:
            place, self.stopped = min(places)
            self.pending = ""
            return text[:place]
        keep = 0 if last else max((overlap(text, stop) for stop in self.stop), default=0)
        self.pending = text[len(text) - keep :]
        return text[: len(text) - keep]


def overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that `text` ends with."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
