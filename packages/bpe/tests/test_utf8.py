"""A str to UTF-8, at every SIMD level, against Python's own conversion."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import TEXTS

from bpe.native import cpu
from bpe.native.text import utf8


@given(st.one_of(TEXTS, st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=0xFFFF))))
@example("".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 31)])))
@example("".join(map(chr, range(256))))
def test_a_str_becomes_the_utf8_that_python_makes_of_it(text: str) -> None:
    expected: bytes | None
    try:
        expected = text.encode()
    except UnicodeEncodeError:
        expected = None
    for level in cpu.AVAILABLE:
        assert utf8(text, level=level) == expected, level


@pytest.mark.parametrize("most", [0xFF, 0xFFFF, 0x10FFFF])
def test_long_texts_of_characters_of_every_size_become_utf8(most: int) -> None:
    chance = random.Random(most)
    edges = [edge for edge in (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF) if edge <= most]
    for count in range(200):
        codes = [
            chance.choice([*edges, chance.randrange(128), chance.randrange(min(most, 0xD7FF))]) for _ in range(count)
        ]
        text = "".join(map(chr, codes)) + "a" * chance.randrange(40)
        for level in cpu.AVAILABLE:
            assert utf8(text, level=level) == text.encode(), level
            if most > 0xFF:
                at = chance.randrange(len(text) + 1)
                assert utf8(text[:at] + chr(chance.randrange(0xD800, 0xE000)) + text[at:], level=level) is None, level
