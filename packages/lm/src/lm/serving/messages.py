"""/v1/messages and /v1/messages/count_tokens: Anthropic's interface, as a conversation of /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lm.serving import bodies as chats
from lm.serving.answers import Event, Item, ItemAnswer, Logprobs, Stage
from lm.serving.bodies import BadRequest, Body, ChatBody, Part, TextPart, text_of
from lm.serving.grammar import parse_json
from lm.serving.requests import Served, chat_prompt

REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "cancelled": "end_turn"}


class Block(Part):
    """A part of a content: text, a call of a tool, its result, or thoughts, which are left out."""

    type: Literal["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: str | list[TextPart] | None = None


class AnthropicMessage(Part):
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str | list[Block]

    def messages(self) -> Iterable[chats.ChatMessage]:
        """The messages of a chat that say the same: a result of a tool is one of its own."""
        if isinstance(self.content, str):
            yield chats.ChatMessage(role=self.role, content=self.content)
            return
        text, calls = "", list[chats.ToolCall]()
        for block in self.content:
            if block.type == "tool_result":
                yield chats.ChatMessage(role=chats.TOOL, content=block.content or "", tool_call_id=block.tool_use_id)
            elif block.type == "tool_use":
                function = chats.CalledFunction(name=block.name, arguments=json.dumps(block.input or {}))
                calls.append(chats.ToolCall(id=block.id, function=function))
            else:
                text += block.text
        if text or calls or all(block.type != "tool_result" for block in self.content):  # of thoughts alone: empty
            yield chats.ChatMessage(role=self.role, content=text, tool_calls=calls or None)


class ToolChoice(Part):
    """The rule by which a tool is called."""

    type: Literal["auto", "any", "tool", "none"]
    name: chats.FunctionName | None = None
    disable_parallel_tool_use: bool | None = None


class CountBody(Body):
    """A body of /v1/messages/count_tokens."""

    only: ClassVar[dict[str, tuple[Any, ...]]] = {
        "n": (1,), "mcp_servers": ([],), "return_token_ids": (False,), "stop": (), "stream_options": (),
        "prompt_logprobs": (),
    }  # fmt: skip
    ignored: ClassVar[frozenset[str]] = Body.ignored | {"thinking", "inference_geo", "cache_control"}

    messages: Annotated[list[AnthropicMessage], Field(min_length=1)]
    system: str | list[TextPart] | None = None
    stop_sequences: Annotated[list[chats.Stop], Field(max_length=chats.MOST_STOPS)] | None = None
    tools: Annotated[list[chats.Tool], Field(max_length=chats.MOST_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def chat_body(self) -> ChatBody:
        """The same request to /v1/chat/completions."""
        messages = [message for one in self.messages for message in one.messages()]
        if self.system is not None:
            messages.insert(0, chats.ChatMessage(role="system", content=text_of(self.system)))
        choice = self.tool_choice or ToolChoice(type="auto")
        if choice.type == "tool" and choice.name is None:
            raise BadRequest("tool_choice.name is missing", "tool_choice")
        named = chats.Tool(function=chats.Function(name=choice.name)) if choice.name else None
        kinds: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
        changed = {
            "stop": self.stop_sequences,
            "messages": messages,
            "tool_choice": kinds[choice.type],
            "parallel_tool_calls": False if choice.disable_parallel_tool_use else None,
        }
        return chats.parse(ChatBody, {name: value for name, value in self if name in ChatBody.model_fields} | changed)


class MessagesBody(CountBody):
    """A body of /v1/messages."""

    max_tokens: int = Field(ge=1)


def count_tokens(body: CountBody, served: Served) -> dict[str, Any]:
    """The number of tokens of a conversation's prompt. BadRequest: a mistake in it."""
    served.adapter(body.model)
    return {"input_tokens": len(chat_prompt(body.chat_body(), served.template)[0])}


class MessagesAnswer(ItemAnswer):
    """An answer of /v1/messages: thoughts, a text, then calls of tools."""

    prefix = "msg"

    def whole(self) -> dict[str, Any]:
        choice = self.choices[0]
        stop = choice.last.stopped_by
        is_stop = stop in self.task.stop and stop not in self.template.stop and not choice.calls
        reason = None if choice.reason is None else "stop_sequence" if is_stop else REASONS[choice.reason]
        return {
            "id": self.about["id"],
            "type": "message",
            "role": "assistant",
            "model": self.about["model"],
            "content": [] if reason is None else [self.item_object(item) for item in self.finished()],
            "stop_reason": reason,
            "stop_sequence": stop if is_stop else None,
            "usage": self.usage(),
        }

    def usage(self) -> dict[str, Any]:
        usage, cached = super().usage(), self.choices[0].last.cached
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }

    def item_object(self, item: Item, *, empty: bool = False) -> dict[str, Any]:
        """An item as a block of content; empty: when it begins."""
        text = "" if empty else item.text
        if item.kind == "reasoning":
            return {"type": "thinking", "thinking": text, "signature": ""}
        if item.kind == "text":
            return {"type": "text", "text": text}
        arguments = {} if empty else json.loads(arguments_of(item))
        return {"type": "tool_use", "id": item.call["id"], "name": item.call["function"]["name"], "input": arguments}

    def begin(self) -> Iterable[Event]:
        yield {"type": "message_start", "message": self.whole()}

    def item_events(self, item: Item, stage: Stage, text: str = "", logprobs: Logprobs = ()) -> Iterable[Event]:
        if stage == "begin":
            more = {"content_block": self.item_object(item, empty=True)}
            yield {"type": "content_block_start", "index": item.index, **more}
        elif stage == "extend":
            name = {"reasoning": "thinking", "text": "text", "call": "partial_json"}[item.kind]
            kind = "input_json_delta" if item.kind == "call" else f"{name}_delta"
            delta = {"type": kind, name: arguments_of(item) if item.kind == "call" else text}
            yield {"type": "content_block_delta", "index": item.index, "delta": delta}
        else:
            yield {"type": "content_block_stop", "index": item.index}

    def end(self) -> Iterable[Event]:
        answer = self.whole()
        delta = {name: answer[name] for name in ("stop_reason", "stop_sequence")}
        yield {"type": "message_delta", "delta": delta, "usage": answer["usage"]}
        yield {"type": "message_stop"}

    def error(self, error: BadRequest) -> dict[str, Any]:
        return {"type": "error", **error.body()}


def arguments_of(item: Item) -> str:
    """The arguments of a call as JSON of an object: clients read nothing else, and a model may write anything."""
    return item.text if isinstance(parse_json(item.text), dict) else json.dumps({"arguments": item.text})
