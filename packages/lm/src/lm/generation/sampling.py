"""Sampling: one token from the logits of a step."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Protocol

import torch
from torch import Tensor

NO_NUMBERS = "no token can be chosen: the model's logits are not numbers"
LIKELIEST = 128  # as many usually reach top_p; finding them takes a fifth of the time of sorting 4,096


def check_whole_number(name: str, value: object) -> None:
    """Raise TypeError for what is no whole number, as a float is even if it is one in value."""
    if not isinstance(value, Integral):
        raise TypeError(f"expected {name} to be a whole number, got {value!r}")


@dataclass(frozen=True)
class Sampling:
    """Settings of the choice of a token. ValueError names a value out of its range.

    They work in this order: logit_bias is added to the logits of the tokens that it names; presence_penalty is taken
    from those of every token that was made so far, and frequency_penalty as often as it was (OpenAI's);
    repetition_penalty divides the positive and multiplies the negative logits of the tokens seen so far, the prompt's
    among them (Keskar et al. 2019); temperature 0 takes the likeliest token, any other divides; top_k keeps the
    likeliest k; top_p the fewest whose probabilities reach p (Holtzman et al. 2019); min_p those at least p times as
    likely as the likeliest (Nguyen et al. 2024).
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
        if self.top_k is not None:
            check_whole_number("top_k", self.top_k)
        for name, valid, bounds in (
            ("presence_penalty", math.isfinite(self.presence_penalty), "finite"),
            ("frequency_penalty", math.isfinite(self.frequency_penalty), "finite"),
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("min_p", self.min_p is None or 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty > 0, "more than 0"),
        ):
            if not valid:
                raise ValueError(f"expected {name} to be {bounds}, got {getattr(self, name)}")

    @property
    def changes_logits(self) -> bool:
        penalties = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return bool(penalties or self.logit_bias)

    @functools.cached_property
    def is_greedy(self) -> bool:
        """True if the likeliest token is chosen, by unchanged logits."""
        return (self.temperature == 0 or self.top_k == 1) and not self.changes_logits

    def choose(
        self,
        logits: Tensor,
        seen: Collection[int] = (),
        generator: torch.Generator | None = None,
        generated: Collection[int] = (),
    ) -> int:
        """Choose one token from logits (vocab,), which stay as they are. ValueError: they are not numbers.

        seen: the tokens that repetition_penalty counts; generated: those that the other penalties count.
        """
        if self.logit_bias:
            logits = logits.clone()
            for token, bias in self.logit_bias.items():
                logits[token] += bias
        if generated and (self.presence_penalty or self.frequency_penalty):
            counts = Counter(generated)
            index = torch.tensor(list(counts), dtype=torch.int64, device=logits.device)
            often = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
            logits = logits.index_add(0, index, -(self.presence_penalty + self.frequency_penalty * often))
        if self.repetition_penalty != 1.0 and seen:
            index = torch.tensor(sorted(set(seen)), dtype=torch.int64, device=logits.device)
            was = logits[index]
            now = torch.where(was > 0, was / self.repetition_penalty, was * self.repetition_penalty)
            logits = logits.index_put((index,), now)
        if self.temperature == 0 or self.top_k == 1:
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
        # The first place where the running sum exceeds a uniform part of the whole: one draw for a token, not one for
        # each of the vocabulary, which at 4,096 tokens took a quarter of a decoding step.
        sums = probabilities.cumsum(0)
        whole = float(sums[-1])
        if not whole > 0:
            raise ValueError(NO_NUMBERS)
        part = whole * float(torch.rand((), dtype=torch.float64, generator=generator))
        drawn = int(torch.searchsorted(sums, min(part, whole * (1 - 2**-52)), right=True))
        return drawn if candidates is None else int(candidates[drawn])


class Constraint(Protocol):
    """Allows only some tokens, as a grammar does."""

    def allow(self, logits: Tensor) -> Tensor:
        """The logits (vocab,) with -inf for each token that may not follow; those given stay as they are."""
        ...

    def take(self, token: int) -> bool:
        """Accept the chosen token; True if the text is complete and nothing may follow."""
        ...


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
        numbers = logits.detach().numpy()  # whose argmax takes a tenth of the time of torch's
        token = int(numbers.argmax())  # of a NaN, where there is one
        best = float(numbers[token])
    else:
        highest, place = logits.max(0)  # faster than argmax, and it says whether there is a best
        token, best = int(place), float(highest)
    if not best > -torch.inf:
        raise ValueError(NO_NUMBERS)
    return token
