"""Answers in the shapes of OpenAI's API: whole, or in parts as they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lm.generation.sampling import TokenLogprob
from lm.serving.engine import Piece
from lm.serving.grammar import token_bytes

LEAST = -9999.0  # the logarithm that stands for that of 0, which JSON does not have


@dataclass(frozen=True)
class Kind:
    """Names in the answers of one of the two endpoints."""

    prefix: str
    whole: str
    part: str
    is_chat: bool


COMPLETION = Kind("cmpl", "text_completion", "text_completion", False)
CHAT = Kind("chatcmpl", "chat.completion", "chat.completion.chunk", True)


@dataclass
class Choice:
    """One choice of an answer, so far.

    Attributes:
        index: Its number.
        kind: Of the answer.
        tokenizer: Of the tokens.
        text: Its text.
        tokens: Number of its tokens.
        ended: Why it ended; None until then.
        logprobs: Of its tokens, if requested.
        calls: The calls of tools in it.
    """

    index: int
    kind: Kind
    tokenizer: Any
    text: str = ""
    tokens: int = 0
    ended: str | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    begun: bool = False
    offset: int = 0  # characters of the tokens whose logprobs were written

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tokens, self.ended = piece.tokens, piece.ended
        self.logprobs += piece.logprobs

    @property
    def reason(self) -> str | None:
        """OpenAI's finish_reason."""
        return "tool_calls" if self.calls and self.ended == "stop" else self.ended

    def whole(self) -> dict[str, Any]:
        """The choice of an answer that is sent whole."""
        ending = {"logprobs": self.format_logprobs(tuple(self.logprobs)), "finish_reason": self.reason}
        if not self.kind.is_chat:
            return {"index": self.index, "text": self.text, **ending}
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message |= {"content": self.text or None, "tool_calls": self.calls}
        return {"index": self.index, "message": message, **ending}

    def part(self, piece: Piece) -> dict[str, Any]:
        """The choice of one event of a stream."""
        ending = {
            "logprobs": self.format_logprobs(piece.logprobs),
            "finish_reason": None if piece.ended is None else self.reason,
        }
        if not self.kind.is_chat:
            return {"index": self.index, "text": piece.text, **ending}
        delta: dict[str, Any] = {} if self.begun else {"role": "assistant"}
        if self.calls:
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(self.calls)]
        if piece.text or not (self.begun or self.calls):
            delta["content"] = piece.text
        self.begun = True
        return {"index": self.index, "delta": delta, **ending}

    def format_logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
        """Logprobs in the shape of the answer's kind; None where there are none."""
        if not logprobs:
            return None
        if self.kind.is_chat:
            content = [
                {**self.named(one.token, one.logprob), "top_logprobs": [self.named(*likely) for likely in one.top]}
                for one in logprobs
            ]
            return {"content": content, "refusal": None}
        names, offsets = [self.name(one.token) for one in logprobs], list[int]()
        for name in names:
            offsets.append(self.offset)
            self.offset += len(name)
        return {
            "tokens": names,
            "token_logprobs": [max(one.logprob, LEAST) for one in logprobs],
            "top_logprobs": [{self.name(token): max(value, LEAST) for token, value in one.top} for one in logprobs],
            "text_offset": offsets,
        }

    def named(self, token: int, logprob: float) -> dict[str, Any]:
        data = token_bytes(self.tokenizer, token)
        return {"token": self.name(token), "logprob": max(logprob, LEAST), "bytes": list(data)}

    def name(self, token: int) -> str:
        """A token's text, or its bytes as OpenAI writes those that are no text."""
        data = token_bytes(self.tokenizer, token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
