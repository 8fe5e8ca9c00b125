"""What is asked for: bodies of /v1/completions and /v1/chat/completions, checked, as texts to continue.

Every setting is used or refused by its name: none is silently left out but those that change nothing of the answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm.chat_template import Template, messages_of
from lm.generation.sampling import Sampling
from lm.tokenizer import prompt_ids, stop_ids

COMMON = {
    "model",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "n",
    "stop",
    "stream",
    "stream_options",
}
NO_MATTER = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# What may be given as long as it asks for nothing.
NOTHING: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logprobs": (None, False, 0),
    "logit_bias": (None, {}),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "echo": (None, False),
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "response_format": (None, {"type": "text"}),
}
MOST_STOPS, MOST_CHOICES = 4, 16


class BadRequest(ValueError):
    """A mistake in what was asked, with its HTTP status and the fields of OpenAI's error object."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None, kind: str = ""
    ) -> None:
        super().__init__(message)
        self.param, self.status, self.code, self.kind = param, status, code, kind or "invalid_request_error"

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class Asked:
    """A request: its prompts, n continuations of each, and how."""

    prompts: list[list[int]]
    n: int
    max_new_tokens: list[int]  # of each prompt's continuations
    sampling: Sampling
    seed: int | None
    stop_tokens: list[int]
    stop: list[str]
    stream: bool
    usage: bool  # whether a stream ends with it


@dataclass(frozen=True)
class Limits:
    """What a server takes: the model's name, its vocabulary and context, and the most new tokens of a text."""

    model: str
    vocab_size: int
    context_length: int
    max_tokens: int


def parse(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is no JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("the body must be a JSON object")
    return found


def completion(body: dict[str, Any], tokenizer: Any, limits: Limits) -> Asked:
    """What a body of /v1/completions asks for. BadRequest: what is wrong with it."""
    known(body, {*COMMON, "prompt"})
    prompts = [prompt_of(one, tokenizer) for one in prompts_in(body.get("prompt"))]
    return asked(body, prompts, stop_ids(tokenizer), [], limits, body.get("max_tokens"), 16)


def chat(body: dict[str, Any], template: Template, limits: Limits) -> Asked:
    """What a body of /v1/chat/completions asks for. BadRequest: what is wrong with it."""
    known(body, {*COMMON, "messages", "max_completion_tokens"})
    try:
        prompt = template.prompt(messages_of(as_text(body.get("messages"))))
    except ValueError as error:
        raise BadRequest(str(error), "messages") from None
    most = body.get("max_completion_tokens")
    most = body.get("max_tokens") if most is None else most
    return asked(body, [prompt], template.stop_tokens, template.stop, limits, most, None)


def known(body: dict[str, Any], names: set[str]) -> None:
    for name, value in body.items():
        if name in NOTHING:
            if value not in NOTHING[name]:
                raise BadRequest(f"{name} is not supported: leave it out", name, code="unsupported_parameter")
        elif name not in names | NO_MATTER:
            raise BadRequest(f"{name!r} is unknown here: leave it out", name, code="unknown_parameter")


def asked(
    body: dict[str, Any],
    prompts: list[list[int]],
    stop_tokens: list[int],
    stop: list[str],
    limits: Limits,
    most: object,
    default: int | None,
) -> Asked:
    model = body.get("model")
    if model is not None and model != limits.model:
        raise BadRequest(
            f"there is no model {model!r}: it is {limits.model!r}", "model", status=404, code="model_not_found"
        )
    if most is not None and not (integer(most) and 0 < most <= limits.max_tokens):  # type: ignore[operator]
        raise BadRequest(
            f"max_tokens must be a whole number from 1 to {limits.max_tokens}, and {most!r} is not", "max_tokens"
        )
    room = []
    for ids in prompts:
        left = limits.context_length - len(ids)
        wanted = most if isinstance(most, int) else min(default or limits.max_tokens, limits.max_tokens, max(1, left))
        if wanted > left:
            raise BadRequest(
                f"the context is {limits.context_length} tokens, and the prompt has {len(ids)} and max_tokens is {wanted}: "
                f"shorten one of them",
                "messages" if "messages" in body else "prompt",
                code="context_length_exceeded",
            )
        room.append(wanted)
    n = field(body, "n", 1, whole=True, low=1, high=MOST_CHOICES)
    temperature = field(body, "temperature", 1.0, low=0, high=2)
    sampling = Sampling(
        float(temperature),
        field(body, "top_k", None, whole=True, low=1, high=limits.vocab_size),
        field(body, "top_p", None, low=1e-9, high=1),
        field(body, "min_p", None, low=0, high=1),
        float(field(body, "repetition_penalty", 1.0, low=1e-3, high=1e3)),
    )
    return Asked(
        prompts,
        n,
        room,
        sampling,
        field(body, "seed", None, whole=True, low=-(2**63), high=2**63 - 2 * MOST_CHOICES),
        stop_tokens,
        [*stop, *stops_of(body.get("stop"))],
        boolean(body, "stream"),
        boolean(options_of(body), "include_usage"),
    )


def field(body: dict[str, Any], name: str, default: Any, *, low: float, high: float, whole: bool = False) -> Any:
    """A number, or the default where it is null or not given."""
    value = body.get(name)
    if value is None:
        return default
    right = integer(value) or (not whole and isinstance(value, float) and math.isfinite(value))
    if not right or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise BadRequest(f"{name} must be a {kind} from {low} to {high}, and {value!r} is not", name)
    return value


def integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def boolean(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false, and {value!r} is not", name)
    return bool(value)


def options_of(body: dict[str, Any]) -> dict[str, Any]:
    options = body.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict) or not body.get("stream"):
        raise BadRequest("stream_options is an object that goes with stream true", "stream_options")
    return options


def stops_of(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(one, str) and one for one in stops):
        raise BadRequest(f"stop must be a string or at most {MOST_STOPS} of them, none empty", "stop")
    return stops


def prompts_in(prompt: object) -> Sequence[object]:
    """The prompts in a string, in ids, or in a list of either."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(integer(one) for one in prompt):
            return [prompt]
        if len(prompt) > MOST_CHOICES:
            raise BadRequest(
                f"there are {len(prompt)} prompts, and at most {MOST_CHOICES} may be asked at once", "prompt"
            )
        return prompt
    raise BadRequest("prompt must be a string, token ids, or a list of either, and not empty", "prompt")


def prompt_of(one: object, tokenizer: Any) -> list[int]:
    if isinstance(one, str):
        ids = prompt_ids(tokenizer, one)
    elif isinstance(one, list) and all(integer(number) for number in one):
        ids = one
        bad = next((number for number in ids if not 0 <= number < tokenizer.n_vocab), None)
        if bad is not None:
            raise BadRequest(f"token id {bad} is not in the vocabulary of {tokenizer.n_vocab}", "prompt")
    else:
        raise BadRequest("prompt must be a string, token ids, or a list of either, and not empty", "prompt")
    if not ids:
        raise BadRequest("the prompt has no tokens: give it some text", "prompt")
    return ids


def as_text(messages: object) -> object:
    """Messages whose contents, where they come in parts of text, are joined."""
    if not isinstance(messages, list):
        return messages
    made = []
    for one in messages:
        parts = one.get("content") if isinstance(one, dict) else None
        if isinstance(parts, list):
            if not all(
                isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts
            ):
                raise BadRequest("a content in parts must be of parts of type 'text'", "messages")
            one = {**one, "content": "".join(part["text"] for part in parts)}
        if isinstance(one, dict) and one.get("role") == "developer":  # as OpenAI's newer models name it
            one = {**one, "role": "system"}
        made.append(one)
    return made
