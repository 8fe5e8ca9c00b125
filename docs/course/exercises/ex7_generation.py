"""Exercises of chapter 7: generation and chat. Fill in the bodies, then run `python grade.py 7`."""

from typing import Any

import torch
from torch import Tensor


def softmax_with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """The probabilities of the next token, logits (vocab,) → (vocab,), with all logits divided by the temperature.

    Temperature 0 gives all probability to the likeliest token.
    """


def top_p(probabilities: Tensor, p: float) -> Tensor:
    """The same with 0 for all but the likeliest tokens, the fewest that reach p together; they sum to 1 again."""


def generate(
    model: Any,
    ids: list[int],
    max_new_tokens: int,
    temperature: float = 1.0,
    p: float = 1.0,
    stop_token: int | None = None,
) -> list[int]:
    """The tokens that follow ids, one after another.

    Each is drawn from softmax_with_temperature and top_p of the last logits. model(ids) takes (1, seq) and gives
    (1, seq, vocab). It ends with max_new_tokens, or at stop_token, which is not returned. (torch.multinomial draws.)
    """


def attention_with_cache(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of one new position, which sees itself and all before it.

    q, k, v (heads, 1, d_k) are of the new position, keys and values (heads, seen, d_k) of those before.
    Gives the output (heads, 1, d_k), and keys and values with the new ones behind them.
    """


def encode_chat(messages: list[dict[str, str]], tokenizer: Any) -> tuple[list[int], list[bool]]:
    """A conversation as ids to train on, and for each id whether it is learned.

    It begins with <|endoftext|>. Each message {"role": …, "content": …} is <|im_start|>role⏎content<|im_end|>⏎,
    where ⏎ is a line break. Role with its line break, content, and the last line break are encoded each by itself. What
    the assistant says is learned, with its <|im_end|>. A special token in a content is only text.

    tokenizer.special_tokens is {name: id}; tokenizer.encode_ordinary(text) takes all as text.
    """
