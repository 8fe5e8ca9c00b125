"""Counting against collections.Counter."""

import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import DATA

from bpe import reference
from bpe.counting import records
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.scanner import SCANNED
from bpe.scanning.special_tokens import SpecialTokens

GPT2 = SCANNED["gpt2"]
SPECIAL = ["<|endoftext|>", "<|"]


@given(st.lists(DATA, max_size=5))
def test_counts_as_the_reference(texts: list[bytes]) -> None:
    counts = PretokenCounts()
    for text in texts:
        counts.count(text, GPT2, SpecialTokens(SPECIAL))
    assert dict(counts.items()) == reference.count_pretokens(texts, "gpt2", SPECIAL)
    assert len(counts) == len(dict(counts.items()))


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=50),
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 2**60)), max_size=20),
    st.integers(1, 100),
)
def test_tables_add_up_by_shares_of_the_hashes(ours: list[bytes], theirs: list[tuple[bytes, int]], shares: int) -> None:
    a, b, expected = PretokenCounts(), PretokenCounts(), Counter(ours)
    a.count_pieces(ours)
    for piece, count in theirs:
        b.add_count(piece, count)
        expected[piece] += count
    actual: list[tuple[bytes, int]] = []
    for share in range(shares):
        table = PretokenCounts(1)
        table.add_share([a, b], share, shares)
        actual += table.items()
    assert sorted(actual) == sorted(expected.items())


def test_shares_of_large_tables_and_of_full_ones() -> None:
    words = [str(i).encode() * (1 + i % 5) for i in range(30_000)]
    for count in (38, 39, 40, 81, 30_000):  # about as many as the tables that grow from 64 slots hold
        whole, part = PretokenCounts(1), PretokenCounts(1)
        whole.count_pieces(words[:count])
        part.count_pieces(words[: count // 2])
        for shares in (1, 2, 3, 7, 64, 1000):
            actual: list[tuple[bytes, int]] = []
            for share in range(shares):
                table = PretokenCounts(1)
                table.add_share([whole, part], share, shares)
                assert sorted(table.items()) == sorted(dict(table.items()).items())
                actual += table.items()
            assert sorted(actual) == sorted((word, 1 + (i < count // 2)) for i, word in enumerate(words[:count]))


WORDS = [str(i).encode() * (1 + i % 7) for i in range(3_000)]  # of 1 to 28 bytes


@given(st.integers(0, 2**32), st.integers(1, len(WORDS)), st.integers(1, 5_000), st.integers(1, 600))
@settings(max_examples=50)
def test_the_shares_of_a_grown_table_add_up(seed: int, distinct: int, drawn: int, shares: int) -> None:
    words = random.Random(seed).choices(WORDS[:distinct], k=drawn)
    expected = Counter(words)
    table, other = PretokenCounts(1), PretokenCounts()
    table.count_pieces(words)
    for word in words[:10]:
        table.add_count(word, 2**40)
        expected[word] += 2**40
    assert sorted(table.items()) == sorted(expected.items())
    assert sorted(records.items(records.pack_table(table))) == sorted(expected.items())
    assert len(table) == len(expected)
    other.count_pieces(WORDS)
    expected.update(WORDS)
    rows: list[tuple[bytes, int]] = []
    for share in range(shares):
        sums = PretokenCounts(1)
        sums.add_share([table, other], share, shares)
        rows += sums.items()
    assert sorted(rows) == sorted(expected.items())
    table.clear()
    assert (len(table), list(table.items())) == (0, [])
    table.count_pieces(words[:1])
    assert list(table.items()) == [(words[0], 1)]


def test_shares_are_not_mixed() -> None:
    words, table = PretokenCounts(), PretokenCounts()
    words.count_pieces([str(i).encode() for i in range(99)])
    with pytest.raises(ValueError, match="share 2 of 2 cannot be added"):
        table.add_share([words], 2, 2)
    table.add_share([words], 0, 2)
    with pytest.raises(ValueError, match="share 0 of 3 cannot be added"):
        table.add_share([words], 0, 3)
    with pytest.raises(ValueError, match="cannot be shared out again"):
        PretokenCounts().add_share([table], 0, 2)


def test_a_table_that_others_were_added_to_goes_on_without_them() -> None:
    long, other = b"a pretoken of its own length", b"another of more than fifteen bytes"
    counted, added = PretokenCounts(), PretokenCounts()
    counted.count_pieces([long])
    with pytest.raises(ValueError, match="cannot be shared out again"):
        counted.add_share([counted], 0, 1)
    added.add_share([counted], 0, 1)
    counted.clear()
    added.count_pieces([other])
    assert sorted(added.items()) == [(long, 1), (other, 1)]


def test_many_long_pretokens_are_counted() -> None:
    words = [b"%020d" % i for i in range(400_000)]
    table = PretokenCounts()
    table.count_pieces(words)
    table.count_pieces(words)
    assert dict(table.items()) == dict.fromkeys(words, 2)


def test_lengths_around_what_fits_in_a_slot_stay_apart() -> None:
    words = [b"a" * n for n in range(1, 40)] + [b"\0" * n for n in range(1, 40)]
    counts = PretokenCounts()
    counts.count_pieces(words)
    assert dict(counts.items()) == dict.fromkeys(words, 1)


@given(DATA, st.integers(0, 200))
def test_a_safe_cut_changes_neither_pretokens_nor_special_tokens(text: bytes, at: int) -> None:
    special = SpecialTokens([*SPECIAL, "a b", " \n"])
    cut = safe_cut(text, at, GPT2, special)
    whole, parts = PretokenCounts(), PretokenCounts()
    whole.count(text, GPT2, special)
    parts.count(text[:cut], GPT2, special)
    parts.count(text[cut:], GPT2, special)
    assert dict(whole.items()) == dict(parts.items())
    actual = special.partition(text[:cut]) + special.partition(text[cut:])
    assert [index for _, index in actual if index >= 0] == [index for _, index in special.partition(text) if index >= 0]


def test_pretokens_cannot_be_prepared_to_collide() -> None:
    # A hash multiplies two words, each after adding a number to it without carry. When these numbers were constants,
    # pretokens that begin with the first constant all had the hash 0, and counting them took quadratic time.
    chance = random.Random(5)
    begin = (0xA0761D6478BD642F).to_bytes(8, "little")
    ends = {chance.randbytes(7) for _ in range(20_000)}

    def seconds(pretokens: list[bytes]) -> float:
        counts = PretokenCounts()
        before = time.process_time()
        counts.count_pieces(pretokens)
        assert len(counts) == len(pretokens)
        return time.process_time() - before

    ordinary = min(seconds([chance.randbytes(8) + end for end in ends]) for _ in range(3))
    assert min(seconds([begin + end for end in ends]) for _ in range(3)) < 10 * ordinary
