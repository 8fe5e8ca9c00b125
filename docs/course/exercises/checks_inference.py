"""Checks of the exercises of chapter 15."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, drawing, near, normal, same, same_function
from torch import Tensor, nn


def cached_attention(yours: Callable[..., Any]) -> None:
    yours = getattr(yours, "__wrapped__", yours)  # it changes its cache, as it should
    for heads, cuts, d in ((2, (5, 1, 1, 3), 4), (1, (1, 1), 8), (3, (0, 4, 2), 5)):
        q, k, v = (normal(heads, sum(cuts), d, seed=seed, scale=3) for seed in range(3))
        scores = q @ k.transpose(1, 2) / math.sqrt(d)
        mask = torch.ones(sum(cuts), sum(cuts), dtype=torch.bool).tril()
        right = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
        end = cuts[0]
        cache = [k[:, :end].clone(), v[:, :end].clone()]
        for new in cuts[1:]:
            rows = slice(end, end + new)
            end += new
            call = f"cached_attention of {new} positions after {end - new}"
            hint = "A new position sees all of the cache, itself, and the new ones before it."
            close(call, yours(q[:, rows], k[:, rows], v[:, rows], cache), right[:, rows], hint)
            if len(cache) != 2 or any(
                part.shape != whole[:, :end].shape or not bool((part == whole[:, :end]).all())
                for part, whole in zip(cache, (k, v), strict=True)
            ):
                raise Wrong(f"After {call} the cache is not [keys, values] of the {end} positions so far, in order.")


def speculate(yours: Callable[..., Any]) -> None:
    numbers = drawing("speculate")
    hint = "The residual max(0, target - draft) and the last row are drawn by uniforms[-1], normalized."
    draft = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    target = torch.tensor([[0.25, 0.5, 0.25], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]])
    cases = [(draft, target, [1, 1], [0.99, 0.99, u]) for u in (0.05, 0.15, 0.9)]
    cases += [(draft, target, [0, 2], [u, 0.5, 0.3]) for u in (0.4, 0.6)]
    even = torch.tensor([0.25, 0.25, 0.5])
    cases += [(draft, target, [0, 2], [0.5, 0.5, 0.3]), (draft[:1], even.expand(2, 3), [1], [0.25, 0.25])]
    cases += [(draft, target, [1, 2], [0.1, 0.41, 0.7]), (draft, target, [1, 2], [0.1, 0.39, 0.7])]
    for number in range(60):
        n, vocab = numbers.randint(1, 4), numbers.randint(2, 6)
        p, q = normal(n, vocab, seed=number).softmax(-1), normal(n + 1, vocab, seed=1000 + number).softmax(-1)
        if number % 3 == 0:
            q[:n] = p  # both agree: all are accepted
        cases.append((p, q, [numbers.randrange(vocab) for _ in range(n)], [numbers.random() for _ in range(n + 1)]))
    for p, q, tokens, uniforms in cases:
        right, row = list[int](), q[-1]
        for i, token in enumerate(tokens):
            if uniforms[i] >= float(q[i, token] / p[i, token]):
                row = (q[i] - p[i]).clamp(min=0)
                break
            right.append(token)
        total = (row / row.sum()).cumsum(0)
        if len(p) > 2 and float((total - uniforms[-1]).abs().min()) < 1e-5:
            continue  # rounding decides
        right.append(int((total > uniforms[-1]).nonzero()[0]))
        call = (
            f"speculate(draft {tuple(p.shape)}, target {tuple(q.shape)}, {tokens}, {[round(u, 3) for u in uniforms]})"
        )
        same(call, yours(p, q, tokens, uniforms), right, hint)


def in_groups(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    groups = weight.view(weight.shape[0], -1, group)
    largest = groups.abs().amax(-1)
    scales = torch.where(largest == 0, torch.ones_like(largest), largest / 127)
    return (groups / scales[..., None]).round().to(torch.int8).view(weight.shape), scales


def quantize(yours: Callable[..., Any]) -> None:
    weight = normal(6, 32) * torch.tensor([1.0, 100.0, 1e-3, 5.0]).repeat_interleave(8)
    weight[2, 8:16] = 0
    weight[0, :8] = torch.tensor([-127.0, 1.5, 2.5, -0.4, 126.6, 0.0, -2.5, 3.0])
    small = normal(2, 16).to(torch.bfloat16)
    for matrix, group in ((weight, 8), (weight, 16), (weight, 32), (small, 8)):
        answer = yours(matrix, group)
        if answer is None:
            raise Wrong(f"quantize returns None: {NOT_WRITTEN}.")
        hint = "One scale for each group: its largest absolute value / 127."
        for what, mine, right in zip(("numbers", "scales"), answer, in_groups(matrix.float(), group), strict=True):
            close(f"The {what} of quantize(weight {tuple(matrix.shape)}, {group})", mine, right, hint)


def dequantize(yours: Callable[..., Any]) -> None:
    for rows, columns, group in ((4, 32, 8), (3, 32, 32), (5, 12, 3)):
        numbers, scales = in_groups(normal(rows, columns), group)
        right = (numbers.float().view(rows, -1, group) * scales[..., None]).view(rows, columns)
        close(f"dequantize of groups of {group}", yours(numbers, scales), right, "Each number times its group's scale.")


def finish_steps(yours: Callable[..., Any]) -> None:
    numbers = drawing("finish_steps")
    cases = [([3, 1, 2], [0, 0, 0], 2), ([2, 2], [0, 5], 1), ([4, 1, 1], [2, 0, 0], 1), ([1, 5, 1], [0, 0, 1], 3)]
    for _ in range(20):
        count = numbers.randint(1, 9)
        lengths, arrivals = ([numbers.randint(low, 6) for _ in range(count)] for low in (1, 0))
        cases.append((lengths, arrivals, numbers.randint(1, 4)))
    for lengths, arrivals, slots in cases:
        waiting = sorted(range(len(lengths)), key=lambda i: (arrivals[i], i))
        left, right, running, step = list(lengths), [0] * len(lengths), list[int](), 0
        while waiting or running:
            while waiting and len(running) < slots and arrivals[waiting[0]] <= step:
                running.append(waiting.pop(0))
            for request in list(running):
                left[request] -= 1
                if not left[request]:
                    right[request] = step
                    running.remove(request)
            step += 1
        call = f"finish_steps({lengths}, {arrivals}, {slots})"
        same(
            call, yours(lengths, arrivals, slots), right, "A free slot is filled at once, and no request waits for all."
        )


def mixture(yours: Callable[..., Any]) -> None:
    for tokens, d, count, k in ((6, 4, 3, 2), (5, 3, 4, 1), (1, 4, 8, 2), (4, 2, 2, 2)):
        calls = list[int]()

        def expert(matrix: Tensor, calls: list[int] = calls) -> Callable[[Tensor], Tensor]:
            def run(own: Tensor) -> Tensor:
                calls.append(len(own))
                return nn.functional.silu(own @ matrix)

            return run

        experts = [expert(matrix) for matrix in normal(count, d, d, seed=5)]

        def right(x: Tensor, router: Tensor, k: int = k, experts: Any = experts) -> Tensor:
            logits = x @ router.T
            hidden = torch.full_like(logits, -math.inf).scatter(1, logits.topk(k).indices, 0.0)
            every = torch.stack([each(x) for each in experts], dim=1)
            return ((logits + hidden).softmax(-1)[..., None] * every).sum(1)

        def mine(x: Tensor, router: Tensor, k: int = k, experts: Any = experts) -> Any:
            return yours(x, router, experts, k)

        x, router = normal(tokens, d, seed=1), normal(count, d, seed=2)
        call = f"mixture of {tokens} tokens, {count} experts, {k} each"
        hint = "The softmax is over the k largest logits alone, and each token gets its own experts' outputs."
        same_function(call, mine, right, [x, router], hint)
        calls.clear()
        mine(x, router)
        if sum(calls) != tokens * k or len(calls) > count or 0 in calls:
            raise Wrong(f"{call} calls experts on {calls} tokens: each once at most, and only on those that chose it.")


def balance_loss(yours: Callable[..., Any]) -> None:
    near("balance_loss of equal use", yours(torch.eye(4) * 3, 1), 1.0, "experts · Σ f p", 1e-5)
    for tokens, count, k in ((6, 4, 1), (5, 3, 2), (7, 8, 3)):

        def right(logits: Tensor, k: int = k, count: int = count) -> Tensor:
            share = torch.zeros_like(logits).scatter(1, logits.topk(k).indices, 1.0 / k).mean(0)
            return count * (share * logits.softmax(-1).mean(0)).sum()

        def mine(logits: Tensor, k: int = k) -> Any:
            return yours(logits, k)

        call = f"balance_loss of {tokens} tokens, {count} experts, {k} each"
        logits = normal(tokens, count, seed=k, scale=2)
        for each in (logits, torch.cat([logits[:, :-1], torch.full((tokens, 1), -9.0)], dim=1)):  # one is never chosen
            same_function(call, mine, right, [each], "f counts choices, p all experts.")


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    15: {
        "cached_attention": cached_attention,
        "speculate": speculate,
        "quantize": quantize,
        "dequantize": dequantize,
        "finish_steps": finish_steps,
        "mixture": mixture,
        "balance_loss": balance_loss,
    }
}
