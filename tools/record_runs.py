"""Record the table of small runs that an exercise of chapter 8 queries: models of several widths, trained by `lm` at
several budgets and learning rates on the standard library of Python.

    python tools/record_runs.py     adds the runs that are missing to docs/course/exercises/runs.csv
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "demo"))
import corpus

import accounting
import bpe
import lm
from lm.config import ModelConfig, TrainConfig

TABLE = Path(__file__).parent.parent / "docs/course/exercises/runs.csv"
WIDTHS = (16, 32, 48, 64, 96)
RATES = (6e-3, 2e-2, 6e-2)
BUDGETS = (6.25e10, 1.25e11, 2.5e11)  # the exercise predicts the last one from the others


def prepare(folder: Path) -> bpe.Tokenizer:
    """Write train.npy and val.npy into a folder."""
    documents = corpus.split(corpus.standard_library())
    for name, part in (("train", documents.train), ("val", documents.heldout)):
        (folder / f"{name}.txt").write_bytes(corpus.joined(part))
    tokenizer = bpe.train(folder / "train.txt", 512, special_tokens=(corpus.SEPARATOR,))
    for name in ("train", "val"):
        tokenizer.encode_file(folder / f"{name}.txt", folder / f"{name}.npy")
    tokenizer.save(folder / "tokenizer.json")
    return tokenizer


def record(data: Path, width: int, rate: float, budget: float) -> tuple[int, int, float]:
    """Parameters, tokens and held-out loss of one run that lasts as long as its budget of 6 N D FLOPs."""
    model = ModelConfig(512, 64, 4, width, width // 16, 8 * width // 3 // 8 * 8, qk_norm=True)
    parameters = int(accounting.parameters(model.shape()).total)
    steps = max(1, round(budget / (6 * parameters * 8 * model.context_length)))
    settings = TrainConfig(
        steps,
        batch_size=8,
        optimizer="muon",
        learning_rate=rate,
        warmup_steps=steps // 10,
        schedule="linear",
        beta2=0.99,
        log_every=steps,
        eval_every=0,
        eval_tokens=131_072,
        checkpoint_every=0,
        threads=1,
    )
    with tempfile.TemporaryDirectory() as run:
        result = lm.train(model, settings, data, Path(run, "run"))
    assert result.heldout is not None
    return parameters, steps * 8 * model.context_length, result.heldout.loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.parse_args()
    grid = itertools.product(BUDGETS, WIDTHS, RATES)
    rows = list(csv.reader(TABLE.open(encoding="utf-8")))[1:] if TABLE.exists() else []
    recorded = {(float(row[2]), int(row[0]), float(row[1])) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for budget, width, rate in grid:
            if (budget, width, rate) in recorded:
                continue
            parameters, tokens, loss = record(Path(folder), width, rate, budget)
            rows.append([f"{width}", f"{rate:g}", f"{budget:g}", f"{parameters}", f"{tokens}", f"{loss:.4f}"])
            print(*rows[-1], flush=True)
            rows.sort(key=lambda row: (float(row[2]), int(row[0]), float(row[1])))
            with TABLE.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([["d_model", "learning_rate", "flops", "parameters", "tokens", "loss"], *rows])


if __name__ == "__main__":
    main()
