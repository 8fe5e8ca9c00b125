"""Sets and single characters as Oniguruma and fancy-regex write them: [...], \\d, \\p{...}, \\x41.

Each function reads on from a cursor. folded: whether (?i) is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from bpe.expressions import properties
from bpe.expressions.sets import EVERYTHING, NOTHING, CharSet, complement, difference, intersection, union
from bpe.expressions.step_options import Refused

Language = Literal["regex", "oniguruma", "fancy-regex"]
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


class Cursor:
    """A position in the text of an expression. at: the number of characters that have been read."""

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.at = text, 0
        self.oniguruma = language == "oniguruma"

    def refuse(self, what: str) -> NoReturn:
        raise Refused(f"{what}, at character {self.at}")

    def peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def until(self, end: str, what: str) -> str:
        close = self.text.find(end, self.at)
        if close < 0:
            self.refuse(f"{what} without its {end}")
        text, self.at = self.text[self.at : close], close + len(end)
        return text


def word(cursor: Cursor, bracketed: bool = False) -> CharSet:
    if cursor.oniguruma:
        return properties.word() if bracketed else union(properties.word(), properties.LATIN_NUMBERS)
    return union(properties.word(), properties.JOINERS)


def escaped_set(cursor: Cursor, bracketed: bool = False) -> CharSet | None:
    """\\d and its like, which stand for a set inside and outside of brackets; None where there is none."""
    letter = cursor.text[cursor.at + 1 : cursor.at + 2]
    lower = letter.lower()
    if letter and letter in "dDsSwWhH":
        cursor.at += 2
        sets: dict[str, Callable[[], CharSet]] = {
            "d": lambda: properties.category("Nd"),
            "s": properties.white_space,
            "w": lambda: word(cursor, bracketed),
            "h": lambda: properties.HEXADECIMAL,
        }
        chars = sets[lower]()
        return chars if letter == lower else complement(chars)
    if lower != "p" or not letter:
        return None
    cursor.at += 2
    if cursor.take("{"):
        name = cursor.until("}", "a property")
    elif cursor.oniguruma:
        cursor.refuse(f"\\{letter} without a {{")
    else:
        name = cursor.peek()
        cursor.at += 1
    negated = (letter == "P") != name.startswith("^")
    chars = _property(cursor, name.removeprefix("^"), bracketed)
    return complement(chars) if negated else chars


def _property(cursor: Cursor, name: str, bracketed: bool) -> CharSet:
    key, equals, value = name.partition("=")
    if equals and not cursor.oniguruma:
        key = key.strip().replace("_", "").lower()
        if key in ("script", "sc", "gc", "generalcategory"):
            name = value
    plain = name.strip().replace("_", "").replace(" ", "").replace("-", "").lower()
    if cursor.oniguruma:
        if plain in ("graph", "print", "xdigit", "word"):
            return word(cursor, bracketed) if plain == "word" else properties.posix(plain)
        if plain == "posixpunct":
            return properties.posix("punct")
    elif plain == "word":
        return word(cursor)
    try:
        return properties.named(name)
    except properties.Unknown:
        cursor.refuse(f"the property {name!r}")


def escaped_character(cursor: Cursor) -> int:
    cursor.at += 1
    if cursor.at == len(cursor.text):
        cursor.refuse("a \\ at the end")
    letter = cursor.peek()
    cursor.at += 1
    if letter in _CONTROL:
        return ord(_CONTROL[letter])
    if letter in ("x", "u", "U"):
        return _hexadecimal(cursor, letter)
    if letter.isascii() and letter.isalnum():
        cursor.refuse("a reference to a group" if letter.isdigit() else f"\\{letter}")
    return ord(letter)


def _hexadecimal(cursor: Cursor, letter: str) -> int:
    if cursor.peek() == "{" and (letter == "x" or not cursor.oniguruma):
        cursor.at += 1
        digits = cursor.until("}", f"\\{letter}{{")
    else:
        digits = cursor.peek({"x": 2, "u": 4, "U": 8}[letter])
        if len(digits) < {"x": 2, "u": 4, "U": 8}[letter] or (letter == "U" and cursor.oniguruma):
            cursor.refuse(f"\\{letter}{digits}")
        cursor.at += len(digits)
    if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        cursor.refuse(f"\\{letter} without digits")
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        cursor.refuse(f"\\{letter}{digits}, which is no character")
    if cursor.oniguruma and letter == "x" and code > 127 and cursor.text[cursor.at - 1] != "}":
        cursor.refuse(f"\\x{digits}, which is a byte and no character")
    return code


def bracket(cursor: Cursor, folded: bool, outermost: bool) -> CharSet:
    cursor.at += 1
    negated = cursor.take("^")
    operands: list[CharSet] = []
    operators: list[str] = []
    current: list[CharSet] = []
    first = True
    while True:
        if cursor.at >= len(cursor.text):
            cursor.refuse("a [ without its ]")
        if cursor.peek() == "]" and not first:
            cursor.at += 1
            break
        operator = cursor.peek(2)
        if operator == "&&" or (operator in ("--", "~~") and not cursor.oniguruma):
            cursor.at += 2
            operands.append(_folded_operand(cursor, current, folded))
            operators.append(operator)
            current, first = [], False
            continue
        current.append(_item(cursor, folded, first))
        first = False
    operands.append(_folded_operand(cursor, current, folded))
    chars = operands[0]
    for operator, other in zip(operators, operands[1:], strict=True):
        if operator == "&&":
            chars = intersection(chars, other)
        elif operator == "--":
            chars = difference(chars, other)
        else:
            chars = difference(union(chars, other), intersection(chars, other))
    if folded and cursor.oniguruma and outermost:
        several = properties.folds_to_several(chars)
        if several is not None and not negated:
            cursor.refuse(f"a set under (?i) that holds {several!r}, which stands for several characters too")
        chars = properties.fold(chars)
    elif folded and not cursor.oniguruma:
        chars = properties.fold(chars)
    return complement(chars) if negated else chars


def _folded_operand(cursor: Cursor, sets: list[CharSet], folded: bool) -> CharSet:
    chars = union(*sets) if sets else NOTHING
    return properties.fold(chars) if folded and not cursor.oniguruma else chars


def _item(cursor: Cursor, folded: bool, first: bool) -> CharSet:
    if cursor.peek(2) == "[:":
        posix_set = _posix(cursor)
        if posix_set is not None:
            return posix_set
    if cursor.peek() == "[":
        return bracket(cursor, folded, outermost=False)
    if cursor.peek() == "\\":
        chars = escaped_set(cursor, bracketed=True)
        if chars is not None:
            if cursor.peek() == "-" and cursor.text[cursor.at + 1 : cursor.at + 2] != "]":
                cursor.refuse("a range that begins with a set")
            return chars
    low = _character(cursor, first)
    if cursor.peek() != "-" or cursor.text[cursor.at + 1 : cursor.at + 2] in ("]", ""):
        return ((low, low),)
    if cursor.peek(2) == "--" and not cursor.oniguruma:
        return ((low, low),)
    cursor.at += 1
    if cursor.peek() == "[" or (
        cursor.peek() == "\\" and cursor.text[cursor.at + 1 : cursor.at + 2] in tuple("dDsSwWhHpP")
    ):
        cursor.refuse("a range that ends with a set")
    high = _character(cursor, False)
    if high < low:
        cursor.refuse("a range that ends before it begins")
    if cursor.peek() == "-" and cursor.text[cursor.at + 1 : cursor.at + 2] != "]":
        cursor.refuse("a - after a range")
    return ((low, high),)


def _posix(cursor: Cursor) -> CharSet | None:
    close = cursor.text.find(":]", cursor.at)
    name = cursor.text[cursor.at + 2 : close] if close > 0 else ""
    negated = name.startswith("^")
    name = name.removeprefix("^")
    try:
        chars = intersection(properties.posix(name), EVERYTHING if cursor.oniguruma else properties.ASCII)
    except properties.Unknown:
        cursor.refuse(f"the set [:{name[:20]}")
    cursor.at = close + 2
    return complement(chars) if negated else chars


def _character(cursor: Cursor, first: bool) -> int:
    character = cursor.peek()
    if not character or (character == "]" and not first):
        cursor.refuse("a range without its end")
    if character != "\\":
        cursor.at += 1
        return ord(character)
    letter = cursor.text[cursor.at + 1 : cursor.at + 2]
    if letter == "b":
        cursor.at += 2
        return 8
    return escaped_character(cursor)
