"""Tokenizers of words beside tokenizers of superwords: seconds and memory of training, and how well they compress.

    python packages/bpe/benchmarks/superwords.py FILE --heldout FILE [--vocab-size 32000] [--pattern o200k]
        [--only words superbpe]

Each training is a process of its own. On the held-out text: bytes a token; tokens saved beside the tokenizer of words;
and bits a byte of two models that need no training: one that knows the frequency of each token in the held-out text
itself (unigram), and one that gives all tokens of the vocabulary the same length (log2 of its size).
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import bpe

KINDS = {"words": None, "superbpe": "superbpe"}


def measure(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Train one tokenizer, and encode the held-out text."""
    begun = time.perf_counter()
    tokenizer = bpe.train(options.file, options.vocab_size, pattern=options.pattern, superwords=KINDS[kind])
    seconds = time.perf_counter() - begun
    usage = resource.getrusage(resource.RUSAGE_SELF)
    text = Path(options.heldout).read_text(errors="replace")
    size = len(text.encode())
    tokenizer.encode("")  # which makes the tables
    begun = time.process_time()
    ids = tokenizer.encode_to_numpy(text, disallowed_special=())
    encoded = size / (time.process_time() - begun) / 1e6
    counts = np.bincount(ids, minlength=options.vocab_size)
    share = counts[counts > 0] / len(ids)
    return {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "gigabytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9,
        "encoded": encoded,
        "tokens": len(ids),
        "bytes": size / len(ids),
        "unigram": float(-(share * np.log2(share)).sum()) * len(ids) / size,
        "fixed": math.log2(options.vocab_size) * len(ids) / size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--pattern", default="o200k")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options)))
        return
    print(
        "| `superwords` | seconds | CPU seconds | memory | bytes a token | tokens saved | bits a byte, unigram "
        "| bits a byte, log2 | encoding, one thread |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    words = 0.0
    for kind in options.only:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", kind]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        words = words or row["tokens"]
        print(
            f"| {KINDS[kind]} | {row['seconds']:.1f} | {row['cpu']:.1f} | {row['gigabytes']:.2f} GB "
            f"| {row['bytes']:.3f} | {1 - row['tokens'] / words:.1%} | {row['unigram']:.3f} | {row['fixed']:.3f} "
            f"| {row['encoded']:.0f} MB/s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
