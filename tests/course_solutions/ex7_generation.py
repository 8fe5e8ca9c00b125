"""A solution of the exercises of chapter 7."""

import math
from typing import Any

import torch
from torch import Tensor


def softmax_with_temperature(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return torch.zeros_like(logits).index_fill_(-1, logits.argmax(-1), 1.0)
    scaled = logits / temperature
    exponentials = (scaled - scaled.max()).exp()
    return exponentials / exponentials.sum()


def top_p(probabilities: Tensor, p: float) -> Tensor:
    ordered, order = probabilities.sort(descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probabilities).scatter_(-1, order, ordered * (before < p))
    return kept / kept.sum()


def generate(
    model: Any,
    ids: list[int],
    max_new_tokens: int,
    temperature: float = 1.0,
    p: float = 1.0,
    stop_token: int | None = None,
) -> list[int]:
    text = list(ids)
    for _ in range(max_new_tokens):
        logits = model(torch.tensor([text]))[0, -1]
        token = int(torch.multinomial(top_p(softmax_with_temperature(logits, temperature), p), 1))
        if token == stop_token:
            break
        text.append(token)
    return text[len(ids) :]


def attention_with_cache(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = torch.cat((keys, k), 1), torch.cat((values, v), 1)
    weights = (q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ values, keys, values


def encode_chat(messages: list[dict[str, str]], tokenizer: Any) -> tuple[list[int], list[bool]]:
    special = tokenizer.special_tokens
    ids, learned = [special["<|endoftext|>"]], [False]

    def add(some: list[int], is_learned: bool) -> None:
        ids.extend(some)
        learned.extend([is_learned] * len(some))

    for message in messages:
        answers = message["role"] == "assistant"
        add([special["<|im_start|>"], *tokenizer.encode_ordinary(message["role"] + "\n")], False)
        add([*tokenizer.encode_ordinary(message["content"]), special["<|im_end|>"]], answers)
        add(tokenizer.encode_ordinary("\n"), False)
    return ids, learned
