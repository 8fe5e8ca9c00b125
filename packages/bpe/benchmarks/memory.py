"""Ever-new text encoded, gigabyte after gigabyte, and what the process holds as it goes: flat, or it leaks.

    python packages/bpe/benchmarks/memory.py --tokenizer NAME [--gigabytes 10] [--by calls stream file] [--seed N]

The text is words that are coined as it goes, each of letters drawn anew, so that few come back and caches are always
forgetting. "calls" encodes it in texts of a megabyte, one encode_to_numpy() after another; "stream" is one
encode_iterable() over all of it; "file" ten encode_file() of a tenth each, into a folder that goes away. Each prints
the process's resident memory after a tenth of the way, when the caches are full, and after each tenth more, and in the
end how far it moved from first to last.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import bpe
from bpe.tokenizer import Tokenizer

PIECE = 1_000_000  # bytes
LETTERS = np.frombuffer(
    b"eeeeeeetttttaaaaaooooiiiinnnnsssshhhhrrrrdddllluuccmmffwyypvbgkx", dtype=np.uint8
)  # 64 of them


def coined(size: int, seed: int) -> Iterator[str]:
    """About `size` bytes of words that are new, in pieces."""
    chance = np.random.default_rng(seed)
    for _ in range(max(1, size // PIECE)):
        piece = LETTERS[chance.integers(0, len(LETTERS), PIECE, dtype=np.uint8)]
        ends = np.cumsum(chance.integers(4, 13, PIECE // 8))
        piece[ends[ends < PIECE]] = ord(" ")
        yield piece.tobytes().decode()


def resident() -> float:
    """The megabytes that this process holds; what it held at most, where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) / 1024
    except (OSError, KeyError):
        import resource

        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


class Watch:
    """Pieces as they pass by, with a line at every tenth of the way."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size, self.passed, self.begun = name, size, 0, time.perf_counter()
        self.marks = deque(size * tenth // 10 // PIECE * PIECE for tenth in range(1, 11))
        self.seen: list[float] = []

    def over(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            yield piece
            self.passed += len(piece)
            self.mark()

    def mark(self) -> None:
        while self.marks and self.passed >= self.marks[0]:
            self.marks.popleft()
            self.seen.append(resident())
            print(
                f"{self.name:8} {self.passed / 1e9:7.2f} GB {self.seen[-1]:8.1f} MB "
                f"{time.perf_counter() - self.begun:7.0f} s",
                flush=True,
            )

    def done(self) -> None:
        if len(self.seen) > 1:
            print(f"{self.name:8} moved by {self.seen[-1] - self.seen[0]:+.1f} MB, at most {max(self.seen):.1f} MB\n")


def calls(tokenizer: Tokenizer, size: int, seed: int) -> None:
    watch = Watch("calls", size)
    for text in watch.over(coined(size, seed)):
        tokenizer.encode_to_numpy(text, disallowed_special=())
    watch.done()


def stream(tokenizer: Tokenizer, size: int, seed: int) -> None:
    watch = Watch("stream", size)
    deque(tokenizer.encode_iterable(watch.over(coined(size, seed))), maxlen=0)
    watch.done()


def file(tokenizer: Tokenizer, size: int, seed: int) -> None:
    watch = Watch("file", size)
    with tempfile.TemporaryDirectory() as folder:
        for tenth in range(10):  # one file after another, so that the disk need not hold all
            tokenizer.encode_file(watch.over(coined(size // 10, seed + tenth)), Path(folder, "ids.npy"))
    watch.done()


WAYS: dict[str, Callable[[Tokenizer, int, int], None]] = {"calls": calls, "stream": stream, "file": file}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="anything that the command bpe takes")
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--by", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.by:
        tokenizer = bpe.load(options.tokenizer)
        WAYS[name](tokenizer, int(options.gigabytes * 1e9), options.seed)


if __name__ == "__main__":
    main()
