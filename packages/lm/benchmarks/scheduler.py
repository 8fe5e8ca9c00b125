"""The savings of the scheduler's two mechanisms: shared prefixes and pre-emption, each on and off.

    python benchmarks/scheduler.py [--rounds 3]

Shared prefixes: 16 sequences with the same 1,000 tokens in front and 20 of their own each, 16 tokens to write.
Pre-emption: 8 sequences that may write 400 tokens and write 40, in memory for two such as long as they may be. Without
pre-emption a sequence is let in only if all that it may write fits.
"""

from __future__ import annotations

import argparse
import time

import torch

import lm
from lm.generation.kv_cache import PAGE, bytes_of_page
from lm.generation.scheduler import Scheduler, Sequence

CONFIG = lm.ModelConfig(4096, 1200, 4, 256, 4, 704)


def finish(scheduler: Scheduler, prompts: list[list[int]], stop: int, most: int) -> tuple[float, float]:
    """Mean seconds to the first token, and seconds in all, of prompts that end after `stop` of `most` tokens."""
    began, firsts = time.perf_counter(), dict[Sequence, float]()
    waiting = prompts[::-1]
    while waiting or scheduler.sequences:
        while waiting and scheduler.room:
            scheduler.add(waiting.pop(), max_new_tokens=most, seed=0, when_full="end")
        for sequence, _ in scheduler.step():
            firsts.setdefault(sequence, time.perf_counter() - began)
            if len(sequence.tokens) == stop:
                scheduler.cancel(sequence)
    return sum(firsts.values()) / len(firsts), time.perf_counter() - began


def prefixes(model: lm.Transformer, shared: bool) -> float:
    common = torch.arange(1000).tolist()
    scheduler = Scheduler(model, rows=16)
    if not shared:
        scheduler.prefixes.take = lambda row, ids, before: before  # type: ignore[method-assign]
    return finish(scheduler, [[*common, *range(n, n + 20)] for n in range(16)], 16, 16)[1]


def preemption(model: lm.Transformer, preempts: bool) -> tuple[float, float]:
    pages = 2 * -(-500 // PAGE)
    scheduler = Scheduler(model, rows=8 if preempts else 2, capacity=500, memory=pages * bytes_of_page(model))
    return finish(scheduler, [list(range(n, n + 100)) for n in range(8)], 40, 400)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    rounds = options.parse_args().rounds
    model = lm.Transformer(CONFIG).eval()
    for name, run in (("on", True), ("off", False)):
        least = min(prefixes(model, run) for _ in range(rounds))
        print(f"shared prefixes {name}: {least:.2f} s in all")
    for name, run in (("on", True), ("off", False)):
        first, whole = min(preemption(model, run) for _ in range(rounds))
        print(f"pre-emption {name}: {first:.3f} s to the first token, {whole:.2f} s in all")


if __name__ == "__main__":
    main()
