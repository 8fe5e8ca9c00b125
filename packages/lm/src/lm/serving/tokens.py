"""/tokenize and /detokenize, with the bodies and the answers that vLLM's have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from lm.chat_template import ChatTemplate
from lm.serving.grammar import token_bytes
from lm.serving.requests import BadRequest, ChatMessage, Limits, Strict, TokenId, Tool
from lm.serving.tools import render_tools_as_text
from lm.special_tokens import prompt_ids


class TokenizeBody(Strict):
    """A body of /tokenize: a text, or the messages of a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True  # the token that begins a text, as before a prompt of /v1/completions
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Strict):
    """A body of /detokenize."""

    model: str | None = None
    tokens: list[TokenId]


def tokenize(body: TokenizeBody, template: ChatTemplate, limits: Limits) -> dict[str, Any]:
    """The ids that a completion or a chat of this body would begin with. BadRequest: a mistake in it."""
    tokenizer = template.tokenizer
    limits.check_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise BadRequest("expected either prompt or messages", "prompt")
    if body.messages is not None:
        template = template.with_names(body.chat_template_kwargs or {})
        tools = [tool.model_dump(exclude_none=True) for tool in body.tools or []]
        messages = [message.message(number) for number, message in enumerate(body.messages)]
        try:
            messages, described_tools = render_tools_as_text(messages, tools, template)
            ids = template.prompt(messages, described_tools)
        except ValueError as error:
            raise BadRequest(str(error), "messages") from None
    elif body.add_special_tokens:
        ids = prompt_ids(tokenizer, body.prompt or "")
    else:
        ids = list(map(int, tokenizer.encode(body.prompt or "", allowed_special="all")))
    names = [token_bytes(tokenizer, token).decode("utf-8", "replace") for token in ids]
    about = {"count": len(ids), "max_model_len": limits.context_length, "tokens": ids}
    return {**about, "token_strs": names if body.return_token_strs else None}


def detokenize(body: DetokenizeBody, template: ChatTemplate, limits: Limits) -> dict[str, Any]:
    """The text of ids. BadRequest: one is not in the vocabulary."""
    limits.check_model(body.model)
    largest = max(body.tokens, default=0)
    if largest >= limits.vocab_size:
        raise BadRequest(f"token id {largest} is not in the vocabulary of {limits.vocab_size}", "tokens")
    data = b"".join(token_bytes(template.tokenizer, token) for token in body.tokens)
    return {"prompt": data.decode("utf-8", "replace")}
