"""Train the demo's model with other settings, one trial after another, and say what each makes of held-out text.

    python tools/trials.py runs/demo 'vocab_size=4096 steps=1050' 'context_length=128 batch_size=8 steps=1330'

The first argument is a folder that the demo has left, for its text. Each further one is a trial: settings of the preset
cpu-demo to change, by name. Each prints a row of the table in docs/design/performance/lm.md: bits per byte on a fixed
sample of the held-out text, scored with a stride of half the context, and the seconds of its training.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from demo import preset

import bpe
import lm
from lm.config import ModelConfig, TrainConfig
from lm.data import open_tokens

SAMPLE = 150_000  # held-out tokens scored


def encoded(folder: Path, vocab_size: int) -> Path:
    """The folder of token files made with a tokenizer of that size; made where it is not there yet."""
    made = folder / "trials" / str(vocab_size)
    if not (made / "heldout.json").exists():
        made.mkdir(parents=True, exist_ok=True)
        tokenizer = bpe.train(folder / "train.txt", vocab_size, progress=True)
        for name in ("train", "heldout"):
            tokenizer.encode_file(folder / f"{name}.txt", made / f"{name}.npy", progress=True)
    return made


def changed(model: ModelConfig, train: TrainConfig, settings: str) -> tuple[ModelConfig, TrainConfig]:
    """Both configurations with the settings "name=value name=value" put over them."""
    values = {name: value(text) for name, _, text in (setting.partition("=") for setting in settings.split())}
    of_model = {name: values.pop(name) for name in list(values) if hasattr(model, name)}
    return dataclasses.replace(model, **of_model), dataclasses.replace(train, **values)


def value(text: str) -> Any:
    """True, 3 or 6e-3 as what it is, a word as a str."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that the demo has left")
    parser.add_argument("trials", nargs="*", default=[""], help="settings of each trial, 'name=value name=value'")
    options = parser.parse_args()
    print("| settings changed | steps | bits per byte | seconds |")
    print("|---|---|---|---|")
    for settings in options.trials:
        model, train = changed(*preset(), settings)
        train = dataclasses.replace(train, eval_every=0, eval_tokens=1000, checkpoint_every=0)
        data = encoded(options.folder, model.vocab_size)
        with tempfile.TemporaryDirectory() as run:
            result = lm.train(model, train, data, run)
        heldout = open_tokens(data / "heldout.npy")
        score = lm.evaluate(result.model, heldout, stride=model.context_length // 2, max_tokens=SAMPLE)
        print(
            f"| {settings or '(none)'} | {train.steps:,} | {score.bits_per_byte:.3f} | {result.seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
