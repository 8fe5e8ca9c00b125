"""Answers in the shapes of OpenAI's API: whole, or in parts as they come."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lm.generation.sampling import TokenLogprob
from lm.generation.stream import overlap
from lm.serving.bodies import BadRequest, Body
from lm.serving.engine import Piece
from lm.serving.grammar import token_bytes
from lm.serving.requests import THINK, THOUGHT, GenerationRequest, Served
from lm.serving.tools import calls_in

LEAST = -9999.0  # stands for log 0, which JSON does not have
NOTHING = Piece("", 0, None)  # before the first piece
Event = dict[str, Any]  # of a stream
Logprobs = Sequence[TokenLogprob]
Stage = Literal["begin", "extend", "end"]  # of an item


@dataclass
class Choice:
    """One text of an answer, so far."""

    index: int
    thoughts: Literal["none", "may come", "have begun", "have ended"] = "none"
    pending: str = ""  # the end of the text, which may be the beginning of a mark of thoughts
    text: str = ""
    reasoning: str = ""
    last: Piece = NOTHING  # the newest, which says how far the text is, and how it ended
    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)  # of tools
    begun: bool = False  # True once a part of it was sent
    offset: int = 0  # characters of the tokens whose logprobs were written

    def add(self, piece: Piece) -> Piece:
        """Append a piece, and return it with the thoughts in it apart from its text."""
        reasoning, text = self.split_thoughts(piece.text, piece.ended is not None)
        self.text, self.reasoning, self.last = self.text + text, self.reasoning + reasoning, piece
        self.logprobs += piece.logprobs
        self.ids += piece.ids
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
        reasoning = ""
        if self.thoughts == "have begun":
            reasoning, mark, text = text.partition(THOUGHT)
            if mark:
                self.thoughts = "have ended"
            else:
                size = 0 if last else overlap(reasoning, THOUGHT)
                self.pending = reasoning[len(reasoning) - size :]
                reasoning = reasoning[: len(reasoning) - size]
        if self.thoughts == "have ended":
            text = text.lstrip("\n")
            self.thoughts = "none" if text else self.thoughts
        return reasoning, text

    @property
    def reason(self) -> str | None:
        """OpenAI's finish_reason."""
        return "tool_calls" if self.calls and self.last.ended == "stop" else self.last.ended


class Answer:
    """An answer of /v1/completions; the tokenizer of the model's chat template names the tokens."""

    prefix, whole_object, part_object = "cmpl", "text_completion", "text_completion"
    last = "data: [DONE]\n\n"  # of a stream

    def __init__(self, task: GenerationRequest, body: Body, served: Served) -> None:
        self.task, self.template, self.tokenizer = task, served.template, served.tokenizer
        self.choices = [Choice(index, task.thoughts) for index in range(len(task.prompts) * task.n)]
        about = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time())}
        self.about: dict[str, Any] = {**about, "model": body.model or served.model}

    @property
    def ended(self) -> bool:
        return all(choice.last.ended is not None for choice in self.choices)

    def add(self, index: int, piece: Piece) -> Piece | None:
        """Append a piece to its choice; return the part to send. None: nothing before the end, to look for calls."""
        choice = self.choices[index]
        piece = choice.add(piece)
        if not self.task.has_tools:
            return piece
        if piece.ended is None:
            return None
        choice.text, calls = calls_in(choice.text, self.template)
        choice.calls = calls[: self.task.most_calls]
        logprobs, ids = tuple(choice.logprobs), tuple(choice.ids)
        return dataclasses.replace(piece, text=choice.text, reasoning=choice.reasoning, logprobs=logprobs, ids=ids)

    def error(self, error: BadRequest) -> dict[str, Any]:
        """The event of an error that comes in a stream."""
        return error.body()

    def whole(self) -> dict[str, Any]:
        """The answer, sent whole."""
        choices = []
        for choice in self.choices:
            content = {**self.content(choice), **self.prompt_logprobs(choice)}
            choices.append(self.choice_object(choice, content, choice.ids, choice.logprobs))
        return {**self.about, "object": self.whole_object, "choices": choices, "usage": self.usage()}

    def choice_object(
        self, choice: Choice, content: dict[str, Any], ids: Sequence[int], logprobs: Logprobs
    ) -> dict[str, Any]:
        """A choice, or a part of one; the ids of a part, if requested, and before the first those of its prompt."""
        if self.task.body.return_token_ids:
            prompt = {} if choice.begun else {"prompt_token_ids": self.task.prompts[choice.index // self.task.n]}
            content |= {**prompt, "token_ids": list(ids)}
        more = {"logprobs": self.format_logprobs(choice, logprobs), "finish_reason": choice.reason}
        return {"index": choice.index, **content, **more}

    def content(self, choice: Choice) -> dict[str, Any]:
        return {"text": choice.text}

    def prompt_logprobs(self, choice: Choice) -> dict[str, Any]:
        """vLLM's: for each token of the prompt its logprob and the likeliest ones there, by their ids."""
        most = self.task.body.prompt_logprobs
        if most is None:
            return {}
        count = len(self.task.prompts[choice.index // self.task.n])
        scored = choice.logprobs[:count]
        if not self.task.echoes:
            choice.logprobs = choice.logprobs[count:]

        def by_id(item: TokenLogprob) -> dict[str, Any] | None:
            if item.logprob is None:
                return None
            ranks = {token: rank for rank, (token, _) in enumerate(item.top, start=1)}
            return {
                str(token): {"logprob": max(value, LEAST), "rank": ranks.get(token), "decoded_token": self.name(token)}
                for token, value in dict([*item.top[:most], (item.token, item.logprob)]).items()
            }

        return {"prompt_logprobs": [by_id(item) for item in scored]}

    def begin(self) -> Iterable[Event]:
        """The events before the first piece."""
        return ()

    def parts(self, index: int, piece: Piece) -> Iterable[Event]:
        """The events of what `add` gave."""
        choice = self.choices[index]
        part = self.choice_object(choice, self.delta(choice, piece), piece.ids, piece.logprobs)
        choice.begun = True
        return ({**self.about, "object": self.part_object, "choices": [part]},)

    def delta(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return {"text": piece.text}

    def end(self) -> Iterable[Event]:
        """The events after the last piece."""
        if (options := self.task.body.stream_options) is not None and options.include_usage:
            yield {**self.about, "object": self.part_object, "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        prompt, generated = sum(map(len, self.task.prompts)), sum(choice.last.tokens for choice in self.choices)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    def format_logprobs(self, choice: Choice, logprobs: Logprobs) -> dict[str, Any] | None:
        """Logprobs in the shape of the answer; None where there are none."""
        if not logprobs or self.task.top_logprobs is None:
            return None
        names, offsets = [self.name(item.token) for item in logprobs], list[int]()
        for name in names:
            offsets.append(choice.offset)
            choice.offset += len(name)
        likely = [item.top[: self.task.top_logprobs] for item in logprobs]
        top = [{self.name(token): max(value, LEAST) for token, value in each} for each in likely]
        return {
            "tokens": names,
            "token_logprobs": [None if item.logprob is None else max(item.logprob, LEAST) for item in logprobs],
            "top_logprobs": [None if item.logprob is None else one for item, one in zip(logprobs, top, strict=True)],
            "text_offset": offsets,
        }

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

    def format_logprobs(self, choice: Choice, logprobs: Logprobs) -> dict[str, Any] | None:
        content = self.named_logprobs(logprobs)
        return {"content": content, "refusal": None} if content else None

    def named_logprobs(self, logprobs: Logprobs) -> list[dict[str, Any]]:
        result, most = list[dict[str, Any]](), self.task.top_logprobs
        for item in () if most is None else logprobs:
            top = [self.named(*likely) for likely in item.top[:most]]
            result.append({**self.named(item.token, item.logprob), "top_logprobs": top})
        return result

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


class ItemAnswer(ChatAnswer):
    """An answer of one choice as items, each with events of its beginning, its parts and its end."""

    last = ""

    def __init__(self, task: GenerationRequest, body: Body, served: Served) -> None:
        super().__init__(task, body, served)
        self.items = list[Item]()

    def item_events(self, item: Item, stage: Stage, text: str = "", logprobs: Logprobs = ()) -> Iterable[Event]:
        """The events by which an item begins, gets more text, or ends."""
        raise TypeError(f"{type(self).__name__} has no events")

    def parts(self, index: int, piece: Piece) -> Iterable[Event]:
        calls, last = self.choices[0].calls if piece.ended is not None else [], piece.ended is not None
        parts: list[tuple[Any, str, dict[str, Any]]] = [("reasoning", piece.reasoning, {}), ("text", piece.text, {})]
        parts += [("call", call["function"]["arguments"], call) for call in calls]
        is_empty = last and not (self.items or calls or piece.text or piece.reasoning)  # an answer has an item at least
        for kind, text, call in parts:
            if not (text or (is_empty and kind == "text")):
                continue
            if not self.items or self.items[-1].kind != kind or kind == "call":
                yield from self.close_last()
                self.items.append(Item(kind, len(self.items), call=call))
                yield from self.item_events(self.items[-1], "begin")
            if text:
                item = self.items[-1]
                item.text += text
                item.logprobs += piece.logprobs if kind == "text" else ()
                yield from self.item_events(item, "extend", text, piece.logprobs)
        if last:
            yield from self.close_last()

    def close_last(self) -> Iterable[Event]:
        """End the item that is open, if one is."""
        if self.items and self.items[-1].is_open:
            self.items[-1].is_open = False
            yield from self.item_events(self.items[-1], "end")

    def finished(self) -> list[Item]:
        """The items of a whole answer, also of one that was not streamed."""
        if not self.items:
            choice = self.choices[0]
            piece = Piece(choice.text, choice.last.tokens, choice.last.ended or "stop", tuple(choice.logprobs))
            list(self.parts(0, dataclasses.replace(piece, reasoning=choice.reasoning)))
        return self.items
