"""What single parts of the encoder gain that make it harder to read: each with and without, in CPU time.

    python packages/bpe/benchmarks/parts.py utf8 FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py pages FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py levels FILE ... --tokenizer TOKENIZER
    python packages/bpe/benchmarks/parts.py base64 FILE.tiktoken ...

utf8: a str to UTF-8 by AVX-512 beside the portable version, and what that is of encoding it. pages: encoding a text
again, the ids of the time before dropped, so that their pages are used again, or kept. levels: the first pass and warm,
at each SIMD level. base64: the lines of a .tiktoken file, by formats/spelled.pyx and by binascii.
"""

from __future__ import annotations

import argparse
import binascii
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bpe
from bpe.formats.spelled import ranks_of_lines
from bpe.native import cpu
from bpe.native.text import utf8


def least(work: Callable[[], object], times: int = 9) -> float:
    """The least CPU time of several runs, in milliseconds."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found) * 1e3


def compare_utf8(path: Path, tokenizer: bpe.Tokenizer) -> str:
    text = path.read_text(encoding="utf-8", errors="replace") + "\u2014"  # never ASCII, which needs no conversion
    tokenizer.encode_to_numpy(text, disallowed_special=())
    each = {level: least(lambda level=level: utf8(text, level=level)) for level in cpu.available()}
    encoding = least(lambda: tokenizer.encode_to_numpy(text, disallowed_special=()))
    gain = (each["portable"] - each[cpu.level()]) / encoding
    times = ", ".join(f"{level} {spent:.2f} ms" for level, spent in each.items())
    return f"{times}; encoding {encoding:.2f} ms, {gain:.0%} more with the portable version"


def compare_pages(path: Path, tokenizer: bpe.Tokenizer) -> str:
    data, lines = path.read_bytes(), []
    for size in (1_500_000, 4_000_000, 10_000_000, 30_000_000):
        text, kept = data[:size], []
        if len(text) < size:
            break
        tokenizer.encode_to_numpy(text, disallowed_special=())
        dropped = least(lambda text=text: tokenizer.encode_to_numpy(text, disallowed_special=()), 15)
        held = least(
            lambda text=text, kept=kept: kept.append(tokenizer.encode_to_numpy(text, disallowed_special=())), 15
        )
        lines.append(
            f"{size / 1e6:.1f} MB: {dropped:.2f} ms, without pages to use again {held:.2f}: {held / dropped - 1:+.0%}"
        )
    return "; ".join(lines)


ONE_LEVEL = """
import sys, time
from pathlib import Path
import bpe
tokenizer, text = bpe.load(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")
tokenizer.encode("a")
spent = []
for _ in range(5):
    begin = time.process_time()
    tokenizer.encode_to_numpy(text, disallowed_special=())
    spent.append(time.process_time() - begin)
print(spent[0] * 1e3, min(spent) * 1e3)
"""


def compare_levels(path: Path, name: str) -> str:
    best: dict[str, list[float]] = {}
    for _ in range(3):
        for level in cpu.available():
            program = (sys.executable, "-c", ONE_LEVEL, name, str(path))
            run = subprocess.run(
                program, capture_output=True, text=True, check=True, env={**os.environ, "BPE_SIMD": level}
            )
            spent = list(map(float, run.stdout.split()))
            best[level] = [min(pair) for pair in zip(spent, best.get(level, spent), strict=True)]
    return "; ".join(f"{level} first {first:.1f} ms, warm {warm:.1f}" for level, (first, warm) in best.items())


def compare_base64(path: Path) -> str:
    data = path.read_bytes()

    def by_binascii() -> dict[bytes, int]:
        words = data.split()
        return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))

    ours = least(lambda: ranks_of_lines(data, 1 << 31))
    return f"{ours:.1f} ms, by binascii {least(by_binascii):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["utf8", "pages", "levels", "base64"])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tokenizer", default="gpt2", help="whatever `bpe encode` takes")
    arguments = parser.parse_args()
    print(f"level {cpu.level()}")
    for path in arguments.files:
        if arguments.part == "base64":
            found = compare_base64(path)
        elif arguments.part == "levels":
            found = compare_levels(path, arguments.tokenizer)
        else:
            tokenizer = bpe.load(arguments.tokenizer)
            found = (compare_utf8 if arguments.part == "utf8" else compare_pages)(path, tokenizer)
        print(f"{path.name}: {found}")


if __name__ == "__main__":
    main()
