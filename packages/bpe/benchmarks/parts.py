"""The gains of single parts of the encoder that make it harder to read: each with and without, in CPU time.

    python packages/bpe/benchmarks/parts.py utf8 FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py levels FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py huge FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py masks FILE ... --tokenizer gpt2
    python packages/bpe/benchmarks/parts.py lists FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py merges TOKENIZER.json ...
    python packages/bpe/benchmarks/parts.py kept TOKENIZER ...
    python packages/bpe/benchmarks/parts.py passes FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py stretches FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py session FILE ... --tokenizer TOKENIZER

utf8: a str to UTF-8 by AVX2 beside the portable version, and what that is of encoding it. levels: the first pass and
warm, at each SIMD level. huge: the first pass, warm, and training, with huge pages and in a process without.
masks: a text split by a scanner by masks, and by the automaton of the same pattern. lists: ids as a list with one int
for each id, which all lists share, and as a list that NumPy makes. merges: what is looked up of the merges of a
tokenizer.json, by formats/pairs.pyx and by dictionaries.
kept: loading a tokenizer and encoding a first letter, from its file, when the tables are kept, and from these. passes:
the first, second and third pass over a text by one process, of which later ones should never be slower.
stretches: the first 10,000 characters again and again, with stretches kept and without. session: a kilobyte appended to
4 MB, and the whole encoded again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bpe
from bpe.formats import Merges, huggingface, rows_of
from bpe.native import cpu
from bpe.native.text import utf8
from bpe.patterns import PATTERNS, resolve


def least(work: Callable[[], object], times: int = 9) -> float:
    """The least CPU time of several runs, in milliseconds."""
    results = []
    for _ in range(times):
        begin = time.process_time()
        work()
        results.append(time.process_time() - begin)
    return min(results) * 1e3


def compare_utf8(path: Path, tokenizer: bpe.Tokenizer) -> str:
    text = path.read_text(encoding="utf-8", errors="replace") + "\u2014"  # never ASCII, which needs no conversion
    tokenizer.encode_to_numpy(text, disallowed_special=())
    each = {level: least(lambda level=level: utf8(text, level=level)) for level in cpu.AVAILABLE}
    encoding = least(lambda: tokenizer.encode_to_numpy(text, disallowed_special=()))
    gain = (each["portable"] - each[cpu.level()]) / encoding
    times = ", ".join(f"{level} {spent:.2f} ms" for level, spent in each.items())
    return f"{times}; encoding {encoding:.2f} ms, {gain:.0%} more with the portable version"


ONE_LEVEL = """
import ctypes, sys, time
from pathlib import Path
import bpe
if len(sys.argv) > 3:
    PR_SET_THP_DISABLE = 41
    assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
tokenizer, text = bpe.load(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")
tokenizer.encode("a")
spent = []
for _ in range(5):
    begin = time.process_time()
    tokenizer.encode_to_numpy(text, disallowed_special=())
    spent.append(time.process_time() - begin)
begin = time.process_time()
bpe.train([text], 8000, num_threads=1)
print(spent[0] * 1e3, min(spent) * 1e3, (time.process_time() - begin) * 1e3)
"""


def compare_processes(path: Path, name: str, processes: dict[str, tuple[dict[str, str], list[str]]]) -> str:
    """Encoding and training in processes of different environments and arguments, three of each in turn."""
    best: dict[str, list[float]] = {}
    for _ in range(3):
        for process, (environment, arguments) in processes.items():
            program = (sys.executable, "-c", ONE_LEVEL, name, str(path), *arguments)
            run = subprocess.run(program, capture_output=True, text=True, check=True, env=os.environ | environment)
            spent = list(map(float, run.stdout.split()))
            best[process] = [min(pair) for pair in zip(spent, best.get(process, spent), strict=True)]
    return "; ".join(
        f"{process}: first {first:.1f} ms, warm {warm:.1f}, training {training:.1f}"
        for process, (first, warm, training) in best.items()
    )


def compare_levels(path: Path, name: str) -> str:
    return compare_processes(path, name, {level: ({"BPE_SIMD": level}, []) for level in cpu.AVAILABLE})


def compare_huge(path: Path, name: str) -> str:
    return compare_processes(path, name, {"huge pages": ({}, []), "none": ({}, ["none"])})


def compare_masks(path: Path, tokenizer: bpe.Tokenizer) -> str:
    data, name = path.read_bytes(), tokenizer.data.pattern.name
    if name is None or len(PATTERNS[name]) > 1:
        raise SystemExit("masks: name a tokenizer whose split pattern has a name and one expression")
    same = resolve(f"(?:{PATTERNS[name][0]})", "fancy-regex")
    spent = []
    for pattern in (tokenizer.data.pattern, same):
        one = bpe.Tokenizer.from_data(tokenizer.data._replace(pattern=pattern))
        one.encode_to_numpy(data, disallowed_special=())
        spent.append(least(lambda one=one: one.encode_to_numpy(data, disallowed_special=())))
    return f"warm by masks {spent[0]:.1f} ms, by the automaton {spent[1]:.1f}: {spent[1] / spent[0] - 1:+.0%}"


def compare_lists(path: Path, tokenizer: bpe.Tokenizer) -> str:
    data = path.read_bytes()
    tokenizer.encode(data, disallowed_special=())
    ours = least(lambda: tokenizer.encode(data, disallowed_special=()))
    theirs = least(lambda: tokenizer.encode_to_numpy(data, disallowed_special=()).tolist())
    return f"{ours:.1f} ms, by NumPy's tolist() {theirs:.1f}: {theirs / ours - 1:+.0%}"


def compare_merges(path: Path) -> str:
    data = huggingface.parse(path.read_bytes(), path)
    merges, symbols = data.merges, list(data.vocab.values())
    if not isinstance(merges, Merges):
        raise SystemExit(f"merges: {path} has no list of merges")

    def by_dictionary() -> list[tuple[int, int, int]]:
        number_of = dict(zip(symbols, range(len(symbols)), strict=True))
        return [(number_of[left], number_of[right], number_of[left + right]) for left, right in merges]

    loading = least(lambda: huggingface.parse(path.read_bytes(), path), 5)
    ours, result = least(lambda: rows_of(merges, symbols)), least(lambda: list(merges))
    return (
        f"loading {loading:.0f} ms and {ours:.1f} to look the merges up, by a dictionary {least(by_dictionary):.1f}; "
        f"making all merges would take {result:.1f} more"
    )


def compare_passes(path: Path, tokenizer: bpe.Tokenizer) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")[:8_000_000]
    tokenizer.encode("a")
    passes = [least(lambda: tokenizer.encode_to_numpy(text, disallowed_special=()), 1) for _ in range(3)]
    return ", ".join(f"{milliseconds:.1f}" for milliseconds in passes) + " ms"


def compare_stretches(path: Path, tokenizer: bpe.Tokenizer) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")[:10_000]
    spent = []
    for cache_bytes in (1 << 24, (1 << 24) - 1):  # a smaller cache keeps none
        encoder = bpe.Tokenizer.from_data(tokenizer.data, cache_bytes=cache_bytes)
        encode = partial(encoder.encode_to_numpy, text, disallowed_special=())
        spent.append(least(lambda encode=encode: [encode() for _ in range(20)], 99))
    return f"{spent[0] * 50:.1f} us with stretches, {spent[1] * 50:.1f} without"


def compare_session(path: Path, tokenizer: bpe.Tokenizer) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")[:4_100_000]
    session = tokenizer.encode_session(allowed_special="all")
    session.append(text[:-100_000])
    parts = (text[at : at + 1000] for at in range(len(text) - 100_000, len(text), 1000))
    each = sorted(least(lambda part=part: session.append(part), 1) for part in parts)
    assert session.ids.tolist() == tokenizer.encode(text, allowed_special="all")
    whole = least(lambda: tokenizer.encode(text, allowed_special="all"))
    return f"{each[len(each) // 2]:.3f} ms (median of {len(each)}; at most {each[-1]:.3f}); the whole {whole:.1f} ms"


def compare_kept(path: Path) -> str:
    def load_in(folder: str) -> float:
        os.environ["BPE_CACHE_DIR"] = folder
        return least(lambda: bpe.load(path).encode_to_numpy("a"))

    def keep() -> None:
        with tempfile.TemporaryDirectory() as os.environ["BPE_CACHE_DIR"]:
            bpe.load(path).encode_to_numpy("a")

    with tempfile.TemporaryDirectory() as folder:
        result, keeping, rest = load_in(""), least(keep), load_in(folder)
        (file,) = Path(folder).iterdir()
        size = file.stat().st_size / 1e6
    return f"{result:.0f} ms, {keeping:.0f} with the tables written; {rest:.1f} from these, {size:.1f} MB"


OF_FILE = {"merges": compare_merges, "kept": compare_kept}
OF_NAME = {"levels": compare_levels, "huge": compare_huge}
OF_TOKENIZER = {"utf8": compare_utf8, "masks": compare_masks, "lists": compare_lists, "passes": compare_passes}
OF_TOKENIZER |= {"session": compare_session, "stretches": compare_stretches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*OF_TOKENIZER, *OF_NAME, *OF_FILE])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tokenizer", default="gpt2", help="whatever `bpe encode` takes")
    arguments = parser.parse_args()
    print(f"level {cpu.level()}")
    for path in arguments.files:
        if arguments.part in OF_FILE:
            results = OF_FILE[arguments.part](path)
        elif arguments.part in OF_NAME:
            results = OF_NAME[arguments.part](path, arguments.tokenizer)
        else:
            results = OF_TOKENIZER[arguments.part](path, bpe.load(arguments.tokenizer))
        print(f"{path.name}: {results}")


if __name__ == "__main__":
    main()
