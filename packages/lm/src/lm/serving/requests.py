"""Bodies of /v1/completions and /v1/chat/completions, checked by pydantic, as sequences to continue.

Every setting is used or refused by its name; only those that do not change the answer are ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from lm.chat_template import ROLES, ChatTemplate, Message
from lm.extras import MissingExtra
from lm.generation.sampling import Constraint, Sampling
from lm.serving.engine import Job, Piece
from lm.serving.grammar import Grammars, Minimum
from lm.serving.tools import grammar_of, render_tools_as_text
from lm.special_tokens import prompt_ids

MOST_STOPS, MOST_CHOICES, MOST_TOP_LOGPROBS, MOST_TOOLS = 4, 16, 20, 128
TOOL, TOO_LONG = "tool", "context_length_exceeded"  # the role of an answer to a call; the code of an error
SAMPLING = frozenset(Sampling.__dataclass_fields__) - {"logit_bias"}
FunctionName = Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
TokenId = Annotated[int, Field(ge=0)]
Stop = Annotated[str, Field(min_length=1)]
B = TypeVar("B", bound=BaseModel)
MakeConstraint = Callable[[], Constraint]
THINK, THOUGHT = "<think>", "</think>"  # around the thoughts of a model, before its text


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

    model_config = ConfigDict(strict=True, extra="forbid")


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
            return "lark", "start: " + " | ".join(json.dumps(one, ensure_ascii=False) for one in value)
        if name == "json_schema":
            return "json", value if isinstance(value, str) else json.dumps(value)
        return {"grammar": "lark"}.get(name, name), value


class Body(BaseModel):
    """Parameters of all kinds of requests; null stands for an absent one."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    # Parameters accepted at these values only, and parameters that do not change the answer.
    only: ClassVar[dict[str, tuple[Any, ...]]] = {"best_of": (1,), "suffix": ("",)}
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
        for name, harmless in cls.only.items():
            if body.get(name) not in (None, *harmless):
                error = "unsupported_parameter", "{name} is not supported: leave it out"
                raise PydanticCustomError(*error, {"name": name})
        return {name: value for name, value in body.items() if name not in cls.only and name not in cls.ignored}


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
    """A tool: only functions are supported."""

    type: Literal["function"]
    function: Function


class NamedTool(Strict):
    """The tool that has to be called."""

    type: Literal["function"]
    function: Function


class JsonSchema(Part):
    """A schema with its name."""

    name: str = ""
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(Strict):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Conversation(BaseModel):
    """The part of a body that makes a prompt of a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None  # a name in the template, as gpt-oss has it


class ChatBody(Conversation, Body):
    """A body of /v1/chat/completions. truncation "auto" leaves out the oldest messages where they do not fit."""

    only: ClassVar[dict[str, tuple[Any, ...]]] = {
        **{"functions": ([],), "function_call": ("none",), "modalities": (["text"],)},
        **dict.fromkeys(("prediction", "audio", "web_search_options", "verbosity"), ()),
    }

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1)
    truncation: Literal["auto", "disabled"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True)
class Limits:
    """The model's name, its vocabulary and context, the most new tokens of a sequence, and the names of adapters."""

    model: str
    vocab_size: int
    context_length: int
    max_tokens: int
    adapters: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        return [self.model, *self.adapters]

    def adapter(self, name: str | None) -> str:
        """The adapters of that name, "" for the model itself. BadRequest: there is no such model."""
        if name not in (None, *self.names):
            names = " or ".join(map(repr, self.names))
            no_such = f"there is no model {name!r}: it is {names}"
            raise BadRequest(no_such, "model", status=404, code="model_not_found", kind="not_found_error")
        return name if name in self.adapters and name is not None else ""


@dataclass(frozen=True)
class Served:
    """What a request is read with: the limits, the chat template, the grammars, and the tokens that end a text."""

    limits: Limits
    template: ChatTemplate
    grammars: Grammars
    stop_tokens: Sequence[int]

    @property
    def tokenizer(self) -> Any:
        return self.template.tokenizer


@dataclass(frozen=True)
class GenerationRequest:
    """Prompts, the number of continuations of each, and their settings."""

    prompts: list[list[int]]
    max_new_tokens: list[int]  # of each prompt's continuations
    settings: dict[str, Any]  # arguments of Scheduler.add that all have in common
    stop: list[str]
    n: int = 1  # continuations of each prompt
    seed: int | None = None  # of the first continuation; the next has the next number
    stream: bool = False
    usage: bool = False  # True if a stream ends with the number of tokens
    min_tokens: int = 0  # nothing ends a text before
    skip_ids: Collection[int] = ()  # tokens that are not part of the text
    echoes: Sequence[str] = ()  # the text of each prompt, if answers begin with it
    dropped: int = 0  # messages that were left out because they do not fit
    constraint: MakeConstraint | None = None  # makes that of a text
    has_tools: bool = False  # True if the answer may call them
    most_calls: int | None = None
    return_token_ids: bool = False  # beside the text, those of the prompt too
    adapter: str = ""  # name of the adapters, "" for the model itself
    top_logprobs: int | None = None  # alternatives of each token of an answer; None: no logprobs
    prompt_logprobs: int | None = None  # those of each token of a prompt
    thoughts: Literal["none", "may come", "have begun"] = "none"  # before the text of an answer

    def jobs(self, tell: Callable[[int, Sequence[Piece]], None]) -> list[Job]:
        """A job for each text; tell(index, pieces) is called with its pieces."""
        return [
            Job(
                ids,
                {
                    **self.settings,
                    "max_new_tokens": self.max_new_tokens[number],
                    "seed": None if self.seed is None else self.seed + sample,
                    "constraint": None if self.constraint is None else self.constraint(),
                },
                functools.partial(tell, number * self.n + sample),
                self.stop,
                min_tokens=self.min_tokens,
                skip_ids=self.skip_ids,
                echo=self.echoes[number] if self.echoes else "",
                model=self.adapter,
            )
            for number, ids in enumerate(self.prompts)
            for sample in range(self.n)
        ]


def parse(kind: type[B], body: bytes) -> B:
    """The checked body. BadRequest: a mistake in it."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as failed:
        raise mistake(failed) from None


def mistake(failed: ValidationError) -> BadRequest:
    """Return pydantic's first error as a sentence with the path of the value and the value."""
    errors = failed.errors(include_url=False)
    kind, location = errors[0]["type"], errors[0]["loc"]
    if kind == "json_invalid":
        return BadRequest("the body is not JSON")
    if kind == "unsupported_parameter":
        return BadRequest(errors[0]["msg"], errors[0]["ctx"]["name"], code=kind)
    if not location:
        return BadRequest("the body must be a JSON object")
    param = str(location[0])
    # A union has an error for each of its members: the deepest, of a member that has the type of the value.
    of_param = [error for error in errors if error["loc"][0] == param]
    error = max(of_param, key=lambda error: (not error["type"].endswith("_type"), len(error["loc"])))
    path, value = param, json.dumps(error["input"], ensure_ascii=False, default=str)
    for part in error["loc"][1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif re.fullmatch("[a-z_]+", part) and part not in ("str", "int", "bool", "float"):  # members of a union
            path += f".{part}"
    if error["type"] == "extra_forbidden":
        return BadRequest(f"{path!r} is unknown here: leave it out", param, code="unknown_parameter")
    if error["type"] == "missing":
        return BadRequest(f"{path} is missing", param)
    # Of a value of a wrong type: what each member of the union expects.
    beside = [one["msg"] for one in of_param if one["loc"][:-1] == error["loc"][:-1]]
    messages = dict.fromkeys([error["msg"], *(beside if error["type"].endswith("_type") else ())])
    expected = " or ".join(re.sub(r"^.* should (be |have )?|after validation.*$", "", one).strip() for one in messages)
    return BadRequest(f"{path}: expected {expected}, got {value if len(value) < 80 else value[:76] + ' …'}", param)


def completion(body: CompletionBody, served: Served) -> GenerationRequest:
    """The request of a body of /v1/completions. BadRequest: the first mistake in it."""
    prompts = [prompt_of(prompt, served.tokenizer) for prompt in body.prompts]
    if body.max_tokens == 0 and not body.echo:
        raise BadRequest("max_tokens: expected at least 1, or echo true, got 0", "max_tokens")
    constraint = constraint_of(body, None, served.grammars)
    request = to_request(body, prompts, served, served.stop_tokens, (), body.max_tokens, 16, body.logprobs, constraint)
    if body.echo and body.logprobs is not None:
        request.settings["score_prompt"] = True
    texts = [prompt if isinstance(prompt, str) else served.tokenizer.decode(prompt) for prompt in body.prompts]
    return dataclasses.replace(request, echoes=texts if body.echo else ())


def chat(body: ChatBody, served: Served) -> GenerationRequest:
    """The request of a body of /v1/chat/completions. BadRequest: the first mistake in it."""
    if (most := body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens) == 0:
        raise BadRequest("max_tokens: expected at least 1, got 0", "max_tokens")
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs goes with logprobs true", "top_logprobs")
    limits, template = served.limits, served.template
    # The form of the answer: a call of a tool, a schema, or free.
    must_call = body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)
    if must_call:
        constraint: MakeConstraint | None = call_constraint(body, template, served.grammars)
    else:
        constraint = constraint_of(body, body.response_format, served.grammars)
    # The prompt, by the model's template; with truncation the oldest messages are left out where they do not fit.
    room = min(most or limits.max_tokens, limits.context_length // 2) if body.truncation == "auto" else None
    prompt, dropped, has_tools = chat_prompt(body, template, None if room is None else limits.context_length - room)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    stops = template.stop_tokens, template.stop
    request = to_request(body, [prompt], served, *stops, most, limits.max_tokens, logprobs, constraint)
    begun = template.tokenizer.decode(prompt[-8:]).rstrip().endswith(THINK)
    thoughts: Any = "have begun" if begun else "may come" if THOUGHT in template.source else "none"
    marks = [template.tokenizer.special_tokens.get(mark) for mark in (THINK, THOUGHT)] if thoughts != "none" else []
    return dataclasses.replace(
        request,
        dropped=dropped,
        has_tools=has_tools,
        skip_ids=() if has_tools else {*request.skip_ids}.difference(marks),  # which may mark a call, or thoughts
        most_calls=1 if body.parallel_tool_calls is False else None,
        thoughts=thoughts,
    )


def chat_prompt(body: Conversation, template: ChatTemplate, most: int | None = None) -> tuple[list[int], int, bool]:
    """The prompt of a conversation, the number of messages that `most` tokens leave out, True if it has tools.

    As in `lm chat`, at most half the context stays free for the answer.
    """
    effort = {} if body.reasoning_effort is None else {"reasoning_effort": body.reasoning_effort}
    template = template.with_names({**(body.chat_template_kwargs or {}), **effort})
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or []] if body.tool_choice != "none" else []
    messages = [message.message(number) for number, message in enumerate(body.messages or ())]
    try:
        messages, described_tools = render_tools_as_text(messages, tools, template)
        if most is None:
            return template.prompt(messages, described_tools), 0, bool(tools)
        return *template.fit(messages, most, described_tools), bool(tools)
    except ValueError as error:
        raise BadRequest(str(error), "messages") from None


def constraint_of(body: Body, form: ResponseFormat | None, grammars: Grammars) -> MakeConstraint | None:
    """Return what makes the constraint of each answer; None if its form is free."""
    if body.structured_outputs is not None:
        if form is not None and form.type != "text":
            raise BadRequest("structured_outputs does not go with response_format: leave one out", "structured_outputs")
        kind, text = body.structured_outputs.form()
        return constraint_maker(grammars, kind, text, "structured_outputs")
    if form is None or form.type == "text":
        return None
    if form.type == "json_schema" and form.json_schema is None:
        raise BadRequest("response_format.json_schema is missing", "response_format")
    schema = {"type": "object"} if form.json_schema is None else form.json_schema.json_schema
    return constraint_maker(grammars, "json", json.dumps(schema), "response_format")


def call_constraint(body: ChatBody, template: ChatTemplate, grammars: Grammars) -> MakeConstraint:
    """Return what makes the constraint by which an answer calls a tool: the named one, or any."""
    functions = [tool.function.model_dump() for tool in body.tools or []]
    several = body.parallel_tool_calls is not False
    if isinstance(body.tool_choice, NamedTool):
        name, several = body.tool_choice.function.name, False
        functions = [function for function in functions if function["name"] == name]
        if not functions:
            raise BadRequest(f"tool_choice: there is no tool {name!r} in tools", "tool_choice")
    if not functions:
        raise BadRequest("tool_choice: there are no tools to choose from", "tool_choice")
    return constraint_maker(grammars, "lark", grammar_of(functions, template, several=several), "tool_choice")


def constraint_maker(grammars: Grammars, kind: str, text: str, param: str) -> MakeConstraint:
    """Return what copies a constraint for each text; its errors come here, before the answer begins."""
    try:
        return grammars.grammar(kind, text, param).copy
    except (ValueError, MissingExtra) as error:
        raise BadRequest(f"{param}: {error}", param) from None


def to_request(
    body: Body,
    prompts: list[list[int]],
    served: Served,
    stop_tokens: Sequence[int],
    stop: Sequence[str],
    most: int | None,
    default: int,
    logprobs: int | None,
    constraint: MakeConstraint | None,
) -> GenerationRequest:
    """The request of what all bodies have in common; `most` new tokens, or as many of `default` as have room."""
    # Settings that this model cannot have.
    limits = served.limits
    adapter = limits.adapter(body.model)
    if most is not None and most > limits.max_tokens:
        raise BadRequest(f"max_tokens: expected at most {limits.max_tokens}, got {most}", "max_tokens")
    if (body.top_k or 0) > limits.vocab_size:
        raise BadRequest(f"top_k: expected at most {limits.vocab_size}, the vocabulary, got {body.top_k}", "top_k")
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options goes with stream true", "stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise BadRequest("prompt_logprobs does not go with stream true: leave one out", "prompt_logprobs")
    for name in ("ignore_eos", "min_tokens"):
        if constraint is not None and getattr(body, name):
            raise BadRequest(f"{name} does not go with an answer of a given form: leave it out", name)
    # Each prompt has to fit the context together with its new tokens.
    max_new_tokens = []
    for ids in prompts:
        room = limits.context_length - len(ids)
        new_tokens = min(default, limits.max_tokens, max(1, room)) if most is None else most
        if new_tokens > room:
            message = f"the context is {limits.context_length} tokens, the prompt has {len(ids)} tokens and max_tokens "
            message += f"is {new_tokens}: shorten one of them"
            raise BadRequest(message, "messages" if isinstance(body, ChatBody) else "prompt", code=TOO_LONG)
        max_new_tokens.append(new_tokens)
    if (min_tokens := body.min_tokens or 0) > min(max_new_tokens):
        raise BadRequest(f"min_tokens: expected at most {min(max_new_tokens)}, got {min_tokens}", "min_tokens")
    # Tokens that end a text, and those whose logits are raised or lowered.
    bias = {token_id("logit_bias", name, limits): value for name, value in (body.logit_bias or {}).items()}
    own_stops = [token_id("stop_token_ids", token, limits) for token in body.stop_token_ids or ()]
    stops = [*own_stops, *(() if body.ignore_eos else stop_tokens), *(served.grammars.stops if constraint else ())]
    if min_tokens and len(set(stops)) >= limits.vocab_size:
        raise BadRequest("min_tokens does not go with stop_token_ids of the whole vocabulary", "min_tokens")
    sampling = {name: value for name in SAMPLING if (value := getattr(body, name)) is not None}
    if (body.top_k or 0) < 1:
        sampling.pop("top_k", None)
    strings = [body.stop] if isinstance(body.stop, str) else body.stop or []
    # One number of alternatives serves both a prompt and its answer: each takes as many of them as it asked for.
    tops = [top for top in (logprobs, body.prompt_logprobs) if top is not None]
    settings = {"sampling": Sampling(**sampling, logit_bias=bias), "stop_tokens": stops}
    settings |= {"top_logprobs": max(tops, default=None), "score_prompt": body.prompt_logprobs is not None}
    return GenerationRequest(
        prompts,
        max_new_tokens,
        settings,
        [*(() if body.ignore_eos else stop), *strings],
        body.n or 1,
        body.seed,
        bool(body.stream),
        bool(body.stream_options and body.stream_options.include_usage),
        min_tokens,
        frozenset(served.tokenizer.special_tokens.values()) if body.skip_special_tokens else (),
        constraint=(lambda: Minimum(min_tokens, stops)) if min_tokens else constraint,
        return_token_ids=bool(body.return_token_ids),
        adapter=adapter,
        top_logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
    )


def token_id(name: str, value: int | str, limits: Limits) -> int:
    if not str(value).isdecimal() or int(value) >= limits.vocab_size:
        raise BadRequest(f"{name}: expected an id below {limits.vocab_size}, got {str(value)[:20]}", name)
    return int(value)


def prompt_of(prompt: str | list[int], tokenizer: Any) -> list[int]:
    """The ids of a prompt, which is text or ids."""
    ids = prompt_ids(tokenizer, prompt) if isinstance(prompt, str) else prompt
    if (largest := max(ids, default=0)) >= tokenizer.n_vocab:
        raise BadRequest(f"token id {largest} is not in the vocabulary of {tokenizer.n_vocab}", "prompt")
    if not ids:
        raise BadRequest("the prompt has no tokens: give it some text", "prompt")
    return ids


def text_of(content: str | list[TextPart] | None) -> str:
    return "".join(part.text for part in content) if isinstance(content, list) else content or ""
