"""Decode the ids of one text with this package and its peers, taking turns: MB/s of text, at once and in short pieces.

    python packages/bpe/benchmarks/decode.py FILE --tokenizer tokenizer.json [--rounds 3] [--only NAME …]

The tokenizer is a Hugging Face tokenizer.json, which every candidate reads; tiktoken gets its ranks. Each round gives
each candidate a process of its own, on one thread. "At once" is the best of five passes over all ids; "in pieces" the
same ids twenty at a time, as a chat's messages or a model's output are decoded. A peer that is not installed is left
out, and named.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import DECODERS

import bpe

PIECE = 20  # ids


def work(name: str, path: str, text: str) -> dict[str, Any]:
    _, make, array = DECODERS[name]
    ids = bpe.load(path).encode_to_numpy(text, disallowed_special=())
    whole = ids if array else ids.tolist()
    pieces = [whole[begin : begin + PIECE] for begin in range(0, min(len(whole), 500_000), PIECE)]
    decode = make(path)
    output = decode(whole)
    data = output.encode() if isinstance(output, str) else bytes(output)
    size = len(text.encode())

    def seconds(job: Callable[[], Any]) -> float:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            job()
            times.append(time.perf_counter() - begun)
        return min(times)

    at_once = seconds(lambda: decode(whole))
    in_pieces = seconds(lambda: [decode(piece) for piece in pieces])
    share = sum(map(len, pieces)) / len(whole)
    return {
        "whole": size / 1e6 / at_once,
        "pieces": size * share / 1e6 / in_pieces,
        "text": hashlib.sha256(data).hexdigest()[:12],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=DECODERS)
    parser.add_argument("--worker", choices=DECODERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        text = options.file.read_text(errors="replace")
        print(json.dumps(work(options.worker, options.tokenizer, text)))
        return
    selection = options.only or list(DECODERS)
    names = [name for name in selection if importlib.util.find_spec(DECODERS[name][0])]
    missing = [name for name in selection if name not in names]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    alone = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, str(options.file), "--tokenizer", options.tokenizer, "--worker", name]
            out = subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout
            results[name].append(json.loads(out.splitlines()[-1]))
    same = {rows[0]["text"]: name for name, rows in reversed(results.items())}
    megabytes = options.file.stat().st_size / 1e6
    print(
        f"{options.file.name}, {megabytes:.1f} MB, one thread, median of {options.rounds} rounds taken in turn", end=""
    )
    print((f"; not installed: {', '.join(missing)}" if missing else "") + "\n")
    print(f"| decoder | at once, MB/s | {PIECE} ids at a time, MB/s | the same text as |")
    print("|---|---|---|---|")
    for name, rows in results.items():
        whole, pieces = (statistics.median(row[key] for row in rows) for key in ("whole", "pieces"))
        print(f"| {name} | {whole:.0f} | {pieces:.0f} | {same[rows[0]['text']]} |")


if __name__ == "__main__":
    main()
