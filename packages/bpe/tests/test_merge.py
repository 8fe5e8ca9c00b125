"""The merges of counted pretokens against the reference, which counts everything again at every step."""

from hypothesis import given
from hypothesis import strategies as st

from bpe import reference
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import pack_table
from bpe.formats import Merges
from bpe.formats.gpt2 import PRINTABLE
from bpe.merging.learn import Rule, learn
from bpe.merging.merger import Merger
from bpe.native import cpu

WORDS = st.dictionaries(
    st.text(alphabet="abc", min_size=1, max_size=14).map(str.encode),
    st.sampled_from([1, 1, 1, 2, 3, 7, 2**33]),
    max_size=25,
)
LONG_WORDS = st.dictionaries(  # about as many symbols as the vectors of a processor take
    st.text(alphabet="ab", min_size=28, max_size=40).map(str.encode), st.integers(1, 3), max_size=8
)
WORDS_WITH_RUNS = st.dictionaries(
    st.lists(st.sampled_from([b"a", b"aa", b"aaaa", b"ab", b"b"]), min_size=1, max_size=6).map(b"".join),
    st.integers(1, 4),
    max_size=12,
)


def table(counts: dict[bytes, int]) -> bytearray:
    made = PretokenCounts()
    for word, count in counts.items():
        made.add_count(word, count)
    return pack_table(made)


def merge(
    counts: dict[bytes, int], vocab_size: int, tie_break: str, floor: int, level: str | None = None, **bounds: int
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
        level=level,
    )
    made = 0
    while (now := merger.advance(3)) > made:
        made = now
    tokens, halves = merger.result()
    merges = list(Merges(tokens, halves))
    assert merges == [(tokens[left], tokens[right]) for left, right, _ in merger.made_from(0)]
    assert tokens[256:] == [left + right for left, right in merges]
    return merges


@given(
    counts=st.one_of(WORDS, LONG_WORDS, WORDS_WITH_RUNS),
    level=st.sampled_from(cpu.available()),
    extra=st.integers(0, 40),
    tie_break=st.sampled_from(["bytes", "huggingface", "ids"]),
    floor=st.sampled_from([1, 2, 5, 1000, 2**40]),
    min_count=st.integers(1, 4),
    max_token_bytes=st.sampled_from([None, 2, 3, 6]),
)
def test_merges_as_the_reference_whatever_the_floor(
    counts: dict[bytes, int],
    level: str,
    extra: int,
    tie_break: str,
    floor: int,
    min_count: int,
    max_token_bytes: int | None,
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
    bounds = {"min_count": min_count, "max_token_bytes": bound}
    assert merge(counts, 256 + extra, tie_break, floor, level, **bounds) == expected


@given(counts=st.one_of(WORDS, WORDS_WITH_RUNS), tie_break=st.sampled_from(["bytes", "huggingface", "ids"]))
def test_no_two_merges_make_the_same_token(counts: dict[bytes, int], tie_break: str) -> None:
    made = [left + right for left, right in merge(counts, 10_000, tie_break, 1)]
    assert len(set(made)) == len(made)


def test_counts_beyond_32_bits_are_compared_whole() -> None:
    counts = {b"ab": 2**32 + 1, b"cd": 2**32 + 2, b"ef": 3}
    assert merge(counts, 259, "bytes", 1) == [(b"c", b"d"), (b"a", b"b"), (b"e", b"f")]


def test_a_count_whose_low_half_is_all_ones() -> None:
    counts = {b"abcd": 2**32 - 1, b"bc": 2**33 - 1, b"ab": 2**32 - 1}
    _, expected = reference.train(counts, 259, special_tokens=[])
    assert merge(counts, 259, "bytes", 1) == expected


def test_nothing_to_merge() -> None:
    assert merge({}, 300, "bytes", 1) == []
    assert merge({b"a": 3, b"b": 2}, 300, "bytes", 1) == []


def test_the_floor_chosen_is_only_a_guess() -> None:
    # A corpus whose words are rare and whose pairs are common, and one the other way round.
    for counts in ({b"a" * n + b"b": 1 for n in range(1, 40)}, {b"ab%d" % n: 50 + n for n in range(40)}):
        rule = Rule(by_bytes=True, min_count=1, longest=0)
        tokens, halves = learn(table(counts), [bytes([i]) for i in range(256)], 30, rule)
        vocab, expected = reference.train(counts, 286, special_tokens=[])
        assert Merges(tokens, halves) == expected
        assert tokens == list(vocab.values())
