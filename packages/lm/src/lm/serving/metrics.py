"""Counts of a server, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts of a server. Its methods may be called from any thread.

    Args:
        gauges: Current values by name, each with its explanation.
    """

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        registry = self.registry = CollectorRegistry()
        self.responses = Counter("lm_http_responses", "responses by status", ["status"], registry=registry)
        self.ended = Counter("lm_texts", "texts that ended, by why", ["ended"], registry=registry)
        self.tokens = [
            Counter(f"lm_{kind}_tokens", explanation, registry=registry)
            for kind, explanation in (
                ("prompt", "tokens of prompts"),
                ("cached", "tokens of prompts that were in the cache"),
                ("generated", "tokens made"),
            )
        ]
        explanations = {"first_token": "from a request to its first token", "between_tokens": "from token to token"}
        self.first_token, self.between_tokens = (
            Histogram(f"lm_{name}_seconds", explanation, registry=registry, buckets=SECONDS)
            for name, explanation in explanations.items()
        )
        for name, (explanation, value) in gauges.items():
            Gauge(name, explanation, registry=registry).set_function(value)

    def responded(self, status: int) -> None:
        self.responses.labels(status).inc()

    def text_ended(self, why: str, prompt: int, cached: int, generated: int) -> None:
        self.ended.labels(why).inc()
        for counter, count in zip(self.tokens, (prompt, cached, generated), strict=True):
            counter.inc(count)

    def token(self, seconds: float, *, first: bool) -> None:
        """Count a token by its seconds since the request, if it is the first, or since the token before it."""
        (self.first_token if first else self.between_tokens).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)
