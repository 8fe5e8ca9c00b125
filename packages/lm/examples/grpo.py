"""GRPO on sums: a small model that adds, wrongly at first, learns from which of its own answers are right.

    python packages/lm/examples/grpo.py OUT [--supervised 400] [--steps 60] [--variant dr_grpo] [--chart FILE.svg]

    prompt   "|27+45="                     of a few problems
    sample   "72.", "62.", "72.", "7."     a group of answers to each, at temperature 1
    reward    1,     0,     1,     0       by comparing with the sum: no model judges

The first run, OUT/sft, learns from some right answers, so that some answers to other problems are right: a reward that
never comes teaches nothing. The second, OUT/grpo-std, begins with its weights. Both continue where they were stopped.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import lm
from lm.data import open_tokens, write_tokens
from lm.reporting.charts import Line, picture
from lm.training.objectives.grpo import GroupRelativePolicy

VOCABULARY = "0123456789+=.|"
SEPARATOR = VOCABULARY.index("|")
WINDOW = 16  # "|", a problem of six characters, an answer of four, and separators
ANSWER = 4  # tokens: three digits and the end
MODEL = lm.ModelConfig(len(VOCABULARY), WINDOW, num_layers=2, d_model=64, num_heads=4, d_ff=176)


def write_sums(path: Path, problems: Sequence[tuple[int, int]]) -> None:
    """Write a token file with one problem a window, of which the answer is learned."""
    prompts, answers = [f"|{a:02}+{b:02}=" for a, b in problems], [f"{a + b}." for a, b in problems]
    texts = [(prompt + answer).ljust(WINDOW, "|") for prompt, answer in zip(prompts, answers, strict=True)]
    learned = [len(p) <= i < len(p + a) for p, a in zip(prompts, answers, strict=True) for i in range(WINDOW)]
    ids = np.array([VOCABULARY.index(character) for text in texts for character in text])
    write_tokens(path, ids, end_of_text=SEPARATOR, mask=np.array(learned, dtype=np.uint8), window=WINDOW)


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """The accuracy before and after GRPO, on problems that neither run saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--supervised", type=int, default=400, help="steps of supervised training")
    parser.add_argument("--steps", type=int, default=60, help="steps of GRPO")
    help = "none: Dr. GRPO; mean: MaxRL"
    parser.add_argument("--normalizer", choices=("std", "mean", "none"), default="std", help=help)
    parser.add_argument("--problems", type=int, default=32, help="of a step of GRPO")
    parser.add_argument("--group-size", type=int, default=16, help="answers to a problem")
    parser.add_argument("--updates", type=int, default=2, help="from the same answers")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chart", type=Path, help="write the rewards as a picture")
    options = parser.parse_args(arguments)
    problems = [(a, b) for a in range(100) for b in range(100)]
    random.Random(options.seed).shuffle(problems)
    for name, part in (("heldout", problems[:500]), ("train", problems[500:])):
        if not (options.out / "data" / f"{name}.npy").exists():
            (options.out / "data").mkdir(parents=True, exist_ok=True)
            write_sums(options.out / "data" / f"{name}.npy", part)
    common = {"document_masking": True, "seed": options.seed, "eval_tokens": 0, "precision": "fp32"}
    sft = lm.TrainConfig(options.supervised, objective="sft", batch_size=64, learning_rate=3e-3, eval_every=0, **common)
    grpo = lm.TrainConfig(
        options.steps,
        objective="grpo",
        init_from=str(options.out / "sft"),
        batch_size=options.problems,
        learning_rate=options.learning_rate,
        schedule="constant",
        warmup_steps=0,
        weight_decay=0.0,
        eval_every=10,
        grpo_normalizer=options.normalizer,
        grpo_normalization="constant" if options.normalizer == "none" else "sequence",
        grpo_group_size=options.group_size,
        grpo_answer_tokens=ANSWER,
        grpo_updates=options.updates,
        **common,
    )
    model = lm.train(MODEL, sft, options.out / "data", options.out / "sft", progress=False).model
    before = (
        1
        - GroupRelativePolicy(model, grpo, SEPARATOR)
        .evaluate(open_tokens(options.out / "data" / "heldout.npy"), None)
        .loss
    )
    print(f"after {options.supervised} steps of supervised training: {before:.1%} of the sums are right", flush=True)
    folder = options.out / f"grpo-{options.normalizer}"
    result = lm.train(None, grpo, options.out / "data", folder, progress=False)
    assert result.heldout is not None
    after = 1 - result.heldout.loss
    print(f"after {options.steps} steps of GRPO, {result.seconds:.0f} s: {after:.1%} of the sums are right")
    if options.chart is not None:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        curves = {
            "drawn answers, training problems": [(line["step"], line["reward"]) for line in lines if "reward" in line],
            "likeliest answers, unseen problems": [(0, before)]
            + [(line["step"], line["val_reward"]) for line in lines if "val_reward" in line],
        }
        drawn = [Line(name, points, number, label=name) for number, (name, points) in enumerate(curves.items())]
        options.chart.write_text(picture(drawn))
    return before, after


if __name__ == "__main__":
    main()
