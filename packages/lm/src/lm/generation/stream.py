"""The tokens that follow a text, for one text or for many, and as text while they come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from lm.generation.engine import Batch, Continuation, check_request
from lm.generation.sampling import Sampling
from lm.model import Transformer


def generate(model: Transformer, ids: Sequence[int], *, max_new_tokens: int, **settings: Any) -> list[int]:
    """The tokens that stream() yields, as a list."""
    return list(stream(model, ids, max_new_tokens=max_new_tokens, **settings))


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

    The first five settings are those of Sampling. seed: the same seed gives the same tokens; None draws another each time.
    when_full: past the context length "slide" forgets the older half and reads the younger again, so that every token is
    chosen by what the model makes of an unbroken stretch of text, whatever its kind of positions; "end" ends the text
    there; "refuse" raises ValueError before it begins, if the prompt and max_new_tokens together would not fit.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    check_request(model, ids, max_new_tokens, when_full)
    batch = Batch(model, rows=1, capacity=min(model.config.context_length, len(ids) + max_new_tokens))
    text = batch.add(
        ids,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        seed=seed,
        stop_tokens=stop_tokens,
        when_full=when_full,
    )
    return _tokens(batch, text)


def _tokens(batch: Batch, text: Continuation) -> Iterator[int]:
    while text.ended is None:
        for _, token in batch.step():
            if token is not None:
                yield token


def generate_batch(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    samples: int = 1,
    rows: int = 16,
    seed: int | None = None,
    stop_tokens: Collection[int] = (),
    when_full: str = "slide",
    **settings: Any,
) -> list[list[list[int]]]:
    """`samples` continuations of each prompt, at most `rows` of them at a time; settings are those of stream().

    Sample j of a prompt has the tokens that generate() alone gives with seed + j, whatever stands beside it: the texts are of
    their own lengths, and none is padded.
    """
    if samples < 1 or rows < 1:
        raise ValueError(f"samples {samples} and rows {rows} must be at least 1")
    sampling = Sampling(**settings)
    for prompt in prompts:
        check_request(model, prompt, max_new_tokens, when_full)
    longest = max((len(prompt) for prompt in prompts), default=1)
    rows = min(rows, max(1, len(prompts) * samples))
    batch = Batch(model, rows=rows, capacity=min(model.config.context_length, longest + max_new_tokens))
    made: list[list[list[int]]] = []
    for prompt in prompts:
        made.append([])
        for j in range(samples):
            while not batch.room:
                batch.step()
            text = batch.add(
                prompt,
                max_new_tokens=max_new_tokens,
                sampling=sampling,
                seed=None if seed is None else seed + j,
                stop_tokens=stop_tokens,
                when_full=when_full,
            )
            made[-1].append(text.tokens)
    while batch.texts:
        batch.step()
    return made


class Decoding(Protocol):
    """What turns ids into text as they come: bpe's DecodeStream."""

    def feed(self, tokens: int) -> str: ...

    def finish(self) -> str: ...


class Writer:
    """Tokens to text as they come: whole characters only, nothing of a stop string and nothing after it.

    stop: strings that end the text; what may yet become one is held back. stopped: whether one has come.
    """

    def __init__(self, decoder: Decoding, stop: Sequence[str] = ()) -> None:
        if isinstance(stop, str) or "" in stop:
            raise ValueError(f"stop {stop!r} is no list of strings that are not empty")
        self.decoder, self.stop = decoder, tuple(stop)
        self.held, self.stopped = "", False

    def feed(self, token: int) -> str:
        """The text that is certain after this token."""
        return self._give(self.decoder.feed(token), last=False)

    def finish(self) -> str:
        """What is left, where no stop string has come."""
        return self._give(self.decoder.finish(), last=True)

    def _give(self, text: str, last: bool) -> str:
        if self.stopped:
            return ""
        text = self.held + text
        places = [place for place in (text.find(stop) for stop in self.stop) if place >= 0]
        if places:
            self.stopped, self.held = True, ""
            return text[: min(places)]
        keep = 0 if last else max((overlap(text, stop) for stop in self.stop), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]


def overlap(text: str, stop: str) -> int:
    """How long the longest beginning of `stop` is, short of the whole, with which `text` ends."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
