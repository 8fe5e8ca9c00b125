"""The dial of `lm train --depth` against a sweep around it: other models, rates and batches at the FLOPs of a depth.

python benchmarks/depth.py DATA [--depths 1 2 3] [--only dial seed …] >> sweep.jsonl
python benchmarks/depth.py --table sweep.jsonl

DATA is a folder of token files with held-out text. A run changes one setting of the dial's configuration, and trains
for as many steps as its FLOPs allow (`accounting`, causal attention). One line of JSON a run; the second command makes
a table of them: bits per byte of the held-out text, how much the best of a depth is below the dial, CPU seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lm
from accounting import training_flops
from lm.config import ModelConfig, TrainConfig
from lm.data import open_data
from lm.depth import configuration_of

Both = tuple[ModelConfig, TrainConfig]
CHANGES: dict[str, Callable[[ModelConfig, TrainConfig], Both]] = {
    "dial": lambda model, training: (model, training),
    "seed 1": lambda model, training: (model, dataclasses.replace(training, seed=1)),
    "depth - 1": lambda model, training: of_depth(model, -1),
    "depth + 1": lambda model, training: of_depth(model, 1),
    "width - 32": lambda model, training: (of_width(model, model.d_model - 32), training),
    "width + 32": lambda model, training: (of_width(model, model.d_model + 32), training),
    "layers + 1": lambda model, training: (dataclasses.replace(model, num_layers=model.num_layers + 1), training),
    "rate x 0.5": lambda model, training: (model, of_rate(training, 0.5)),
    "embedding rate x 0.5": lambda model, training: (model, of_embedding_rate(training, 0.5)),
    "embedding rate x 2": lambda model, training: (model, of_embedding_rate(training, 2)),
    "rate x 2": lambda model, training: (model, of_rate(training, 2)),
    "batch x 0.5": lambda model, training: (model, of_batch(training, 0.5)),
    "batch x 2": lambda model, training: (model, of_batch(training, 2)),
    "context x 0.5": lambda model, training: of_context(model, training, 0.5),
    "context x 2": lambda model, training: of_context(model, training, 2),
}


def of_depth(model: ModelConfig, more: int) -> Both:
    return configuration_of(model.num_layers + more, model.vocab_size)


def of_width(model: ModelConfig, width: int) -> ModelConfig:
    d_ff = round(width * 8 / 3 / 16) * 16
    return dataclasses.replace(model, d_model=width, num_heads=width // 32, d_ff=d_ff)


def of_rate(training: TrainConfig, factor: float) -> TrainConfig:
    names = "learning_rate", "embedding_learning_rate"
    return dataclasses.replace(training, **{name: getattr(training, name) * factor for name in names})


def of_embedding_rate(training: TrainConfig, factor: float) -> TrainConfig:
    assert training.embedding_learning_rate is not None
    return dataclasses.replace(training, embedding_learning_rate=training.embedding_learning_rate * factor)


def of_batch(training: TrainConfig, factor: float) -> TrainConfig:
    return dataclasses.replace(training, batch_size=round(training.batch_size * factor))


def of_context(model: ModelConfig, training: TrainConfig, factor: float) -> Both:
    model = dataclasses.replace(model, context_length=round(model.context_length * factor))
    return model, of_batch(training, 1 / factor)


def flops_of_step(model: ModelConfig, training: TrainConfig) -> int:
    return int(training_flops(model.shape(), pairs="causal").total) * training.batch_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=CHANGES, default=list(CHANGES), metavar="CHANGE")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        return print_table([json.loads(line) for line in options.table.read_text().splitlines()])
    vocab_size = open_data(options.data).highest + 1
    for depth in options.depths:
        model, training = configuration_of(depth, vocab_size)
        budget = flops_of_step(model, training) * training.steps
        for name in options.only:
            if name in ("depth - 1", "width - 32") and depth == 1:
                continue
            result = measure(options.data, name, depth, vocab_size, budget)
            print(json.dumps({"depth": depth, "change": name, **result}), flush=True)


def measure(data: str, name: str, depth: int, vocab_size: int, budget: int) -> dict[str, float]:
    """Train the dial's configuration with a change for a budget of FLOPs, on one thread."""
    model, training = CHANGES[name](*configuration_of(depth, vocab_size))
    steps = max(1, round(budget / flops_of_step(model, training)))
    began = time.process_time()
    training = dataclasses.replace(training, steps=steps, threads=1, eval_every=0, eval_tokens=0, checkpoint_every=0)
    with tempfile.TemporaryDirectory() as folder:
        score = lm.train(model, training, data, folder, progress=False).heldout
    assert score is not None, f"{data} has no held-out text"
    return {
        "layers": model.num_layers,
        "width": model.d_model,
        "context": model.context_length,
        "batch": training.batch_size * model.context_length,
        "rate": training.learning_rate,
        "steps": steps,
        "flops": steps * flops_of_step(model, training),
        "bits_per_byte": round(score.bits_per_byte, 4),
        "seconds": round(time.process_time() - began, 1),
    }


def print_table(lines: list[dict[str, Any]]) -> None:
    columns = "depth", "change", "layers", "width", "context", "batch", "rate", "steps"
    print("| " + " | ".join(columns) + " | FLOPs | bits per byte | CPU seconds |")
    print("|---|---|" + "---:|" * 9)
    for line in lines:
        cells = [f"{line[column]:,}" if column in ("batch", "steps") else f"{line[column]}" for column in columns]
        print(
            "| " + " | ".join(cells),
            f"{line['flops']:.2e} | {line['bits_per_byte']:.4f} | {line['seconds']:.0f} |",
            sep=" | ",
        )
    for depth in sorted({line["depth"] for line in lines}):
        scores = {line["change"]: line["bits_per_byte"] for line in lines if line["depth"] == depth}
        best = min(scores.keys() - {"seed 1"}, key=scores.__getitem__)  # a seed is no setting: it shows the noise
        print(f"\ndepth {depth}: {best} is best, the dial {scores['dial'] - scores[best]:.4f} behind it", end="")
    print(f"; torch {torch.__version__}")


if __name__ == "__main__":
    main()
