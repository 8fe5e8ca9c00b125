"""The checks of chapter 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, compare_speed, drawing, normal, same, seconds
from torch import Tensor

import bpe
import lm

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


NEAR = torch.tensor([0.01, 0.0, 0.02])


def softmax_with_temperature(yours: Callable[..., Any]) -> None:
    numbers = drawing("softmax_with_temperature")
    for logits in (torch.tensor([1.0, 3.0, -2.0, 2.0]), normal(9), torch.tensor([-900.0, -903.0, -901.0]), NEAR):
        name = f"softmax_with_temperature({[round(x, 4) for x in logits.tolist()]}"
        for temperature in (1.0, 0.5, 2.0, 0.01, round(numbers.uniform(0.3, 3), 3)):
            right = (logits / temperature).softmax(-1)
            close(f"{name}, {temperature})", yours(logits, temperature), right, "Divide before the softmax.", 2e-4)
        likeliest = torch.zeros(len(logits)).index_fill(0, logits.argmax(), 1.0)
        for zero in (0, 0.0):
            close(f"{name}, {zero})", yours(logits, zero), likeliest, "Nothing can be divided by 0.")
    tied, one = yours(torch.tensor([1.0, 3.0, 3.0]), 0), torch.tensor([0.0, 0.0, 1.0])
    close("softmax_with_temperature([1, 3, 3], 0), in order,", tied.sort().values, one, "One token gets all.")


def top_p(yours: Callable[..., Any]) -> None:
    drawn = normal(12, scale=2).softmax(-1)
    edges = drawn.sort(descending=True).values.cumsum(-1)
    between = float((edges[4] + edges[5]) / 2)  # not at an edge, where rounding decides
    for numbers, p in (
        ([0.5, 0.25, 0.125, 0.125], 0.5),
        ([0.5, 0.25, 0.125, 0.125], 0.6),
        ([0.125, 0.5, 0.125, 0.25], 0.75),
        ([0.25, 0.75], 1.0),
        ([0.25, 0.75], 0.01),
        (drawn.tolist(), round(between, 6)),
        (drawn.tolist(), 1.0),
    ):
        probabilities = torch.tensor(numbers)
        ordered, order = probabilities.sort(descending=True)
        chosen = order[ordered.cumsum(-1) - ordered < p - 1e-6]
        right = torch.zeros(len(numbers)).index_put((chosen,), probabilities[chosen])
        hint = "The token that crosses p is kept too, and so there is always one."
        call = f"top_p({[round(x, 4) for x in numbers]}, {p})"
        close(call, yours(probabilities, p), right / right.sum(), hint)
    for count, p in ((2, 0.5), (3, 0.75)):
        answer = yours(torch.full((4,), 0.25), p)
        call, hint = f"top_p([0.25, 0.25, 0.25, 0.25], {p})", f"{count} tokens reach {p}, no matter which."
        close(f"{call}, in order,", answer.sort().values, torch.tensor([0.0] * (4 - count) + [1 / count] * count), hint)


class Same(torch.nn.Module):
    """A model whose next token has the same chances after any text."""

    def __init__(self) -> None:
        super().__init__()
        self.chances = torch.nn.Parameter(torch.tensor([0.5, 0.3, 0.15, 0.05]))

    def forward(self, ids: Tensor) -> Tensor:
        return self.chances.log().expand(*ids.shape, 4)


def draws(yours: Callable[..., Any]) -> None:
    """Raise Wrong unless tokens are drawn with the chances that the settings give."""
    some = set(yours(Same(), [0], 100, p=0.75))
    same("The tokens that generate(…, p=0.75) draws", sorted(some), [0, 1], "top_p comes before drawing.")
    count = 1000
    for settings in ({}, {"temperature": 2.0}, {"temperature": 0.5}, {"temperature": 2.0, "p": 0.8}):
        temperature, p = settings.get("temperature", 1.0), settings.get("p", 1.0)
        chances = (Same().chances.log() / temperature).softmax(-1)
        chances = chances * (chances.cumsum(-1) - chances < p)
        call = f"generate({', '.join(f'{name}={value}' for name, value in settings.items())})"
        drawn = torch.bincount(torch.tensor(yours(Same(), [0], count, **settings)), minlength=4)
        for token, chance in enumerate((chances / chances.sum()).tolist()):
            spread = 5 * (count * chance * (1 - chance)) ** 0.5
            if abs(int(drawn[token]) - count * chance) > spread:
                raise Wrong(
                    f"{call} draws a token of probability {chance:.3f} {int(drawn[token])} times in {count:,}. "
                    "Temperature comes first, then top_p, then drawing."
                )
    first, second = (yours(Same(), [0], 100) for _ in range(2))
    if first == second:
        raise Wrong("generate draws the same tokens twice: leave the seed to whoever calls it.")


def generate(yours: Callable[..., Any]) -> Callable[[], str]:
    numbers = drawing("generate")
    torch.manual_seed(numbers.randrange(10**6))
    config = lm.ModelConfig(vocab_size=97, context_length=128, num_layers=2, d_model=64, num_heads=4, d_ff=176)
    model = lm.Transformer(config).eval()
    with torch.no_grad():
        for ids in ([1], [5, 3, 8], numbers.choices(range(97), k=20)):
            right = lm.generate(model, ids, max_new_tokens=12, temperature=0)
            hint = "The next token comes from the logits of the last position; only new tokens are returned."
            same(f"generate(model, {ids}, 12, temperature=0)", yours(model, ids, 12, temperature=0), right, hint)
            same(f"generate(model, {ids}, 0, temperature=0)", yours(model, ids, 0, temperature=0), [], hint)
            for stop in (right[4], right[0], ids[-1]):
                before = right[: right.index(stop)] if stop in right else right
                call = f"generate(model, {ids}, 12, temperature=0, stop_token={stop})"
                hint = "It ends before the stop token, when that is drawn; it may stand in the prompt."
                same(call, yours(model, ids, 12, temperature=0, stop_token=stop), before, hint)
        hint = "Token 0 can be the stop token too: compare with None."
        same("generate(model, [1], 5, temperature=0, stop_token=0)", yours(Same(), [1], 5, 0, stop_token=0), [], hint)
        draws(yours)

    def speed() -> str:
        with torch.no_grad():
            lm.generate(model, [1], max_new_tokens=2)
            slow = seconds(lambda: yours(model, [1], 100), 2)
            return compare_speed("100 tokens", slow, seconds(lambda: lm.generate(model, [1], max_new_tokens=100), 2))

    return speed


def attention_with_cache(yours: Callable[..., Any]) -> None:
    for heads, length, width, scale in ((2, 6, 8, 1.0), (3, 4, 5, 1.0), (2, 4, 8, 30.0)):
        q, k, v = normal(3, heads, length, width, scale=scale).unbind()
        whole = lm.attention.attention(q, k, v, causal=True)
        keys = values = torch.empty(heads, 0, width)
        for at in range(length):
            answer = yours(q[:, at : at + 1], k[:, at : at + 1], v[:, at : at + 1], keys, values)
            if answer is None:
                raise Wrong(f"attention_with_cache returns None: {NOT_WRITTEN}.")
            out, keys, values = answer
            hint = "A row of causal attention over the whole text; divide by √d_k."
            close(f"The output of position {at}", out, whole[:, at : at + 1], hint)
            close(f"The keys after position {at}", keys, k[:, : at + 1])
            close(f"The values after position {at}", values, v[:, : at + 1])


def right_chat(messages: list[dict[str, str]], tokenizer: bpe.Tokenizer) -> tuple[list[int], list[bool]]:
    """Ids and whether each is learned, part by part."""
    text, special = tokenizer.encode_ordinary, tokenizer.special_tokens
    parts = [([special["<|endoftext|>"]], False)]
    for message in messages:
        is_answer = message["role"] == "assistant"
        parts += [([special["<|im_start|>"]], False), (text(message["role"] + "\n"), False)]
        parts += [(text(message["content"]), is_answer), ([special["<|im_end|>"]], is_answer), (text("\n"), False)]
    return [n for ids, _ in parts for n in ids], [is_learned for ids, is_learned in parts for _ in ids]


def encode_chat(yours: Callable[..., Any]) -> None:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = bpe.train(
        # the line break after a role and blanks after it would be one token, if they were not encoded apart
        ["how are you? fine, and you? be brief. user assistant system" + "\n  two" * 9] * 3,
        290,
        special_tokens=names,
    )
    for said in (
        [("user", "how are you?"), ("assistant", "fine")],
        [("system", "be brief."), ("user", "how?"), ("assistant", "fine, and you?"), ("user", "I?"), ("assistant", "")],
        [("user", "end it: <|im_end|>"), ("assistant", "fine<|endoftext|>")],
        [("user", "  two spaces, and a line break\n"), ("assistant", "\nfine  \n")],
        [("assistant", " ".join(drawing("encode_chat").choices(["fine,", "and", "you", "brief.", "how"], k=9)))],
    ):
        messages = [{"role": role, "content": content} for role, content in said]
        ids, learned = right_chat(messages, tokenizer)
        answer = yours(messages, tokenizer)
        if answer is None:
            raise Wrong(f"encode_chat returns None: {NOT_WRITTEN}.")
        mine, mask = answer
        hint = (
            "Special tokens come from tokenizer.special_tokens; everything else is encoded as ordinary text, "
            "character by character as it was said."
        )
        same(
            f"The ids of {said}",
            mine,
            ids,
            f"As text: {tokenizer.decode(mine)!r}, and should be {tokenizer.decode(ids)!r}. {hint}",
        )
        hint = "Learned is the assistant's content and the <|im_end|> behind it, not the head of its turn."
        same(f"What is learned of {said}", mask, learned, hint)


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
    7: {
        "softmax_with_temperature": softmax_with_temperature,
        "top_p": top_p,
        "generate": generate,
        "attention_with_cache": attention_with_cache,
        "encode_chat": encode_chat,
    }
}
