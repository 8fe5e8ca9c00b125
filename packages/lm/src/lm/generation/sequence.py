"""A sequence that is being continued: its prompt, its tokens so far, how the next is chosen and when it ends."""

from __future__ import annotations

import functools
from collections import abc

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.generation.sampling import (
    NO_NUMBERS,
    Constraint,
    History,
    Sampling,
    TokenLogprob,
    check_whole_number,
    logprob_of,
)
from lm.ops.cpu.forward import Choice

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
            self.generator.manual_seed(seed)
        self.error: Exception | None = None
        self.ended: str | None = None if max_new_tokens or score_prompt else "length"
        self.window, self.tokens_before_window = self.prompt[-self.capacity :], 0
        self.before_draw: Tensor | None = None  # the generator's state
        self.cached = 0

    @property
    def takes_likeliest(self) -> bool:
        """True if the next token is the likeliest, and nothing else is read from the logits."""
        return self.sampling.is_greedy and self.constraint is None and self.top_logprobs is None

    @functools.cached_property
    def choice(self) -> Choice | None:
        """The rule by which a decoder with a loop chooses the tokens of this text; None if it cannot."""
        by = self.sampling
        if self.constraint is not None or by.changes_logits:
            return None
        return Choice(0.0 if by.is_greedy else by.temperature, by.top_p or 1.0, by.min_p or 0.0, by.top_k or 0)

    def draw(self, count: int) -> Tensor:
        """Random numbers that draw the next tokens, float64 (count,), of which return_unused gives some back."""
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
        """Choose the next token from logits (vocab_size,): the token, or None if it ends the sequence instead.

        token: the token, if the step chose it; below 0: the logits are not numbers.
        """
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
