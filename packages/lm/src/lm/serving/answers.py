"""Answers in the shapes of OpenAI's API: whole, or in parts as they come."""

from __future__ import annotations

import dataclasses
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lm.chat_template import ChatTemplate
from lm.generation.sampling import TokenLogprob
from lm.generation.stream import overlap
from lm.serving.bodies import BadRequest
from lm.serving.engine import Piece
from lm.serving.grammar import token_bytes
from lm.serving.requests import THINK, THOUGHT, GenerationRequest
from lm.serving.tools import calls_in

LEAST = -9999.0  # the logarithm that stands for that of 0, which JSON does not have


@dataclass
class Choice:
    """One text of an answer, so far; its fields as those of Piece."""

    index: int
    thoughts: Literal["none", "may come", "have begun", "have ended"] = "none"
    pending: str = ""  # the end of the text, which may be the beginning of a mark of thoughts
    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    cached: int = 0
    ended: str | None = None
    mistake: str = ""
    stopped_by: str | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)  # of tools
    begun: bool = False  # True once a part of it was sent
    offset: int = 0  # characters of the tokens whose logprobs were written

    def add(self, piece: Piece) -> Piece:
        """Append a piece, and return it with the thoughts in it apart from its text."""
        reasoning, text = self.split_thoughts(piece.text, piece.ended is not None)
        self.text, self.reasoning = self.text + text, self.reasoning + reasoning
        self.tokens, self.cached, self.ended, self.mistake = piece.tokens, piece.cached, piece.ended, piece.mistake
        self.logprobs, self.ids, self.stopped_by = (
            [*self.logprobs, *piece.logprobs],
            [*self.ids, *piece.ids],
            piece.stopped_by,
        )
        return dataclasses.replace(piece, text=text, reasoning=reasoning)

    def split_thoughts(self, text: str, last: bool) -> tuple[str, str]:
        """The thoughts and the text in what follows; what may be the beginning of a mark waits for the next piece."""
        text, self.pending = self.pending + text, ""
        if self.thoughts == "may come":
            begin = text.lstrip()
            if THINK.startswith(begin) and not last:
                self.pending = text
                return "", ""
            self.thoughts = "have begun" if begin.startswith(THINK) else "none"
            text = begin.removeprefix(THINK).lstrip("\n") if self.thoughts == "have begun" else text
        if self.thoughts == "have ended":
            text = text.lstrip("\n")
            self.thoughts = "none" if text else self.thoughts
        if self.thoughts in ("none", "have ended"):
            return "", text
        reasoning, mark, text = text.partition(THOUGHT)
        if mark:
            text = text.lstrip("\n")
            self.thoughts = "none" if text else "have ended"
            return reasoning, text
        size = 0 if last else overlap(reasoning, THOUGHT)
        self.pending = reasoning[len(reasoning) - size :]
        return reasoning[: len(reasoning) - size], ""

    @property
    def reason(self) -> str | None:
        """OpenAI's finish_reason."""
        return "tool_calls" if self.calls and self.ended == "stop" else self.ended


class Answer:
    """An answer of /v1/completions; the tokenizer of the model's chat template names the tokens."""

    prefix, whole_object, part_object = "cmpl", "text_completion", "text_completion"
    last = "data: [DONE]\n\n"  # of a stream

    def __init__(self, task: GenerationRequest, model: str, template: ChatTemplate) -> None:
        self.task, self.template, self.tokenizer = task, template, template.tokenizer
        self.choices = [Choice(index, task.thoughts) for index in range(len(task.prompts) * task.n)]
        identifier = f"{self.prefix}-{uuid.uuid4().hex}"
        self.about: dict[str, Any] = {"id": identifier, "created": int(time.time()), "model": model}

    @property
    def ended(self) -> bool:
        return all(choice.ended is not None for choice in self.choices)

    def add(self, index: int, piece: Piece) -> Piece | None:
        """Append a piece to its choice; what is new in it to send. None: nothing before the end, to look for calls."""
        choice = self.choices[index]
        piece = choice.add(piece)
        if not self.task.has_tools:
            return piece
        if piece.ended is None:
            return None
        choice.text, calls = calls_in(choice.text, self.template)
        choice.calls = calls[: self.task.most_calls]
        piece = dataclasses.replace(piece, text=choice.text, reasoning=choice.reasoning)
        return dataclasses.replace(piece, logprobs=tuple(choice.logprobs), ids=tuple(choice.ids))

    def error(self, error: BadRequest) -> dict[str, Any]:
        """The body of an error, and the event of one that comes in a stream."""
        return error.body()

    def whole(self) -> dict[str, Any]:
        """The answer, sent whole."""
        choices = [
            {
                "index": choice.index,
                **self.content(choice),
                **self.token_ids(choice, choice.ids, is_first=True),
                **self.prompt_logprobs(choice),
                "logprobs": self.format_logprobs(choice, choice.logprobs),
                "finish_reason": choice.reason,
            }
            for choice in self.choices
        ]
        return {**self.about, "object": self.whole_object, "choices": choices, "usage": self.usage()}

    def content(self, choice: Choice) -> dict[str, Any]:
        return {"text": choice.text}

    def token_ids(self, choice: Choice, ids: Sequence[int], *, is_first: bool) -> dict[str, Any]:
        """The ids of a part of a text, if requested, and before the first those of its prompt."""
        if not self.task.return_token_ids:
            return {}
        prompt = {"prompt_token_ids": self.task.prompts[choice.index // self.task.n]} if is_first else {}
        return {**prompt, "token_ids": list(ids)}

    def prompt_logprobs(self, choice: Choice) -> dict[str, Any]:
        """vLLM's: for each token of the prompt those of it and of the likeliest there, by their ids."""
        most = self.task.prompt_logprobs
        if most is None:
            return {}
        count = len(self.task.prompts[choice.index // self.task.n])
        scored, choice.logprobs = choice.logprobs[:count], choice.logprobs[count:]
        if self.task.echoes:
            choice.logprobs = [*scored, *choice.logprobs]

        def by_id(item: TokenLogprob) -> dict[str, Any] | None:
            if item.logprob is None:
                return None
            ranks = {token: rank for rank, (token, _) in enumerate(item.top, start=1)}
            tokens = dict([*item.top[:most], (item.token, item.logprob)])
            return {
                str(token): {"logprob": max(value, LEAST), "rank": ranks.get(token), "decoded_token": self.name(token)}
                for token, value in tokens.items()
            }

        return {"prompt_logprobs": [by_id(item) for item in scored]}

    def begin(self) -> Iterable[dict[str, Any]]:
        """The events before the first piece."""
        return ()

    def parts(self, index: int, piece: Piece) -> Iterable[dict[str, Any]]:
        """The events of what `add` gave."""
        choice = self.choices[index]
        part = {
            "index": index,
            **self.delta(choice, piece),
            **self.token_ids(choice, piece.ids, is_first=not choice.begun),
            "logprobs": self.format_logprobs(choice, piece.logprobs),
            "finish_reason": None if piece.ended is None else choice.reason,
        }
        choice.begun = True
        return ({**self.about, "object": self.part_object, "choices": [part]},)

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return {"text": piece.text}

    def end(self) -> Iterable[dict[str, Any]]:
        """The events after the last piece."""
        if self.task.usage:
            yield {**self.about, "object": self.part_object, "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        prompt, generated = sum(map(len, self.task.prompts)), sum(choice.tokens for choice in self.choices)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    def format_logprobs(self, choice: Choice, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        """Logprobs in the shape of the answer; None where there are none."""
        if not logprobs or self.task.top_logprobs is None:
            return None
        names, offsets = [self.name(item.token) for item in logprobs], list[int]()
        for name in names:
            offsets.append(choice.offset)
            choice.offset += len(name)
        return {
            "tokens": names,
            "token_logprobs": [None if item.logprob is None else max(item.logprob, LEAST) for item in logprobs],
            "top_logprobs": [
                None
                if item.logprob is None
                else {self.name(token): max(value, LEAST) for token, value in self.top(item)}
                for item in logprobs
            ],
            "text_offset": offsets,
        }

    def top(self, item: TokenLogprob) -> Sequence[tuple[int, float]]:
        """The likeliest tokens, as many as were asked for."""
        return item.top[: self.task.top_logprobs]

    def name(self, token: int) -> str:
        """A token's text, or its bytes as OpenAI writes those that are not UTF-8."""
        data = token_bytes(self.tokenizer, token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class ChatAnswer(Answer):
    """An answer of /v1/chat/completions."""

    prefix, whole_object, part_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def whole(self) -> dict[str, Any]:
        answer = super().whole()
        scored = [choice.pop("prompt_logprobs", None) for choice in answer["choices"]]
        return answer if scored[0] is None else {**answer, "prompt_logprobs": scored[0]}  # where vLLM has them

    def content(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        if choice.calls:
            message |= {"content": choice.text or None, "tool_calls": choice.calls}
        return {"message": message}

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {} if choice.begun else {"role": "assistant"}
        if piece.reasoning:
            delta["reasoning_content"] = piece.reasoning
        if choice.calls:
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(choice.calls)]
        if piece.text or not (choice.begun or choice.calls):
            delta["content"] = piece.text
        return {"delta": delta}

    def format_logprobs(self, choice: Choice, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not logprobs or self.task.top_logprobs is None:
            return None
        return {"content": self.named_logprobs(logprobs), "refusal": None}

    def named_logprobs(self, logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        return [
            {**self.named(item.token, item.logprob), "top_logprobs": [self.named(*likely) for likely in self.top(item)]}
            for item in logprobs
        ]

    def named(self, token: int, logprob: float | None) -> dict[str, Any]:
        data = token_bytes(self.tokenizer, token)
        return {"token": self.name(token), "logprob": max(logprob or 0.0, LEAST), "bytes": list(data)}


@dataclass
class Item:
    """A part of an answer that consists of thoughts, a text and calls of tools, in this order."""

    kind: Literal["reasoning", "text", "call"]
    index: int
    text: str = ""  # of a call, its arguments
    call: dict[str, Any] = field(default_factory=dict)
    is_open: bool = True
    logprobs: list[TokenLogprob] = field(default_factory=list)


class ItemAnswer(ChatAnswer, ABC):
    """An answer of one choice as items, each with events of its beginning, its parts and its end."""

    last = ""

    def __init__(self, task: GenerationRequest, model: str, template: ChatTemplate) -> None:
        super().__init__(task, model, template)
        self.items = list[Item]()

    @abstractmethod
    def begin_item(self, item: Item) -> Iterable[dict[str, Any]]:
        """The events by which an item begins."""

    @abstractmethod
    def extend_item(self, item: Item, text: str, piece: Piece) -> Iterable[dict[str, Any]]:
        """The events of more text of an item."""

    @abstractmethod
    def end_item(self, item: Item) -> Iterable[dict[str, Any]]:
        """The events by which an item ends."""

    def parts(self, index: int, piece: Piece) -> Iterable[dict[str, Any]]:
        choice = self.choices[0]
        parts: list[tuple[Any, str, dict[str, Any]]] = [("reasoning", piece.reasoning, {}), ("text", piece.text, {})]
        if piece.ended is not None:
            if not (self.items or piece.text or piece.reasoning or choice.calls):
                self.items.append(Item("text", 0))  # an answer has one item at least
                yield from self.begin_item(self.items[0])
            parts += [("call", call["function"]["arguments"], call) for call in choice.calls]
        for kind, text, call in parts:
            if not text:
                continue
            if not self.items or self.items[-1].kind != kind or kind == "call":
                yield from self.close_last()
                self.items.append(Item(kind, len(self.items), call=call))
                yield from self.begin_item(self.items[-1])
            item = self.items[-1]
            item.text += text
            if kind == "text":
                item.logprobs += piece.logprobs
            yield from self.extend_item(item, text, piece)
        if piece.ended is not None:
            yield from self.close_last()

    def close_last(self) -> Iterable[dict[str, Any]]:
        """End the item that is open, if one is."""
        if self.items and self.items[-1].is_open:
            self.items[-1].is_open = False
            yield from self.end_item(self.items[-1])

    def finished(self) -> list[Item]:
        """The items of a whole answer, also of one that was not streamed."""
        if not self.items:
            choice = self.choices[0]
            piece = Piece(choice.text, choice.tokens, choice.ended or "stop", tuple(choice.logprobs))
            list(self.parts(0, dataclasses.replace(piece, reasoning=choice.reasoning)))
        return self.items
