"""Counts of a server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts of observed seconds up to each of SECONDS, their number and their sum."""

    def __init__(self) -> None:
        self.counts, self.sum = [0] * (len(SECONDS) + 1), 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Counts of a server. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.responses = Counter[int]()
        self.ended = Counter[str]()
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.first_token, self.between_tokens = Histogram(), Histogram()

    def responded(self, status: int) -> None:
        with self.lock:
            self.responses[status] += 1

    def text_ended(self, why: str, prompt: int, cached: int, generated: int) -> None:
        with self.lock:
            self.ended[why] += 1
            self.prompt_tokens += prompt
            self.cached_tokens += cached
            self.generated_tokens += generated

    def token(self, seconds: float, *, first: bool) -> None:
        """Count a token by its seconds since the request, if it is the first, or since the token before it."""
        with self.lock:
            (self.first_token if first else self.between_tokens).observe(seconds)

    def render(self, now: Mapping[str, tuple[str, float]]) -> str:
        """The text; now: current values by name, each with its explanation."""
        with self.lock:
            lines = [
                *family("lm_http_responses_total", "counter", "responses by status"),
                *(f'lm_http_responses_total{{status="{key}"}} {count}' for key, count in self.responses.items()),
                *family("lm_texts_total", "counter", "texts that ended, by why"),
                *(f'lm_texts_total{{ended="{key}"}} {count}' for key, count in self.ended.items()),
                *counter("lm_prompt_tokens_total", "tokens of prompts", self.prompt_tokens),
                *counter("lm_cached_tokens_total", "of them, those that were in the cache", self.cached_tokens),
                *counter("lm_generated_tokens_total", "tokens made", self.generated_tokens),
                *family("lm_first_token_seconds", "histogram", "from a request to its first token"),
                *self.first_token.lines("lm_first_token_seconds"),
                *family("lm_between_tokens_seconds", "histogram", "from one token of a text to the next"),
                *self.between_tokens.lines("lm_between_tokens_seconds"),
            ]
        for name, (explanation, value) in now.items():
            lines += [*family(name, "gauge", explanation), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def family(name: str, kind: str, explanation: str) -> list[str]:
    return [f"# HELP {name} {explanation}", f"# TYPE {name} {kind}"]


def counter(name: str, explanation: str, value: int) -> list[str]:
    return [*family(name, "counter", explanation), f"{name} {value}"]
