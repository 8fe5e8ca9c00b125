"""Short texts beside peers, taking turns: microseconds a call for 20 bytes, a line and a chat message, and a stream.

    python packages/bpe/benchmarks/calls.py FILE --tokenizer tokenizer.json [--rounds 5] [--only NAME …] [--write]

Each round gives each candidate a process of its own, on one thread, in which all texts are known already: the best of
five passes counts, in CPU time. A stream is a text that comes 20 bytes at a time, whose ids are those of the whole
text: only bpe has one (`encode_iterable`); beside it stand the candidates that encode each 20 bytes for themselves,
which gives other ids. The batch is as many chat messages in one call. --write puts the table into
docs/design/performance/bpe.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encode import PAGE, cut, messages_of, read
from peers import ENCODERS, processor

import bpe

BEGIN, END = "<!-- written by nox -s bench -- calls: begin -->\n", "<!-- end of calls -->\n"
CHUNK = 20  # bytes
TEXTS = 20_000  # of each kind
STREAM = "bpe, stream"
COLUMNS = ("20 bytes", "a line", "a chat message", "of a batch")


def best(job: Callable[[], Any], count: int) -> float:
    """Microseconds for each of so many texts."""
    least = math.inf
    for _ in range(5):
        begun = time.process_time()
        job()
        least = min(least, time.process_time() - begun)
    return least / count * 1e6


def work(name: str, tokenizer: str, path: Path) -> dict[str, float]:
    """Measure one candidate, in a process of its own."""
    text = read(path)
    chunks = cut(text[: CHUNK * TEXTS], CHUNK)
    if name == STREAM:
        result = bpe.load(tokenizer)
        return {"20 bytes": best(lambda: list(result.encode_iterable(chunks, disallowed_special=())), len(chunks))}
    encoder = ENCODERS[name][1](tokenizer)
    kinds = {"20 bytes": chunks, "a line": text.splitlines()[:TEXTS], "a chat message": messages_of(text)}
    results = {}
    for kind, texts in kinds.items():
        given: list[Any] = [one.encode() for one in texts] if "bytes" in name else texts

        def each(given: list[Any] = given) -> None:
            for one in given:
                encoder.one(one)

        results[kind] = best(each, len(given))
    results["of a batch"] = best(lambda: encoder.many(given, 1), len(given))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*ENCODERS, STREAM])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=[*ENCODERS, STREAM], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options.tokenizer, options.file)))
        return
    selection = options.only or [*ENCODERS, STREAM]
    names = [name for name in selection if name == STREAM or importlib.util.find_spec(ENCODERS[name][0])]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    alone = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}
    for number in range(options.rounds):
        for name in names[:: 1 if number % 2 else -1]:
            command = [sys.executable, __file__, str(options.file), "--tokenizer", options.tokenizer, "--worker", name]
            done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    out = [
        f"Microseconds of CPU time, known texts, one thread; median of {options.rounds} rounds taken in turn; "
        f"{processor()}, Python {platform.python_version()}; {time.strftime('%d %B %Y').lstrip('0')}.",
        "",
        f"| {options.file.name}, {Path(options.tokenizer).stem} | {' | '.join(COLUMNS)} |",
        "|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for name, runs in results.items():
        cells = [f"{statistics.median(run[kind] for run in runs):.2f}" if kind in runs[0] else "" for kind in COLUMNS]
        out.append(f"| {name} | {' | '.join(cells)} |")
    print("\n".join(out))
    if options.write:
        command = f"nox -s bench -- calls {options.file.name} --tokenizer {Path(options.tokenizer).name}"
        command += f" --rounds {options.rounds} --write"
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(
            f"{before}{BEGIN}    {command}\n\n" + "\n".join(out) + f"\n{END}{rest.partition(END)[2]}", "utf-8"
        )


if __name__ == "__main__":
    main()
