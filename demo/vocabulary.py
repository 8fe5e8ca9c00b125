"""Compare vocabulary sizes: one model shape and one budget of FLOPs for each size, in bits per byte.

    python demo/vocabulary.py [TEXT …] [--sizes 512 1024 2048 4096] [--superwords 2048] [--flops 2e11] [--seeds 2]

The text is the standard library of the running Python, or the files that are named; a tenth of the documents is held
out. The tokenizers are nested: one training, cut to each size; "superwords" are SuperBPE of that size beside it. A
larger vocabulary needs fewer tokens for the text but has a larger embedding and head, so that the same FLOPs, counted
by `accounting`, pay for fewer steps. The table is written to OUT/table.md, and a chart of it, whose lowest point is the
best size, to OUT/chart.svg; runs that are done are only read.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from corpus import SEPARATOR, Split, files, split, standard_library

import bpe
import lm
from accounting import training_flops
from lm.reporting.charts import Line, picture

BATCH = 16
LEARNING_RATE = 3e-3


def prepare(tokenizer: bpe.Tokenizer, text: Split, folder: Path) -> float:
    """Write the token files of a tokenizer; return the bytes of held-out text for each token."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, documents in (("train", text.train), ("heldout", text.heldout)):
        texts = [document.text for document in documents]
        tokens = tokenizer.encode_file(texts, folder / f"{name}.npy", end_of_text=SEPARATOR, num_threads=1)
    return sum(map(len, texts)) / tokens


def bits_per_byte(config: lm.ModelConfig, steps: int, seed: int, data: Path, out: Path) -> float:
    """Train a model and score it on the held-out text."""
    train = lm.TrainConfig(
        steps=steps, batch_size=BATCH, learning_rate=LEARNING_RATE, seed=seed, device="cpu", eval_every=0
    )
    result = lm.train(config, train, data, out, progress=False)
    assert result.heldout is not None
    assert result.heldout.bits_per_byte is not None
    return result.heldout.bits_per_byte


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", type=Path)
    parser.add_argument("--sizes", nargs="+", type=int, default=[512, 1024, 2048, 4096])
    parser.add_argument("--superwords", nargs="*", type=int, default=[2048], help="sizes of SuperBPE beside them")
    parser.add_argument("--flops", type=float, default=2e11, help="of the forward and backward passes of a run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("runs/vocabulary"))
    options = parser.parse_args()
    text = split(files(options.text) if options.text else standard_library())
    texts = [document.text for document in text.train]
    largest = bpe.train(texts, max(options.sizes))
    tokenizers = {f"{size:,}": largest.with_vocab_size(size) for size in options.sizes}
    for size in options.superwords:
        tokenizers[f"{size:,}, superwords"] = bpe.train(texts, size, superwords="superbpe")

    header = "| vocabulary | bytes a token | steps | bytes seen | bits per byte, by seed | mean |"
    lines = [header, "|---|---|---|---|---|---|"]
    scores_of: dict[str, list[tuple[int, list[float]]]] = {"words": [], "superwords": []}
    for name, tokenizer in tokenizers.items():
        folder = options.out / name.replace(", ", "-").replace(",", "")
        density = prepare(tokenizer, text, folder / "tokens")
        width = options.width
        config = lm.ModelConfig(tokenizer.n_vocab, options.context, options.layers, width, width // 32, 3 * width)
        steps = round(options.flops / int(training_flops(config.shape(), batch_size=BATCH).total))
        scores = [
            bits_per_byte(config, steps, seed, folder / "tokens", folder / f"seed-{seed}")
            for seed in range(options.seeds)
        ]
        scores_of["superwords" if "superwords" in name else "words"].append((tokenizer.n_vocab, scores))
        seen = steps * BATCH * options.context * density
        lines.append(
            f"| {name} | {density:.2f} | {steps:,} | {seen:,.0f} | {', '.join(f'{score:.4f}' for score in scores)} | "
            f"{statistics.fmean(scores):.4f} |"
        )
        print(lines[-1], flush=True)
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    curves = []
    for colour, (name, rows) in enumerate(scores_of.items()):
        means = [(size, statistics.fmean(scores)) for size, scores in sorted(rows)]
        curves += [Line(name, [(size, score)], colour) for size, scores in rows for score in scores]
        curves.append(Line(name, means, colour, label=f"bits per byte, {name}, at last"))
    (options.out / "chart.svg").write_text(picture(curves, x_name="vocabulary", log_x=True), encoding="utf-8")


if __name__ == "__main__":
    main()
