"""Expressions of Oniguruma and fancy-regex beside tokenizers and tiktoken: the same matches, or refused by name."""

from __future__ import annotations

import bisect
import random

import pytest
from expression_samples import (
    LANGUAGES,
    LETTERS,
    ONE_CHARACTER,
    OTHERS,
    REFUSED,
    matched_fancy,
    matched_oniguruma,
    random_expression,
    random_text,
    theirs_fancy,
    theirs_oniguruma,
)

from bpe import Encoding, patterns
from bpe.expressions.automaton import MATCH, Automaton, compile_tree
from bpe.expressions.parsing import parse
from bpe.expressions.sets import intersection, of_text
from bpe.expressions.step_options import Refused
from bpe.expressions.tree import Chars, spelled, written
from bpe.native.lazy_imports import regex

EVERY = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
FEW = [code for code in EVERY if code < 0x700 or code % 97 == 0 or 0x1D00 <= code < 0x2200 or 0x3000 <= code < 0x3400]


HERE = of_text(LETTERS + OTHERS)


def check_one_character(language: str, expression: str, text: str) -> bool:
    theirs = (matched_oniguruma if language == "oniguruma" else matched_fancy)(expression, text)
    try:
        tree = parse(expression, language)
    except Refused:
        return False
    if theirs is None:
        return False  # wrong in their eyes, and read here: no file of theirs holds it
    ours = set(regex.findall(spelled(tree), text))
    assert ours == theirs, (expression, sorted(ours ^ theirs)[:20])
    return True


@pytest.mark.parametrize("language", LANGUAGES)
def test_constructs_of_one_character(language: str) -> None:
    text = "".join(map(chr, FEW))
    read = [expression for expression in ONE_CHARACTER if check_one_character(language, expression, text)]
    assert len(read) > 110


@pytest.mark.parametrize("language", LANGUAGES)
def test_characters_of_a_ligature_fold_to_their_own_alone(language: str) -> None:
    for letter, same in (("s", "Ssſ"), ("t", "Tt")):
        assert spelled(parse(f"(?i:[{letter}])", language)) == spelled(parse(f"[{same}]", language))


@pytest.mark.soak
@pytest.mark.parametrize("language", LANGUAGES)
def test_constructs_of_one_character_on_every_code_point(language: str) -> None:
    text = "".join(map(chr, EVERY))
    for expression in ONE_CHARACTER:
        check_one_character(language, expression, text)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_not_read_is_refused_by_name(language: str, expression: str) -> None:
    with pytest.raises(Refused, match=r"at character|nested"):
        parse(expression, language)


def isolated(matches: list[tuple[int, int]], text: str) -> list[str]:
    ends = sorted({end for match in matches for end in match} | {len(text)} - {0})
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


def run(automaton: Automaton, text: str, at: int) -> int:
    """The end of the match at a place of a text, or 0: what scanning/automaton.h does."""
    width, end, row = automaton.class_count + 1, 0, automaton.class_count + 1
    for i in range(at, len(text)):
        entry = automaton.table[row + automaton.classes[bisect.bisect_right(automaton.begins, ord(text[i])) - 1]]
        end = i if entry & MATCH else end
        row = entry & ~MATCH
        if not row:
            return end
    return len(text) if automaton.table[row + width - 1] & MATCH else end


def compare(language: str, chance: random.Random) -> tuple[bool, bool]:
    """(compared, by an automaton too)."""
    expression = random_expression(chance, language)
    try:
        tree = parse(expression, language)
    except Refused:
        return False, False
    theirs = (theirs_oniguruma if language == "oniguruma" else theirs_fancy)(expression)
    if theirs is None:
        return False, False
    # sets of the characters that texts here have, or `regex` would take most of the time to read the others
    brief = written(tree, lambda chars: spelled(Chars(intersection(chars, HERE))), "(?>{})".format, (r"\A", r"\Z"))
    slow, fast = regex.compile(brief), compile_tree(tree)
    for _ in range(20):
        text = random_text(chance)
        matches = [match.span() for match in slow.finditer(text)]
        if any(begin == end for begin, end in matches):
            return False, False  # engines go on from there in ways of their own: bpe.expressions.steps
        try:
            expected = theirs(text)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            return False, False  # the engine's limit of backtracking, which an automaton has no need of
        if language == "oniguruma":
            assert isolated(matches, text) == expected, (expression, text)
        else:
            assert "".join(text[begin:end] for begin, end in matches).encode() == expected, (expression, text)
        if isinstance(fast, Automaton):
            at, actual = 0, []
            while at < len(text):
                end = run(fast, text, at)
                actual += [(at, end)] if end else []
                at = end or at + 1
            assert actual == matches, (expression, text)
    return True, isinstance(fast, Automaton)


@pytest.mark.parametrize("language", LANGUAGES)
def test_random_expressions(language: str) -> None:
    results = [compare(language, random.Random(seed)) for seed in range(500)]
    assert sum(compared for compared, _ in results) > 60
    assert sum(fast for _, fast in results) > 30


@pytest.mark.soak
@pytest.mark.parametrize("language", LANGUAGES)
def test_many_random_expressions(language: str) -> None:
    for seed in range(1000, 40_000):
        compare(language, random.Random(seed))


def test_flags_hold_to_the_end_of_their_branch_or_group() -> None:
    assert patterns.split(b"abCB", patterns.resolve("a(?i)b|c", "oniguruma")) == [b"ab", b"CB"]
    assert patterns.split(b"abaC", patterns.resolve("a(?i)b|c", "fancy-regex")) == [b"ab", b"a", b"C"]
    assert patterns.split(b"ab", patterns.resolve(r"(?u)\w", "fancy-regex")) == [b"a", b"b"]


def test_an_encoding_reads_its_expression_as_tiktoken_does() -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    expression = r"[\p{L}&&[^\p{Han}]]+|\p{Han}+|\s++$|[[:punct:]]|\d{1,2}+|."  # each means something else in `regex`
    theirs = theirs_fancy(expression)
    ours = Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    assert theirs is not None
    for text in ["ab中文cd 12345 …! \n ", "中a\u3000"]:
        assert bytes(ours.encode(text)) == theirs(text)
    assert patterns.scanner_of(ours._data.pattern) >= 0
