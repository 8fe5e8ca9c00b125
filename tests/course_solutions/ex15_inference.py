"""A solution of the exercises of chapter 15."""

import heapq
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def cached_attention(q: Tensor, k: Tensor, v: Tensor, cache: list[Tensor]) -> Tensor:
    cache[:] = torch.cat([cache[0], k], dim=1), torch.cat([cache[1], v], dim=1)
    keys, values = cache
    scores = q @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
    past = keys.shape[1] - q.shape[1]
    hidden = torch.arange(keys.shape[1]) > past + torch.arange(q.shape[1])[:, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ values


def speculate(draft: Tensor, target: Tensor, tokens: list[int], uniforms: list[float]) -> list[int]:
    def draw(p: Tensor) -> int:
        return int((p.cumsum(0) > uniforms[-1] * p.sum()).nonzero()[0])

    for i, token in enumerate(tokens):
        if uniforms[i] * draft[i, token] >= target[i, token]:
            return [*tokens[:i], draw((target[i] - draft[i]).clamp(min=0))]
    return [*tokens, draw(target[-1])]


def quantize(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    groups = weight.float().unflatten(1, (-1, group))
    scales = groups.abs().amax(-1) / 127
    scales = torch.where(scales == 0, 1.0, scales)
    return (groups / scales[..., None]).round().to(torch.int8).flatten(1), scales


def dequantize(numbers: Tensor, scales: Tensor) -> Tensor:
    return (numbers.unflatten(1, (scales.shape[1], -1)) * scales[..., None]).flatten(1)


def finish_steps(lengths: list[int], arrivals: list[int], slots: int) -> list[int]:
    free = [0] * slots  # the first step in which each slot is free
    finish = list(lengths)
    for request in sorted(range(len(lengths)), key=lambda i: arrivals[i]):
        end = max(heapq.heappop(free), arrivals[request]) + lengths[request]
        finish[request] = end - 1
        heapq.heappush(free, end)
    return finish


def mixture(x: Tensor, router: Tensor, experts: Sequence[Callable[[Tensor], Tensor]], k: int) -> Tensor:
    largest, chosen = (x @ router.T).topk(k)
    weights = largest.softmax(-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows, places = (chosen == number).nonzero(as_tuple=True)
        if len(rows):
            out = out.index_add(0, rows, weights[rows, places, None] * expert(x[rows]))
    return out


def balance_loss(logits: Tensor, k: int) -> Tensor:
    experts = logits.shape[-1]
    chosen = logits.topk(k).indices
    f = chosen.flatten().bincount(minlength=experts) / chosen.numel()
    return experts * (f * logits.softmax(-1).mean(0)).sum()
