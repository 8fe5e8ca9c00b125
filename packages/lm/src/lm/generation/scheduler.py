"""Many sequences continued together, one token each at a step; long prompts are read in parts between steps."""

from __future__ import annotations

import functools
import math
import time
from collections import abc
from typing import Any

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.generation.decoder import Decoder, NoPages
from lm.generation.kv_cache import PAGE, Chunk, Prefixes
from lm.generation.sampling import (
    NO_NUMBERS,
    Constraint,
    History,
    Sampling,
    TokenLogprob,
    check_whole_number,
    logprob_of,
)
from lm.model import Transformer
from lm.ops.cpu.forward import Choice

MOST_LOGITS = 1 << 24  # elements of the logits that one call of C copies
WHEN_FULL = ("slide", "refuse", "end")
SEEDS = -(2**63), 2**64 - 1  # that torch's generators take


class Sequence:
    """One sequence, its own settings and random numbers.

    Args:
        config: Of the model.
        ids: The prompt.
        max_new_tokens, seed, stop_tokens, when_full: As for generate.
        sampling: Settings of the choice of each token.
        top_logprobs: Number of the likeliest tokens in each of logprobs; None computes no logprobs.
        score_prompt: True for logprobs of the prompt too, and of a stop token that ends the sequence.
        constraint: Allows only some tokens.
        capacity: Most tokens in the cache; the model's context, if None.

    Attributes:
        prompt: The given ids.
        tokens: The ids chosen so far.
        logprobs: Of each of them, with top_logprobs; with score_prompt of the prompt's before them.
        ended: "stop" at a stop token, or if its constraint is complete; "length" at max_new_tokens or, with when_full
            "end", at the context's end; "cancelled"; "error". None until then.
        error: The exception that ended it, with "error".
        window: The ids at the beginning of its cache, read as a prompt.
        cached: Number of the prompt's tokens that were in the cache before.
        row: Its row of the cache.
        last_chunk: The last shared chunk in that row, if there is one.
        read_turn: Its place among those that wait to be read, the least first.
        preempted: True while it waits for memory that it gave to an older sequence.

    TypeError, ValueError: the prompt is invalid, or prompt and max_new_tokens exceed the context.
    """

    def __init__(
        self,
        config: ModelConfig,
        ids: abc.Sequence[int],
        *,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        seed: int | None = None,
        stop_tokens: abc.Collection[int] = (),
        when_full: str = "slide",
        top_logprobs: int | None = None,
        score_prompt: bool = False,
        constraint: Constraint | None = None,
        capacity: int | None = None,
    ) -> None:
        self.capacity = config.context_length if capacity is None else capacity
        self.prompt = check_request(config, ids, max_new_tokens, when_full, self.capacity)
        self.tokens = list[int]()
        self.logprobs = [TokenLogprob(self.prompt[0], None)] if score_prompt else []
        self.max_new_tokens, self.sampling, self.when_full = max_new_tokens, sampling or Sampling(), when_full
        self.stop_tokens, self.top_logprobs = frozenset(token_ids("stop_tokens", stop_tokens)), top_logprobs
        self.constraint, self.score_prompt, self.generator = constraint, score_prompt, torch.Generator()
        self.history: History | None = None  # of a text with penalties
        if seed is None:
            self.generator.seed()
        else:
            check_whole_number("seed", seed)
            if not SEEDS[0] <= seed <= SEEDS[1]:
                raise ValueError(f"expected seed to be from {SEEDS[0]} to {SEEDS[1]}, got {seed}")
            self.generator.manual_seed(int(seed))
        self.error: Exception | None = None
        self.ended: str | None = None if max_new_tokens or score_prompt else "length"
        self.window, self.tokens_before_window = self.prompt[-self.capacity :], 0
        self.before_draw: Tensor | None = None  # the generator's state
        self.cached, self.row, self.read_turn, self.preempted = 0, -1, 0, False
        self.last_chunk: Chunk | None = None

    @functools.cached_property
    def choice(self) -> Choice | None:
        """The rule by which a decoder with a loop chooses the tokens of this text; None if it cannot."""
        by = self.sampling
        if self.constraint is not None or by.changes_logits:
            return None
        return Choice(0.0 if by.is_greedy else by.temperature, by.top_p or 1.0, by.min_p or 0.0, by.top_k or 0)

    def draw(self, count: int) -> Tensor:
        """Random numbers that draw the next tokens, float64 (count,); return_unused gives the rest back."""
        if self.choice is None or not self.choice.temperature:
            return torch.zeros(count, dtype=torch.float64)
        self.before_draw = self.generator.get_state() if count > 1 else None
        return torch.rand(count, dtype=torch.float64, generator=self.generator)

    def return_unused(self, used: int) -> None:
        """Let the generator be as if the last draw had been of `used` numbers."""
        if self.before_draw is not None:
            self.generator.set_state(self.before_draw)
            self.draw(used)

    def reread(self, is_full: bool) -> None:
        """Make all of the text a prompt that is read again; the younger half of one that fills the context."""
        half = max(1, self.capacity // 2)
        self.window += self.tokens[self.tokens_before_window :]
        self.window, self.tokens_before_window = self.window[-half:] if is_full else self.window, len(self.tokens)

    def not_in_cache(self, length: int) -> list[int]:
        """The tokens after the first `length`, at least the window's, counted from the beginning of the window."""
        return self.tokens[self.tokens_before_window + length - len(self.window) :]

    def score(self, logits: Tensor, begin: int) -> None:
        """Add the logprobs of the prompt that logits (n, vocab_size) at positions begin, begin + 1, … give."""
        for row, position in zip(logits, range(begin + 1, len(self.prompt)), strict=False):
            if position == len(self.logprobs):  # not read before
                self.logprobs.append(logprob_of(row, self.prompt[position], self.top_logprobs or 0))

    def fail(self, error: Exception) -> None:
        """End the sequence by an exception."""
        self.ended, self.error = "error", error

    def append(self, logits: Tensor | None, token: int | None = None) -> int | None:
        """Choose the next token from logits (vocab_size,): the token, or None if it ends the sequence instead. token:
        the token, if the step chose it; below 0: the logits are not numbers."""
        if not self.max_new_tokens:
            self.ended = "length"
            return None
        if token is None:
            assert logits is not None
            allowed = logits if self.constraint is None else self.constraint.allow(logits)
            if self.sampling.has_penalties and self.history is None:
                self.history = History(len(logits), self.prompt, self.tokens, logits.device)
            token = self.sampling.choose(allowed, self.generator, self.history)
        elif token < 0:
            raise ValueError(NO_NUMBERS)
        ends = token in self.stop_tokens
        if self.top_logprobs is not None and logits is not None and (self.score_prompt or not ends):
            self.logprobs.append(logprob_of(logits, token, self.top_logprobs))
        if ends:
            self.ended = "stop"
            return None
        self.tokens.append(token)
        if self.history is not None:
            self.history.append(token)
        full = len(self.prompt) + len(self.tokens) >= self.capacity
        if self.constraint is not None and self.constraint.take(token):
            self.ended = "stop"
        elif len(self.tokens) == self.max_new_tokens or (full and self.when_full == "end"):
            self.ended = "length"
        return token


Results = list[tuple[Sequence, int | None]]


class Scheduler:
    """Sequences that are continued together; each has its own settings and random numbers. Not for two threads at once.

    A sequence has the same tokens to the bit whatever else runs, if steps are taken in C: its prompt is read in chunks
    that begin at the same places, and a step computes each sequence by itself. Whole chunks that sequences have in
    common at their beginning are read once. If the memory is full, the youngest sequence gives its pages back, and is
    read again later. benchmarks/scheduler.py measures both.

    Args:
        model: The model, on any device and in any dtype.
        rows: Most sequences at once.
        capacity: Tokens of a sequence in the cache; the model's context, if None.
        native: As for Decoder.
        memory: Most bytes of the cache, as for Cache.

    Attributes:
        sequences: The unfinished ones, the oldest first.
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
        self.chunk_size = self.decoder.chunk_size
        self.prefixes = Prefixes(self.cache, self.chunk_size)
        self.sequences: list[Sequence] = []
        self.free_rows = list(range(rows))[::-1]
        self.turns, self.seconds_of_step = 0, math.inf
        self.tokens_read = 0  # of prompts, so far

    @property
    def room(self) -> int:
        """Number of sequences that can be added."""
        return self.rows - len(self.sequences)

    def add(self, ids: abc.Sequence[int], **settings: Any) -> Sequence:
        """Add a sequence, which the next steps read. Arguments and errors are Sequence's; ValueError: no room."""
        sequence = Sequence(self.model.config, ids, **settings, capacity=self.cache.capacity)
        if not self.room:
            raise ValueError(f"the batch is full, it has {self.rows} rows: wait until a sequence has ended")
        if sequence.ended is None:
            sequence.row = self.free_rows.pop()
            self.sequences.append(sequence)
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence; its row is free at once. An ended one is not changed."""
        if sequence.ended is None:
            sequence.ended = "cancelled"
            self._remove_ended()

    def step(self, seconds: float = 0.0) -> Results:
        """Take a step as try_step does, and raise the error of the first sequence that has failed in it."""
        results = self.try_step(seconds)
        for sequence, _ in results:
            if sequence.error is not None:
                raise sequence.error
        return results

    def try_step(self, seconds: float = 0.0) -> Results:
        """Decode a token of every sequence that has been read, then read of others up to chunk_size tokens together.

        An exception of one sequence ends that sequence alone, with "error": its settings leave no token, its constraint
        raises, or it is the oldest and does not fit the memory (NoPages).

        Args:
            seconds: Decode as many tokens of each sequence as take no longer than this, where several are one call of C
                and no sequence is left to read.

        Returns:
            Each sequence that was continued, and its token; None if a stop token or an error ended it instead. Those
            that have ended leave.
        """
        # A full text forgets its older half, and one whose rotation changes is read again.
        for sequence in self.sequences:
            length = self.cache.lengths[sequence.row]
            if length in (self.cache.capacity, self.decoder.reread_at):
                self._clear(sequence)
                sequence.reread(is_full=length == self.cache.capacity)
        # Every text that is read gets its next token, if the memory has room for it.
        ready = [one for one in list(self.sequences) if self._is_read(one) and self._has_room(one, 1)]
        ready = [one for one in ready if self._is_read(one)]  # one may have given its pages to an older one
        results = self._decode(ready, self._at_once(ready, seconds)) if ready else []
        # Then others are read, in turns, up to the size of a chunk.
        before = self.tokens_read
        while (unread := self._next_to_read()) is not None:
            to_read = min(len(unread.window) - self.cache.lengths[unread.row], self.chunk_size)
            if self.tokens_read > before and self.tokens_read + to_read > before + self.chunk_size:
                break
            try:
                results += self._read_chunk(unread)
            except Exception as error:  # of this sequence's prompt
                unread.fail(error)
        results += [(one, None) for one in self.sequences if one.error is not None]
        self._remove_ended()
        return results

    def _is_read(self, sequence: Sequence) -> bool:
        return self.cache.lengths[sequence.row] >= len(sequence.window)

    def _at_once(self, ready: list[Sequence], seconds: float) -> int:
        """Number of steps that are one call."""
        if self.seconds_of_step * 2 > seconds or len(ready) < len(self.sequences):
            return 1
        lengths = [self.cache.lengths[one.row] for one in ready]
        left = min(one.max_new_tokens - len(one.tokens) for one in ready)
        if any(one.top_logprobs is not None for one in ready):  # whose logits are copied
            left = min(left, MOST_LOGITS // (len(ready) * self.model.config.vocab_size))
        count = max(1, min(int(seconds / self.seconds_of_step), left, self.cache.capacity - max(lengths)))
        has_room = all(self.cache.grow(one.row, length + count) for one, length in zip(ready, lengths, strict=True))
        return count if has_room else 1

    def _decode(self, ready: list[Sequence], count: int) -> Results:
        began, results, lengths, decoder = time.perf_counter(), Results(), self.cache.lengths, self.decoder
        tokens, rows = [one.not_in_cache(lengths[one.row]) for one in ready], [one.row for one in ready]
        first = [new[0] for new in tokens]
        if decoder.has_loop and all(len(new) == 1 and one.choice for new, one in zip(tokens, ready, strict=True)):
            steps, all_logits = decoder.continue_texts(first, rows, ready, count)
            for step, logits_of_step in zip(steps, all_logits, strict=True):
                for one, token, its_logits in zip(ready, step, logits_of_step, strict=True):
                    if one.ended is None:
                        results += self._append(one, its_logits, token)
        else:
            steps = [first]
            logits, likeliest = decoder.step(first, rows), decoder.likeliest
            for i, one in enumerate(ready):
                if len(tokens[i]) > 1:
                    continue  # its tokens from before its preemption are decoded again
                token = None
                if likeliest is not None and one.sampling.is_greedy and one.constraint is None:
                    token = likeliest[i]
                elif decoder.has_loop and one.choice:
                    token = decoder.choose(logits[i], one)
                results += self._append(one, logits[i], token)
        self.seconds_of_step = (time.perf_counter() - began) / len(steps)
        return results

    def _append(self, sequence: Sequence, logits: Tensor | None, token: int | None = None) -> Results:
        """Append a sequence's next token, as Sequence.append; an exception ends this sequence alone."""
        try:
            return [(sequence, sequence.append(logits, token))]
        except Exception as error:
            sequence.fail(error)
            return []

    def _next_to_read(self) -> Sequence | None:
        """The sequence to read a chunk of; a preempted one only if all of it would fit the memory."""
        unread = [one for one in self.sequences if one.ended is None and not self._is_read(one)]
        for one in sorted(unread, key=lambda one: one.read_turn):
            if one.preempted:
                tokens = len(one.window) + len(one.not_in_cache(len(one.window))) + 1
                available = len(self.cache.free) + self.prefixes.evictable
                one.preempted = one is not self.sequences[0] and self.cache.lacks(one.row, tokens) > available
            if not one.preempted:
                return one
        return None

    def _read_chunk(self, sequence: Sequence) -> Results:
        """Read a sequence's next chunk; after the last, it and all others of the same window get their first token."""
        cache, row = self.cache, sequence.row
        self.turns += 1
        sequence.read_turn = self.turns
        length = cache.lengths[row]
        if not sequence.score_prompt:  # which needs the logits of every position
            sequence.last_chunk = self.prefixes.take(row, sequence.window, sequence.last_chunk)
        begin = cache.lengths[row]
        sequence.cached += begin - length
        ids = sequence.window[begin : begin + self.chunk_size]
        if not self._has_room(sequence, len(ids)):
            return []
        last = begin + len(ids) == len(sequence.window)
        logits = self.decoder.read(row, ids, last=last, every=sequence.score_prompt)
        if logits is not None and sequence.score_prompt:
            sequence.score(logits, begin)
            logits = logits[-1] if last else None
        if len(ids) == self.chunk_size:
            sequence.last_chunk = self.prefixes.keep(row, sequence.window, begin, sequence.last_chunk)
        self.tokens_read += len(ids)
        if logits is None:
            return []
        # A preempted sequence has its first token already.
        results = [] if sequence.not_in_cache(len(sequence.window)) else self._append(sequence, logits)
        # Texts with the same prompt share its whole pages and copy the last one.
        for other in self.sequences:
            same = other is not sequence and other.window == sequence.window and not other.score_prompt
            if same and other.ended is None and not self._is_read(other):
                self._clear(other)
                cache.share(other.row, cache.pages_of(row)[: begin // PAGE])
                if cache.grow(other.row, len(sequence.window)):
                    cache.copy_end(row, other.row, begin)
                    other.cached, other.preempted = len(sequence.window), False
                    results += [] if other.not_in_cache(len(other.window)) else self._append(other, logits)
                else:
                    self._clear(other)
        return results

    def _clear(self, sequence: Sequence) -> None:
        self.cache.clear(sequence.row)
        sequence.last_chunk = None

    def _has_room(self, sequence: Sequence, tokens: int) -> bool:
        """Find pages for more tokens of a sequence: of shared chunks that no sequence has, then of younger sequences.
        False: there are none, and the sequence has given back its own; the oldest one has failed by it."""
        cache = self.cache
        while not cache.grow(sequence.row, cache.lengths[sequence.row] + tokens):
            if self.prefixes.evict():
                continue
            youngest = next((one for one in reversed(self.sequences) if cache.page_counts[one.row]), sequence)
            if youngest is sequence and sequence is self.sequences[0]:
                size, room = cache.lengths[sequence.row] + tokens, cache.pages * PAGE
                sequence.fail(NoPages(f"{size:,} tokens have no room in the cache of {room:,}: give more memory"))
                self._clear(sequence)
                return False
            if self.sequences.index(youngest) < self.sequences.index(sequence):
                youngest = sequence
            self._clear(youngest)
            youngest.preempted = True
            if youngest is sequence:
                return False
        return True

    def _remove_ended(self) -> None:
        for sequence in self.sequences:
            if sequence.ended is not None:
                self.cache.clear(sequence.row)
                self.free_rows.append(sequence.row)
        self.sequences = [sequence for sequence in self.sequences if sequence.ended is None]


def check_request(
    config: ModelConfig, ids: abc.Sequence[int], max_new_tokens: int, when_full: str, capacity: int
) -> list[int]:
    """The prompt's ids, of a request that the model can serve. TypeError, ValueError: see Sequence."""
    if isinstance(ids, str | bytes):
        raise TypeError("expected token ids, got text: encode it with lm.tokenizer.load_tokenizer(path).encode(text)")
    prompt = token_ids("the prompt", ids)
    check_whole_number("max_new_tokens", max_new_tokens)
    if not prompt:
        raise ValueError("the prompt has no tokens: begin with the end-of-text token if there is nothing to begin with")
    if (bad := max(prompt)) >= config.vocab_size or (bad := min(prompt)) < 0:
        raise ValueError(f"token id {bad} is not in the vocabulary of {config.vocab_size}: use the run's tokenizer")
    if max_new_tokens < 0:
        raise ValueError(f"expected max_new_tokens to be at least 0, got {max_new_tokens}")
    if when_full not in WHEN_FULL:
        raise ValueError(f"when_full {when_full!r} is unknown: use one of {', '.join(WHEN_FULL)}")
    needed = len(prompt) + {"slide": -len(prompt), "refuse": max_new_tokens, "end": bool(max_new_tokens)}[when_full]
    if needed > capacity:
        sizes = f"a prompt of {len(prompt)} tokens and max_new_tokens {max_new_tokens}"
        raise ValueError(f"{sizes} have no room in the context of {capacity}: shorten one, or let when_full be 'slide'")
    return prompt


def token_ids(name: str, ids: abc.Collection[int]) -> list[int]:
    """The ids as a list. TypeError: they are not a collection of whole numbers."""
    if isinstance(ids, Tensor):
        ids = ids.tolist()
    if isinstance(ids, str | bytes) or not isinstance(ids, abc.Iterable):
        raise TypeError(f"expected {name} to be token ids, got {ids!r}")
    odd = next((one for one in ids if not hasattr(one, "__index__")), None)
    if odd is not None:
        raise TypeError(f"expected {name} to be whole numbers in one dimension, got {odd!r} among them")
    return [int(one) for one in ids]
