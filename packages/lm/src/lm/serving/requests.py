"""Bodies of /v1/completions and /v1/chat/completions as sequences to continue."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lm.chat_template import ChatTemplate
from lm.extras import MissingExtra
from lm.generation.sampling import Constraint, Sampling
from lm.serving.bodies import BadRequest, Body, ChatBody, CompletionBody, Conversation, NamedTool, ResponseFormat
from lm.serving.engine import Job, Piece
from lm.serving.grammar import Grammars, Minimum
from lm.serving.tools import grammar_of, render_tools_as_text
from lm.special_tokens import prompt_ids

TOO_LONG = "context_length_exceeded"  # the code of an error
SAMPLING = frozenset(Sampling.__dataclass_fields__) - {"logit_bias"}
MakeConstraint = Callable[[], Constraint]
THINK, THOUGHT = "<think>", "</think>"  # around the thoughts of a model, before its text


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
    """The means of reading a request: the limits, the chat template, the grammars, and the tokens that end a text."""

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
