"""Bodies of /v1/completions and /v1/chat/completions, checked by pydantic, as sequences to continue.

Every setting is used or refused by its name; only those that do not change the answer are ignored.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from lm.chat_template import ROLES, ChatTemplate, Message
from lm.extras import MissingExtra
from lm.generation.sampling import Constraint, Sampling
from lm.serving.grammar import Grammars
from lm.serving.tools import format_of, grammar_of
from lm.special_tokens import prompt_ids

MOST_STOPS, MOST_CHOICES, MOST_TOP_LOGPROBS, MOST_TOOLS = 4, 16, 20, 128
# Parameters accepted at these values only.
ONLY_DEFAULT: dict[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "suffix": (None, ""),
    "echo": (None, False),
    "functions": (None, []),
    "function_call": (None, "none"),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "audio": (None,),
    "web_search_options": (None,),
    "reasoning_effort": (None,),
    "verbosity": (None,),
}
# Parameters that do not change the answer.
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")

TOOL = "tool"  # the role of an answer to a call
TokenId = Annotated[int, Field(ge=0)]
Stop = Annotated[str, Field(min_length=1)]
B = TypeVar("B", bound="Body")


class BadRequest(ValueError):
    """A mistake in a request, with its HTTP status and the fields of OpenAI's error object."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None, kind: str = ""
    ) -> None:
        super().__init__(message)
        self.param, self.status, self.code, self.kind = param, status, code, kind or "invalid_request_error"

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


class Part(BaseModel):
    """A part of a body, whose unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class StreamOptions(Part):
    """Contents of a stream beside its text."""

    include_usage: bool | None = None


class Body(BaseModel):
    """Parameters of both kinds of requests; null stands for an absent one."""

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
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None

    @model_validator(mode="before")
    @classmethod
    def refuse_unsupported(cls, body: Any) -> Any:
        """Drop parameters that have no effect, and refuse unsupported ones by name."""
        if not isinstance(body, dict):
            return body
        for name, harmless in ONLY_DEFAULT.items():
            if name in body and body[name] not in harmless:
                raise PydanticCustomError(
                    "unsupported_parameter", "{name} is not supported: leave it out", {"name": name}
                )
        return {name: value for name, value in body.items() if name not in ONLY_DEFAULT and name not in IGNORED}

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionBody(Body):
    """A body of /v1/completions."""

    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
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


class TextPart(Part):
    """A part of a content: only text is supported."""

    type: Literal["text"]
    text: str


class Called(Part):
    """The function of a call."""

    name: str
    arguments: str


class ToolCall(Part):
    """A call of a tool, in what the assistant said before."""

    id: str = ""
    type: Literal["function"] = "function"
    function: Called


class ChatMessage(Part):
    """A message, whose content may come in parts."""

    role: str
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    def message(self, number: int) -> Message:
        """The message; its `more` holds the fields that templates read of tools."""
        role = "system" if self.role == "developer" else self.role  # what OpenAI's newer models call the system
        if role not in (*ROLES, TOOL):
            raise BadRequest(
                f"messages[{number}] has the role {role!r}: use one of {', '.join((*ROLES, TOOL))}", "messages"
            )
        if role == "system" and number:
            raise BadRequest(f"messages[{number}] has the role 'system', which only the first may have", "messages")
        if self.content is None and not self.tool_calls:
            raise BadRequest(f"messages[{number}] must have a role and a content, both strings", "messages")
        more: dict[str, Any] = {}
        if self.tool_calls:
            if role != "assistant":
                raise BadRequest(f"messages[{number}] has tool_calls, which are the assistant's", "messages")
            more["tool_calls"] = [self.call(one, number) for one in self.tool_calls]
        if role == TOOL:
            more |= {"tool_call_id": self.tool_call_id or "", "name": self.name or ""}
        return Message(role, self.text, more)

    def call(self, one: ToolCall, number: int) -> dict[str, Any]:
        try:  # as templates write them out again
            arguments = json.loads(one.function.arguments)
        except ValueError:
            raise BadRequest(
                f"messages[{number}]: the arguments of {one.function.name!r} are no JSON", "messages"
            ) from None
        return {"id": one.id, "type": "function", "function": {"name": one.function.name, "arguments": arguments}}


class Function(Part):
    """A function that may be called."""

    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Part):
    """A tool: only functions are supported."""

    type: Literal["function"]
    function: Function


class NamedTool(BaseModel):
    """The tool that has to be called."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["function"]
    function: Function


class JsonSchema(Part):
    """A schema with its name."""

    name: str = ""
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """The form of an answer."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatBody(Body):
    """A body of /v1/chat/completions. truncation "auto" leaves out the oldest messages where they do not fit."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    truncation: Literal["auto", "disabled"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True)
class GenerationRequest:
    """Prompts, the number of continuations of each, and their settings."""

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
    top_logprobs: int | None = None  # number of alternatives beside each token; None: no logprobs
    constraint: Callable[[], Constraint] | None = None  # a new one for each text
    has_tools: bool = False  # whether its answer may call them
    most_calls: int | None = None


@dataclass(frozen=True)
class Limits:
    """The model's name, its vocabulary and context, and the most new tokens of a sequence."""

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
        what, message = error["type"], error["msg"]
        if what == "json_invalid":
            raise BadRequest("the body is no JSON") from None
        if what == "unsupported_parameter":
            name = error["ctx"]["name"]
            raise BadRequest(message, name, code=what) from None
        if not error["loc"]:
            raise BadRequest("the body must be a JSON object") from None
        param = str(error["loc"][0])
        if what == "extra_forbidden":
            raise BadRequest(f"{param!r} is unknown here: leave it out", param, code="unknown_parameter") from None
        raise BadRequest(f"{param}: {message[:1].lower()}{message[1:]}", param) from None


def completion(body: CompletionBody, tokenizer: Any, stop_tokens: Sequence[int], limits: Limits) -> GenerationRequest:
    """The request of a body of /v1/completions. BadRequest: the first mistake in it."""
    prompts = [prompt_of(one, tokenizer) for one in body.prompts]
    request = to_request(body, prompts, stop_tokens, (), limits, body.max_tokens, 16)
    return dataclasses.replace(request, top_logprobs=body.logprobs)


def chat(body: ChatBody, template: ChatTemplate, limits: Limits, grammars: Grammars) -> GenerationRequest:
    """The request of a body of /v1/chat/completions. BadRequest: the first mistake in it."""
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs goes with logprobs true", "top_logprobs")
    tools = [one.model_dump(exclude_none=True) for one in body.tools or []] if body.tool_choice != "none" else []
    if tools and format_of(template.source) is None:
        raise BadRequest(
            "the model's chat template has no tools: leave them out", "tools", code="unsupported_parameter"
        )
    constraint = constraint_of(body.response_format, grammars)
    if body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool):
        constraint = call_constraint(body, template, grammars)
    messages = [message.message(number) for number, message in enumerate(body.messages)]
    dropped = 0
    try:
        if body.truncation == "auto":  # as in `lm chat`: no more than half the context is kept free for the answer
            room = min(most or limits.max_tokens, limits.context_length // 2)
            prompt, dropped = template.fit(messages, limits.context_length - room, tools or None)
        else:
            prompt = template.prompt(messages, tools or None)
    except ValueError as error:
        raise BadRequest(str(error), "messages") from None
    request = to_request(body, [prompt], template.stop_tokens, template.stop, limits, most, None, dropped)
    return dataclasses.replace(
        request,
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        constraint=constraint,
        has_tools=bool(tools),
        most_calls=1 if body.parallel_tool_calls is False else None,
    )


def constraint_of(form: ResponseFormat | None, grammars: Grammars) -> Callable[[], Constraint] | None:
    """Makes the constraint of each answer; None if its form is free."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_schema" and form.json_schema is None:
        raise BadRequest("response_format: json_schema is missing", "response_format")
    schema = {"type": "object"} if form.json_schema is None else form.json_schema.json_schema
    try:
        grammars.json(schema)  # what is wrong with it is said before the answer begins
    except (ValueError, MissingExtra) as error:
        raise BadRequest(f"response_format: {error}", "response_format") from None
    return lambda: grammars.json(schema)


def call_constraint(body: ChatBody, template: ChatTemplate, grammars: Grammars) -> Callable[[], Constraint]:
    """Makes the constraint by which an answer calls a tool: the named one, or any."""
    functions = [tool.function.model_dump() for tool in body.tools or []]
    several = body.parallel_tool_calls is not False
    if isinstance(body.tool_choice, NamedTool):
        name, several = body.tool_choice.function.name, False
        functions = [one for one in functions if one["name"] == name]
        if not functions:
            raise BadRequest(f"tool_choice: there is no tool {name!r} in tools", "tool_choice")
    if not functions:
        raise BadRequest("tool_choice: there are no tools to choose from", "tool_choice")
    grammar = grammar_of(functions, template, several=several)
    try:
        grammars.lark(grammar)
    except (ValueError, MissingExtra) as error:
        raise BadRequest(f"tool_choice: {error}", "tool_choice") from None
    return lambda: grammars.lark(grammar)


def to_request(
    body: Body,
    prompts: list[list[int]],
    stop_tokens: Sequence[int],
    stop: Sequence[str],
    limits: Limits,
    most: int | None,
    default: int | None,
    dropped: int = 0,
) -> GenerationRequest:
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
        new_tokens = min(default or limits.max_tokens, limits.max_tokens, max(1, left)) if most is None else most
        if new_tokens > left:
            raise BadRequest(
                f"the context is {limits.context_length} tokens, and the prompt has {len(ids)} and max_tokens is "
                f"{new_tokens}: shorten one of them",
                "messages" if isinstance(body, ChatBody) else "prompt",
                code="context_length_exceeded",
            )
        room.append(new_tokens)
    bias = {}
    for name, value in (body.logit_bias or {}).items():
        if not name.isdecimal() or int(name) >= limits.vocab_size:
            raise BadRequest(f"logit_bias: {name[:20]!r} is no id of the {limits.vocab_size} tokens", "logit_bias")
        bias[int(name)] = value
    temperature = 1.0 if body.temperature is None else body.temperature
    penalty = 1.0 if body.repetition_penalty is None else body.repetition_penalty
    return GenerationRequest(
        prompts,
        body.n or 1,
        room,
        Sampling(
            temperature,
            body.top_k,
            body.top_p,
            body.min_p,
            penalty,
            body.presence_penalty or 0.0,
            body.frequency_penalty or 0.0,
            bias,
        ),
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
