"""A megabyte of one long pretoken, or of what is nearly one, beside prose: time per byte, ours and our peers'.

    python packages/bpe/benchmarks/worst_cases.py TEXT --tokenizer NAME [--rounds 7] [--seconds 60] [--only NAME …]

TEXT is the prose that everything is measured against, of at least three megabytes; the tokenizer is anything that the
command `bpe` takes. Each encoder works in processes of its own, on one thread, that take turns over all kinds of text;
each meets three megabytes that are new to it and has so many seconds for them, and each figure is the median of all
megabytes of all rounds. Ours is marked where it takes more than three times what prose takes. Peers that are not
installed are left out, and named.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from peers import ENCODERS

SIZE = 1_000_000  # bytes
BOUND = 3.0


def texts(prose: str) -> Iterator[tuple[str, list[str]]]:
    """Each kind of text with its three megabytes."""
    at = len(prose) // 3
    yield "prose", [prose[begin : begin + SIZE] for begin in (0, at, 2 * at)]

    def repeated(unit: str) -> list[str]:
        count = SIZE // len(unit.encode())
        return [unit * (count - less) for less in range(3)]  # never the same, or a cache would answer

    for unit, name in (("a", "a"), (" ", "spaces"), ("^", "^"), ("中", "one CJK character"), ("\n", "line ends")):
        yield name, repeated(unit)
    for unit, name in (("a", "a, after a space"), ("=", "=, after a space")):
        yield name, [f" {text}" for text in repeated(unit)]
    chance = random.Random(1)
    yield "base64", [base64.b64encode(chance.randbytes(SIZE * 3 // 4)).decode() for _ in range(3)]
    yield "any CJK", ["".join(chr(chance.randrange(0x4E00, 0x9F00)) for _ in range(SIZE // 3)) for _ in range(3)]
    yield "digits", ["".join(chance.choices("0123456789", k=SIZE)) for _ in range(3)]
    yield "letters", ["".join(chance.choices("etaoinsrhl", k=SIZE)) for _ in range(3)]
    for unit, name in (
        (" \n", "spaces and line ends"),
        ("'", "apostrophes"),
        ("'s", "contractions"),
        ("e\u0301", "marks"),
    ):
        yield name, repeated(unit)


CANDIDATES = {"bpe": "bpe, str to array", "gigatoken": "gigatoken", "fastokens": "fastokens", "tiktoken": "tiktoken"}


def work(name: str, tokenizer: str, kind: str, path: Path) -> None:
    """Print the seconds of each pass."""
    encode = ENCODERS[CANDIDATES[name]][1](tokenizer).one
    passes = dict(texts(path.read_text("utf-8", errors="replace")))[kind]
    encode("the first call may set things up")
    for text in passes:
        begun = time.perf_counter()
        encode(text)
        print(json.dumps((time.perf_counter() - begun) / len(text.encode())), flush=True)


def measure(name: str, tokenizer: str, kind: str, path: Path, seconds: float) -> list[float] | str:
    """Seconds a byte of each megabyte, or why there are none."""
    command = [sys.executable, __file__, str(path), "--tokenizer", tokenizer, "--worker", name, "--kind", kind]
    alone = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not in {seconds:g} s"
    if done.returncode:
        return "fails"
    return [float(each) for each in done.stdout.split()]


def in_turns(
    names: list[str], tokenizer: str, path: Path, rounds: int, seconds: float
) -> dict[tuple[str, str], float | str]:
    """Of each kind of text and encoder the median of what it measured, or why there is none."""
    cells = [(kind, name) for kind, _ in texts("") for name in names]
    results: dict[tuple[str, str], list[float]] = {cell: [] for cell in cells}
    failed: dict[tuple[str, str], str] = {}
    for _ in range(rounds):
        for kind, name in cells:
            if (kind, name) in failed:
                continue
            costs = measure(name, tokenizer, kind, path, seconds)
            if isinstance(costs, str):
                failed[kind, name] = costs
            else:
                results[kind, name] += costs
    return {cell: failed[cell] if cell in failed else statistics.median(results[cell]) for cell in cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.tokenizer, options.kind, options.text)
        return
    selection = options.only or list(CANDIDATES)
    names = [name for name in selection if importlib.util.find_spec(name)]
    missing = [name for name in selection if name not in names]
    print(f"{Path(options.tokenizer).name}, prose from {options.text.name}: MB/s, and times the time of prose", end="")
    print((f"; not installed: {', '.join(missing)}" if missing else "") + "\n")
    print(f"| a megabyte of | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    results = in_turns(names, options.tokenizer, options.text, options.rounds, options.seconds)
    for kind, _ in texts(""):
        cells = []
        for name in names:
            cost, base = results[kind, name], results["prose", name]
            if isinstance(cost, str) or isinstance(base, str):
                cells.append(str(cost))
                continue
            mark = " **beyond**" if name == "bpe" and cost > BOUND * base else ""
            cells.append(f"{1e-6 / cost:.1f}" + (f" ({cost / base:.1f}×{mark})" if kind != "prose" else ""))
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
