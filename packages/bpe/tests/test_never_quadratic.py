"""No text makes encoding, counting or streaming quadratic: what it costs to do it is measured for a text and a longer
one.

The cost is the blocks that the extension executes, where it is built to call fuzz/coverage.c for each, as `nox -s
sanitize` builds it. Elsewhere it is this thread's time on a processor, the least of several, which is coarser: the
texts are longer then, and a failure is measured again.
"""

import ctypes
import io
import sys
import time
from collections.abc import Callable
from functools import cache

import pytest

import bpe
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import add_sorted, pack_table, sorted_blocks
from bpe.patterns import PATTERNS, resolve, scanner_of
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer

UNITS = [
    *("a", " ", "^", "中", "\n", "'", "'s", "1", "\u0301", "e\u0301", "A", "Aa", " \n", "\r\n", "\t ", "a "),
    *("😀", "\u3000", "/", "aGVsbG8gd29ybGQ", "<|", "<|endoftext|", "<|endoftext|>", " 1", "a1", "x'", "あ", "。"),
]


def blocks() -> int | None:
    """The blocks that were executed so far, where they are counted."""
    count = getattr(ctypes.CDLL(None), "coverage_blocks", None) if sys.platform != "win32" else None
    if count is None:
        return None
    count.restype = ctypes.c_uint64
    return int(count())


COUNTED = blocks() is not None
SMALL = 24_000 if COUNTED else 16_000  # bytes; a known text of few thousand costs less a byte than a longer one
TIMES = 4 if COUNTED else 16
# What n log n is at most for a text so many times as long, and what does not depend on it; n² would be TIMES².
MOST = 5.5 if COUNTED else 48
FIXED = 20_000 if COUNTED else 1_000_000  # blocks, nanoseconds
FEW = 1 << 23  # bytes of a cache without stretches, which would look up what comes again instead of encoding it


def cost(work: Callable[[bytes], object], text: bytes) -> int:
    begun = blocks()
    if begun is not None:
        work(text)
        return (blocks() or 0) - begun
    least = 1 << 62
    for _ in range(2):
        at = time.thread_time_ns()
        work(text)
        least = min(least, time.thread_time_ns() - at)
    return least


@cache
def tokenizer(pattern: str | None, by_rank: bool) -> Tokenizer:
    text = " ".join(unit * 70 for unit in UNITS if "endof" not in unit)
    result = bpe.train([text], 420, pattern=None)
    if by_rank:
        ranks = {
            token: number for number, token in result.vocab.items() if number not in result.special_tokens.values()
        }
        result = Tokenizer.from_ranks(ranks, pattern=pattern, special_tokens=result.special_tokens)
    else:
        result = Tokenizer(result.vocab, result.merges, pattern=pattern, special_tokens=result.special_tokens)
    return Tokenizer.from_data(result.data, cache_bytes=FEW)


def assert_nearly_linear(work: Callable[[bytes], object], unit: bytes, what: str) -> None:
    small = unit * (SMALL // len(unit))
    work(small)  # what is made once is made
    for _ in range(1 if COUNTED else 5):
        costs = cost(work, small), cost(work, small * TIMES)
        if costs[1] < MOST * costs[0] + FIXED:
            return
    raise AssertionError(f"{what} of {unit!r}: {costs[0]:,}, and {costs[1]:,} for {TIMES} times as much")


def test_what_is_quadratic_is_noticed() -> None:
    encode = tokenizer("gpt2", False).encode_to_numpy

    def encode_for_each_part(text: bytes) -> None:
        for _ in range(len(text) // SMALL):
            encode(text)

    with pytest.raises(AssertionError, match="times as much"):
        assert_nearly_linear(encode_for_each_part, b"a ", "encoding again and again")


@pytest.mark.parametrize("pattern", [*PATTERNS, None])
def test_encoding_is_nearly_linear(pattern: str | None) -> None:
    for unit in [*(unit.encode() for unit in UNITS), b"\xff", b"\xe4", b"a\x80"]:
        for by_rank in (False, True):
            encode = tokenizer(pattern, by_rank).encode_to_numpy
            assert_nearly_linear(
                lambda text, encode=encode: encode(text, allowed_special="all"), unit, f"encoding, {pattern}"
            )


def test_what_stands_before_a_run_does_not_slow_it_down() -> None:
    tokens = [b"=" * 2**power for power in range(1, 7)]
    merges = [(token[: len(token) // 2],) * 2 for token in tokens]
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), *tokens, b" ="]))
    encode = Tokenizer(vocab, [*merges, (b" ", b"=")], pattern=None).encode_to_numpy
    run = b"=" * SMALL * TIMES
    encode(run)
    for before in (b" ", b"x", b" ===", b"=x="):
        for _ in range(1 if COUNTED else 5):
            costs = cost(encode, run), cost(encode, before + run)
            if costs[1] < 8 * costs[0] + FIXED:
                break
        else:
            raise AssertionError(f"after {before!r}: {costs[1]:,}, and {costs[0]:,} for the run alone")


def test_many_files_of_counts_are_added_up_about_as_fast_as_few() -> None:
    words = [b"word %d" % number for number in range(1 << 14)]

    def files(number: int) -> list[bytes]:
        parts = []
        for first in range(number):
            table = PretokenCounts()
            table.count_pieces(words[first::number])
            parts.append(b"".join(sorted_blocks(pack_table(table))))
        return parts

    few, many = files(8), files(1 << 10)

    def add(parts: list[bytes]) -> None:
        assert sum(map(len, add_sorted(map(io.BytesIO, parts)))) == sum(map(len, few))

    for _ in range(1 if COUNTED else 5):
        costs = cost(lambda _: add(few), b""), cost(lambda _: add(many), b"")
        if costs[1] < 16 * costs[0] + FIXED:
            return
    raise AssertionError(f"1,024 files: {costs[1]:,}, and {costs[0]:,} for 8")


@pytest.mark.parametrize("pattern", [*PATTERNS, None])
def test_streams_and_training_are_nearly_linear(pattern: str | None) -> None:
    texts = tokenizer(pattern, False)._text_encoder
    every = texts.policy.rules("all", ())
    special = SpecialTokens(["<|endoftext|>"])
    for unit in [*(unit.encode() for unit in UNITS), b"\xff"]:

        def in_pieces(text: bytes) -> None:
            for _ in texts.chunks((text[at : at + 500] for at in range(0, len(text), 500)), every, room=1000):
                pass

        def count(text: bytes) -> None:
            PretokenCounts().count(text, scanner_of(resolve(pattern)), special)

        assert_nearly_linear(in_pieces, unit, f"a stream, {pattern}")
        assert_nearly_linear(count, unit, f"counting, {pattern}")
