"""No text makes encoding, training or streaming quadratic: the blocks that the extension executes are counted, not the time.

That takes an extension whose blocks call fuzz/coverage.c, as `nox -s sanitize` builds it.
"""

import ctypes
from functools import cache

import pytest

import bpe
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.patterns import PATTERNS, resolve
from bpe.scanning.scanner import scanner_of
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer

UNITS = [
    *(
        "a",
        " ",
        "^",
        "中",
        "\n",
        "'",
        "'s",
        "1",
        "\u0301",
        "e\u0301",
        "A",
        "Aa",
        " \n",
        "\r\n",
        "\t ",
        "a ",
        "😀",
        "\u3000",
        "/",
    ),
    *("aGVsbG8gd29ybGQ", "<|", "<|endoftext|", "<|endoftext|>", " 1", "a1", "x'", "あ", "。"),
]
SMALL, LARGE = 6_000, 24_000  # bytes
# n log n is 4 × log(24,000) / log(6,000) = 4.6; n² would be 16.
MOST = 5.5


def blocks() -> int:
    try:
        count = ctypes.CDLL(None).coverage_blocks
    except AttributeError:
        pytest.skip("the extension does not count its blocks: `nox -s sanitize` builds one that does")
    count.restype = ctypes.c_uint64
    return count()


@cache
def tokenizer(pattern: str | None, by_rank: bool) -> Tokenizer:
    text = " ".join(unit * 70 for unit in UNITS if "endof" not in unit)
    made = bpe.train([text], 420, pattern=None)
    if by_rank:
        ranks = {token: number for number, token in made.vocab.items() if number not in made.special_tokens.values()}
        return Tokenizer.from_ranks(ranks, pattern=pattern, special_tokens=made.special_tokens)
    return Tokenizer(made.vocab, made.merges, pattern=pattern, special_tokens=made.special_tokens)


def assert_nearly_linear(work, unit: bytes, what: str) -> None:
    work(unit * (SMALL // len(unit)))  # what is made once is made
    costs = []
    for size in (SMALL, LARGE):
        text = unit * (size // len(unit))
        begun = blocks()
        work(text)
        costs.append(blocks() - begun)
    assert costs[1] < MOST * costs[0] + 20_000, (
        f"{what} of {unit!r}: {costs[0]:,} blocks, and {costs[1]:,} for four times as much"
    )


@pytest.mark.parametrize("pattern", [*PATTERNS, None])
def test_encoding_is_nearly_linear(pattern: str | None) -> None:
    blocks()
    for unit in [*(unit.encode() for unit in UNITS), b"\xff", b"\xe4", b"a\x80"]:
        for by_rank in (False, True):
            encode = tokenizer(pattern, by_rank).encode_to_numpy
            assert_nearly_linear(
                lambda text, encode=encode: encode(text, allowed_special="all"), unit, f"encoding, {pattern}"
            )


@pytest.mark.parametrize("pattern", [*PATTERNS, None])
def test_streams_and_training_are_nearly_linear(pattern: str | None) -> None:
    blocks()
    texts = tokenizer(pattern, False)._texts
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
