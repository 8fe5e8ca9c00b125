"""Seconds of a whole training step: this package beside a plain PyTorch model of the same shape, taking turns.

python benchmarks/step.py [--compile] [--rounds 40] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.config import ModelConfig
from lm.loss import chunked_cross_entropy
from lm.machine import keep_memory
from lm.model import Transformer
from lm.optimizer import adamw, clip_gradients
from lm.step import compile_blocks

CONFIG = ModelConfig(2048, 128, 4, 128, 4, 352)
BATCH = 8


class PlainBlock(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(c.d_model), nn.RMSNorm(c.d_model)
        self.q, self.k, self.v, self.o = (nn.Linear(c.d_model, c.d_model, bias=False) for _ in range(4))
        self.w1, self.w3 = (nn.Linear(c.d_model, c.d_ff, bias=False) for _ in range(2))
        self.w2 = nn.Linear(c.d_ff, c.d_model, bias=False)
        self.heads = c.num_heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        def turn(y: Tensor) -> Tensor:
            a, b = y[..., 0::2], y[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

        y = self.n1(x)
        q, k, v = (w(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.n2(x)
        out: Tensor = x + self.w2(F.silu(self.w1(y)) * self.w3(y))
        return out


class Plain(nn.Module):
    """What one writes first: a module for each matrix, sines for rotation, torch's own attention, norm and loss."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.blocks = nn.ModuleList(PlainBlock(c) for _ in range(c.num_layers))
        self.norm, self.head = nn.RMSNorm(c.d_model), nn.Linear(c.d_model, c.vocab_size, bias=False)
        width = c.head_width
        angles = torch.outer(torch.arange(c.context_length), 1e4 ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="this package's blocks through torch.compile too")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ids = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context_length))
    targets = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context_length))

    def ours(compile: bool) -> Callable[[], None]:
        model = Transformer(CONFIG)
        optimizer = adamw(model, 1e-3)
        if compile:
            compile_blocks(model)
        hidden = model.hidden

        def step() -> None:
            chunked_cross_entropy(hidden(ids), model.head_weight, targets).backward()  # type: ignore[no-untyped-call]
            float(clip_gradients(model.parameters(), 1.0))
            optimizer.step()
            optimizer.zero_grad()

        return step

    def plain() -> Callable[[], None]:
        model = Plain(CONFIG)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step() -> None:
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()  # type: ignore[no-untyped-call]
            float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            optimizer.zero_grad()

        return step

    def measure(step: Callable[[], None], times: list[float], rounds: int = 1) -> None:
        for _ in range(rounds):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)

    times: dict[str, list[float]] = {}
    alone = plain()
    measure(alone, [], 3)
    measure(alone, times.setdefault("plain, memory as glibc has it", []), options.rounds)
    keep_memory()
    steps = {"plain": plain(), "lm": ours(False)}
    if options.compile:
        steps["lm, compiled"] = ours(True)
    for name, step in steps.items():
        began = time.perf_counter()
        measure(step, [], 3)
        if name == "lm, compiled":
            print(f"compiled in {time.perf_counter() - began:.1f} s")
    for _ in range(options.rounds):
        for name, step in steps.items():
            measure(step, times.setdefault(name, []))
    print(f"torch {torch.__version__}, {options.threads} threads, {BATCH * CONFIG.context_length} tokens a step")
    for name, taken in times.items():
        middle, least = statistics.median(taken), min(taken)
        speed = BATCH * CONFIG.context_length / middle
        print(f"{name:30} {middle * 1e3:8.1f} ms median {least * 1e3:8.1f} ms least {speed:10,.0f} tokens/s")


if __name__ == "__main__":
    main()
