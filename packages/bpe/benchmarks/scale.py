"""Train on more text than a disk needs to hold: a stream grown from a real text, with new words as real text has them.

    python packages/bpe/benchmarks/scale.py FILE --size 12e9 --vocab-size 32000 [--memory-limit 2e9]
        [--sizes 0.1e9 1e9 20e9]    a line for each size
        [--words 12.0 0.49]         of a power law, instead of that of FILE

The stream repeats stretches of FILE from random places, and puts coined words between its words, so that the number of
distinct pretokens at n bytes is a * n ** b. The law goes through the numbers of FILE at an eighth of its size and at
all of it. A coined word has eight bytes; half of those that are put in are new, half repeat one that was new before,
the older the more often. The generator's own CPU seconds are printed apart from those of training. Each
line is a process of its own: the clock, CPU seconds of each phase, and the most memory that the process had.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bpe
from bpe.commands.train import most_memory
from bpe.native.progress import timed_phases

BLOCK = 1 << 20  # bytes of a text of the stream
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYLLABLES = [f"{a}{b}".encode() for a in LETTERS for b in LETTERS]


def law(text: bytes) -> tuple[float, float]:
    """The a and b of the number of distinct pretokens at n bytes, a * n ** b, through an eighth of a text and all."""
    sizes = (len(text) // 8, len(text))
    small, large = (len(bpe.count([text[:size]])) for size in sizes)
    b = math.log(large / small) / math.log(sizes[1] / sizes[0])
    return large / sizes[1] ** b, b


def coined(number: int) -> bytes:
    """Word `number`, different from all others, of seven letters; few are words of any text."""
    first, second = divmod(number, len(SYLLABLES))
    third, first = divmod(first, len(SYLLABLES))
    return b" q%b%b%b" % (SYLLABLES[first], SYLLABLES[second], SYLLABLES[third])


class Stream:
    """Texts of BLOCK bytes or a little more, `size` bytes in all; `seconds` of CPU that making them took."""

    def __init__(self, text: bytes, size: int, a: float, b: float) -> None:
        self.text, self.size, self.a, self.b = text, size, a, b
        self.seconds, self.coined = 0.0, 0

    def __iter__(self) -> Iterator[bytes]:
        draw, total = random.Random(0), 0
        spaces = [at for at in range(0, len(self.text) - BLOCK, 64) if self.text[at] == 32]
        base = self.a * min(self.size, len(self.text)) ** self.b  # distinct pretokens that FILE itself gives
        while total < self.size:
            begun = time.thread_time()
            begin = draw.choice(spaces)
            new = max(0, int(self.a * (total + BLOCK) ** self.b - base) - self.coined)
            places = sorted(draw.choices(range(begin, begin + BLOCK - 64), k=2 * new))
            pieces, at = [], begin
            for number, place in enumerate(places):
                end = self.text.find(b" ", place)
                pieces.append(self.text[at:end])
                is_new = number % 2 == 0
                pieces.append(coined(self.coined if is_new else int(self.coined * draw.random() ** 3)))
                self.coined += is_new
                at = end
            pieces.append(self.text[at : begin + BLOCK])
            block = b"".join(pieces)
            total += len(block)
            self.seconds += time.thread_time() - begun
            yield block


def measure(options: argparse.Namespace, size: int) -> dict[str, Any]:
    """Train on a stream of this size."""
    text = Path(options.file).read_bytes()
    stream = Stream(text, size, *(options.words or law(text)))
    begun, cpu = time.perf_counter(), time.process_time()
    with timed_phases() as phases:
        limit = None if options.memory_limit is None else int(options.memory_limit)
        tokenizer = bpe.train(iter(stream), options.vocab_size, memory_limit=limit, num_threads=options.num_threads)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    phases["reading"] -= stream.seconds
    return {
        "bytes": size,
        "coined": stream.coined,
        "seconds": seconds,
        "generator": stream.seconds,
        "cpu": cpu - stream.seconds,
        "phases": phases,
        "memory": most_memory() - len(text),
        "fingerprint": tokenizer.fingerprint,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--size", type=float)
    parser.add_argument("--sizes", type=float, nargs="+")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--memory-limit", type=float)
    parser.add_argument("--num-threads", type=int)
    parser.add_argument("--words", type=float, nargs=2, metavar=("A", "B"))
    options = parser.parse_args()
    if options.size is not None:
        print(json.dumps(measure(options, int(options.size))))
        return
    print(
        "| text | new words | clock | generator | CPU of training | by phase | memory |\n|---|---|---|---|---|---|---|"
    )
    for size in options.sizes:
        command = [sys.executable, __file__, *sys.argv[1:], "--size", str(size)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row["phases"].items())
        print(
            f"| {size / 1e9:g} GB | {row['coined']:,} | {row['seconds']:.1f} s | {row['generator']:.1f} s | "
            f"{row['cpu']:.1f} s | {phases} | {row['memory'] / 1e6:,.0f} MB |"
        )


if __name__ == "__main__":
    main()
