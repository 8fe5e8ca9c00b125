"""What is asked for: bodies of /v1/completions and /v1/chat/completions, checked by pydantic, as texts to continue.

Every setting is used or refused by its name: none is silently left out but those that change nothing of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from lm.chat_template import ChatTemplate, messages_of
from lm.generation.sampling import Sampling
from lm.special_tokens import prompt_ids

MOST_STOPS, MOST_CHOICES = 4, 16
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
# What changes nothing of the answer, whatever it is.
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")

TokenId = Annotated[int, Field(ge=0)]
Stop = Annotated[str, Field(min_length=1)]
B = TypeVar("B", bound="Body")


class BadRequest(ValueError):
    """A mistake in what was asked, with its HTTP status and the fields of OpenAI's error object."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None, kind: str = ""
    ) -> None:
        super().__init__(message)
        self.param, self.status, self.code, self.kind = param, status, code, kind or "invalid_request_error"

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


class StreamOptions(BaseModel):
    """What a stream has beside its text."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class Body(BaseModel):
    """What both kinds of requests may ask for; a setting that is null is as if it were not given."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=1e-3, le=1e3)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 2 * MOST_CHOICES)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def refuse_unsupported(cls, found: Any) -> Any:
        """Leaves out what asks for nothing, and refuses by name what asks for something that there is not."""
        if not isinstance(found, dict):
            return found
        for name, harmless in NOTHING.items():
            if name in found and found[name] not in harmless:
                raise PydanticCustomError(
                    "unsupported_parameter", "{name} is not supported: leave it out", {"name": name}
                )
        return {name: value for name, value in found.items() if name not in NOTHING and name not in IGNORED}

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionBody(Body):
    """A body of /v1/completions."""

    prompt: (
        str
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[str | list[TokenId]], Field(min_length=1, max_length=MOST_CHOICES)]
    )

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if all(isinstance(one, int) for one in self.prompt):
            return [self.prompt]  # type: ignore[list-item]
        return self.prompt  # type: ignore[return-value]


class TextPart(BaseModel):
    """A part of a content; there are texts alone."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message, whose content may come in parts."""

    model_config = ConfigDict(strict=True, extra="ignore")

    role: str
    content: str | list[TextPart]

    def table(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        # "developer" is what OpenAI's newer models call the system.
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatBody(Body):
    """A body of /v1/chat/completions. truncation "auto" leaves out the oldest messages where they do not fit."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    truncation: Literal["auto", "disabled"] | None = None


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
    dropped: int = 0  # messages that were left out because they do not fit


@dataclass(frozen=True)
class Limits:
    """What a server takes: the model's name, its vocabulary and context, and the most new tokens of a text."""

    model: str
    vocab_size: int
    context_length: int
    max_tokens: int


def parse(kind: type[B], body: bytes) -> B:
    """A body, checked. BadRequest: the first thing that is wrong with it."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as failed:
        error = failed.errors(include_url=False, include_input=False)[0]
        what, said = error["type"], error["msg"]
        if what == "json_invalid":
            raise BadRequest("the body is no JSON") from None
        if what == "unsupported_parameter":
            name = error["ctx"]["name"]
            raise BadRequest(said, name, code=what) from None
        if not error["loc"]:
            raise BadRequest("the body must be a JSON object") from None
        param = str(error["loc"][0])
        if what == "extra_forbidden":
            raise BadRequest(f"{param!r} is unknown here: leave it out", param, code="unknown_parameter") from None
        raise BadRequest(f"{param}: {said[:1].lower()}{said[1:]}", param) from None


def completion(body: CompletionBody, tokenizer: Any, stop_tokens: Sequence[int], limits: Limits) -> Asked:
    """What a body of /v1/completions asks for. BadRequest: what is wrong with it."""
    prompts = [prompt_of(one, tokenizer) for one in body.prompts]
    return asked(body, prompts, stop_tokens, (), limits, body.max_tokens, 16)


def chat(body: ChatBody, template: ChatTemplate, limits: Limits) -> Asked:
    """What a body of /v1/chat/completions asks for. BadRequest: what is wrong with it."""
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    dropped = 0
    try:
        messages = messages_of([message.table() for message in body.messages])
        if body.truncation == "auto":  # as in `lm chat`: no more than half the context is kept free for the answer
            room = min(most or limits.max_tokens, limits.context_length // 2)
            prompt, dropped = template.fit(messages, limits.context_length - room)
        else:
            prompt = template.prompt(messages)
    except ValueError as error:
        raise BadRequest(str(error), "messages") from None
    return asked(body, [prompt], template.stop_tokens, template.stop, limits, most, None, dropped)


def asked(
    body: Body,
    prompts: list[list[int]],
    stop_tokens: Sequence[int],
    stop: Sequence[str],
    limits: Limits,
    most: int | None,
    default: int | None,
    dropped: int = 0,
) -> Asked:
    if body.model is not None and body.model != limits.model:
        raise BadRequest(
            f"there is no model {body.model!r}: it is {limits.model!r}", "model", status=404, code="model_not_found"
        )
    if most is not None and most > limits.max_tokens:
        raise BadRequest(f"max_tokens is {most}, and at most {limits.max_tokens} may be asked for", "max_tokens")
    if body.top_k is not None and body.top_k > limits.vocab_size:
        raise BadRequest(f"top_k is {body.top_k}, and the vocabulary has {limits.vocab_size} tokens", "top_k")
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options goes with stream true", "stream_options")
    room = []
    for ids in prompts:
        left = limits.context_length - len(ids)
        wanted = min(default or limits.max_tokens, limits.max_tokens, max(1, left)) if most is None else most
        if wanted > left:
            raise BadRequest(
                f"the context is {limits.context_length} tokens, and the prompt has {len(ids)} and max_tokens is {wanted}: "
                f"shorten one of them",
                "messages" if isinstance(body, ChatBody) else "prompt",
                code="context_length_exceeded",
            )
        room.append(wanted)
    temperature = 1.0 if body.temperature is None else body.temperature
    penalty = 1.0 if body.repetition_penalty is None else body.repetition_penalty
    return Asked(
        prompts,
        body.n or 1,
        room,
        Sampling(temperature, body.top_k, body.top_p, body.min_p, penalty),
        body.seed,
        list(stop_tokens),
        [*stop, *body.stops],
        bool(body.stream),
        bool(body.stream_options and body.stream_options.include_usage),
        dropped,
    )


def prompt_of(one: str | list[int], tokenizer: Any) -> list[int]:
    """The ids of a prompt, which is text or ids."""
    ids = prompt_ids(tokenizer, one) if isinstance(one, str) else one
    bad = next((number for number in ids if number >= tokenizer.n_vocab), None)
    if bad is not None:
        raise BadRequest(f"token id {bad} is not in the vocabulary of {tokenizer.n_vocab}", "prompt")
    if not ids:
        raise BadRequest("the prompt has no tokens: give it some text", "prompt")
    return ids
