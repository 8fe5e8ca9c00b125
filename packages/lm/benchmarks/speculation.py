"""What guesses cost and bring: the time of a step of several tokens of one text, and a model's texts with guesses.

    python packages/lm/benchmarks/speculation.py [--threads 1] [--rounds 15] [--model MODEL --tokens 300]

A step that computes guesses too pays where it gives more tokens, on average, than the times a step of one token that
it takes. The first table says what it takes, for random weights of three sizes; with --model the second says how many
tokens a step of that model gave from its first token on, and how much faster its texts came, at temperature 0 and 0.8.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from lm.config import ModelConfig
from lm.device import threads
from lm.generation.decoder import Decoder
from lm.generation.engine import Scheduler
from lm.generation.sampling import Sampling
from lm.interop.loading import load
from lm.model import Transformer

SIZES = {
    "5.3 M": ModelConfig(4096, 256, 4, 256, 4, 704),
    "15 M": ModelConfig(32000, 256, 6, 288, 6, 768),
    "134 M": ModelConfig(32000, 1024, 12, 768, 12, 2048),
}
COUNTS = (1, 2, 4, 8)
GUESSES = (0, 1, 3, 7)
SAMPLES = 4


def cost(model: Transformer, rounds: int) -> dict[int, float]:
    """Seconds of a step of so many tokens of one text, after 64 others."""
    decoder = Decoder(model)
    decoder.read(0, list(range(64)))
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(rounds):
        for count in COUNTS:
            began = time.perf_counter()
            decoder.step([1] * count, [0] * count)
            seconds[count].append(time.perf_counter() - began)
            decoder.cache.shorten(0, count)
    return {count: statistics.median(times) for count, times in seconds.items()}


def write(model: Transformer, tokens: int, temperature: float, guesses: int) -> tuple[float, float]:
    """Seconds a token, and tokens a step, of a few texts."""
    steps, made, began = 0, 0, time.perf_counter()
    for seed in range(SAMPLES):
        batch = Scheduler(model, rows=1)
        text = batch.add(
            [1], max_new_tokens=tokens, sampling=Sampling(temperature=temperature), seed=seed, speculate=guesses
        )
        while batch.texts:
            batch.step()
            steps += 1
        made += len(text.tokens)
    return (time.perf_counter() - began) / made, made / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", help="a run, or a model that lm.load reads")
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()
    with threads(options.threads):
        print("| parameters | ms of a step | " + " | ".join(f"{count} tokens" for count in COUNTS[1:]) + " |")
        print("|---|" + "---:|" * len(COUNTS))
        for name, config in SIZES.items():
            seconds = cost(Transformer(config).eval(), options.rounds)
            times = " | ".join(f"{seconds[count] / seconds[1]:.2f}" for count in COUNTS[1:])
            print(f"| {name} | {seconds[1] * 1e3:.2f} | {times} |", flush=True)
        if options.model is None:
            return
        model = load(options.model)
        print("\n| temperature | guesses | tokens a step | times as fast |\n|---|---:|---:|---:|")
        for temperature in (0.0, 0.8):
            seen: dict[int, list[tuple[float, float]]] = {guesses: [] for guesses in GUESSES}
            for _ in range(max(1, options.rounds // 3)):
                for guesses in GUESSES:
                    seen[guesses].append(write(model, options.tokens, temperature, guesses))
            for guesses in GUESSES[1:]:
                ratio = statistics.median(a[0] / b[0] for a, b in zip(seen[0], seen[guesses], strict=True))
                print(f"| {temperature} | {guesses} | {seen[guesses][0][1]:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
