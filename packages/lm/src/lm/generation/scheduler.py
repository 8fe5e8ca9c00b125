"""Many sequences continued together, one token each at a step; long prompts are read in parts between steps."""

from __future__ import annotations

import math
import time
from collections import abc
from typing import Any

from torch import Tensor

from lm.generation.decoder import Decoder, NoPages
from lm.generation.kv_cache import PAGE
from lm.generation.prefixes import Prefixes
from lm.generation.sequence import Sequence
from lm.model import Transformer

MOST_LOGITS = 1 << 24  # elements of the logits that one call of C copies

Results = list[tuple["ScheduledSequence", int | None]]


class ScheduledSequence(Sequence):
    """A Sequence in a Scheduler."""

    row = -1  # of the cache
    last_chunk = 0  # number of the last shared chunk in its row, 0 if none
    read_turn = 0  # its place among those that wait to be read, the least first
    preempted = False  # True while it waits for memory that it gave to an older sequence


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
        self.sequences: list[ScheduledSequence] = []
        self.free_rows = list(range(rows))[::-1]
        self.turns, self.seconds_of_step = 0, math.inf
        self.tokens_read = 0  # of prompts, so far

    @property
    def room(self) -> int:
        """Number of sequences that can be added."""
        return self.rows - len(self.sequences)

    def add(self, ids: abc.Sequence[int], **settings: Any) -> ScheduledSequence:
        """Add a sequence, which the next steps read. Arguments and errors are Sequence's; ValueError: no room."""
        sequence = ScheduledSequence(self.model.config, ids, **settings, capacity=self.cache.capacity)
        if not self.room:
            raise ValueError(f"the batch is full, it has {self.rows} rows: wait until a sequence has ended")
        if sequence.ended is None:
            sequence.row = self.free_rows.pop()
            self.sequences.append(sequence)
        return sequence

    def cancel(self, sequence: ScheduledSequence) -> None:
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
        for sequence in self.sequences:
            length = self.cache.lengths[sequence.row]
            if length in (self.cache.capacity, self.decoder.reread_at):
                self._clear(sequence)
                sequence.reread(is_full=length == self.cache.capacity)
        ready = [one for one in list(self.sequences) if self._is_read(one) and self._has_room(one, 1)]
        ready = [one for one in ready if self._is_read(one)]  # one may have given its pages to an older one
        results = self._decode(ready, self._at_once(ready, seconds)) if ready else []
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

    def _is_read(self, sequence: ScheduledSequence) -> bool:
        return self.cache.lengths[sequence.row] >= len(sequence.window)

    def _at_once(self, ready: list[ScheduledSequence], seconds: float) -> int:
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

    def _decode(self, ready: list[ScheduledSequence], count: int) -> Results:
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
                if likeliest is not None and one.takes_likeliest:
                    results += self._append(one, None, likeliest[i])
                elif decoder.has_loop and one.choice:
                    results += self._append(one, logits[i], decoder.choose(logits[i], one))
                else:
                    results += self._append(one, logits[i])
        self.seconds_of_step = (time.perf_counter() - began) / len(steps)
        return results

    def _append(self, sequence: ScheduledSequence, logits: Tensor | None, token: int | None = None) -> Results:
        """Append a sequence's next token, as Sequence.append; an exception ends this sequence alone."""
        try:
            return [(sequence, sequence.append(logits, token))]
        except Exception as error:
            sequence.fail(error)
            return []

    def _next_to_read(self) -> ScheduledSequence | None:
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

    def _read_chunk(self, sequence: ScheduledSequence) -> Results:
        """Read the next chunk of a sequence; after its last chunk, it and every other with the same window gets its
        first token."""
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
        # A preempted sequence has tokens already, from before its preemption.
        results = [] if sequence.not_in_cache(len(sequence.window)) else self._append(sequence, logits)
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

    def _clear(self, sequence: ScheduledSequence) -> None:
        self.cache.clear(sequence.row)
        sequence.last_chunk = 0

    def _has_room(self, sequence: ScheduledSequence, tokens: int) -> bool:
        """Find pages for more tokens of a sequence: of shared chunks that no sequence has, then of younger sequences.

        False: there are none, and the sequence has given back its own; the oldest one has failed by it.
        """
        cache = self.cache
        while not cache.grow(sequence.row, cache.lengths[sequence.row] + tokens):
            if self.prefixes.evict():
                continue
            youngest = next((one for one in reversed(self.sequences) if cache.page_counts[one.row]), sequence)
            if youngest is sequence and sequence is self.sequences[0]:
                size, room = f"{cache.lengths[sequence.row] + tokens:,} tokens", f"{cache.pages:,} pages of {PAGE}"
                sequence.fail(
                    NoPages(f"a sequence of {size} has no room in the cache of {room} tokens: give more memory")
                )
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
