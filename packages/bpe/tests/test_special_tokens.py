"""Special tokens: the longest at the leftmost place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe import reference
from bpe.scanning.special_tokens import SpecialTokens

NAMES = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), unique=True, max_size=5)
TEXT = st.text(alphabet="ab< ", max_size=60).map(str.encode)


@given(names=NAMES, text=TEXT)
def test_splits_as_the_reference(names: list[str], text: bytes) -> None:
    actual = SpecialTokens(names).partition(text)
    assert [(piece, index >= 0) for piece, index in actual] == reference.split_special(text, names)
    assert all(names[index].encode() == piece for piece, index in actual if index >= 0)


@given(names=NAMES, text=TEXT)
def test_search_finds_the_first(names: list[str], text: bytes) -> None:
    special = [piece for piece, is_special in reference.split_special(text, names) if is_special]
    assert SpecialTokens(names).search(text) == (special[0] if special else None)


def test_overlapping_and_nested() -> None:
    special = SpecialTokens(["<a>", "<a><b>", "<b><c>"])
    assert special.partition(b"<a><b><c>") == [(b"<a><b>", 1), (b"<c>", -1)]
    assert special.partition(b"x<a") == [(b"x<a", -1)]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="empty"):
        SpecialTokens(["a", ""])
    with pytest.raises(ValueError, match="'a' is given twice"):
        SpecialTokens(["a", "b", "a"])
    with pytest.raises(ValueError, match="2 special tokens with 1 ids"):
        SpecialTokens(["a", "b"], [1])
