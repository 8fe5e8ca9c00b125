"""A solution of the exercises of chapter 13."""

import math
import re
import statistics
from collections.abc import Callable

import torch
from torch import Tensor


def continuation_log_probs(logits: Tensor, ids: Tensor, start: int) -> Tensor:
    log_p = logits[start - 1 : -1].log_softmax(-1)
    return log_p.gather(-1, ids[start:, None])[:, 0]


def split_at_seam(encode: Callable[[str], list[int]], context: str, ending: str) -> tuple[list[int], list[int]]:
    bare = context.rstrip()
    whole, alone = encode(context + ending), encode(bare)
    shared = 0
    while shared < min(len(whole), len(alone)) and whole[shared] == alone[shared]:
        shared += 1
    return whole[:shared], whole[shared:]


def choose(log_probs: list[list[float]], endings: list[str], by: str) -> int:
    scores = []
    for row, ending in zip(log_probs, endings, strict=True):
        scores.append(sum(row) / {"sum": 1, "token": len(row), "byte": len(ending.encode())}[by])
    return scores.index(max(scores))


def hellaswag_rows(context: list[int], endings: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
    width = len(context) + max(map(len, endings))
    ids = torch.full((len(endings), width), padding)
    mask = torch.zeros_like(ids)
    for row, ending in enumerate(endings):
        end = len(context) + len(ending)
        ids[row, :end] = torch.tensor(context + ending)
        mask[row, len(context) : end] = 1
    return ids, mask


def hellaswag_choice(logits: Tensor, ids: Tensor, mask: Tensor) -> int:
    log_p = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    is_scored = mask[:, 1:] > 0
    means = torch.where(is_scored, log_p, 0).sum(-1) / is_scored.sum(-1)
    return int(means.argmax())


def bits_per_byte(log_probs: list[float], text: str) -> float:
    return -sum(log_probs) / math.log(2) / len(text.encode())


def contaminated(tests: list[str], training: list[str], n: int = 13) -> list[bool]:
    def words_of(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    def runs(words: list[str], length: int) -> set[tuple[str, ...]]:
        return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}

    seen: dict[int, set[tuple[str, ...]]] = {}
    result = []
    for words in map(words_of, tests):
        length = min(n, len(words))
        if length not in seen:
            seen[length] = {run for text in training for run in runs(words_of(text), length)}
        result.append(bool(words) and not seen[length].isdisjoint(runs(words, length)))
    return result


def paired_difference(first: list[bool], second: list[bool]) -> tuple[float, float]:
    differences = [int(a) - int(b) for a, b in zip(first, second, strict=True)]
    return statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
