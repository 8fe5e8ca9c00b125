"""Two builds of this package, in turn: import, loading, encoding, a short call and training, and their ratios.

    python packages/bpe/benchmarks/compare.py BEFORE AFTER --texts FILE … --tokenizers FILE … [--rounds 5]

BEFORE and AFTER are Python interpreters of environments in which the two builds are installed. Each round gives each of
them fresh processes, one after the other, the first of the pair changing from round to round. The figures are CPU
time, so other work on the machine counts less. The table has the least and the median over the rounds of each build,
and the ratios after / before. A ratio says something only beside those of other runs of the same pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

DOCUMENT = 5_000  # characters of a document of a batch
MESSAGE = "What is the capital of France?"
CALLS = 20_000  # of the short call, timed together
VOCAB_SIZE = 20_000


def seconds(work: Any, times: int = 1) -> float:
    """The least CPU time of several runs."""
    results = []
    for _ in range(times):
        begun = time.process_time()
        work()
        results.append(time.process_time() - begun)
    return min(results)


def measure(what: str, tokenizer: str, text: str) -> dict[str, float]:
    """The measurements of one process of one build; `bpe` is imported here so that the import can be timed."""
    begun = time.process_time()
    import bpe

    results = {"import": time.process_time() - begun}
    if what == "import":
        return results
    if what == "train":
        bpe.train([Path(text)], 260, num_threads=1)  # loads the modules of training
        return {f"train {Path(text).name}": seconds(lambda: bpe.train([Path(text)], VOCAB_SIZE, num_threads=1))}
    load: Any = getattr(bpe, "load", None)
    if load is None:  # builds before bpe.load was public
        from bpe.opening import open_tokenizer as load  # type: ignore[import-not-found,no-redef]
    begun = time.process_time()
    loaded = load(tokenizer)
    loaded.encode_ordinary("a")
    name = Path(tokenizer).name
    results = {f"load {name}": time.process_time() - begun}
    content = Path(text).read_text(encoding="utf-8", errors="replace")
    documents = [content[at : at + DOCUMENT] for at in range(0, len(content), DOCUMENT)]
    of = f"{name}, {Path(text).name}"
    results[f"first pass {of}"] = seconds(lambda: loaded.encode_to_numpy(content, disallowed_special=()))
    results[f"warm {of}"] = seconds(lambda: loaded.encode_to_numpy(content, disallowed_special=()), 5)
    results[f"batch {of}"] = seconds(lambda: loaded.encode_ordinary_batch(documents, num_threads=1), 3)
    calls = range(CALLS)
    results[f"{CALLS} short calls {name}"] = seconds(lambda: [loaded.encode(MESSAGE) for _ in calls], 5)
    return results


def one_process(python: str, *arguments: str) -> dict[str, float]:
    """The measurements of a fresh process of one of the two builds."""
    command = [python, __file__, "--measure", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE", help="a Python interpreter that finds the one build")
    parser.add_argument("after", metavar="AFTER", help="one that finds the other")
    parser.add_argument("--texts", nargs="+", required=True, help="UTF-8 files")
    parser.add_argument("--tokenizers", nargs="+", required=True, help="tokenizer files that both builds read")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    jobs = [("import", "", "")]
    jobs += [("encode", tokenizer, text) for tokenizer in arguments.tokenizers for text in arguments.texts]
    jobs += [("train", "", text) for text in arguments.texts]
    results: dict[str, tuple[list[float], list[float]]] = {}
    for turn in range(arguments.rounds):
        for job in jobs:
            for which in (0, 1) if turn % 2 else (1, 0):
                for name, spent in one_process((arguments.before, arguments.after)[which], *job).items():
                    results.setdefault(name, ([], []))[which].append(spent)
    print(f"{'milliseconds of CPU time, least (median)':48} {'before':>17} {'after':>17}   ratio")
    for name, (before, after) in results.items():
        least = [min(each) * 1e3 for each in (before, after)]
        middle = [statistics.median(each) * 1e3 for each in (before, after)]
        cells = "".join(f"{a:9.2f} ({b:.2f})".rjust(18) for a, b in zip(least, middle, strict=True))
        print(f"{name:48.48}{cells}   {least[1] / least[0]:.2f} ({middle[1] / middle[0]:.2f})")


if __name__ == "__main__":
    import sys

    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
