"""Many texts continued together, one token each at a step; they come and go between steps, and long prompts are read in
parts between them."""

from __future__ import annotations

import time
from collections import abc

import torch
from torch import Tensor

from lm.generation.decoder import Decoder, NoPages
from lm.generation.kv_cache import PAGE
from lm.generation.prefixes import Prefixes
from lm.generation.sampling import NO_NUMBERS, Constraint, Sampling, TokenLogprob, logprob_of
from lm.model import Transformer

WHEN_FULL = ("slide", "refuse", "end")
# Tokens of a prompt that are read at once: on a CPU so few that those who wait for their next token hardly notice.
CHUNK = {"cpu": 2 * PAGE}
CHUNK_ELSEWHERE = 8 * PAGE


class Sequence:
    """A text that a Scheduler continues.

    Attributes:
        prompt: The ids that were given.
        tokens: The ids made so far.
        logprobs: Of each of them, where they were asked for.
        ended: Why it ended: "stop" at a stop token, or where its constraint is complete; "length" at max_new_tokens or,
            with when_full "end", at the context's end; "cancelled". None as long as it goes on.
        cached: How many tokens of the prompt were in the cache already.
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
        top_logprobs: int | None,
        constraint: Constraint | None,
    ) -> None:
        self.prompt, self.tokens, self.logprobs = list(ids), list[int](), list[TokenLogprob]()
        self.max_new_tokens, self.sampling, self.when_full = max_new_tokens, sampling, when_full
        self.stop_tokens, self.top_logprobs, self.constraint = frozenset(stop_tokens), top_logprobs, constraint
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)
        self.ended: str | None = None if max_new_tokens else "length"
        # What its row of the cache begins with, read as a prompt, and how many tokens had been made before that.
        self.window, self.made_before = self.prompt[-context:], 0
        self.row, self.chunk, self.turn, self.cached = -1, 0, 0, 0
        self.waits = False  # for memory, which it had to give to an older text

    def unfed(self, length: int) -> list[int]:
        """The tokens that its row, which holds `length`, does not hold."""
        return self.tokens[self.made_before + length - len(self.window) :]


class Scheduler:
    """Texts that are continued together; each has its own settings and random numbers. Not for two threads at once.

    A text has the same tokens to the bit whatever else runs, where steps are taken in C: its prompt is read in chunks
    that begin at the same places, and a step computes each text by itself. What texts have in common at their
    beginning, in whole chunks, is read once. Where the memory is full, the youngest text gives its pages back, and is
    read again later.

    Args:
        model: The model, on any device and in any dtype.
        rows: How many texts at most.
        capacity: How many tokens of a text the cache holds, the model's context if not given.
        native: As for Decoder.
        memory: Bytes of the cache at most, as for Cache.

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
        memory: int | None = None,
    ) -> None:
        self.decoder = Decoder(model, rows, capacity, native=native, memory=memory)
        self.model, self.rows, self.cache = model, rows, self.decoder.cache
        self.chunk = CHUNK.get(self.decoder.device.type, CHUNK_ELSEWHERE)
        self.prefixes = Prefixes(self.cache, self.chunk)
        self.texts: list[Sequence] = []  # the oldest first
        self.free_rows = list(range(rows))[::-1]
        self.turns = 0
        self.prefill, self.decode = Throughput(), Throughput()

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
        top_logprobs: int | None = None,
        constraint: Constraint | None = None,
    ) -> Sequence:
        """Takes a new text, which the next steps read.

        Args:
            ids: The prompt.
            max_new_tokens: As for generate, and so are seed, stop_tokens and when_full.
            sampling: How tokens are chosen.
            seed: See max_new_tokens.
            stop_tokens: See max_new_tokens.
            when_full: See max_new_tokens.
            top_logprobs: How many of the likeliest tokens are told beside each; None tells no logprobs.
            constraint: What allows only some tokens.

        Raises:
            ValueError: It cannot be continued so, or there is no room.
        """
        check_request(self.model, ids, max_new_tokens, when_full, self.cache.capacity)
        if not self.room:
            raise ValueError(f"the batch is full, it has {self.rows} rows: wait until a text has ended")
        text = Sequence(
            ids,
            max_new_tokens,
            sampling or Sampling(),
            seed,
            stop_tokens,
            when_full,
            self.cache.capacity,
            top_logprobs,
            constraint,
        )
        if text.ended is None:
            text.row = self.free_rows.pop()
            self.texts.append(text)
        return text

    def cancel(self, text: Sequence) -> None:
        """Ends a text where it is; its place is free at once. One that has ended stays as it is."""
        if text.ended is None:
            text.ended = "cancelled"
            self._remove_ended()

    def step(self) -> list[tuple[Sequence, int | None]]:
        """One token for every text that has been read; then a chunk of a text that has not been read.

        Returns:
            Each text that got a token, and the token; None where a stop token or the context ended it instead. What has
            ended leaves.

        Raises:
            NoPages: The oldest text alone has no room in the memory.
            ValueError: The model's logits are not numbers.
        """
        lengths, made = self.cache.lengths, list[tuple[Sequence, int | None]]()
        for text in self.texts:
            if lengths[text.row] == self.cache.capacity:
                self._slide(text)
        going = [text for text in list(self.texts) if self._is_read(text) and self._has_room(text, 1)]
        going = [text for text in going if self._is_read(text)]  # one may have given its pages to an older one
        if going:
            made += self._step_all(going)
        unread = self._next_to_read()
        if unread is not None:
            made += self._read_chunk(unread)
        self._remove_ended()
        return made

    def _is_read(self, text: Sequence) -> bool:
        return self.cache.lengths[text.row] >= len(text.window)

    def _step_all(self, going: list[Sequence]) -> list[tuple[Sequence, int | None]]:
        began, results = time.perf_counter(), list[tuple[Sequence, int | None]]()
        tokens = [text.unfed(self.cache.lengths[text.row])[0] for text in going]
        logits, likeliest = self.decoder.step(tokens, [text.row for text in going]), self.decoder.likeliest
        for i, text in enumerate(going):
            if text.unfed(self.cache.lengths[text.row]):
                continue  # tokens from before it gave its pages back are fed again
            row: Tensor | None = None  # a view, taken only for those that look at it
            if (
                likeliest is not None
                and text.sampling.is_greedy
                and text.constraint is None
                and text.top_logprobs is None
            ):
                token = likeliest[i]
                if token < 0:
                    raise ValueError(NO_NUMBERS)
            else:
                row = logits[i]
                token = self._chosen(text, row)
            results.append((text, self._continue(text, token, row)))
        self.decode.add(len(results), time.perf_counter() - began)
        return results

    def _next_to_read(self) -> Sequence | None:
        """The text whose turn it is to have a chunk read; one that waits for memory only if all of it would fit."""
        unread = [text for text in self.texts if not self._is_read(text)]
        for text in sorted(unread, key=lambda text: text.turn):
            if text.waits:
                wanted = self.cache.lacks(text.row, len(text.window) + len(text.unfed(len(text.window))) + 1)
                text.waits = text is not self.texts[0] and wanted > len(self.cache.free) + self.prefixes.evictable
            if not text.waits:
                self.turns += 1
                text.turn = self.turns
                return text
        return None

    def _read_chunk(self, text: Sequence) -> list[tuple[Sequence, int | None]]:
        """Reads the next chunk of a text; after the last of them it has its first token, and so has every other text
        with the same window."""
        began, cache, row = time.perf_counter(), self.cache, text.row
        length = cache.lengths[row]
        text.chunk = self.prefixes.take(row, text.window, text.chunk)
        begin = cache.lengths[row]
        text.cached += begin - length
        ids = text.window[begin : begin + self.chunk]
        if not self._has_room(text, len(ids)):
            return []
        last = begin + len(ids) == len(text.window)
        logits = self.decoder.read(row, ids, last=last)
        if len(ids) == self.chunk:
            text.chunk = self.prefixes.keep(row, text.window, begin, text.chunk)
        self.prefill.add(len(ids), time.perf_counter() - began)
        if logits is None:
            return []
        made = self._first_token(text, logits)
        for other in self.texts:
            if other is not text and not self._is_read(other) and other.window == text.window:
                self._give_back(other)
                cache.share(other.row, cache.pages_of(row)[: begin // PAGE])
                if cache.grow(other.row, len(text.window)):
                    cache.copy_end(row, other.row, begin)
                    other.cached, other.waits = len(text.window), False
                    made += self._first_token(other, logits)
                else:
                    self._give_back(other)
        return made

    def _first_token(self, text: Sequence, logits: Tensor) -> list[tuple[Sequence, int | None]]:
        if text.unfed(len(text.window)):  # it had made some before it gave its pages back
            return []
        return [(text, self._continue(text, self._chosen(text, logits), logits))]

    def _slide(self, text: Sequence) -> None:
        """Forgets the older half of a text that fills its row."""
        whole = text.prompt + text.tokens
        self._give_back(text)
        text.window, text.made_before = whole[-max(1, self.cache.capacity // 2) :], len(text.tokens)

    def _give_back(self, text: Sequence) -> None:
        self.cache.clear(text.row)
        text.chunk = 0

    def _has_room(self, text: Sequence, tokens: int) -> bool:
        """Finds pages for so many more tokens of a text: of what is kept of texts that have ended, then of younger
        texts. False: there is none, and the text has given back its own.
        """
        cache = self.cache
        while not cache.grow(text.row, cache.lengths[text.row] + tokens):
            if self.prefixes.evict():
                continue
            youngest = next((one for one in reversed(self.texts) if cache.held[one.row]), text)
            if youngest is text and text is self.texts[0]:
                raise NoPages(
                    f"a text of {cache.lengths[text.row] + tokens:,} tokens has no room in the {cache.pages:,} pages "
                    f"of {PAGE} tokens that the memory holds: give more memory, or ask for shorter texts"
                )
            if self.texts.index(youngest) < self.texts.index(text):
                youngest = text
            self._give_back(youngest)
            youngest.waits = True
            if youngest is text:
                return False
        return True

    def _remove_ended(self) -> None:
        for text in self.texts:
            if text.ended is not None:
                self.cache.clear(text.row)
                self.free_rows.append(text.row)
        self.texts = [text for text in self.texts if text.ended is None]

    def _chosen(self, text: Sequence, logits: Tensor) -> int:
        if text.constraint is not None:
            logits = text.constraint.allow(logits)
        seen = text.prompt + text.tokens if text.sampling.repetition_penalty != 1.0 else ()
        return text.sampling.choose(logits, seen, text.generator, text.tokens)

    def _continue(self, text: Sequence, token: int, logits: Tensor | None) -> int | None:
        """The token, which the text then has, or None where it ends the text. logits: for a text with logprobs."""
        if token in text.stop_tokens:
            text.ended = "stop"
            return None
        text.tokens.append(token)
        if text.top_logprobs is not None and logits is not None:
            text.logprobs.append(logprob_of(logits, token, text.top_logprobs))
        full = len(text.prompt) + len(text.tokens) >= self.cache.capacity
        if text.constraint is not None and text.constraint.take(token):
            text.ended = "stop"
        elif len(text.tokens) == text.max_new_tokens or (full and text.when_full == "end"):
            text.ended = "length"
        return token


class Throughput:
    """Tokens, and the seconds they took."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens at {self.tokens / max(self.seconds, 1e-9):,.0f} a second"


def check_request(
    model: Transformer,
    ids: abc.Sequence[int],
    max_new_tokens: int,
    when_full: str,
    context: int | None = None,
) -> None:
    """Checks a prompt and what is asked of it; context: the most tokens of a text, if not the model's.

    Raises:
        TypeError: The prompt is text, or holds something else than whole numbers.
        ValueError: A prompt that the model cannot read, or that cannot be continued so far.
    """
    config = model.config
    if isinstance(ids, str | bytes):
        raise TypeError(
            "the prompt is text, and a model reads token ids: encode it first, with the tokenizer that lies with the "
            "model (lm.tokenizer.load_tokenizer(path).encode(text))"
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
    context = config.context_length if context is None else context
    if when_full == "refuse" and len(ids) + max_new_tokens > context:
        raise ValueError(
            f"a prompt of {len(ids)} tokens and max_new_tokens {max_new_tokens} are more than the context of "
            f"{context}: shorten one of them, or let when_full be 'slide'"
        )
    if when_full == "end" and len(ids) >= context:
        raise ValueError(
            f"a prompt of {len(ids)} tokens leaves no room in the context of {context}: shorten it, or let when_full "
            f"be 'slide'"
        )
