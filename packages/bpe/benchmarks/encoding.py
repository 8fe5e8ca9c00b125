"""Encode one text with this package and its peers, taking turns: MB/s on the first pass and warm, and whether ids agree.

    python packages/bpe/benchmarks/encoding.py FILE --tokenizer tokenizer.json [--rounds 3] [--only NAME …]

The tokenizer is a Hugging Face tokenizer.json, which every candidate reads; tiktoken gets its ranks. Each round gives each
candidate a process of its own, on one thread: the first pass is over text and caches that are new to it, the warm one
is the best of the next three. Only ratios within one run mean anything. A peer that is not installed is left out, and named.
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

import numpy as np

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

Encode = Callable[[str], Any]


def ours_to_array(path: str) -> Encode:
    import bpe

    tokenizer = bpe.Tokenizer.from_huggingface(path)
    return lambda text: tokenizer.encode_to_numpy(text, disallowed_special=())


def ours_to_list(path: str) -> Encode:
    import bpe

    return bpe.Tokenizer.from_huggingface(path).encode_ordinary


def gigatoken_to_array(path: str) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer(path)
    return lambda text: tokenizer.encode(text)


def fastokens_to_array(path: str) -> Encode:
    import fastokens

    tokenizer = fastokens.Tokenizer.from_file(path)
    return lambda text: tokenizer.encode_ordinary(text)


def tiktoken_to_list(path: str) -> Encode:
    import tiktoken

    import bpe

    tokenizer = bpe.Tokenizer.from_huggingface(path)
    special = tokenizer.special_tokens
    ranks = {token: number for number, token in tokenizer.vocab.items() if number not in special.values()}
    encoding = tiktoken.Encoding("benchmark", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)
    return encoding.encode_ordinary


def tokenizers_to_list(path: str) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


CANDIDATES: dict[str, tuple[str, Callable[[str], Encode]]] = {
    "bpe, to an array": ("bpe", ours_to_array),
    "bpe, to a list": ("bpe", ours_to_list),
    "gigatoken": ("gigatoken", gigatoken_to_array),
    "fastokens": ("fastokens", fastokens_to_array),
    "tiktoken": ("tiktoken", tiktoken_to_list),
    "tokenizers": ("tokenizers", tokenizers_to_list),
}


def work(name: str, path: str, text: str) -> dict[str, Any]:
    encode = CANDIDATES[name][1](path)
    times = []
    for _ in range(4):
        begun = time.perf_counter()
        ids = encode(text)
        times.append(time.perf_counter() - begun)
    ids = getattr(ids, "ids", ids)
    digest = hashlib.sha256(np.asarray(ids, dtype=np.uint32).tobytes()).hexdigest()[:12]
    return {"first": times[0], "warm": min(times[1:]), "ids": digest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        text = options.file.read_text(errors="replace")
        text = text.replace("<|endoftext|>", "")  # peers differ in what they make of it
        print(json.dumps(work(options.worker, options.tokenizer, text)))
        return
    wanted = options.only or list(CANDIDATES)
    names = [name for name in wanted if importlib.util.find_spec(CANDIDATES[name][0])]
    missing = [name for name in wanted if name not in names]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    # One thread each: what a peer does with more is another question.
    alone = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, str(options.file), "--tokenizer", options.tokenizer, "--worker", name]
            out = subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout
            found[name].append(json.loads(out.splitlines()[-1]))
    megabytes = options.file.stat().st_size / 1e6
    same = {rows[0]["ids"]: name for name, rows in reversed(found.items())}
    print(
        f"{options.file.name}, {megabytes:.1f} MB, one thread, median of {options.rounds} rounds taken in turn", end=""
    )
    print((f"; not installed: {', '.join(missing)}" if missing else "") + "\n")
    print("| encoder | first pass, MB/s | warm, MB/s | the same ids as |")
    print("|---|---|---|---|")
    for name, rows in found.items():
        first, warm = (megabytes / statistics.median(row[key] for row in rows) for key in ("first", "warm"))
        print(f"| {name} | {first:.1f} | {warm:.1f} | {same[rows[0]['ids']]} |")


if __name__ == "__main__":
    main()
