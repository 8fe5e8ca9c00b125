"""Many texts continued together, one token each at a step; they come and go between steps."""

from __future__ import annotations

import time
from collections import abc

import torch
from torch import Tensor

from lm.generation.decoder import Decoder
from lm.generation.sampling import NO_NUMBERS, Sampling
from lm.model import Transformer

WHEN_FULL = ("slide", "refuse", "end")


class Sequence:
    """A text that a Scheduler continues.

    Attributes:
        prompt: The ids that were given.
        tokens: The ids made so far.
        ended: Why it ended: "stop" at a stop token; "length" at max_new_tokens or, with when_full "end", at the
            context's end; "cancelled". None as long as it goes on.
    """

    def __init__(
        self,
        ids: abc.Sequence[int],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int | None,
        stop_tokens: abc.Collection[int],
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


class Scheduler:
    """Texts that are continued together; each has its own settings and random numbers. Not for two threads at once.

    Args:
        model: The model, on any device and in any dtype.
        rows: How many texts at most.
        capacity: How many tokens of a text the cache holds, the model's context if not given.
        native: As for Decoder.
        reuse: Whether a new text that begins as one that is still in the cache takes its keys and values from there, as
            a conversation's next turn does. Its tokens are then those it would get alone up to the rounding of the
            logits; without it they are the same.

    Attributes:
        prefill, decode: Tokens and seconds so far, of reading what was given and of one token after another.
    """

    def __init__(
        self,
        model: Transformer,
        rows: int = 8,
        capacity: int | None = None,
        *,
        native: bool | None = None,
        reuse: bool = False,
    ) -> None:
        self.decoder = Decoder(model, rows, capacity, native=native)
        self.model, self.rows, self.reuse = model, rows, reuse
        self.texts: list[Sequence] = []
        self.prefill, self.decode = Throughput(), Throughput()
        self.held: list[list[int]] = [[] for _ in range(rows)]  # the ids whose keys and values each row holds

    @property
    def room(self) -> int:
        """How many texts more there is room for."""
        return self.rows - len(self.texts)

    def add(
        self,
        ids: abc.Sequence[int],
        *,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        seed: int | None = None,
        stop_tokens: abc.Collection[int] = (),
        when_full: str = "slide",
    ) -> Sequence:
        """Takes a new text, which the next step reads. ValueError: it cannot be continued so, or there is no room."""
        check_request(self.model, ids, max_new_tokens, when_full)
        if not self.room:
            raise ValueError(f"the batch is full, it has {self.rows} rows: wait until a text has ended")
        context = self.decoder.cache.capacity
        text = Sequence(ids, max_new_tokens, sampling or Sampling(), seed, stop_tokens, when_full, context)
        if text.ended is None:
            self.texts.append(text)
        return text

    def cancel(self, text: Sequence) -> None:
        """Ends a text where it is; its place is free at once. One that has ended stays as it is."""
        if text.ended is None:
            text.ended = "cancelled"
            self.texts.remove(text)

    def step(self) -> list[tuple[Sequence, int | None]]:
        """One token for every text, or None where a stop token or the context ended it; what has ended leaves."""
        going, fresh = self._arrange()
        made: list[tuple[Sequence, int | None]] = []
        began = time.perf_counter()
        if going:
            tokens = [text.unread[0] for text in going]
            logits, best = self.decoder.step(tokens), self.decoder.likeliest
            for row, text in enumerate(going):
                self.held[row].append(tokens[row])
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
                shared = self._take_shared(text) if self.reuse else 0
                rest = text.unread[shared:]
                count, known = len(rest), (text.row, self.decoder.read(text.row, rest))
                read[key] = known
            else:  # another sample of the same prompt
                count = 0
                self.decoder.cache.copy(known[0], text.row)
            self.held[text.row] = list(key)
            made.append((text, self._continue(text, self._chosen(text, known[1]))))
            self.prefill.add(count, time.perf_counter() - began)
        self.texts = [text for text in self.texts if text.ended is None]
        return made

    def _arrange(self) -> tuple[list[Sequence], list[Sequence]]:
        """Those whose row holds all but one token, moved to the first rows, and those that have more to read, after
        them."""
        cache = self.decoder.cache
        going, fresh = list[Sequence](), list[Sequence]()
        for text in self.texts:
            if text.row >= 0 and cache.lengths[text.row] == cache.capacity:
                whole = text.prompt + text.tokens
                text.unread, text.row = whole[-max(1, cache.capacity // 2) :], -1
            (fresh if text.row < 0 else going).append(text)
        going.sort(key=lambda text: text.row)  # so that a row moves only onto one that is free
        for row, text in enumerate(going):
            if text.row != row:
                cache.copy(text.row, row)
                self.held[row] = list(self.held[text.row])
                text.row = row
        for row, text in enumerate(fresh, len(going)):
            if not self.reuse:
                cache.clear(row)
            text.row = row
        return going, fresh

    def _take_shared(self, text: Sequence) -> int:
        """Leaves in a text's row what some row holds of its beginning, short of its last token; how many tokens that
        is."""
        cache, most = self.decoder.cache, len(text.unread) - 1
        shared = [common(held[:most], text.unread) for held in self.held]
        best = max(range(self.rows), key=lambda row: (shared[row], row == text.row))
        if best != text.row and shared[best]:
            cache.copy(best, text.row)
        cache.lengths[text.row] = shared[best]
        return shared[best]

    def _chosen(self, text: Sequence, logits: Tensor) -> int:
        seen = text.prompt + text.tokens if text.sampling.repetition_penalty != 1.0 else ()
        return text.sampling.choose(logits, seen, text.generator)

    def _continue(self, text: Sequence, token: int) -> int | None:
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


def common(one: abc.Sequence[int], other: abc.Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Throughput:
    """Tokens, and the seconds they took."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens at {self.tokens / max(self.seconds, 1e-9):,.0f} a second"


def check_request(model: Transformer, ids: abc.Sequence[int], max_new_tokens: int, when_full: str) -> None:
    """Checks a prompt and what is asked of it.

    Raises:
        TypeError: The prompt is text, or holds something else than whole numbers.
        ValueError: A prompt that the model cannot read, or that cannot be continued so far.
    """
    config = model.config
    if isinstance(ids, str | bytes):
        raise TypeError(
            "the prompt is text, and a model reads token ids: encode it first, with the tokenizer that lies with the model "
            "(lm.tokenizer.load_tokenizer(path).encode(text))"
        )
    if not len(ids):
        raise ValueError("the prompt has no tokens: begin with the end-of-text token if there is nothing to begin with")
    odd = next((one for one in ids if not hasattr(one, "__index__")), None)
    if odd is not None:
        raise TypeError(f"the prompt holds {odd!r}, and token ids are whole numbers")
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
