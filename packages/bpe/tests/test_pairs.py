"""Which symbols merge, beside the obvious way to find out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe._pairs import pairs_of_merges

TOKENS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=5), st.text("ab", min_size=1, max_size=9).map(str.encode)), unique=True
)


@given(tokens=TOKENS, data=st.data())
def test_merges_are_looked_up(tokens: list[bytes], data: st.DataObject) -> None:
    possible = [(a, b) for a in tokens for b in tokens if a + b in tokens]
    merges = data.draw(st.permutations(possible))
    expected = [[tokens.index(a), tokens.index(b), tokens.index(a + b)] for a, b in merges]
    assert pairs_of_merges(tokens, merges).tolist() == expected


def test_wrong_merges_are_named() -> None:
    tokens = [b"a", b"b", b"ab"]
    with pytest.raises(ValueError, match=r"merge 1, b'b' \+ b'a': the vocabulary has no token b'ba'"):
        pairs_of_merges(tokens, [(b"a", b"b"), (b"b", b"a")])
    with pytest.raises(ValueError, match=r"no token b'c'"):
        pairs_of_merges(tokens, [(b"c", b"b")])
    with pytest.raises(ValueError, match=r"no token b'long'"):
        pairs_of_merges(tokens, [(b"a", b"long")])
    with pytest.raises(ValueError, match="stands twice"):
        pairs_of_merges(tokens, [(b"a", b"b"), (b"a", b"b")])
    assert pairs_of_merges([], []).shape == (0, 3)
