"""The steps of a pre-tokenizer as tokenizer.json describes them: as automata where they are such, and slowly always.

A step is the object of the file: {"type": "Split", …}. What a step parts off and what it does with it:

    Split                   the matches of an expression, by its behaviour
    Digits                  digits, one by one or in runs
    Punctuation             punctuation marks, by its behaviour
    Whitespace              words and runs of other characters; the white space between is dropped
    WhitespaceSplit         the same, without telling words from other characters
    CharDelimiterSplit      what one character separates; the character is dropped
    BertPreTokenizer        white space is dropped, punctuation marks stand alone
    UnicodeScripts          runs of one script: see script_runs()
    ByteLevel               may put a space in front and split as GPT-2 does; then spells each byte as a character, and
                            the steps behind it see these characters

    Behaviour               of the matches and what lies between them
    Isolated                each is a piece
    Removed                 matches are dropped
    MergedWithPrevious      a match belongs to what lies before it
    MergedWithNext          a match belongs to what lies behind it
    Contiguous              matches that touch are one piece

Digits, punctuation marks and scripts come from the release of tokenizers that expressions/unicode_sets.py names,
whose steps follow other versions of Unicode than its expressions: 17 for digits, 9 for punctuation marks and scripts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bpe import expressions
from bpe.expressions import properties
from bpe.expressions.parsing import parse
from bpe.expressions.sets import CharSet, complement, of_text, union
from bpe.expressions.step_options import GPT2, Refused, Step
from bpe.expressions.tree import Chars, Choice, Node, Repeat, Sequence, spelled
from bpe.native.lazy_imports import regex
from bpe.native.printable import PRINTABLE

_SCRIPT_RUN = re.compile(r"([^\x00])(?:\1|\x00)*")  # of the numbers of characters' scripts; 0: none
_BYTE_OF = {character: byte for byte, character in enumerate(PRINTABLE)}


class Stage(NamedTuple):
    """A tree whose matches are isolated. in_bytes: it sees bytes by their stand-ins. drops: what lies between its
    matches is dropped, so that it serves only where there is nothing.
    """

    tree: Node
    in_bytes: bool
    drops: bool


def tree_of(step: Step) -> Node:
    """Return the tree that a step matches; not for UnicodeScripts. Refused where its expression is."""
    kind = step["type"]
    if kind == "Split":
        (key, text), *_ = step["pattern"].items()
        if key == "String":
            return Sequence(tuple(Chars(of_text(character)) for character in text))
        try:
            return parse(text, "oniguruma")
        except Refused as refused:
            raise Refused(f"the pattern {text!r}, an expression of Oniguruma: {refused}, is not supported") from None
    if kind == "Digits":
        return Chars(_table("STEP_DIGITS"))
    if kind in ("Punctuation", "BertPreTokenizer"):
        return Chars(_table("STEP_PUNCTUATION"))
    if kind == "Whitespace":
        word = union(properties.word(), properties.JOINERS)
        other = complement(union(word, properties.white_space()))
        return Choice((Repeat(Chars(word), 1, None), Repeat(Chars(other), 1, None)))
    if kind == "WhitespaceSplit":
        return Chars(properties.white_space())
    if kind == "CharDelimiterSplit":
        return Chars(of_text(step["delimiter"]))
    return parse(GPT2, "oniguruma")


@functools.cache
def _table(name: str) -> CharSet:
    return properties.parse_ranges(getattr(expressions.unicode_sets, name))


def _behaviour(step: Step) -> tuple[str, bool]:
    """(behaviour, invert) of a step that is no ByteLevel and no BertPreTokenizer."""
    kind = step["type"]
    if kind == "Digits":
        return "Isolated" if step["individual_digits"] else "Contiguous", False
    if kind == "Whitespace":
        return "Removed", True
    if kind in ("WhitespaceSplit", "CharDelimiterSplit"):
        return "Removed", False
    return step["behavior"], step.get("invert", False)


def stages(steps: tuple[Step, ...]) -> list[Stage] | None:
    """The steps as trees whose matches are isolated one after another, or None where they do more than that."""
    stages_of_steps: list[Stage] = []
    in_bytes = False
    for step in steps:
        if step["type"] == "ByteLevel":
            if in_bytes or step["add_prefix_space"]:
                return None
            if step["use_regex"]:
                stages_of_steps.append(Stage(tree_of(step), False, False))
            in_bytes = True
            continue
        if step["type"] in ("BertPreTokenizer", "UnicodeScripts"):
            return None
        behaviour, invert = _behaviour(step)
        drops = behaviour == "Removed" and invert
        if behaviour not in ("Isolated", "Contiguous") and not drops:
            return None
        tree = tree_of(step)
        stages_of_steps.append(Stage(Repeat(tree, 1, None) if behaviour == "Contiguous" else tree, in_bytes, drops))
    return stages_of_steps if in_bytes else None


class Splitting:
    """The steps run one after another on a text, as tokenizers does it; for any steps, slowly."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._runs = [_run_of(step) for step in steps]
        self._in_bytes = any(step["type"] == "ByteLevel" for step in steps)

    def split(self, text: bytes) -> list[bytes]:
        """The pieces of a text; after a second ByteLevel, of the characters by which the first spelled bytes."""
        pieces = [text.decode("utf-8", "surrogateescape")] if text else []
        for run in self._runs:
            pieces = [part for piece in pieces for part in run(piece) if part]
        if self._in_bytes:
            return [bytes(map(_BYTE_OF.__getitem__, piece)) for piece in pieces]
        return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def _run_of(step: Step) -> Callable[[str], list[str]]:
    if step["type"] == "UnicodeScripts":
        return script_runs
    matches = _finder(tree_of(step))
    if step["type"] == "ByteLevel":
        before, splits = step["add_prefix_space"], step["use_regex"]

        def byte_level(text: str) -> list[str]:
            if before and not text.startswith(" "):
                text = " " + text
            pieces = _by_behaviour(text, matches(text), "Isolated", False) if splits else [text]
            return ["".join(PRINTABLE[byte] for byte in piece.encode("utf-8", "surrogateescape")) for piece in pieces]

        return byte_level
    if step["type"] == "BertPreTokenizer":
        spaces = _finder(Chars(properties.white_space()))

        def bert(text: str) -> list[str]:
            words = _by_behaviour(text, spaces(text), "Removed", False)
            return [piece for word in words for piece in _by_behaviour(word, matches(word), "Isolated", False)]

        return bert
    behaviour, invert = _behaviour(step)
    return lambda text: _by_behaviour(text, matches(text), behaviour, invert)


def _finder(tree: Node) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Finds the matches of a tree in a text, empty ones too, except right behind another match."""
    expression = regex.compile(spelled(tree))

    def find(text: str) -> Iterator[tuple[int, int]]:
        at, last = 0, -1
        while at <= len(text):
            match = expression.search(text, at)
            if match is None:
                return
            begin, end = match.span()
            if begin == end == last:
                at = end + 1
                continue
            yield begin, end
            at = last = end

    return find


def _by_behaviour(text: str, matches: Iterator[tuple[int, int]], behaviour: str, invert: bool) -> list[str]:
    segments: list[tuple[int, int, bool]] = []
    at = 0
    for begin, end in matches:
        if at < begin:
            segments.append((at, begin, invert))
        segments.append((begin, end, not invert))
        at = end
    if at < len(text):
        segments.append((at, len(text), invert))
    if behaviour == "Removed":
        return [text[begin:end] for begin, end, matched in segments if not matched]
    ends: list[int] = []
    for number, (_, end, matched) in enumerate(segments):
        before = number > 0 and segments[number - 1][2]
        after = number + 1 < len(segments) and segments[number + 1][2]
        joins = matched and not before if behaviour == "MergedWithPrevious" else matched == before
        if number > 0 and joins and behaviour in ("MergedWithPrevious", "Contiguous"):
            ends[-1] = end
        elif behaviour == "MergedWithNext" and matched and not after and number + 1 < len(segments):
            continue  # the end of what it belongs to is to come
        else:
            ends.append(end)
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def script_runs(text: str) -> list[str]:
    """The runs of one script, by the table of tokenizers' own; a space goes with what stands before it.

    At the beginning of a text, what the table has no script for is dropped. Hiragana, Katakana and Han are one script.
    """
    return [text[match.start() : match.end()] for match in _SCRIPT_RUN.finditer(text.translate(_script_of()))]


@functools.cache
def _script_of() -> bytes:
    """The number of the script of every character."""
    numbers = bytearray([0]) * 0x110000
    for number, ranges in enumerate(expressions.unicode_sets.STEP_SCRIPTS.split("/"), 1):
        for first, last in properties.parse_ranges(ranges):
            numbers[first : last + 1] = bytes([number]) * (last + 1 - first)
    return bytes(numbers)
