"""The first text of a process: import, load and encode together, beside gigatoken, taking turns.

    python packages/bpe/benchmarks/first_pass.py FILE ... --tokenizers TOKENIZER ... [--rounds 7] [--write]

Each measurement is a process of its own that runs the few lines a user would write, on one thread, with the text
already read. Loading ends when a first letter is encoded, for which both make what they put off. bpe keeps the tables
of a large tokenizer on disk (bpe.formats.table_cache): it is measured with and without the tables of an earlier
process.
Seconds are CPU time, since the host of a virtual machine takes time of its own; a ratio is the median over the rounds
of gigatoken's seconds over those of bpe in the same round. --write puts the table into docs/design/performance/bpe.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from encode import PAGE
from peers import processor

BEGIN, END = "<!-- written by nox -s bench -- first_pass: begin -->\n", "<!-- end of first -->\n"
PROGRAM = """
import sys, time
with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
    text = file.read().replace("<|endoftext|>", "")
times = [time.process_time()]
{0}
times.append(time.process_time())
{1}
times.append(time.process_time())
ids = {2}
times.append(time.process_time())
import hashlib, json, numpy
digest = hashlib.sha256(numpy.asarray(ids, dtype=numpy.uint32).tobytes()).hexdigest()
print(json.dumps([times, digest, len(text.encode())]))
"""
# NumPy's OpenBLAS, too: its threads spin for a while when they begin, which is CPU time of everybody who imports it.
ONE_THREAD = {**os.environ, "RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ONE_THREAD.pop("PYTHONDONTWRITEBYTECODE", None)  # a package that was installed has its bytecode, one in a clone not yet
BPE = (
    "import bpe",
    "made = bpe.load(sys.argv[1]); made.encode_to_numpy('a')",
    "made.encode_to_numpy(text, disallowed_special=())",
)
ENCODERS = {
    "bpe": BPE,
    "bpe, no tables kept": BPE,
    "gigatoken": (
        "import gigatoken",
        "made = (gigatoken.Tokenizer.from_tiktoken if sys.argv[1].endswith('.tiktoken') else gigatoken.Tokenizer)"
        "(sys.argv[1]); made.encode('a')",
        "made.encode(text)",
    ),
}


def measure(name: str, tokenizer: str, path: Path, kept: str) -> dict[str, Any]:
    """CPU seconds of the parts of one process, and what it made of the text. kept: the folder of kept tables."""
    command = [sys.executable, "-c", PROGRAM.format(*ENCODERS[name]), tokenizer, str(path)]
    environment = {**ONE_THREAD, "BPE_CACHE_DIR": kept if name == "bpe" else ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (start, imported, loaded, encoded), digest, size = json.loads(done.stdout)
    results = {
        "import": imported - start,
        "load": loaded - imported,
        "pass": encoded - loaded,
        "whole": encoded - start,
    }
    print(f"  {path.name} {Path(tokenizer).stem} {name}: {results['whole']:.3f} s", file=sys.stderr)
    return {**results, "ids": digest, "size": size}


def rows(path: Path, tokenizer: str, rounds: int, kept: str) -> list[str]:
    """The rows of one text and tokenizer."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in ENCODERS}
    measure("bpe", tokenizer, path, kept)  # the process that keeps the tables
    for number in range(rounds):
        for name in list(ENCODERS)[:: 1 if number % 2 else -1]:
            results[name].append(measure(name, tokenizer, path, kept))

    def ahead(name: str, part: str) -> str:
        pairs = zip(results["gigatoken"], results[name], strict=True)
        return f"{statistics.median(theirs[part] / ours[part] for theirs, ours in pairs):.2f} ×"

    result = []
    for name, runs in results.items():
        seconds = [statistics.median(run[part] for run in runs) for part in ("import", "load", "pass", "whole")]
        same = {run["ids"] for run in runs} == {results["bpe"][0]["ids"]}
        ratios = ["", ""] if name == "gigatoken" else [ahead(name, "pass"), ahead(name, "whole")]
        cells = [f"{value:.3f}" for value in seconds] + ratios
        label = f"{path.name}, {runs[0]['size'] / 1e6:.1f} MB | {Path(tokenizer).stem}"
        result.append(f"| {label} | {name}{'' if same else ' *'} | {' | '.join(cells)} |")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tokenizers", nargs="+", required=True, metavar="TOKENIZER")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    out = [
        f"CPU seconds on one thread, {processor()}, Python {platform.python_version()}, median of {options.rounds} "
        f"fresh processes taken in turn; {time.strftime('%d %B %Y').lstrip('0')}. An asterisk: other ids than ours.",
        "",
        "| text | tokenizer | encoder | import | load | first pass | together | pass, ahead of gigatoken | together |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for path in options.texts:
            for tokenizer in options.tokenizers:
                out += rows(path, tokenizer, options.rounds, folder)
    print("\n".join(out))
    if options.write:
        command = (
            f"nox -s bench -- first_pass {' '.join(path.name for path in options.texts)} --tokenizers "
            f"{' '.join(Path(name).name for name in options.tokenizers)} --rounds {options.rounds} --write"
        )
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}    {command}\n\n" + "\n".join(out) + f"\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
