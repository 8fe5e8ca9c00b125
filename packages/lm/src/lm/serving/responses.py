"""/v1/responses: OpenAI's newer interface, as a conversation that /v1/chat/completions would continue.

Nothing is stored between requests: a conversation is sent whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lm.chat_template import ChatTemplate
from lm.serving import requests as chats
from lm.serving.answers import ChatAnswer, Choice
from lm.serving.engine import Piece
from lm.serving.grammar import Grammars
from lm.serving.requests import BadRequest, Body, ChatBody, GenerationRequest, Limits, Part, TextPart, text_of

LOGPROBS = "message.output_text.logprobs"
PARAMS = {"messages": "input", "max_tokens": "max_output_tokens", "response_format": "text"}  # chat's names, and ours


class Item(Part):
    """An item of the input: a message, a call of a function, or its result."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: str = ""
    content: str | list[TextPart] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[TextPart] | None = None


class TextFormat(chats.JsonSchema):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]


class Text(Part):
    """Settings of an answer's text."""

    format: TextFormat | None = None


class FunctionTool(chats.Function):
    """A function that may be called."""

    type: Literal["function"]


class NamedFunction(Part):
    """The function that has to be called."""

    type: Literal["function"]
    name: chats.FunctionName


class Reasoning(Part):
    """Settings of the thoughts before an answer."""

    effort: str | None = None


class ResponseBody(Body):
    """A body of /v1/responses."""

    only: ClassVar[dict[str, tuple[Any, ...]]] = {
        "previous_response_id": (),
        "conversation": (),
        "prompt": (),
        "background": (False,),
        "max_tool_calls": (),
        "max_tokens": (),
        "n": (1,),
        "return_token_ids": (False,),
    }

    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: Text | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=chats.MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=chats.MOST_TOP_LOGPROBS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def messages(self) -> list[chats.ChatMessage]:
        """The conversation as /v1/chat/completions has it."""
        items = [Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        result = list[chats.ChatMessage]()
        if self.instructions is not None:
            result.append(chats.ChatMessage(role="system", content=self.instructions))
        for item in items:
            last = result[-1] if result else None
            if item.type == "function_call":
                function = chats.CalledFunction(name=item.name, arguments=item.arguments)
                if last is None or last.role != "assistant":
                    last = chats.ChatMessage(role="assistant")
                    result.append(last)
                last.tool_calls = [*(last.tool_calls or ()), chats.ToolCall(id=item.call_id, function=function)]
            elif item.type == "function_call_output":
                result.append(chats.ChatMessage(role=chats.TOOL, content=item.output, tool_call_id=item.call_id))
            elif last is not None and last.role == "system" and item.role in ("system", "developer"):
                last.content = f"{text_of(last.content)}\n\n{text_of(item.content)}"
            else:
                result.append(chats.ChatMessage(role=item.role, content=item.content))
        return result

    def chat_body(self) -> ChatBody:
        """The same request to /v1/chat/completions."""
        form = None if self.text is None else self.text.format
        choice: Any = self.tool_choice
        tools = [chats.Tool(type="function", function=chats.Function(**dict(tool))) for tool in self.tools or []]
        if isinstance(choice, NamedFunction):
            choice = chats.NamedTool(type="function", function=chats.Function(name=choice.name))
        return ChatBody(
            **{name: getattr(self, name) for name in Body.model_fields},
            messages=self.messages(),
            max_completion_tokens=self.max_output_tokens,
            truncation=self.truncation,
            logprobs=LOGPROBS in (self.include or ()),
            top_logprobs=self.top_logprobs if LOGPROBS in (self.include or ()) else None,
            response_format=None if form is None else chats.ResponseFormat(type=form.type, json_schema=form),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
            chat_template_kwargs=self.chat_template_kwargs,
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
        )


def respond(body: ResponseBody, template: ChatTemplate, limits: Limits, grammars: Grammars) -> GenerationRequest:
    """The request of a body of /v1/responses. BadRequest: the first mistake in it."""
    try:
        return chats.chat(body.chat_body(), template, limits, grammars)
    except BadRequest as error:
        error.param = PARAMS.get(error.param or "", error.param)
        raise


class ResponseAnswer(ChatAnswer):
    """An answer of /v1/responses: one message, then calls of functions. It repeats the settings of the body."""

    prefix, last = "resp", ""

    def __init__(self, task: GenerationRequest, model: str, template: ChatTemplate, body: ResponseBody) -> None:
        super().__init__(task, model, template)
        self.settings = body.model_dump(
            mode="json", by_alias=True, include={"instructions", "max_output_tokens", "truncation", "top_logprobs"}
        ) | {
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "tools": [{"strict": None, **tool.model_dump()} for tool in body.tools or []],
            "tool_choice": "auto" if body.tool_choice is None else body.model_dump()["tool_choice"],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "text": {"format": (body.text and body.text.format and self.form(body.text.format)) or {"type": "text"}},
        }
        self.message_id, self.number = self.new_id("msg"), 0

    def form(self, form: TextFormat) -> dict[str, Any]:
        return form.model_dump(by_alias=True) if form.type == "json_schema" else {"type": form.type}

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.about['id'].partition('-')[2]}"

    def response(self, status: str, output: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The object of the whole answer."""
        ended = status in ("completed", "incomplete")
        return {
            "id": self.new_id("resp"),
            "object": "response",
            "created_at": self.about["created"],
            "model": self.about["model"],
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": output,
            "usage": self.usage() if ended else None,
            "metadata": {},
            **self.settings,
        }

    def whole(self) -> dict[str, Any]:
        return self.response(self.status, self.output())

    @property
    def status(self) -> str:
        return {None: "in_progress", "stop": "completed", "length": "incomplete"}[self.choices[0].ended]

    def output(self) -> list[dict[str, Any]]:
        """The items of the answer so far."""
        choice = self.choices[0]
        message = [self.message([self.content_part(choice.text, choice)])] if choice.text or not choice.calls else []
        return [*message, *(self.function_call(number) for number in range(len(choice.calls)))]

    def message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": self.message_id, "type": "message", "role": "assistant", "status": self.status}
        return {**about, "content": content}

    def content_part(self, text: str, choice: Choice | None = None) -> dict[str, Any]:
        logprobs = self.named_logprobs(choice.logprobs) if choice is not None else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def function_call(self, number: int, arguments: str | None = None) -> dict[str, Any]:
        call = self.choices[0].calls[number]
        function = {**call["function"], **({} if arguments is None else {"arguments": arguments})}
        status = "completed" if arguments is None else "in_progress"
        return {"id": f"fc_{call['id']}", "type": "function_call", "call_id": call["id"], "status": status, **function}

    def usage(self) -> dict[str, Any]:
        usage = super().usage()
        cached = sum(choice.cached for choice in self.choices)
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": usage["prompt_tokens"] - cached},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        return {"type": f"response.{kind}", "sequence_number": self.number - 1, **fields}

    def begin(self) -> Iterable[dict[str, Any]]:
        for kind in ("created", "in_progress"):
            yield self.event(kind, response=self.response("in_progress"))

    def parts(self, index: int, piece: Piece) -> Iterable[dict[str, Any]]:
        choice = self.choices[0]
        place = {"item_id": self.message_id, "output_index": 0, "content_index": 0}
        if not choice.begun and (piece.text or not choice.calls):
            choice.begun, item = True, {**self.message([]), "status": "in_progress"}
            yield self.event("output_item.added", output_index=0, item=item)
            yield self.event("content_part.added", **place, part=self.content_part(""))
        if piece.text:
            logprobs = self.named_logprobs(piece.logprobs)
            yield self.event("output_text.delta", **place, delta=piece.text, logprobs=logprobs)
        if piece.ended is None:
            return
        output = self.output()
        if choice.begun:
            (part,) = output[0]["content"]
            yield self.event("output_text.done", **place, text=choice.text, logprobs=part["logprobs"])
            yield self.event("content_part.done", **place, part=part)
            yield self.event("output_item.done", output_index=0, item=output[0])
        for number in range(len(choice.calls)):
            place, item = {"output_index": int(choice.begun) + number}, self.function_call(number)
            yield self.event("output_item.added", **place, item=self.function_call(number, ""))
            place["item_id"] = item["id"]
            arguments = item["arguments"]
            yield self.event("function_call_arguments.delta", **place, delta=arguments)
            yield self.event("function_call_arguments.done", **place, arguments=arguments, name=item["name"])
            yield self.event("output_item.done", output_index=place["output_index"], item=item)

    def end(self) -> Iterable[dict[str, Any]]:
        yield self.event(self.status, response=self.whole())
