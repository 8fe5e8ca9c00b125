"""The checks of chapter 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grading import drawing, near, same

import accounting
from accounting import TransformerShape

SIZES = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff")
MODELS = ((100, 16, 1, 8, 2, 24), (10_000, 256, 4, 512, 16, 1344), (50_257, 1024, 48, 1600, 25, 6400))


def models(exercise: str) -> tuple[tuple[int, ...], ...]:
    """MODELS, and three that are drawn for an exercise."""
    numbers = drawing(exercise)
    drawn = []
    for _ in range(3):
        heads = numbers.randint(1, 40)
        width, ffn = heads * 2 * numbers.randint(4, 64), numbers.randint(10, 9000)
        drawn.append(
            (numbers.randint(300, 90_000), numbers.randint(8, 5000), numbers.randint(2, 60), width, heads, ffn)
        )
    return (*MODELS, *drawn)


def count_parameters(yours: Callable[..., Any]) -> None:
    for sizes in models("count_parameters"):
        shape = TransformerShape(*sizes)
        parts = ", ".join(f"{name} {int(count):,}" for name, count in accounting.parameters(shape).terms if count)
        call = f"count_parameters{sizes}"
        same(call, yours(*sizes), int(accounting.parameters(shape).total), f"The parts are {parts}.")


def forward_flops(yours: Callable[..., Any]) -> None:
    for sizes in models("forward_flops"):
        counted = accounting.forward_flops(TransformerShape(*sizes))
        parts = ", ".join(f"{name} {int(count):,}" for name, count in counted.terms)
        same(f"forward_flops{sizes}", yours(*sizes), int(counted.total), f"The parts are {parts}.")


def training_memory(yours: Callable[..., Any]) -> None:
    state = accounting.optimizer_state(TransformerShape(*MODELS[0])).total
    count = accounting.parameters(TransformerShape(*MODELS[0])).total
    each = 4 + 4 + int(state) // int(count)  # a weight, its gradient, and what AdamW keeps of it
    numbers = drawing("training_memory")
    drawn = tuple(numbers.randint(1, 10**most) for most in (10, 10, 3))
    for parameters, saved, batch in ((1000, 50, 1), (2_127_057_600, 8_000_000_000, 4), (7, 3, 0), drawn):
        hint = "A float32 is 4 bytes; weights, gradients and both moments are all as many as there are parameters."
        call = f"training_memory({parameters}, {saved}, {batch})"
        same(call, yours(parameters, saved, batch), each * parameters + batch * saved, hint)


def largest_batch_size(yours: Callable[..., Any]) -> None:
    numbers = drawing("largest_batch_size")
    size, each, batch = (numbers.randint(2, most) for most in (10**10, 10**10, 500))
    for memory, parameters, saved, right in (
        (80_000_000_000, 2_127_057_600, 8_000_000_000, 5),
        (16_100, 1000, 50, 2),
        (16_099, 1000, 50, 1),
        (16_000, 1000, 50, 0),
        (1, 1000, 50, 0),
        (160 + 3 * 10**17 - 1, 10, 10**17, 2),
        (16 * size + batch * each, size, each, batch),
        (16 * size + batch * each - 1, size, each, batch - 1),
    ):
        hint = "Round down, and not below 0; // is exact where / has rounded already."
        same(f"largest_batch_size({memory}, {parameters}, {saved})", yours(memory, parameters, saved), right, hint)


def training_days(yours: Callable[..., Any]) -> None:
    numbers = drawing("training_days")
    drawn = (numbers.randint(10**6, 10**11), numbers.randint(10**8, 10**13), numbers.uniform(1e12, 1e17), 0.371)
    cases = ((124_000_000, 10**10, 9.89e14, 0.4), (7 * 10**9, 2 * 10**12, 3.12e14, 0.55), drawn)
    for parameters, tokens, peak, mfu in cases:
        right = 6 * parameters * tokens / (peak * mfu) / 86_400
        call = f"training_days({parameters}, {tokens}, {peak:g}, {mfu})"
        near(call, yours(parameters, tokens, peak, mfu), right, "A day has 86,400 seconds.")


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    5: {
        "count_parameters": count_parameters,
        "forward_flops": forward_flops,
        "training_memory": training_memory,
        "largest_batch_size": largest_batch_size,
        "training_days": training_days,
    }
}
