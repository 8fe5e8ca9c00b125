"""The checks of chapter 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, compare_speed, same, seconds
from torch import Tensor

import bpe
import lm
from lm.chat_template import default_template, messages_of

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


def softmax_with_temperature(yours: Callable[..., Any]) -> None:
    logits = torch.tensor([1.0, 3.0, -2.0, 2.0])
    for temperature in (1.0, 0.5, 2.0, 0.01):
        call = f"softmax_with_temperature({logits.tolist()}, {temperature})"
        close(call, yours(logits, temperature), (logits / temperature).softmax(-1), "Divide before the softmax.")
    likeliest = torch.tensor([0.0, 1.0, 0.0, 0.0])
    close(
        f"softmax_with_temperature({logits.tolist()}, 0)", yours(logits, 0), likeliest, "Nothing can be divided by 0."
    )


def top_p(yours: Callable[..., Any]) -> None:
    for numbers, p, kept in (
        ([0.5, 0.25, 0.125, 0.125], 0.5, [0]),
        ([0.5, 0.25, 0.125, 0.125], 0.6, [0, 1]),
        ([0.125, 0.5, 0.125, 0.25], 0.75, [1, 3]),
        ([0.25, 0.75], 1.0, [0, 1]),
        ([0.25, 0.75], 0.01, [1]),
    ):
        right = torch.zeros(len(numbers))
        right[kept] = torch.tensor(numbers)[kept]
        hint = "The token that crosses p is kept too, and so there is always one."
        close(f"top_p({numbers}, {p})", yours(torch.tensor(numbers), p), right / right.sum(), hint)


class Same:
    """A model whose next token has the same chances after any text."""

    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])

    def __call__(self, ids: Tensor) -> Tensor:
        return self.chances.log().expand(*ids.shape, 4)


def generate(yours: Callable[..., Any]) -> str:
    torch.manual_seed(0)
    config = lm.ModelConfig(vocab_size=97, context_length=128, num_layers=2, d_model=64, num_heads=4, d_ff=176)
    model = lm.Transformer(config).eval()
    with torch.no_grad():
        for ids in ([1], [5, 3, 8]):
            right = lm.generate(model, ids, max_new_tokens=12, temperature=0)
            hint = "The next token comes from the logits of the last position; only new tokens are returned."
            same(f"generate(model, {ids}, 12, temperature=0)", yours(model, ids, 12, temperature=0), right, hint)
            stop = right[4]
            before = right[: right.index(stop)]
            call = f"generate(model, {ids}, 12, temperature=0, stop_token={stop})"
            same(call, yours(model, ids, 12, temperature=0, stop_token=stop), before, "It ends before the stop token.")
        drawn = torch.bincount(torch.tensor(yours(Same(), [0], 1000)), minlength=4)
        for token, chance in enumerate(Same.chances.tolist()):
            count, spread = int(drawn[token]), 5 * (1000 * chance * (1 - chance)) ** 0.5
            if abs(count - 1000 * chance) > spread:
                raise Wrong(f"generate draws a token of probability {chance:.2f} {count} times in 1,000.")
        some = set(yours(Same(), [0], 100, p=0.75))
        same("The tokens that generate(…, p=0.75) draws", sorted(some), [0, 1], "top_p comes before drawing.")
        lm.generate(model, [1], max_new_tokens=2)
        slow = seconds(lambda: yours(model, [1], 100), 2)
        return compare_speed("100 tokens", slow, seconds(lambda: lm.generate(model, [1], max_new_tokens=100), 2))


def attention_with_cache(yours: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 6, 8).unbind()
    whole = lm.attention.attention(q, k, v, causal=True)
    keys = values = torch.empty(2, 0, 8)
    for at in range(6):
        answer = yours(q[:, at : at + 1], k[:, at : at + 1], v[:, at : at + 1], keys, values)
        if answer is None:
            raise Wrong(f"attention_with_cache returns None: {NOT_WRITTEN}.")
        out, keys, values = answer
        hint = "A row of causal attention over the whole text; divide by √d_k."
        close(f"The output of position {at}", out, whole[:, at : at + 1], hint)
        close(f"The keys after position {at}", keys, k[:, : at + 1])
        close(f"The values after position {at}", values, v[:, : at + 1])


def encode_chat(yours: Callable[..., Any]) -> None:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = bpe.train(
        ["how are you? fine, and you? be brief. user assistant system"] * 3, 290, special_tokens=names
    )
    for said in (
        [("user", "how are you?"), ("assistant", "fine")],
        [("system", "be brief."), ("user", "how?"), ("assistant", "fine, and you?"), ("user", "I?"), ("assistant", "")],
        [("user", "end it: <|im_end|>"), ("assistant", "fine<|endoftext|>")],
    ):
        messages = [{"role": role, "content": content} for role, content in said]
        ids, learned = default_template(tokenizer).encode(messages_of(messages))
        answer = yours(messages, tokenizer)
        if answer is None:
            raise Wrong(f"encode_chat returns None: {NOT_WRITTEN}.")
        mine, mask = answer
        hint = "Special tokens come from tokenizer.special_tokens; everything else is encoded as ordinary text."
        same(
            f"The ids of {said}",
            mine,
            ids,
            f"As text: {tokenizer.decode(mine)!r}, and should be {tokenizer.decode(ids)!r}. {hint}",
        )
        hint = "Learned is the assistant's content and the <|im_end|> behind it, not the head of its turn."
        same(f"What is learned of {said}", mask, learned, hint)


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    7: {
        "softmax_with_temperature": softmax_with_temperature,
        "top_p": top_p,
        "generate": generate,
        "attention_with_cache": attention_with_cache,
        "encode_chat": encode_chat,
    }
}
