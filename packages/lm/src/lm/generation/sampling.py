"""Sampling: one token from the logits of a step."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Protocol

import torch
from torch import Tensor

NO_NUMBERS = "no token can be chosen: the model's logits are not numbers"
# Lower temperatures are greedy: by much lower ones float32 logits divide to infinity. vLLM has the same bound.
GREEDY_BELOW = 1e-5
LIKELIEST = 128  # as many usually reach top_p; finding them takes a fifth of the time of sorting 4,096


class NoToken(ValueError):
    """The settings of a text leave no token to choose, though the model's logits are numbers."""


def check_whole_number(name: str, value: object) -> None:
    """Raise TypeError if the value is not an integer: a float is refused even where its value is whole."""
    if not isinstance(value, Integral):
        raise TypeError(f"expected {name} to be a whole number, got {value!r}")


@dataclass(frozen=True)
class Sampling:
    """Settings of the choice of a token. ValueError names a value out of its range.

    They work in this order: logit_bias is added to the logits of the tokens that it names; presence_penalty is taken
    from the logits of every token that was made so far, and frequency_penalty as often as it was (OpenAI's);
    repetition_penalty divides the positive and multiplies the negative logits of the tokens seen so far, the prompt's
    among them (Keskar et al. 2019); temperature 0, or one below 1e-5, takes the likeliest token, any other divides;
    top_k keeps the likeliest k; top_p the fewest whose probabilities reach p (Holtzman et al. 2019); min_p those at
    least p times as likely as the likeliest (Nguyen et al. 2024).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, bounds, valid in (
            ("temperature", "at least 0", lambda value: value >= 0),
            ("top_k", "at least 1", lambda value: value >= 1),
            ("top_p", "more than 0 and at most 1", lambda value: 0 < value <= 1),
            ("min_p", "from 0 to 1", lambda value: 0 <= value <= 1),
            ("repetition_penalty", "more than 0", lambda value: value > 0),
            ("presence_penalty", "finite", math.isfinite),
            ("frequency_penalty", "finite", math.isfinite),
        ):
            value = getattr(self, name)
            if value is None and name in ("top_k", "top_p", "min_p"):
                continue
            if name == "top_k":
                check_whole_number(name, value)
            if not hasattr(value, "__float__"):
                raise TypeError(f"expected {name} to be a number, got {value!r}")
            if not valid(value):
                raise ValueError(f"expected {name} to be {bounds}, got {value}")

    @functools.cached_property
    def has_penalties(self) -> bool:
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def changes_logits(self) -> bool:
        return bool(self.has_penalties or self.logit_bias)

    @property
    def takes_largest(self) -> bool:
        """True if the token with the largest logit is chosen, after the logits were changed."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @functools.cached_property
    def is_greedy(self) -> bool:
        """True if the likeliest token is chosen, by unchanged logits."""
        return self.takes_largest and not self.changes_logits

    def choose(self, logits: Tensor, generator: torch.Generator | None = None, history: History | None = None) -> int:
        """Choose one token from logits (vocab,), which stay as they are; history: the tokens that penalties count.
        ValueError: the logits are not numbers. NoToken: the settings leave no token."""
        try:
            return self._choose(logits, generator, history)
        except ValueError:
            if logits.isnan().any() or not -torch.inf < float(logits.max()) < torch.inf:
                raise
            raise NoToken(f"no token can be chosen: the logits are not finite after the settings {self}") from None

    def _choose(self, logits: Tensor, generator: torch.Generator | None, history: History | None) -> int:
        if self.logit_bias:
            index = torch.tensor(list(self.logit_bias), dtype=torch.int64, device=logits.device)
            logits = logits.index_add(0, index, logits.new_tensor(list(self.logit_bias.values())))
        if history is not None and (self.presence_penalty or self.frequency_penalty):
            penalties = self.presence_penalty + self.frequency_penalty * history.counts.to(logits.dtype)
            logits = logits - penalties.where(history.counts > 0, 0.0)
        if history is not None and self.repetition_penalty != 1.0:
            penalized = torch.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
            logits = penalized.where(history.seen, logits)
        if self.takes_largest:
            return likeliest(logits)
        logits = logits.float() / self.temperature
        candidates = None
        if self.top_k is not None and self.top_k < len(logits):
            logits, candidates = logits.topk(self.top_k)
        probabilities = logits.softmax(-1, dtype=torch.float64)
        if self.top_p is not None and self.top_p < 1.0:
            ordered, order = probabilities.topk(min(len(probabilities), LIKELIEST))
            if float(ordered.sum()) < self.top_p:
                ordered, order = probabilities.sort(descending=True)
            nucleus = ordered.cumsum(0) - ordered < self.top_p  # the one that crosses p is kept
            probabilities = ordered.where(nucleus, 0.0)
            candidates = order if candidates is None else candidates[order]
        if self.min_p is not None and self.min_p > 0.0:
            probabilities = probabilities.where(probabilities >= self.min_p * probabilities.max(), 0.0)
        # The token is the first place where the running sum exceeds a uniform part of the whole. A draw for each token
        # of the vocabulary, as torch.multinomial takes, was a quarter of a decoding step at 4,096 tokens.
        sums = probabilities.cumsum(0)
        whole = float(sums[-1])
        if not whole > 0:
            raise ValueError(NO_NUMBERS)
        part = whole * float(torch.rand((), dtype=torch.float64, generator=generator))
        drawn = int(torch.searchsorted(sums, min(part, whole * (1 - 2**-52)), right=True))
        return drawn if candidates is None else int(candidates[drawn])


class History:
    """The tokens of a text as penalties count them: a token more costs the same however long the text is.

    Attributes:
        seen: True for the tokens of prompt and text, (vocab_size,).
        counts: How often each token was chosen after the prompt, int64 (vocab_size,).
    """

    def __init__(
        self, vocab_size: int, prompt: Sequence[int], tokens: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        ids = torch.tensor([*prompt, *tokens], dtype=torch.int64, device=device)
        self.counts = ids[len(prompt) :].bincount(minlength=vocab_size)
        self.seen = ids.bincount(minlength=vocab_size) > 0

    def append(self, token: int) -> None:
        """Count a token that was chosen."""
        self.seen[token] = True
        self.counts[token] += 1


class Constraint(Protocol):
    """Allows only some tokens, as a grammar does."""

    def allow(self, logits: Tensor) -> Tensor:
        """A copy of logits (vocab,) with -inf for each token that may not follow. NoToken: none may."""

    def take(self, token: int) -> bool:
        """Accept the chosen token; True if the text is complete and nothing may follow."""


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log-probabilities of a token and of the likeliest ones, before any setting of Sampling."""

    token: int
    logprob: float | None  # None for the first token of a prompt
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens and theirs, the likeliest first


def logprob_of(logits: Tensor, token: int, top: int) -> TokenLogprob:
    """A token's TokenLogprob with the `top` likeliest, from logits (vocab,)."""
    logs = logits.float().log_softmax(-1, dtype=torch.float64)
    values, places = logs.topk(min(top, len(logs)))
    return TokenLogprob(token, float(logs[token]), tuple(zip(places.tolist(), values.tolist(), strict=True)))


def likeliest(logits: Tensor) -> int:
    """The first of the largest of logits (vocab,). ValueError: there is none, as where one is NaN."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        token = int(logits.detach().numpy().argmax())  # takes a tenth of the time of torch's; of a NaN, if there is one
        best = float(logits[token])
    else:
        highest, place = logits.max(0)  # faster than argmax
        token, best = int(place), float(highest)
    if not best > -torch.inf:
        raise ValueError(NO_NUMBERS)
    return token
