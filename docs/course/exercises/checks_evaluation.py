"""Checks of the exercises of chapter 13."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, drawing, near, normal, same

import bpe


def continuation_log_probs(yours: Callable[..., Any]) -> None:
    numbers = drawing("continuation_log_probs")
    for n, start, scale in ((5, 2, 1.0), (7, 1, 1.0), (4, 3, 1.0), (6, 2, 300.0)):
        logits, ids = normal(n, 9, scale=scale), torch.tensor(numbers.choices(range(9), k=n))
        log_p = logits - logits.logsumexp(-1, keepdim=True)
        right = torch.stack([log_p[place - 1, ids[place]] for place in range(start, n)])
        call = f"continuation_log_probs(logits {(n, 9)} of about {scale:g}, ids ({n},), {start})"
        close(call, yours(logits, ids, start), right, "Row i of the logits is for the id number i + 1.")


def seam_tokenizer() -> bpe.Tokenizer:
    """A tokenizer that joins letters, and blanks to the word behind them."""
    return bpe.train(["the cat sat on the mat. the cats sat on mats: \n 10 1 100 " * 3], 270)


def split_at_seam(yours: Callable[..., Any]) -> None:
    encode = seam_tokenizer().encode
    for context, ending in (
        ("the cat", " sat"),
        ("the cat ", "sat"),
        ("the cat", "s sat"),
        ("the cat sat on the m", "at"),
        ("the cat sat: \n ", "on the mat"),
        ("", "the cat"),
        (" \n", "the cat"),
        ("the cat sat on 10", "0"),
        ("the cat", ""),
    ):
        whole, alone = encode(context + ending), encode(context.rstrip())
        shared = next((i for i, (a, b) in enumerate(zip(whole, alone, strict=False)) if a != b), None)
        shared = min(len(whole), len(alone)) if shared is None else shared
        call = f"split_at_seam(encode, {context!r}, {ending!r})"
        hint = "The whole text is encoded at once, as a model reads it; a token may reach over the seam."
        answer = yours(encode, context, ending)
        if answer is None:
            raise Wrong(f"split_at_seam returns None: {NOT_WRITTEN}.")
        for what, mine, right in zip(("given", "scored"), answer, (whole[:shared], whole[shared:]), strict=True):
            same(f"What {call} has as {what}", list(mine), right, hint)


def choose(yours: Callable[..., Any]) -> None:
    numbers = drawing("choose")
    cases: list[tuple[list[list[float]], list[str]]] = [
        ([[-3.0], [-1.0, -1.0], [-0.9, -0.9, -0.9]], ["a", "four", "é" * 20]),
        ([[-1.0, -1.0], [-1.0, -1.0]], ["same", "same"]),
        ([[-1.0], [-1.5]], ["aaaa", "日本"]),
    ]
    for _ in range(20):
        endings = ["".join(numbers.choices("aé日 ", k=numbers.randint(1, 9))) for _ in range(4)]
        cases.append(([[numbers.uniform(-4, 0) for _ in range(numbers.randint(1, 5))] for _ in endings], endings))
    for log_probs, endings in cases:
        for by, sizes in (
            ("sum", [1] * len(endings)),
            ("token", [len(row) for row in log_probs]),
            ("byte", [len(ending.encode()) for ending in endings]),
        ):
            scores = [sum(row) / size for row, size in zip(log_probs, sizes, strict=True)]
            answer = yours(log_probs, endings, by)
            same(f"choose({log_probs}, {endings}, {by!r})", answer, scores.index(max(scores)), f"Scores: {scores}.")


def rows_of(context: list[int], endings: list[list[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(context + ending) for ending in endings)
    ids = [context + ending + [padding] * (width - len(context + ending)) for ending in endings]
    mask = [[0] * len(context) + [1] * len(e) + [0] * (width - len(context + e)) for e in endings]
    return torch.tensor(ids), torch.tensor(mask)


def hellaswag_rows(yours: Callable[..., Any]) -> None:
    for context, endings, padding in (
        ([5, 6, 7], [[1], [2, 3], [4, 4, 4], [9]], 0),
        ([5, 0], [[0, 1], [1, 0], [0], [0, 0, 0]], 0),
        ([8], [[1, 2], [3, 4]], 50256),
    ):
        answer = yours(context, endings, padding)
        if answer is None:
            raise Wrong(f"hellaswag_rows returns None: {NOT_WRITTEN}.")
        call = f"hellaswag_rows({context}, {endings}, {padding})"
        for what, mine, right in zip(("ids", "mask"), answer, rows_of(context, endings, padding), strict=True):
            close(f"The {what} of {call}", mine, right, "The mask follows from lengths, not from the value of an id.")


def hellaswag_choice(yours: Callable[..., Any]) -> None:
    numbers = drawing("hellaswag_choice")
    for number in range(20):
        context = numbers.choices(range(9), k=numbers.randint(1, 4))
        endings = [numbers.choices(range(9), k=numbers.randint(1, 5)) for _ in range(4)]
        ids, mask = rows_of(context, endings, 0)
        logits = normal(*ids.shape, 9, seed=number) * 2
        if number == 0:
            logits[:, -1] = math.nan  # behind the last id comes nothing: these are not read
        means = []
        for row, ending in enumerate(endings):
            places = range(len(context), len(context) + len(ending))
            log_p = [float(logits[row, i - 1].log_softmax(-1)[ids[row, i]]) for i in places]
            means.append(sum(log_p) / len(log_p))
        answer = yours(logits, ids, mask)
        hint = f"Means: {', '.join(f'{mean:.3f}' for mean in means)}. Logits are one place in front of ids and mask."
        same(
            f"hellaswag_choice of a context of {len(context)} and endings of {list(map(len, endings))} ids",
            answer,
            means.index(max(means)),
            hint,
        )


def bits_per_byte(yours: Callable[..., Any]) -> None:
    for log_probs, text in (([-math.log(2)] * 8, "a"), ([-1.0, -2.5], "größe 日本"), ([-0.5] * 3, "ab\r\ncd")):
        right = -sum(log_probs) / math.log(2) / len(text.encode())
        hint = "Nats divided by ln 2 are bits; bytes are those of UTF-8."
        near(f"bits_per_byte({log_probs}, {text!r})", yours(log_probs, text), right, hint)


def contaminated(yours: Callable[..., Any]) -> None:
    numbers = drawing("contaminated")
    training = [" ".join(numbers.choices(["a", "b", "c"], k=60)) for _ in range(3)]
    tests = [" ".join(numbers.choices(["a", "b", "c"], k=k)) for k in (1, 3, 4, 5, 6, 7, 8, 9, 12)]
    sentence = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    for test_texts, texts, n in (
        (["x " + sentence + " y", "two three four", "two three five", "thirteen fourteen one"], [sentence], 13),
        (["One, TWO: three four!", "one two three five", "", "?!"], ["and\none two  three four."], 4),
        (["a b c d"], ["a b", "c d"], 4),
        (["a b"], ["a bc", "xa b"], 2),
        (["größe äöü"], ["die GRÖSSE", "Größe Äöü"], 2),
        (tests, training, 5),
        (tests, training, 8),
    ):
        words = [" ".join(re.findall(r"\w+", text.lower())) for text in texts]
        right = []
        for text in test_texts:
            parts = re.findall(r"\w+", text.lower())
            size = min(n, len(parts))
            runs = [" ".join(parts[i : i + size]) for i in range(len(parts) - size + 1)] if parts else []
            right.append(any(f" {run} " in f" {each} " for run in runs for each in words))
        answer = yours(test_texts, texts, n)
        if answer is None:
            raise Wrong(f"contaminated returns None: {NOT_WRITTEN}.")
        call = f"contaminated({[text[:40] for text in test_texts]}, {[text[:40] for text in texts]}, {n})"
        same(call, [bool(each) for each in answer], right, "Whole words, in a row, inside of one training text.")
    shared = [" ".join([*sentence.split()[:count], "x y"]) for count in (12, 13)]
    same("contaminated of 12 and of 13 words in a row", yours(shared, [sentence]), [False, True], "n is 13.")


def paired_difference(yours: Callable[..., Any]) -> None:
    numbers = drawing("paired_difference")
    drawn = [[numbers.random() < share for _ in range(50)] for share in (0.7, 0.6)]
    for first, second in (
        ([True, True, False, False], [True, False, False, True]),
        ([False, True, False, False], [True, True, True, False]),
        (drawn[0], drawn[1]),
        (drawn[0], drawn[0]),
    ):
        answer = yours(first, second)
        if answer is None:
            raise Wrong(f"paired_difference returns None: {NOT_WRITTEN}.")
        differences = torch.tensor(first).double() - torch.tensor(second).double()
        call = f"paired_difference of {len(first)} questions"
        near(f"The difference of {call}", answer[0], float(differences.mean()))
        hint = "Questions that both get right, or wrong, have the difference 0 and make the error smaller."
        near(f"The error of {call}", answer[1], float(differences.std() / len(first) ** 0.5), hint)


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    13: {
        "continuation_log_probs": continuation_log_probs,
        "split_at_seam": split_at_seam,
        "choose": choose,
        "hellaswag_rows": hellaswag_rows,
        "hellaswag_choice": hellaswag_choice,
        "bits_per_byte": bits_per_byte,
        "contaminated": contaminated,
        "paired_difference": paired_difference,
    }
}
