"""The scanners against the regular expressions they stand for."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import DATA, PIECES

from bpe import _scan, patterns, reference

SCANNERS = [name for name in _scan.SCANNED if name is not None]


@pytest.mark.parametrize("name", SCANNERS)
@given(data=DATA)
@example(data=b"")
@example(data=b"\xe3\x80")  # a character cut off
@example(data=("x" * 62 + "\u3000 y").encode())  # a space of three bytes across two words
@example(data=b"x" * 62 + b"'ll" + b"l" * 70)  # a contraction across two words
def test_a_scanner_splits_as_its_pattern(name: str, data: bytes) -> None:
    expected = reference.pretokenize(data, name)
    assert _scan.split(data, name) == expected
    assert _scan.split(data, name, portable=True) == expected


@pytest.mark.parametrize("name", SCANNERS)
@given(
    before=st.integers(0, 70),
    middle=st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    after=st.integers(0, 70),
)
def test_nothing_changes_where_words_of_sixty_four_bytes_meet(name: str, before: int, middle: str, after: int) -> None:
    data = b"x" * before + middle.encode() + b" " * after + middle.encode()
    assert _scan.split(data, name) == reference.pretokenize(data, name)


@pytest.mark.parametrize("name", SCANNERS)
def test_every_code_point_alone_and_in_context(name: str) -> None:
    pattern = patterns.resolve(name)
    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for context in ("{0}", " {0}b{0}{0} '{0}1{0}\n{0}"):
        # One text of all, each between characters that no pretoken spans, so that one call asks about a million.
        text = "\n\n!a".join(context.format(character) for character in everything)
        assert _scan.split(text.encode(), name) == patterns.split(text.encode(), pattern)


@pytest.mark.parametrize("name", SCANNERS)
@given(data=DATA, at=st.integers(0, 210))
def test_a_cut_changes_no_pretoken(name: str, data: bytes, at: int) -> None:
    cut = _scan.cut(data, at, name)
    assert min(at, len(data)) <= cut <= len(data)
    assert _scan.split(data[:cut], name) + _scan.split(data[cut:], name) == _scan.split(data, name)


def test_ordinary_text_can_be_cut_nearly_anywhere() -> None:
    text = b"one two three, four: five\n" * 10
    assert all(_scan.cut(text, at) - at < 10 for at in range(len(text) - 10))


def test_without_a_pattern_the_text_is_one_pretoken() -> None:
    assert _scan.split(b"one two\n" * 1000, None) == [b"one two\n" * 1000]
    assert _scan.split(b"", None) == []
    assert _scan.cut(b"one two", 1, None) == 7


def test_a_pattern_without_a_scanner_says_so() -> None:
    assert _scan.scanner_of(patterns.resolve("[a-z]+|[^a-z]+")) == -1
    assert _scan.scanner_of(patterns.resolve(None)) >= 0
    with pytest.raises(KeyError):
        _scan.split(b"text", "[a-z]+")


def test_long_texts_cross_blocks() -> None:
    for data in (b"a" * 10_000, b" " * 10_000, b"a b" * 5_000, "\u3000".encode() * 5_000, b"'s" * 9_000):
        assert _scan.split(data) == reference.pretokenize(data, "gpt2")
