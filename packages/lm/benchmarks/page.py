"""A model in a page: its size, and the tokens that it writes in a second in a headless Chromium on one core.

python benchmarks/page.py [--rounds 5]

The model has random weights and 2.1 million parameters: 5 layers of 128, d_ff 384, 4 heads, vocabulary 4,096, context
256. It continues 20 tokens by 200, greedily, as a click on "Continue" does but without drawing; each round starts anew,
and fp16 and int8 take turns. The best and the median round are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch

import bpe
from lm.config import ModelConfig
from lm.model import Transformer
from lm.page.export import to_page

sys.path.append(str(Path(__file__).parents[2] / "bpe/tests"))
import chromium  # the tests of pages speak to the same browser

PROMPT, TOKENS = 20, 200
ROUND = """() => {
  page.sequence.start(Array.from({ length: PROMPT }, (_, i) => i));
  const begun = performance.now();
  for (let i = 0; i < TOKENS; i++) page.sequence.append(argmax(page.sequence.logits));
  return TOKENS / (performance.now() - begun) * 1000;
}""".replace("PROMPT", str(PROMPT)).replace("TOKENS", str(TOKENS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if chromium.PATH is None:
        sys.exit(f"no Chromium found (looked for {', '.join(chromium.NAMES)}; CHROMIUM names another)")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the browser that is started then has one core, too
    torch.manual_seed(0)
    model = Transformer(ModelConfig(4096, 256, 5, 128, 4, 384))
    speeds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        bpe.train([Path(torch.__file__).read_bytes()] * 2, 600).save(folder / "tok.json")
        print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")
        for dtype in ("fp16", "int8"):
            path = to_page(model, folder / f"{dtype}.html", dtype=dtype, tokenizer=folder / "tok.json")
            print(f"{dtype}: {path.stat().st_size / 1e6:.2f} MB")
        with chromium.Chromium(folder / "profile") as browser:
            for _ in range(rounds):
                for dtype in ("fp16", "int8"):
                    browser.open(folder / f"{dtype}.html")
                    browser.run(f"({ROUND})()")  # compiled on the way
                    speeds.setdefault(dtype, []).append(float(str(browser.run(f"({ROUND})()"))))
    for dtype, values in speeds.items():
        print(f"{dtype}: {max(values):.0f} tokens/s, median {statistics.median(values):.0f}")


if __name__ == "__main__":
    main()
