"""/v1/responses: OpenAI's newer interface as a conversation of /v1/chat/completions, sent whole: nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lm.serving import bodies as chats
from lm.serving.answers import Event, Item, ItemAnswer, Logprobs, Stage
from lm.serving.bodies import Body, ChatBody, Part, TextPart, text_of
from lm.serving.requests import GenerationRequest, Served

LOGPROBS = "message.output_text.logprobs"
EVENTS = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}


class InputItem(Part):
    """An item of the input: a message, a call of a function, or its result."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
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


class Reasoning(Part):
    """Settings of the thoughts before an answer."""

    effort: str | None = None


class ResponseBody(Body):
    """A body of /v1/responses."""

    only: ClassVar[dict[str, tuple[Any, ...]]] = {
        "background": (False,), "n": (1,), "return_token_ids": (False,), "prompt_logprobs": (), "max_tokens": ()
    }  # fmt: skip
    params: ClassVar[dict[str, str]] = {
        "messages": "input", "max_tokens": "max_output_tokens", "response_format": "text"
    }  # fmt: skip

    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: Text | None = None
    tools: Annotated[list[chats.Tool], Field(max_length=chats.MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | chats.Tool | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=chats.MOST_TOP_LOGPROBS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def messages(self) -> list[chats.ChatMessage]:
        """The conversation as /v1/chat/completions has it."""
        items = [InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        result = list[chats.ChatMessage]()
        if self.instructions is not None:
            result.append(chats.ChatMessage(role="system", content=self.instructions))
        for item in items:
            last = result[-1] if result else None
            if item.type == "reasoning":
                continue  # templates leave out the thoughts of earlier answers
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
        has_logprobs = LOGPROBS in (self.include or ())
        changed = {
            "messages": self.messages(),
            "max_completion_tokens": self.max_output_tokens,
            "logprobs": has_logprobs,
            "top_logprobs": self.top_logprobs if has_logprobs else None,
            "response_format": None if form is None else chats.ResponseFormat(type=form.type, json_schema=form),
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
        }
        return chats.parse(ChatBody, {name: value for name, value in self if name in ChatBody.model_fields} | changed)


class ResponseAnswer(ItemAnswer):
    """An answer of /v1/responses: thoughts, one message, then calls of functions, and the settings of the body."""

    prefix = "resp"

    def __init__(self, task: GenerationRequest, body: ResponseBody, served: Served) -> None:
        super().__init__(task, body, served)
        form = None if body.text is None else body.text.format
        text = {"type": "text"} if form is None else form.model_dump(by_alias=True)
        choice = body.tool_choice or "auto"
        self.settings = body.model_dump(
            mode="json", by_alias=True, include={"instructions", "max_output_tokens", "truncation", "top_logprobs"}
        ) | {
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "tools": [{"type": "function", "strict": None, **dict(tool.function)} for tool in body.tools or []],
            "tool_choice": choice if isinstance(choice, str) else {"type": "function", "name": choice.function.name},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "text": {"format": text if text["type"] == "json_schema" else {"type": text["type"]}},
        }
        self.number = 0

    @property
    def response_id(self) -> str:
        """The id that cancels a response."""
        return self.new_id("resp")

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.about['id'].partition('-')[2]}"

    @property
    def status(self) -> str:
        of_end = {None: "in_progress", "stop": "completed", "length": "incomplete", "cancelled": "cancelled"}
        return of_end[self.choices[0].last.ended]

    def whole(self) -> dict[str, Any]:
        """The answer so far."""
        status = self.status
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.about["created"],
            "model": self.about["model"],
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": [] if status == "in_progress" else [self.item_object(item) for item in self.finished()],
            "usage": None if status == "in_progress" else self.usage(),
            "metadata": {},
            **self.settings,
        }

    def item_object(self, item: Item, *, empty: bool = False) -> dict[str, Any]:
        """An item of the output; empty: when it begins."""
        status = "in_progress" if item.is_open else "incomplete" if self.status == "cancelled" else "completed"
        if item.kind == "call":
            number, function = item.call["id"], item.call["function"] | ({"arguments": ""} if empty else {})
            return {"id": f"fc_{number}", "type": "function_call", "call_id": number, "status": status, **function}
        content = [] if empty else [self.content_part(item)]
        if item.kind == "reasoning":
            return {"id": self.new_id("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}
        if self.status == "incomplete" and not item.is_open:
            status = "incomplete"
        about = {"id": self.new_id("msg"), "type": "message", "role": "assistant", "status": status}
        return {**about, "content": content}

    def content_part(self, item: Item, *, empty: bool = False) -> dict[str, Any]:
        text = "" if empty else item.text
        if item.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs = [] if empty else self.named_logprobs(item.logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def usage(self) -> dict[str, Any]:
        usage, cached = super().usage(), self.choices[0].last.cached
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": usage["prompt_tokens"] - cached},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    def event(self, kind: str, whole: Item | None = None, **fields: Any) -> dict[str, Any]:
        """An event of the answer, or of a part of an item."""
        self.number += 1
        if whole is not None:
            fields |= {"item_id": self.item_object(whole)["id"], "output_index": whole.index}
            if whole.kind != "call":
                fields["content_index"] = 0
        return {"type": f"response.{kind}", "sequence_number": self.number - 1, **fields}

    def begin(self) -> Iterable[Event]:
        for kind in ("created", "in_progress"):
            yield self.event(kind, response=self.whole())

    def item_events(self, item: Item, stage: Stage, text: str = "", logprobs: Logprobs = ()) -> Iterable[Event]:
        if stage == "begin":
            yield self.event("output_item.added", output_index=item.index, item=self.item_object(item, empty=True))
            if item.kind != "call":
                yield self.event("content_part.added", item, part=self.content_part(item, empty=True))
            return
        own = self.named_logprobs(logprobs if stage == "extend" else item.logprobs)
        more: dict[str, Any] = {"logprobs": own} if item.kind == "text" else {}
        if stage == "extend":
            yield self.event(f"{EVENTS[item.kind]}.delta", item, delta=text, **more)
            return
        if item.kind == "call":
            more = {"arguments": item.text, "name": item.call["function"]["name"]}
        else:
            more["text"] = item.text
        yield self.event(f"{EVENTS[item.kind]}.done", item, **more)
        if item.kind != "call":
            yield self.event("content_part.done", item, part=self.content_part(item))
        yield self.event("output_item.done", output_index=item.index, item=self.item_object(item))

    def end(self) -> Iterable[Event]:
        kind = "incomplete" if self.status == "cancelled" else self.status
        yield self.event(kind, response=self.whole())
