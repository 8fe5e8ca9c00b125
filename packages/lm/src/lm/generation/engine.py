"""Generation: tokens that follow a text, one at a time, for one text or for many that come and go."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from lm.generation.decoder import Decoder
from lm.generation.sampling import NO_NUMBERS, Sampling
from lm.model import Transformer

WHEN_FULL = ("slide", "refuse", "end")


class Continuation:
    """A text in a Batch: what was given, the tokens made so far, and why it ended, None as long as it goes on.

    ended: "stop" at a stop token, "length" at max_new_tokens or, with when_full "end", at the context's end, "cancelled".
    """

    def __init__(
        self,
        ids: Sequence[int],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int | None,
        stop_tokens: Collection[int],
        when_full: str,
        context: int,
    ) -> None:
        self.prompt, self.tokens = list(ids), list[int]()
        self.max_new_tokens, self.sampling, self.when_full = max_new_tokens, sampling, when_full
        self.stop_tokens = frozenset(stop_tokens)
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)
        self.ended: str | None = None if max_new_tokens else "length"
        self.unread = self.prompt[-context:]  # what its row of the cache does not hold yet
        self.row = -1


class Batch:
    """Texts that are continued together, a token each at every step; they may come and go between steps.

    rows: how many at most. capacity: how many tokens of a text the cache holds (the model's context, if not given). native: as
    for Decoder.
    Each text has its own settings and its own random numbers, and gets the tokens it would get alone. Not for two threads
    at once. prefill, decode: tokens and seconds so far, of reading what was given, and of one token after another.
    """

    def __init__(
        self, model: Transformer, rows: int = 8, capacity: int | None = None, *, native: bool | None = None
    ) -> None:
        self.decoder = Decoder(model, rows, capacity, native=native)
        self.model, self.rows = model, rows
        self.texts: list[Continuation] = []
        self.prefill, self.decode = Pace(), Pace()

    @property
    def room(self) -> int:
        """How many texts more there is room for."""
        return self.rows - len(self.texts)

    def add(
        self,
        ids: Sequence[int],
        *,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        seed: int | None = None,
        stop_tokens: Collection[int] = (),
        when_full: str = "slide",
    ) -> Continuation:
        """A new text, which the next step reads. ValueError: it cannot be continued so, or there is no room."""
        check_request(self.model, ids, max_new_tokens, when_full)
        if not self.room:
            raise ValueError(f"the batch is full, it has {self.rows} rows: wait until a text has ended")
        context = self.decoder.cache.capacity
        text = Continuation(ids, max_new_tokens, sampling or Sampling(), seed, stop_tokens, when_full, context)
        if text.ended is None:
            self.texts.append(text)
        return text

    def cancel(self, text: Continuation) -> None:
        """Ends a text where it is; its place is free at once. One that has ended stays as it is."""
        if text.ended is None:
            text.ended = "cancelled"
            self.texts.remove(text)

    def step(self) -> list[tuple[Continuation, int | None]]:
        """One token for every text, or None where a stop token or the context ended it; what has ended leaves the batch."""
        going, fresh = self._arrange()
        made: list[tuple[Continuation, int | None]] = []
        began = time.perf_counter()
        if going:
            logits, best = self.decoder.step([text.unread[0] for text in going]), self.decoder.likeliest
            for row, text in enumerate(going):
                if best is not None and text.sampling.is_greedy:
                    token = best[row]
                    if token < 0:
                        raise ValueError(NO_NUMBERS)
                else:
                    token = self._chosen(text, logits[row])
                made.append((text, self._continue(text, token)))
            self.decode.add(len(going), time.perf_counter() - began)
        read: dict[tuple[int, ...], tuple[int, Tensor]] = {}
        for text in fresh:
            began = time.perf_counter()
            known = read.get(key := tuple(text.unread))
            if known is None:
                count, known = len(text.unread), (text.row, self.decoder.read(text.row, text.unread))
                read[key] = known
            else:  # another sample of the same prompt
                count = 0
                self.decoder.cache.copy(known[0], text.row)
            made.append((text, self._continue(text, self._chosen(text, known[1]))))
            self.prefill.add(count, time.perf_counter() - began)
        self.texts = [text for text in self.texts if text.ended is None]
        return made

    def _arrange(self) -> tuple[list[Continuation], list[Continuation]]:
        """Those whose row holds all but one token, moved to the first rows, and those that have more to read, after them."""
        cache = self.decoder.cache
        going, fresh = list[Continuation](), list[Continuation]()
        for text in self.texts:
            if text.row >= 0 and cache.lengths[text.row] == cache.capacity:
                whole = text.prompt + text.tokens
                text.unread, text.row = whole[-max(1, cache.capacity // 2) :], -1
            (fresh if text.row < 0 else going).append(text)
        going.sort(key=lambda text: text.row)  # so that a row moves only onto one that is free
        for row, text in enumerate(going):
            if text.row != row:
                cache.copy(text.row, row)
                text.row = row
        for row, text in enumerate(fresh, len(going)):
            cache.clear(row)
            text.row = row
        return going, fresh

    def _chosen(self, text: Continuation, logits: Tensor) -> int:
        seen = text.prompt + text.tokens if text.sampling.repetition_penalty != 1.0 else ()
        return text.sampling.choose(logits, seen, text.generator)

    def _continue(self, text: Continuation, token: int) -> int | None:
        """The token, which the text then has, or None where it ends the text."""
        if token in text.stop_tokens:
            text.ended = "stop"
            return None
        text.tokens.append(token)
        text.unread = [token]
        full = len(text.prompt) + len(text.tokens) >= self.model.config.context_length
        if len(text.tokens) == text.max_new_tokens or (full and text.when_full == "end"):
            text.ended = "length"
        return token


class Pace:
    """Tokens, and the seconds they took."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens at {self.tokens / max(self.seconds, 1e-9):,.0f} a second"


def check_request(model: Transformer, ids: Sequence[int], max_new_tokens: int, when_full: str) -> None:
    """ValueError: a prompt that the model cannot read, or that cannot be continued so far."""
    config = model.config
    if not len(ids):
        raise ValueError("the prompt has no tokens: begin with the end-of-text token if there is nothing to begin with")
    if (bad := max(ids)) >= config.vocab_size or (bad := min(ids)) < 0:
        raise ValueError(
            f"token id {bad} is not in the vocabulary of {config.vocab_size}: use the tokenizer of the run"
        )
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, and {max_new_tokens} is not")
    if when_full not in WHEN_FULL:
        raise ValueError(f"when_full {when_full!r} is unknown: use one of {', '.join(WHEN_FULL)}")
    if when_full == "refuse" and len(ids) + max_new_tokens > config.context_length:
        raise ValueError(
            f"a prompt of {len(ids)} tokens and max_new_tokens {max_new_tokens} are more than the context of "
            f"{config.context_length}: shorten one of them, or let when_full be 'slide'"
        )
    if when_full == "end" and len(ids) >= config.context_length:
        raise ValueError(
            f"a prompt of {len(ids)} tokens leaves no room in the context of {config.context_length}: shorten it, "
            f"or let when_full be 'slide'"
        )
