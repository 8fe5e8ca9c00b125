"""Bodies of requests, checked by pydantic: a setting that changes the answer is used, or refused by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from lm.chat_template import ROLES, Message

MOST_STOPS, MOST_CHOICES, MOST_TOP_LOGPROBS, MOST_TOOLS = 4, 16, 20, 128
TOOL = "tool"  # the role of an answer to a call
FunctionName = Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
TokenId = Annotated[int, Field(ge=0)]
Stop = Annotated[str, Field(min_length=1)]
B = TypeVar("B", bound=BaseModel)


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


class Strict(BaseModel):
    """A part of a body, whose unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class StructuredOutputs(Strict):
    """The form of an answer as vLLM's clients ask for it: one of these."""

    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=1024)] | None = None
    grammar: str | None = None  # in llguidance's dialect of Lark
    json_schema: dict[str, Any] | str | None = Field(None, alias="json")

    def form(self) -> tuple[str, str]:
        """The one that is set: its kind, and the text of its grammar."""
        requested = [(name, value) for name, value in self if value is not None]
        if len(requested) != 1:
            raise BadRequest("structured_outputs: expected one of regex, choice, grammar, json", "structured_outputs")
        ((name, value),) = requested
        if name == "choice":
            return "grammar", "start: " + " | ".join(json.dumps(one, ensure_ascii=False) for one in value)
        if name == "json_schema":
            return "schema", value if isinstance(value, str) else json.dumps(value)
        return {"regex": "expression"}.get(name, name), value


class Body(Strict):
    """Parameters of all kinds of requests; null stands for an absent one."""

    # Some parameters are accepted at these values only, and others do not change the answer.
    only: ClassVar[dict[str, tuple[Any, ...]]] = {"best_of": (1,), "suffix": ("",)}
    params: ClassVar[dict[str, str]] = {}  # names of /v1/chat/completions, and the body's own
    ignored: ClassVar[frozenset[str]] = frozenset(
        ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
    )

    model: str | None = None
    max_tokens: int | None = Field(None, ge=0)
    min_tokens: int | None = Field(None, ge=0)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)  # below 1: off, as vLLM and llama.cpp write it
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=1e-3, le=1e3)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 2 * MOST_CHOICES)
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    structured_outputs: StructuredOutputs | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def refuse_unsupported(cls, body: Any) -> Any:
        """Drop parameters that have no effect, and refuse unsupported ones by name."""
        if not isinstance(body, dict):
            return body
        body = {name: value for name, value in body.items() if value is not None and name not in cls.ignored}
        for name in cls.only.keys() & body:
            if body.pop(name) not in cls.only[name]:
                error = "unsupported_parameter", "{name} is not supported: leave it out"
                raise PydanticCustomError(*error, {"name": name})
        return body


class CompletionBody(Body):
    """A body of /v1/completions."""

    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    prompt: (
        str
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[str | list[TokenId]], Field(min_length=1, max_length=MOST_CHOICES)]
    )

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return [self.prompt] if is_one else self.prompt  # type: ignore[list-item, return-value]


class TextPart(Part):
    """A part of a content: only text is supported."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class CalledFunction(Part):
    """The function of a call."""

    name: str
    arguments: str


class ToolCall(Part):
    """A call of a tool in an earlier answer of the assistant."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction

    def as_templates_read_it(self, number: int) -> dict[str, Any]:
        """The call with its arguments as an object, which templates write as JSON again."""
        try:
            arguments = json.loads(self.function.arguments)
        except ValueError:
            message = f"messages[{number}]: the arguments of {self.function.name!r} are not JSON"
            raise BadRequest(message, "messages") from None
        return {"id": self.id, "type": "function", "function": {"name": self.function.name, "arguments": arguments}}


class ChatMessage(Part):
    """A message, whose content may come in parts."""

    role: str
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def message(self, number: int) -> Message:
        """The message; its `more` has the fields that templates read of tools."""
        role = "system" if self.role == "developer" else self.role  # the system's name in OpenAI's newer models
        if role not in (*ROLES, TOOL):
            roles = ", ".join((*ROLES, TOOL))
            raise BadRequest(f"messages[{number}].role: expected one of {roles}, got {role!r}", "messages")
        if role == "system" and number:
            raise BadRequest(f"messages[{number}] has the role 'system', which only the first may have", "messages")
        if self.content is None and not self.tool_calls:
            raise BadRequest(f"messages[{number}] has no content: expected a string", "messages")
        more: dict[str, Any] = {}
        if self.tool_calls:
            if role != "assistant":
                raise BadRequest(f"messages[{number}] has tool_calls, which are the assistant's", "messages")
            more["tool_calls"] = [call.as_templates_read_it(number) for call in self.tool_calls]
        if role == TOOL:
            more |= {"tool_call_id": self.tool_call_id or "", "name": self.name or ""}
        return Message(role, text_of(self.content), more)


class Function(Part):
    """A function that may be called."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Part):
    """A tool, or the one to call: a function, in its own object or beside the type as newer interfaces have it."""

    type: Literal["function", "custom"] = "function"
    function: Function

    @model_validator(mode="before")
    @classmethod
    def nest(cls, tool: Any) -> Any:
        """The form of /v1/chat/completions."""
        if not isinstance(tool, dict) or "name" not in tool:
            return tool
        parameters = tool.get("parameters", tool.get("input_schema"))
        return {"type": tool.get("type", "function"), "function": {**tool, "parameters": parameters}}

    def described(self) -> dict[str, Any]:
        """The tool as chat templates read it."""
        return {"type": "function", "function": self.function.model_dump(exclude_none=True)}


class JsonSchema(Part):
    """A schema with its name."""

    name: str = ""
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(Strict):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Conversation(Strict):
    """The part of a body that makes a prompt of a conversation."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None  # a name in the template, as gpt-oss has it


class ChatBody(Conversation, Body):
    """A body of /v1/chat/completions. truncation "auto" leaves out the oldest messages where they do not fit."""

    only: ClassVar[dict[str, tuple[Any, ...]]] = {
        "functions": ([],), "function_call": ("none",), "modalities": (["text"],)
    }  # fmt: skip

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    truncation: Literal["auto", "disabled"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: bool | None = None


def parse(kind: type[B], body: bytes | dict[str, Any]) -> B:
    """The checked body. BadRequest: a mistake in it."""
    try:
        return kind.model_validate(body) if isinstance(body, dict) else kind.model_validate_json(body)
    except ValidationError as failed:
        raise mistake(failed) from None


def mistake(failed: ValidationError) -> BadRequest:
    """Return pydantic's first error as a sentence with the path of the value and the value."""
    errors = failed.errors(include_url=False)
    kind, location = errors[0]["type"], errors[0]["loc"]
    if kind == "unsupported_parameter":
        return BadRequest(errors[0]["msg"], errors[0]["ctx"]["name"], code=kind)
    if not location:
        return BadRequest("the body is not JSON" if kind == "json_invalid" else "the body must be a JSON object")
    param = str(location[0])
    # A union has an error for each of its members: the deepest one is of the member with the value's type.
    of_param = [error for error in errors if error["loc"][0] == param]
    error = max(of_param, key=lambda error: (not error["type"].endswith("_type"), len(error["loc"])))
    kind, value = error["type"], json.dumps(error["input"], ensure_ascii=False, default=str)
    # Names of a union's members do not belong to the path; fields, in lower case, do.
    parts = [part for part in error["loc"][1:] if isinstance(part, int) or re.fullmatch("(?!str$)[a-z_]+", part)]
    path = param + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    if kind == "extra_forbidden":
        return BadRequest(f"{path!r} is unknown here: leave it out", param, code="unknown_parameter")
    if kind == "missing":
        return BadRequest(f"{path} is missing", param)
    expected = re.sub("^.* should (be |have )?| after validation.*$", "", error["msg"])
    return BadRequest(f"{path}: expected {expected}, got {value[:80]}", param)


def text_of(content: str | list[TextPart] | None) -> str:
    return "".join(part.text for part in content) if isinstance(content, list) else content or ""
