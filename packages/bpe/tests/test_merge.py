"""The merges of counted pretokens against the reference, which counts everything again at every step."""

import random
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bpe import reference
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import pack_table
from bpe.formats import Merges
from bpe.merging.learn import Rule, learn
from bpe.merging.merger import Merger
from bpe.native.printable import PRINTABLE

WORDS = st.dictionaries(
    st.text(alphabet="abc", min_size=1, max_size=14).map(str.encode),
    st.sampled_from([1, 1, 1, 2, 3, 7, 2**33]),
    max_size=25,
)
RUN = st.builds(lambda letter, times: letter * times, st.sampled_from([b"a", b"b"]), st.integers(0, 70))
LONG_WORDS = st.dictionaries(  # about as many symbols as the vectors of a processor take
    st.text(alphabet="ab", min_size=28, max_size=40).map(str.encode), st.integers(1, 3), max_size=8
)
WORDS_OF_SEVERAL_VECTORS = st.dictionaries(
    st.builds(lambda *parts: b"".join(parts), *[st.text("ab", max_size=40).map(str.encode), RUN] * 3).filter(bool),
    st.integers(1, 2),
    max_size=3,
)
WORDS_WITH_RUNS = st.dictionaries(
    st.lists(st.sampled_from([b"a", b"aa", b"aaaa", b"ab", b"b"]), min_size=1, max_size=6).map(b"".join),
    st.integers(1, 4),
    max_size=12,
)


def table(counts: dict[bytes, int]) -> bytearray:
    result = PretokenCounts()
    for word, count in counts.items():
        result.add_count(word, count)
    return pack_table(result)


def merge(
    counts: dict[bytes, int], vocab_size: int, tie_break: str, floor: int, consume: bool = False, **bounds: int
) -> list[tuple[bytes, bytes]]:
    """The merges that bring the 256 bytes to vocab_size tokens, by Merger."""
    alphabet = bytes(range(256))
    if tie_break == "huggingface":
        alphabet = bytes(sorted(alphabet, key=lambda byte: PRINTABLE[byte]))
    merger = Merger(
        table(counts),
        tokens=[bytes([byte]) for byte in alphabet],
        by_bytes=tie_break == "bytes",
        most=vocab_size - 256,
        min_count=bounds.get("min_count", 1),
        max_token_bytes=bounds.get("max_token_bytes", 0),
        floor=floor,
        consume=consume,
        memory_limit=bounds.get("memory_limit", 0),
    )
    result = 0
    while (now := merger.advance(3)) > result:
        result = now
    tokens, halves = merger.result()
    merges = list(Merges(tokens, halves))
    assert tokens[256:] == [left + right for left, right in merges]
    return merges


@given(
    counts=st.one_of(WORDS, LONG_WORDS, WORDS_WITH_RUNS, WORDS_OF_SEVERAL_VECTORS),
    extra=st.one_of(st.integers(0, 40), st.just(40_000), st.just(70_000)),  # cells have 16 bits, or 32
    tie_break=st.sampled_from(["bytes", "huggingface", "ids"]),
    floor=st.sampled_from([1, 2, 5, 1000, 2**40]),
    consume=st.booleans(),  # the memory of the records
    min_count=st.integers(1, 4),
    max_token_bytes=st.sampled_from([None, 2, 3, 6]),
    memory_limit=st.sampled_from([0, 1, 16, 100, 700]),
)
def test_merges_as_the_reference_whatever_the_floor(
    counts: dict[bytes, int],
    extra: int,
    tie_break: str,
    floor: int,
    consume: bool,
    min_count: int,
    max_token_bytes: int | None,
    memory_limit: int,
) -> None:
    _, expected = reference.train(
        counts,
        256 + extra,
        special_tokens=[],
        tie_break=tie_break,
        min_count=min_count,
        max_token_bytes=max_token_bytes,
    )
    bound = max_token_bytes or 0
    if tie_break == "huggingface" and bound:
        bound = max(2, bound - 1)
    bounds = {"min_count": min_count, "max_token_bytes": bound, "memory_limit": memory_limit}
    assert merge(counts, 256 + extra, tie_break, floor, consume, **bounds) == expected


RUNS = st.builds(lambda piece, times: piece * times, st.text("ab", min_size=1, max_size=6), st.integers(100, 300))


@given(
    words=st.lists(
        st.builds(lambda *parts: "".join(parts).encode(), RUNS, st.text("abc"), RUNS), min_size=1, max_size=2
    ),
    extra=st.integers(1, 30),
    tie_break=st.sampled_from(["bytes", "huggingface", "ids"]),
)
@settings(deadline=None, max_examples=30)
def test_words_of_hundreds_of_bytes_and_more(words: list[bytes], extra: int, tie_break: str) -> None:
    counts = {word: 1 + len(word) % 3 for word in words}
    _, expected = reference.train(counts, 256 + extra, special_tokens=[], tie_break=tie_break)
    assert merge(counts, 256 + extra, tie_break, 1) == expected


@pytest.mark.parametrize("most", [40, 40_000])  # cells of long words have 16 bits, or 32
def test_a_symbol_has_more_cells_than_sixteen_bits_can_say(most: int) -> None:
    counts = {b"a" * 70_000 + b"b" + b"a" * 40_001: 1, b"ab" * 300: 2, b"aab": 5}
    _, expected = reference.train(counts, 256 + most, special_tokens=[])
    assert max(len(left + right) for left, right in expected) > 1 << 16
    assert merge(counts, 256 + most, "bytes", 1000) == expected


@pytest.mark.parametrize("floor", [1, 300, 5000])
def test_what_postings_leave_is_used_for_others(floor: int) -> None:
    word = bytes(random.Random(3).choices(b"ab", k=30_000))  # thousands of postings to a pair
    _, expected = reference.train({word: 1}, 300, special_tokens=[])
    assert merge({word: 1}, 300, "bytes", floor) == expected


def visited(word: bytes, merges: int) -> int:
    """Symbols that a Merger looks at to make so many merges of one word."""
    alphabet = [bytes([byte]) for byte in range(256)]
    merger = Merger(
        table({word: 1}), tokens=alphabet, by_bytes=True, most=merges, min_count=1, max_token_bytes=0, floor=1,
    )  # fmt: skip
    result = 0
    while (now := merger.advance(merges)) > result:
        result = now
    return merger.visited


@pytest.mark.parametrize("kind", ["one byte", "two bytes in turn", "ten letters", "every byte", "words"])
def test_the_work_follows_the_length_of_a_word(kind: str) -> None:
    draw = random.Random(1)
    size = 1 << 15
    word = {
        "one byte": b"a" * size,
        "two bytes in turn": b"ab" * (size // 2),
        "ten letters": bytes(draw.choices(b"abcdefghij", k=size)),
        "every byte": draw.randbytes(size),
        "words": b" ".join(draw.choices([b"once", b"upon", b"a", b"time", b"there", b"was"], k=size // 4))[:size],
    }[kind]
    assert visited(word, 300) < 8 * size


@given(
    words=st.lists(st.lists(st.integers(0, 258), min_size=2, max_size=12), min_size=1, max_size=8, unique_by=tuple),
    floor=st.sampled_from([1, 4, 100]),
)
@example(words=[[0, 0, 1, 1], [0, 1, 0, 1, 1], [3, 0]], floor=4)  # "ab" is two symbols, in pairs that tie
def test_pairs_are_counted_alike_with_few_symbols_and_with_many(words: list[list[int]], floor: int) -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"aba", b"bb"]
    letters = [97, 98, 99, 256, 257, 258]
    records = b"".join(
        struct.pack(f"=QI{len(word)}I", number + 1, 4 * len(word), *(letters[symbol % 6] for symbol in word))
        for number, word in enumerate(words)
    )

    def merged(unused: int, memory_limit: int = 0) -> list[tuple[bytes, bytes]]:
        """Merges beside tokens that do not occur: more than 1,024 symbols are counted by the survey (recount.pxi)."""
        merger = Merger(
            records, tokens=[*tokens, *(b"z%d" % i for i in range(unused))], spelled=True, by_bytes=True, most=30,
            min_count=1, max_token_bytes=0, floor=floor, memory_limit=memory_limit,
        )  # fmt: skip
        result = 0
        while (now := merger.advance(30)) > result:
            result = now
        return list(Merges(*merger.result()))

    assert merged(0) == merged(1100) == merged(0, 1) == merged(1100, 1)


@pytest.mark.parametrize("letters", [1, 4, 20, 256])
def test_as_the_reference_where_pairs_are_counted_again_with_many_symbols(letters: int) -> None:
    draw = random.Random(letters)
    alphabet = draw.sample(range(256), letters)
    counts = {bytes(draw.choices(alphabet, k=draw.randrange(1, 300))): draw.choice([1, 1, 2, 9]) for _ in range(10)}
    _, expected = reference.train(counts, 1200, special_tokens=[])
    assert merge(counts, 1200, "bytes", 40) == expected


def test_counts_beyond_32_bits_are_compared_whole() -> None:
    counts = {b"ab": 2**32 + 1, b"cd": 2**32 + 2, b"ef": 3}
    assert merge(counts, 259, "bytes", 1) == [(b"c", b"d"), (b"a", b"b"), (b"e", b"f")]


def test_a_count_whose_low_half_is_all_ones() -> None:
    counts = {b"abcd": 2**32 - 1, b"bc": 2**33 - 1, b"ab": 2**32 - 1}
    _, expected = reference.train(counts, 259, special_tokens=[])
    assert merge(counts, 259, "bytes", 1) == expected


def test_records_are_emptied_only_when_they_may_be() -> None:
    alphabet, rule = [bytes([byte]) for byte in range(256)], Rule(by_bytes=True, min_count=1, longest=0)
    first, second = table({b"abab": 2}), table({b"abab": 2})
    assert learn(first, alphabet, 2, rule) == learn(second, alphabet, 2, rule, consume=True)
    assert (first, second) == (table({b"abab": 2}), bytearray())


def test_the_floor_chosen_is_only_a_guess() -> None:
    # A corpus whose words are rare and whose pairs are common, and one the other way round.
    for counts in ({b"a" * n + b"b": 1 for n in range(1, 40)}, {b"ab%d" % n: 50 + n for n in range(40)}):
        rule = Rule(by_bytes=True, min_count=1, longest=0)
        tokens, halves = learn(table(counts), [bytes([i]) for i in range(256)], 30, rule)
        vocab, expected = reference.train(counts, 286, special_tokens=[])
        assert Merges(tokens, halves) == expected
        assert tokens == list(vocab.values())
