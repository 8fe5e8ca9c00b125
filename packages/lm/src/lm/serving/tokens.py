"""/tokenize and /detokenize, with the bodies and the answers that vLLM's have, and /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from lm.serving.bodies import MOST_CHOICES, BadRequest, Conversation, Strict, TokenId
from lm.serving.grammar import token_bytes
from lm.serving.requests import TOO_LONG, Served, chat_prompt, prompt_of
from lm.tokenizer import prompt_ids

MOST_TEXTS = 16 * MOST_CHOICES  # of a request for embeddings


class TokenizeBody(Conversation):
    """A body of /tokenize: a text, or the messages of a conversation."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True  # the token that begins a text, as before a prompt of /v1/completions
    return_token_strs: bool | None = None


class DetokenizeBody(Strict):
    """A body of /detokenize."""

    model: str | None = None
    tokens: list[TokenId]


class EmbeddingsBody(Strict):
    """A body of /v1/embeddings."""

    model: str | None = None
    input: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[str | list[TokenId]], Field(min_length=1, max_length=MOST_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None


def tokenize(body: TokenizeBody, served: Served) -> dict[str, Any]:
    """The ids that a completion or a chat of this body would begin with. BadRequest: a mistake in it."""
    tokenizer = served.tokenizer
    served.adapter(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise BadRequest("expected either prompt or messages", "prompt")
    if body.messages is not None:
        ids = chat_prompt(body, served.template)[0]
    elif body.add_special_tokens:
        ids = prompt_ids(tokenizer, body.prompt or "")
    else:
        ids = list(map(int, tokenizer.encode(body.prompt or "", allowed_special="all")))
    names = [token_bytes(tokenizer, token).decode("utf-8", "replace") for token in ids]
    about = {"count": len(ids), "max_model_len": served.context_length, "tokens": ids}
    return {**about, "token_strs": names if body.return_token_strs else None}


def detokenize(body: DetokenizeBody, served: Served) -> dict[str, Any]:
    """The text of ids. BadRequest: one is not in the vocabulary."""
    served.adapter(body.model)
    largest = max(body.tokens, default=0)
    if largest >= served.vocab_size:
        raise BadRequest(f"token id {largest} is not in the vocabulary of {served.vocab_size}", "tokens")
    data = b"".join(token_bytes(served.tokenizer, token) for token in body.tokens)
    return {"prompt": data.decode("utf-8", "replace")}


def embeddings(body: EmbeddingsBody, served: Served) -> dict[str, Any]:
    """The mean of a text's last hidden states, of length 1 as llama.cpp's --pooling mean. BadRequest: too long."""
    model = served.models[served.adapter(body.model)]
    is_one = isinstance(body.input, str) or isinstance(body.input[0], int)
    texts: Any = [body.input] if is_one else body.input
    size = body.dimensions or model.config.d_model
    if size > model.config.d_model:
        raise BadRequest(f"dimensions: expected at most {model.config.d_model}, got {size}", "dimensions")
    data, tokens = [], 0
    for index, text in enumerate(texts):
        ids = prompt_of(text, served.tokenizer)
        if len(ids) > served.context_length:
            message = f"the context is {served.context_length} tokens, and input {index} has {len(ids)}: shorten it"
            raise BadRequest(message, "input", code=TOO_LONG)
        with torch.inference_mode():
            states = model.hidden(torch.tensor([ids], device=model.embedding.weight.device))[0]
            mean = states.double().mean(0)[:size]
        values = (mean / mean.norm().clamp_min(1e-12)).float().cpu().numpy().astype("<f4")
        as_text = base64.b64encode(values.tobytes()).decode()
        vector: Any = values.tolist() if body.encoding_format == "float" else as_text
        data.append({"object": "embedding", "index": index, "embedding": vector})
        tokens += len(ids)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model or served.model, "usage": usage}
