"""The symbols that merge, beside the obvious way to find them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe.formats import rows_of
from bpe.formats.pairs import WrongMerge, halves_of, pairs_of_numbers

TOKENS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=5), st.text("ab", min_size=1, max_size=9).map(str.encode)), unique=True
)


@given(tokens=TOKENS, data=st.data())
def test_merges_are_looked_up(tokens: list[bytes], data: st.DataObject) -> None:
    possible = [(a, b) for a in tokens for b in tokens if a + b in tokens]
    merges = data.draw(st.permutations(possible))
    expected = [[tokens.index(a), tokens.index(b), tokens.index(a + b)] for a, b in merges]
    assert rows_of(merges, tokens).tolist() == expected
    inputs = data.draw(st.permutations(tokens))
    halves = memoryview(bytearray(8 * len(merges))).cast("I")
    halves[::2] = memoryview(np.array([inputs.index(a) for a, _ in merges], dtype=np.uint32))
    halves[1::2] = memoryview(np.array([inputs.index(b) for _, b in merges], dtype=np.uint32))
    assert pairs_of_numbers(tokens, inputs, halves).tolist() == expected


def test_wrong_merges_are_named() -> None:
    tokens = [b"a", b"b", b"ab"]
    with pytest.raises(ValueError, match="merge 1: b'ba' is not in the vocabulary"):
        rows_of([(b"a", b"b"), (b"b", b"a")], tokens)
    with pytest.raises(ValueError, match="b'c' is not in"):
        rows_of([(b"c", b"b")], tokens)
    with pytest.raises(ValueError, match="b'long' is not in"):
        rows_of([(b"a", b"long")], tokens)
    with pytest.raises(ValueError, match="are merged twice"):
        rows_of([(b"a", b"b"), (b"a", b"b")], tokens)
    with pytest.raises(ValueError, match="merge 1: b'c' is not in the vocabulary"):
        pairs_of_numbers(
            tokens, [b"c", b"b", b"a"], memoryview(bytearray(b"\2\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0")).cast("I")
        )
    assert rows_of([], []).shape == (0, 3)


def test_merges_by_what_spells_their_halves() -> None:
    places = {"a": 0, "Ġ": 1, "界": 2, "b c": 3}
    halves = halves_of([["a", "Ġ"], "界 a", ["b c", "a"]], places)
    assert memoryview(halves).cast("I").tolist() == [0, 1, 2, 0, 3, 0]
    assert halves_of([], places) == b""
    wrong = ["a", "a x", "a b c", "a  Ġ", " a", "", ["a"], ["a"] * 3, ["a", "x"], ["a", []], ["a", 1], ("a", "a"), None]
    for one in wrong:
        with pytest.raises(WrongMerge, match=r"merge 1: (not two tokens|'x' is not)"):
            halves_of(["a a", one], places)
