"""The Unicode tables beside those of the engines of tiktoken and tokenizers, on every code point there is."""

import unicodedata

import pytest
import tiktoken
from tokenizers import Regex, pre_tokenizers

from bpe.expressions.properties import CATEGORIES
from bpe.scanning import scanner

EVERY = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
SINGLE_BYTES = {bytes([byte]): byte for byte in range(256)}
CLASSES = [rf"\p{{{category}}}" for category in CATEGORIES if category != "Cs"] + [r"\s"]
TABLE = scanner.categories()


def ours(expression: str) -> str:
    if expression == r"\s":
        return "".join(character for character in EVERY if TABLE[ord(character)] & 0x80)
    number = CATEGORIES.index(expression[3:5])
    return "".join(character for character in EVERY if TABLE[ord(character)] & 0x7F == number)


def test_tiktoken_classes_every_character_as_we_do() -> None:
    for expression in CLASSES:
        engine = tiktoken.Encoding("x", pat_str=f"{expression}+", mergeable_ranks=SINGLE_BYTES, special_tokens={})
        assert bytes(engine.encode_ordinary(EVERY)).decode() == ours(expression), expression


@pytest.mark.parametrize("expression", [r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Ll}", r"\s"])
def test_tokenizers_classes_every_character_as_we_do(expression: str) -> None:
    split = pre_tokenizers.Split(Regex(f"{expression}+"), "removed")
    rest = "".join(piece for piece, _ in split.pre_tokenize_str(EVERY))
    group = expression[3:-1]
    rest_of_ours = (
        character
        for character in EVERY
        if not (
            TABLE[ord(character)] & 0x80
            if expression == r"\s"
            else CATEGORIES[TABLE[ord(character)] & 0x7F].startswith(group)
        )
    )
    assert rest == "".join(rest_of_ours)


def test_the_tables_are_those_of_unicode() -> None:
    # What has had one category since the oldest version that Python knows and has it in Python's own.
    old = unicodedata.ucd_3_2_0
    for character in EVERY:
        category = old.category(character)
        if category != "Cn" and category == unicodedata.category(character):
            assert CATEGORIES[TABLE[ord(character)] & 0x7F] == category
