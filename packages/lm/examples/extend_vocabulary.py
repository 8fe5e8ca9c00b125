"""A model learns a language with tokens of its own: how its new rows begin, measured.

    python packages/lm/examples/extend_vocabulary.py BASE.txt NEW.txt [--steps 1200] [--tuning 200] [--chart FILE.svg]

A tokenizer is trained on BASE, and a model on BASE with three rows of sixteen from NEW. bpe.extend() gives the
tokenizer tokens for NEW, lm.extend_vocabulary() gives the model rows for them, and the model is tuned on NEW alone.
Losses are bits per byte of held-out text of NEW, so that they compare across tokenizers.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bpe
import lm
from lm.loss import cross_entropy
from lm.optimizer import adamw
from lm.reporting.charts import Line, picture
from lm.vocabulary import METHODS

CONTEXT, BATCH, EVERY = 64, 16, 25
HELD_OUT = 1 << 16  # bytes


def batch(ids: np.ndarray[Any, Any], generator: np.random.Generator, rows: int) -> Tensor:
    """Rows at random places, (rows, CONTEXT + 1)."""
    starts = generator.integers(0, len(ids) - CONTEXT, rows)
    return torch.from_numpy(np.stack([ids[at : at + CONTEXT + 1] for at in starts]).astype(np.int64))


@torch.no_grad()
def bits_per_byte(model: lm.Transformer, tokenizer: bpe.Tokenizer, text: bytes) -> float:
    """Bits that the model needs for a byte of a text, read in rows of CONTEXT tokens."""
    ids = torch.from_numpy(tokenizer.encode_to_numpy(text).astype(np.int64))
    rows = ids[: (len(ids) - 1) // CONTEXT * CONTEXT + 1].unfold(0, CONTEXT + 1, CONTEXT)
    nats = sum(float(cross_entropy(model(part[:, :-1]), part[:, 1:], reduction="sum")) for part in rows.split(64))
    size = len(tokenizer.decode_bytes(rows[:, 1:].flatten().tolist()))
    return nats / math.log(2) / size


def trained(model: lm.Transformer, sources: Sequence[tuple[np.ndarray[Any, Any], int]], steps: int, rate: float) -> Any:
    """Train in place on (ids, rows of a batch) of each source; a generator of the number of steps done."""
    model.train()
    optimizer = adamw(model, rate)
    generator = np.random.default_rng(0)
    for step in range(steps):
        if step % EVERY == 0:
            yield step
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 20, 2 * (1 - step / steps))
        rows = torch.cat([batch(ids, generator, count) for ids, count in sources])
        cross_entropy(model(rows[:, :-1]), rows[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    yield steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--tuning", type=int, default=200)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--added", type=int, default=1024, help="tokens for the new language (%(default)s)")
    parser.add_argument("--tied", action="store_true", help="one matrix for embedding and head")
    parser.add_argument("--chart", type=Path, help="write the losses as a picture")
    options = parser.parse_args()
    texts = [path.read_bytes()[: 12 << 20].decode(errors="ignore").encode() for path in (options.base, options.new)]
    base_text, new_text = (text[:-HELD_OUT] for text in texts)
    held_out = texts[1][-HELD_OUT:].decode(errors="ignore").encode()
    old = bpe.train([base_text], options.vocab_size, special_tokens=[])
    new = bpe.extend(old, [new_text], options.vocab_size + options.added)
    config = lm.ModelConfig(
        old.n_vocab, CONTEXT, 4, 128, 4, 344, qk_norm=True, tied_embeddings=options.tied
    )  # of the demo's size
    torch.manual_seed(0)
    model = lm.Transformer(config)
    of_base, of_new = old.encode_to_numpy(base_text), old.encode_to_numpy(new_text)
    share = BATCH // 5
    for _ in trained(model, [(of_base, BATCH - share), (of_new, share)], options.steps, 3e-3):
        pass
    print(f"{len(of_new) / len(new.encode_to_numpy(new_text)):.2f} times fewer tokens of the new language")
    curves: dict[str, list[tuple[float, float]]] = {}
    starts = {"old vocabulary": (model, old)}
    starts |= {method: (lm.extend_vocabulary(model, old, new, method), new) for method in METHODS}
    larger = lm.extend_vocabulary(model, old, new)
    with torch.no_grad():
        torch.manual_seed(1)
        fresh = lm.Transformer(dataclasses.replace(config, vocab_size=new.n_vocab))
        for name, rows in larger.named_parameters():
            if name in ("embedding.weight", "head.weight"):
                rows[old.n_vocab :] = fresh.get_parameter(name)[old.n_vocab :]
    starts["random"] = (larger, new)
    for name, (begun, tokenizer) in starts.items():
        ids = tokenizer.encode_to_numpy(new_text)
        curves[name] = [
            (step * BATCH * CONTEXT, bits_per_byte(begun, tokenizer, held_out))
            for step in trained(begun, [(ids, BATCH)], options.tuning, 1e-3)
        ]
        print(f"{name}: " + " ".join(f"{loss:.3f}" for _, loss in curves[name]), flush=True)
    if options.chart is not None:
        lines = [Line(name, points, number, label=name) for number, (name, points) in enumerate(curves.items())]
        options.chart.write_text(picture(lines, x_name="tokens of the new language"))


if __name__ == "__main__":
    main()
