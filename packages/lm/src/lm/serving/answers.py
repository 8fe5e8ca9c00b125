"""Answers in the shapes of OpenAI's API: whole, or in parts as they come."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm.chat_template import ChatTemplate
from lm.generation.sampling import TokenLogprob
from lm.serving.engine import Piece
from lm.serving.grammar import token_bytes
from lm.serving.requests import GenerationRequest
from lm.serving.tools import calls_in

LEAST = -9999.0  # the logarithm that stands for that of 0, which JSON does not have


@dataclass
class Choice:
    """One text of an answer, so far; its fields as those of Piece."""

    index: int
    text: str = ""
    tokens: int = 0
    cached: int = 0
    ended: str | None = None
    mistake: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)  # of tools
    begun: bool = False  # True once a part of it was sent
    offset: int = 0  # characters of the tokens whose logprobs were written

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tokens, self.cached, self.ended, self.mistake = piece.tokens, piece.cached, piece.ended, piece.mistake
        self.logprobs += piece.logprobs
        self.ids += piece.ids

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
        self.choices = [Choice(index) for index in range(len(task.prompts) * task.n)]
        identifier = f"{self.prefix}-{uuid.uuid4().hex}"
        self.about: dict[str, Any] = {"id": identifier, "created": int(time.time()), "model": model}

    @property
    def ended(self) -> bool:
        return all(choice.ended is not None for choice in self.choices)

    def add(self, index: int, piece: Piece) -> Piece | None:
        """Append a piece to its choice; what is new in it to send. None: nothing before the end, to look for calls."""
        choice = self.choices[index]
        choice.add(piece)
        if not self.task.has_tools:
            return piece
        if piece.ended is None:
            return None
        choice.text, calls = calls_in(choice.text, self.template)
        choice.calls = calls[: self.task.most_calls]
        return Piece(choice.text, piece.tokens, piece.ended, tuple(choice.logprobs), ids=tuple(choice.ids))

    def whole(self) -> dict[str, Any]:
        """The answer, sent whole."""
        choices = [
            {
                "index": choice.index,
                **self.content(choice),
                **self.token_ids(choice, choice.ids, is_first=True),
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
        if not logprobs:
            return None
        names, offsets = [self.name(item.token) for item in logprobs], list[int]()
        for name in names:
            offsets.append(choice.offset)
            choice.offset += len(name)
        return {
            "tokens": names,
            "token_logprobs": [None if item.logprob is None else max(item.logprob, LEAST) for item in logprobs],
            "top_logprobs": [
                None if item.logprob is None else {self.name(token): max(value, LEAST) for token, value in item.top}
                for item in logprobs
            ],
            "text_offset": offsets,
        }

    def name(self, token: int) -> str:
        """A token's text, or its bytes as OpenAI writes those that are no text."""
        data = token_bytes(self.tokenizer, token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class ChatAnswer(Answer):
    """An answer of /v1/chat/completions."""

    prefix, whole_object, part_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def content(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.calls:
            message |= {"content": choice.text or None, "tool_calls": choice.calls}
        return {"message": message}

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {} if choice.begun else {"role": "assistant"}
        if choice.calls:
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(choice.calls)]
        if piece.text or not (choice.begun or choice.calls):
            delta["content"] = piece.text
        return {"delta": delta}

    def format_logprobs(self, choice: Choice, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return {"content": self.named_logprobs(logprobs), "refusal": None} if logprobs else None

    def named_logprobs(self, logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        return [
            {**self.named(item.token, item.logprob), "top_logprobs": [self.named(*likely) for likely in item.top]}
            for item in logprobs
        ]

    def named(self, token: int, logprob: float | None) -> dict[str, Any]:
        data = token_bytes(self.tokenizer, token)
        return {"token": self.name(token), "logprob": max(logprob or 0.0, LEAST), "bytes": list(data)}
