"""Regular expressions as Oniguruma (tokenizers) and fancy-regex (tiktoken) read them, to a tree.

Constructs that are not read here are refused by name. The two differ, among other things, by

    ^ $         the ends of a line in Oniguruma; of the text in fancy-regex, unless (?m)
    (?m)        the dot matches a line end in Oniguruma; ^ and $ do in fancy-regex
    {1,3}+      a repetition of a repetition in Oniguruma; possessive in fancy-regex
    a(?i)b|c    the flag holds to the end of the group as a(?i:b|c) in Oniguruma, for every branch behind it in
                fancy-regex
    [:alpha:]   of Unicode in Oniguruma, of ASCII in fancy-regex
    (?i)ss      one ß too in Oniguruma; no text of several characters is one in fancy-regex
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from bpe.expressions import character_sets, properties
from bpe.expressions.character_sets import Cursor, Language
from bpe.expressions.sets import EVERYTHING, complement, of_text
from bpe.expressions.step_options import Refused
from bpe.expressions.tree import (
    EMPTY,
    Atomic,
    Chars,
    Choice,
    Edge,
    Greed,
    Look,
    Node,
    Repeat,
    Sequence,
    choice,
    look_ahead,
    look_behind,
    sequence,
)

NEWLINE = of_text("\n")
MOST_REPEATED = 1000


class Flags(NamedTuple):
    """i: case does not count. dotall: the dot matches a line end. lines: ^ and $ are the ends of lines."""

    i: bool = False
    dotall: bool = False
    lines: bool = False
    swap: bool = False


def parse(expression: str, language: Language) -> Node:
    """The tree of an expression in "oniguruma" or "fancy-regex". Refused where it is wrong or not supported."""
    try:
        cursor = Cursor(expression, language)
        tree = _alternatives(cursor, Flags(lines=cursor.oniguruma))
        if cursor.at < len(expression):
            cursor.refuse("a ) that closes nothing")
        return tree
    except RecursionError:
        raise Refused("it is nested too deeply") from None


# Groups, branches, repetitions


def _alternatives(cursor: Cursor, flags: Flags) -> Node:
    branches: list[Node] = []
    while True:
        branch, flags = _branch(cursor, flags)
        branches.append(branch)
        if not cursor.take("|"):
            return choice(branches)


def _branch(cursor: Cursor, flags: Flags) -> tuple[Node, Flags]:
    parts: list[Node] = []
    literal: list[int] = []  # characters side by side, under (?i) of Oniguruma
    while cursor.at < len(cursor.text) and cursor.peek() not in "|)":
        changed = _flags_alone(cursor, flags)
        if changed is not None:
            literal = []
            if cursor.oniguruma:
                parts.append(_alternatives(cursor, changed))
                return sequence(parts), flags
            flags = changed
            continue
        begin = cursor.at
        part = _atom(cursor, flags)
        quantified = _quantified(cursor, part, flags)
        if cursor.oniguruma and flags.i:
            alone = quantified is part and cursor.text[begin] not in "[(.^$"
            if isinstance(part, Chars) and alone and not cursor.text.startswith(("\\p", "\\P"), begin):
                literal.append(part.chars[0][0])
                if character := properties.folded_from(literal):
                    cursor.refuse(f"a text under (?i) that stands for the one character {character!r} too")
            else:
                literal = []
        parts.append(quantified)
    return sequence(parts), flags


def _flags_alone(cursor: Cursor, flags: Flags) -> Flags | None:
    """(?i) and its like, which close no group; None where there is none."""
    if cursor.peek(2) != "(?":
        return None
    end = cursor.at + 2
    while end < len(cursor.text) and (cursor.text[end].isalpha() or cursor.text[end] == "-"):
        end += 1
    if end == cursor.at + 2 or cursor.text[end : end + 1] != ")":
        return None
    letters = cursor.text[cursor.at + 2 : end]
    if letters in ("P", "R"):
        cursor.refuse(f"(?{letters})")
    cursor.at = end + 1
    return _changed(cursor, flags, letters)


def _changed(cursor: Cursor, flags: Flags, letters: str) -> Flags:
    on = True
    for letter in letters:
        if letter == "-":
            on = False
        elif letter == "i":
            flags = flags._replace(i=on)
        elif letter == "m":
            flags = flags._replace(dotall=on) if cursor.oniguruma else flags._replace(lines=on)
        elif letter == "s" and not cursor.oniguruma:
            flags = flags._replace(dotall=on)
        elif letter == "U" and not cursor.oniguruma:
            flags = flags._replace(swap=on)
        elif letter == "u" and not cursor.oniguruma and on:
            pass
        else:
            cursor.refuse(f"the flag {letter!r}")
    return flags


def _atom(cursor: Cursor, flags: Flags) -> Node:
    character = cursor.peek()
    if character == "(":
        return _group(cursor, flags)
    if character == "[":
        chars = character_sets.bracket(cursor, flags.i, outermost=True)
        return Chars(chars)
    if character == "\\":
        return _escape(cursor, flags)
    if character in "*+?":
        cursor.refuse(f"a {character} that repeats nothing")
    if character == "{" and _interval(cursor, look=True) is not None:
        cursor.refuse("a { that repeats nothing")
    cursor.at += 1
    if character == ".":
        return Chars(EVERYTHING if flags.dotall else complement(NEWLINE))
    if character == "^":
        return _line_begin(cursor) if flags.lines else Edge(end=False)
    if character == "$":
        return choice([look_ahead(NEWLINE), Edge(end=True)]) if flags.lines else Edge(end=True)
    return _one(cursor, ord(character), flags)


def _line_begin(cursor: Cursor) -> Node:
    after = look_behind(NEWLINE)
    if cursor.oniguruma:  # after the last line end of a text begins no line
        after = sequence([after, Look(Edge(end=True), True, False)])
    return choice([Edge(end=False), after])


def _one(cursor: Cursor, code: int, flags: Flags) -> Node:
    return Chars(properties.fold(((code, code),)) if flags.i else ((code, code),))


def _group(cursor: Cursor, flags: Flags) -> Node:
    cursor.at += 1
    wrap: Callable[[Node], Node] = _plain
    if cursor.take("?"):
        if cursor.take("#"):
            cursor.until(")", "a comment")
            return EMPTY
        if cursor.take("<=") or cursor.take("<!"):
            wrap = functools.partial(Look, ahead=False, positive=cursor.text[cursor.at - 1] == "=")
        elif cursor.take("=") or cursor.take("!"):
            wrap = functools.partial(Look, ahead=True, positive=cursor.text[cursor.at - 1] == "=")
        elif cursor.take(">"):
            wrap = Atomic
        elif cursor.take("<") or (not cursor.oniguruma and cursor.take("P<")):
            if not cursor.until(">", "a name").isidentifier():
                cursor.refuse("a group whose name is no word")
        elif not cursor.take(":"):
            letters = cursor.until(":", "a group that begins with (?")
            if not letters or not all(letter.isalpha() or letter == "-" for letter in letters):
                cursor.refuse(f"a group that begins with (?{letters[:3]}")
            flags = _changed(cursor, flags, letters)
    elif cursor.peek() == "*":
        cursor.refuse("a group that begins with (*")
    inner = _alternatives(cursor, flags)
    if not cursor.take(")"):
        cursor.refuse("a ( without its )")
    return wrap(inner)


def _interval(cursor: Cursor, look: bool = False) -> tuple[int, int | None] | None:
    """{2}, {2,}, {2,3}, and in Oniguruma {,3}; None where a { is none of these, and so itself."""
    close = cursor.text.find("}", cursor.at)
    inner = cursor.text[cursor.at + 1 : close] if close > 0 else "none"
    low, comma, high = inner.partition(",")
    numbers = [part for part in (low, high) if part]
    fits = bool(numbers) and all(part.isascii() and part.isdigit() for part in numbers)
    if not fits or (not low and not cursor.oniguruma):
        if not cursor.oniguruma and cursor.at and inner.strip(" 0123456789,") == "" and inner.strip():
            cursor.refuse(f"{{{inner}}}")
        return None
    if any(int(part) > MOST_REPEATED for part in numbers):
        cursor.refuse(f"more than {MOST_REPEATED} repetitions")
    if not look:
        cursor.at = close + 1
    return int(low or 0), (int(high) if high else None) if comma else int(low)


def _quantified(cursor: Cursor, part: Node, flags: Flags) -> Node:
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(cursor.peek())
    bounds: tuple[int, int | None] | None = simple
    if simple:
        cursor.at += 1
    elif cursor.peek() == "{":
        bounds = _interval(cursor)
    if bounds is None:
        return part
    if isinstance(part, (Look, Edge)) or (isinstance(part, Choice) and _is_assertion(part)):
        cursor.refuse("a repetition of what matches no character")
    if bounds[1] is not None and bounds[0] > bounds[1]:
        cursor.refuse(f"{{{bounds[0]},{bounds[1]}}}")
    greed: Greed = "lazy" if flags.swap else "greedy"
    again = False
    if cursor.take("?"):
        if not simple and cursor.oniguruma and bounds[0] == bounds[1]:
            return Repeat(Repeat(part, *bounds), 0, 1)
        greed = "greedy" if flags.swap else "lazy"
    elif cursor.take("+"):
        if simple or not cursor.oniguruma:
            greed = "possessive"
        else:
            again = True
    if cursor.peek() in tuple("*+?") or (cursor.peek() == "{" and _interval(cursor, look=True) is not None):
        cursor.refuse("a repetition of a repetition")
    repeated = Repeat(part, *bounds, greed)
    return Repeat(repeated, 1, None) if again else repeated


# Escapes


def _escape(cursor: Cursor, flags: Flags) -> Node:
    following = cursor.text[cursor.at + 1 : cursor.at + 2]
    if following in ("b", "B"):
        cursor.at += 2
        return _word_edge(cursor, following == "b")
    if following in ("A", "z"):
        cursor.at += 2
        return Edge(end=following == "z")
    if following == "Z" and cursor.oniguruma:
        cursor.at += 2
        return choice([Edge(end=True), Look(Sequence((Chars(NEWLINE), Edge(end=True))), True, True)])
    if following == "R" and cursor.oniguruma:
        cursor.at += 2
        ends = Choice((Sequence((Chars(of_text("\r")), Chars(NEWLINE))), Chars(of_text("\n\v\f\r\x85\u2028\u2029"))))
        return Atomic(ends)
    if following in ("N", "O"):
        cursor.at += 2
        return Chars(complement(NEWLINE) if following == "N" else EVERYTHING)
    begin = cursor.at
    chars = character_sets.escaped_set(cursor)
    if chars is not None:
        folded = flags.i and not cursor.oniguruma and cursor.text[begin + 1] in "pP"
        return Chars(properties.fold(chars) if folded else chars)
    return _one(cursor, character_sets.escaped_character(cursor), flags)


def _word_edge(cursor: Cursor, positive: bool) -> Node:
    if cursor.peek() == "{":
        cursor.refuse("\\b{")
    chars = character_sets.word(cursor)
    inside = Sequence((look_behind(chars), look_ahead(chars)))
    outside = Sequence((look_behind(chars, False), look_ahead(chars, False)))
    begin = Sequence((look_behind(chars, False), look_ahead(chars)))
    end = Sequence((look_behind(chars), look_ahead(chars, False)))
    return Choice((begin, end)) if positive else Choice((inside, outside))


def _plain(node: Node) -> Node:
    return node


def _is_assertion(node: Choice) -> bool:
    return all(
        isinstance(branch, (Look, Edge))
        or (
            isinstance(branch, Sequence)
            and branch.parts
            and all(isinstance(part, (Look, Edge)) for part in branch.parts)
        )
        for branch in node.branches
    )
