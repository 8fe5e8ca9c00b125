"""Bodies of /v1/completions and /v1/chat/completions as sequences to continue."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lm.chat_template import ChatTemplate
from lm.extras import MissingExtra
from lm.generation.sampling import Constraint, Sampling
from lm.model import Transformer
from lm.serving.bodies import BadRequest, Body, ChatBody, CompletionBody, Conversation, ResponseFormat, Tool
from lm.serving.engine import Job, Piece
from lm.serving.grammar import Grammars, Minimum
from lm.serving.tools import grammar_of, render_tools_as_text
from lm.tokenizer import prompt_ids

TOO_LONG = "context_length_exceeded"  # the code of an error
SAMPLING = frozenset(Sampling.__dataclass_fields__) - {"logit_bias"}
MakeConstraint = Callable[[], Constraint]
THINK, THOUGHT = "<think>", "</think>"  # around the thoughts of a model, before its text


@dataclass(frozen=True)
class Served:
    """The model that is served, and the means of reading a request."""

    model: str  # its name
    models: Mapping[str, Transformer]  # with adapters by their names; "": the model itself
    context_length: int
    max_tokens: int  # the most new ones of a text
    template: ChatTemplate
    grammars: Grammars
    stop_tokens: Sequence[int]  # those that end a text outside a conversation

    @property
    def tokenizer(self) -> Any:
        return self.template.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.models[""].config.vocab_size

    @property
    def names(self) -> list[str]:
        return [name or self.model for name in self.models]

    def adapter(self, name: str | None) -> str:
        """The adapters of that name, "" for the model itself. BadRequest: there is no such model."""
        if name is None or name == self.model:
            return ""
        if name not in self.names:
            no_such = f"there is no model {name!r}: it is {' or '.join(map(repr, self.names))}"
            raise BadRequest(no_such, "model", status=404, code="model_not_found", kind="not_found_error")
        return name


@dataclass
class GenerationRequest:
    """Prompts, the number of continuations of each, and their settings."""

    body: Body
    prompts: list[list[int]]
    max_new_tokens: list[int]  # of each prompt's continuations
    settings: dict[str, Any]  # arguments of Scheduler.add that all have in common
    stop: list[str]
    constraint: MakeConstraint | None  # makes the constraint of a text
    adapter: str  # name of the adapters, "" for the model itself
    skip_ids: Collection[int]  # tokens that are not part of the text
    top_logprobs: int | None  # alternatives of each token of an answer; None: no logprobs
    echoes: Sequence[str] = ()  # the text of each prompt, if answers begin with it
    dropped: int = 0  # messages that were left out because they do not fit
    has_tools: bool = False  # True if the answer may call them
    most_calls: int | None = None
    thoughts: Literal["none", "may come", "have begun"] = "none"  # before the text of an answer

    @property
    def n(self) -> int:
        """Continuations of each prompt."""
        return self.body.n or 1

    def jobs(self, tell: Callable[[int, Sequence[Piece]], None]) -> list[Job]:
        """A job for each text; tell(index, pieces) is called with its pieces."""
        return [
            Job(
                ids,
                {
                    **self.settings,
                    "max_new_tokens": self.max_new_tokens[number],
                    "seed": None if self.body.seed is None else self.body.seed + sample,
                    "constraint": None if self.constraint is None else self.constraint(),
                },
                functools.partial(tell, number * self.n + sample),
                self.stop,
                min_tokens=self.body.min_tokens or 0,
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
    ends = served.stop_tokens, ()
    request = to_request(body, prompts, served, ends, body.max_tokens, 16, body.logprobs, constraint)
    if body.echo:
        request.settings["score_prompt"] |= body.logprobs is not None
        request.echoes = [one if isinstance(one, str) else served.tokenizer.decode(one) for one in body.prompts]
    return request


def chat(body: ChatBody, served: Served) -> GenerationRequest:
    """The request of a body of /v1/chat/completions. BadRequest: the first mistake in it."""
    if (most := body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens) == 0:
        raise BadRequest("max_tokens: expected at least 1, got 0", "max_tokens")
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs goes with logprobs true", "top_logprobs")
    template = served.template
    # The answer has the form of a call of a tool, the form of a schema, or any.
    if body.tool_choice == "required" or isinstance(body.tool_choice, Tool):
        constraint: MakeConstraint | None = call_constraint(body, template, served.grammars)
    else:
        constraint = constraint_of(body, body.response_format, served.grammars)
    # The model's template makes the prompt; truncation leaves out the oldest messages where they do not fit,
    # and as in `lm chat` at most half the context stays free for the answer.
    room = min(most or served.max_tokens, served.context_length // 2) if body.truncation == "auto" else None
    prompt, dropped, has_tools = chat_prompt(body, template, None if room is None else served.context_length - room)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    stops = template.stop_tokens, template.stop
    request = to_request(body, [prompt], served, stops, most, served.max_tokens, logprobs, constraint)
    request.dropped, request.has_tools = dropped, has_tools
    request.most_calls = 1 if body.parallel_tool_calls is False else None
    # Marks of thoughts and of calls are read in the text, so that they may not be left out as special tokens.
    if template.tokenizer.decode(prompt[-8:]).rstrip().endswith(THINK):
        request.thoughts = "have begun"
    elif THOUGHT in template.source:
        request.thoughts = "may come"
    if request.thoughts != "none":
        special = template.tokenizer.special_tokens
        request.skip_ids = {*request.skip_ids} - {special.get(mark) for mark in (THINK, THOUGHT)}
    if has_tools:
        request.skip_ids = ()
    return request


def chat_prompt(body: Conversation, template: ChatTemplate, most: int | None = None) -> tuple[list[int], int, bool]:
    """The prompt of a conversation, the number of messages that `most` tokens leave out, True if it has tools."""
    effort = {} if body.reasoning_effort is None else {"reasoning_effort": body.reasoning_effort}
    template = template.with_names({**(body.chat_template_kwargs or {}), **effort})
    tools = [] if body.tool_choice == "none" else [tool.described() for tool in body.tools or []]
    try:
        messages = [message.message(number) for number, message in enumerate(body.messages or ())]
        messages, described_tools = render_tools_as_text(messages, tools, template)
        if most is None:
            return template.prompt(messages, described_tools), 0, bool(tools)
        return *template.fit(messages, most, described_tools), bool(tools)
    except (ValueError, RecursionError) as error:  # arguments of calls may be nested without end
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
    return constraint_maker(grammars, "schema", json.dumps(schema), "response_format")


def call_constraint(body: ChatBody, template: ChatTemplate, grammars: Grammars) -> MakeConstraint:
    """Return what makes the constraint by which an answer calls a tool: the named one, or any."""
    functions = [tool.function.model_dump() for tool in body.tools or []]
    several = body.parallel_tool_calls is not False
    if isinstance(body.tool_choice, Tool):
        name, several = body.tool_choice.function.name, False
        functions = [function for function in functions if function["name"] == name]
        if not functions:
            raise BadRequest(f"tool_choice: there is no tool {name!r} in tools", "tool_choice")
    if not functions:
        raise BadRequest("tool_choice: there are no tools to choose from", "tool_choice")
    return constraint_maker(grammars, "grammar", grammar_of(functions, template, several=several), "tool_choice")


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
    ends: tuple[Sequence[int], Sequence[str]],
    most: int | None,
    default: int,
    logprobs: int | None,
    constraint: MakeConstraint | None,
) -> GenerationRequest:
    """The request, by the parameters that all bodies have.

    ends: the tokens and strings that end a text unless ignore_eos is set; most: new tokens, or as many of `default` as
    have room.
    """
    vocab_size, context, largest = served.vocab_size, served.context_length, served.max_tokens
    wrong = [
        (most is not None and most > largest, "max_tokens", f"expected at most {largest}, got {most}"),
        ((body.top_k or 0) > vocab_size, "top_k", f"expected at most {vocab_size}, the vocabulary, got {body.top_k}"),
        (body.stream_options and not body.stream, "stream_options", "goes with stream true"),
        (body.stream and body.prompt_logprobs is not None, "prompt_logprobs", "does not go with stream true"),
        (constraint and body.ignore_eos, "ignore_eos", "does not go with an answer of a given form: leave it out"),
        (constraint and body.min_tokens, "min_tokens", "does not go with an answer of a given form: leave it out"),
    ]
    for is_wrong, name, message in wrong:
        if is_wrong:
            raise BadRequest(f"{name}: {message}", name)
    # Each prompt has to fit the context together with its new tokens.
    max_new_tokens = []
    for ids in prompts:
        room = context - len(ids)
        new_tokens = min(default, largest, max(1, room)) if most is None else most
        if new_tokens > room:
            sizes = f"the prompt has {len(ids)} tokens and max_tokens is {new_tokens}: shorten one of them"
            param = "messages" if isinstance(body, ChatBody) else "prompt"
            raise BadRequest(f"the context is {context} tokens, {sizes}", param, code=TOO_LONG)
        max_new_tokens.append(new_tokens)
    if (min_tokens := body.min_tokens or 0) > min(max_new_tokens):
        raise BadRequest(f"min_tokens: expected at most {min(max_new_tokens)}, got {min_tokens}", "min_tokens")
    # Some tokens end a text, and the logits of some are raised or lowered.
    bias = {token_id("logit_bias", name, vocab_size): value for name, value in (body.logit_bias or {}).items()}
    stops = [token_id("stop_token_ids", token, vocab_size) for token in body.stop_token_ids or ()]
    stops += [*(() if body.ignore_eos else ends[0]), *(served.grammars.stops if constraint else ())]
    if min_tokens and len(set(stops)) >= vocab_size:
        raise BadRequest("min_tokens does not go with stop_token_ids of the whole vocabulary", "min_tokens")
    sampling = {name: value for name in SAMPLING if (value := getattr(body, name)) is not None}
    if (body.top_k or 0) < 1:
        sampling.pop("top_k", None)
    # One number of alternatives serves both a prompt and its answer: each takes its own number of them.
    tops = [top for top in (logprobs, body.prompt_logprobs) if top is not None]
    return GenerationRequest(
        body,
        prompts,
        max_new_tokens,
        {
            "sampling": Sampling(**sampling, logit_bias=bias),
            "stop_tokens": stops,
            "top_logprobs": max(tops, default=None),
            "score_prompt": body.prompt_logprobs is not None,
        },
        [*(() if body.ignore_eos else ends[1]), *([body.stop] if isinstance(body.stop, str) else body.stop or ())],
        (lambda: Minimum(min_tokens, stops)) if min_tokens else constraint,
        served.adapter(body.model),
        frozenset(served.tokenizer.special_tokens.values()) if body.skip_special_tokens else (),
        logprobs,
    )


def chat_of(body: Any, served: Served) -> GenerationRequest:
    """The request of a body that says the same as a chat_body(). BadRequest: the first mistake, by the body's names."""
    try:
        return chat(body.chat_body(), served)
    except BadRequest as error:
        error.param = body.params.get(error.param, error.param)
        raise


def token_id(name: str, value: int | str, vocab_size: int) -> int:
    digits = str(value)  # Python reads no number of thousands of digits
    if not digits.isdecimal() or len(digits) > len(str(vocab_size)) or int(value) >= vocab_size:
        raise BadRequest(f"{name}: expected an id below {vocab_size}, got {digits[:20]}", name)
    return int(value)


def prompt_of(prompt: str | list[int], tokenizer: Any) -> list[int]:
    """The ids of a prompt, which is text or ids."""
    ids = prompt_ids(tokenizer, prompt) if isinstance(prompt, str) else prompt
    if (largest := max(ids, default=0)) >= tokenizer.n_vocab:
        raise BadRequest(f"token id {largest} is not in the vocabulary of {tokenizer.n_vocab}", "prompt")
    if not ids:
        raise BadRequest("the prompt has no tokens: give it some text", "prompt")
    return ids
