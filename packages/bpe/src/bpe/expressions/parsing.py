"""Regular expressions as Oniguruma (tokenizers) and fancy-regex (tiktoken) read them, to a tree.

What is not read here is refused by name. The two differ, among other things, in

    ^ $         the ends of a line in Oniguruma; of the text in fancy-regex, unless (?m)
    (?m)        the dot matches a line end in Oniguruma; ^ and $ do in fancy-regex
    {1,3}+      a repetition of a repetition in Oniguruma; possessive in fancy-regex
    a(?i)b|c    the flag holds to the end of the group as a(?i:b|c) in Oniguruma, for every branch that follows in fancy-regex
    [:alpha:]   of Unicode in Oniguruma, of ASCII in fancy-regex
    (?i)ss      one ß too in Oniguruma; no text of several characters is one in fancy-regex
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

from bpe.expressions import properties
from bpe.expressions.sets import EVERYTHING, NOTHING, CharSet, complement, difference, intersection, of_text, union
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

Language = Literal["regex", "oniguruma", "fancy-regex"]

NEWLINE = of_text("\n")
MOST_REPEATED = 1000
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


class Refused(ValueError):
    """An expression that is wrong, or asks for what is not read here."""


class Flags(NamedTuple):
    """i: case does not count. dotall: the dot matches a line end. lines: ^ and $ are the ends of lines."""

    i: bool = False
    dotall: bool = False
    lines: bool = False
    swap: bool = False


def parse(expression: str, language: Language) -> Node:
    """The tree of an expression in "oniguruma" or "fancy-regex". Refused where it is wrong or not supported."""
    try:
        return _Parser(expression, language).parse()
    except RecursionError:
        raise Refused("it is nested too deeply") from None


class _Parser:
    def __init__(self, text: str, language: Language) -> None:
        self.text, self.at = text, 0
        self.oniguruma = language == "oniguruma"

    def parse(self) -> Node:
        tree = self.alternatives(Flags(lines=self.oniguruma))
        if self.at < len(self.text):
            self.refuse("a ) that closes nothing")
        return tree

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
        found, self.at = self.text[self.at : close], close + len(end)
        return found

    # Groups, branches, repetitions

    def alternatives(self, flags: Flags) -> Node:
        branches: list[Node] = []
        while True:
            branch, flags = self.branch(flags)
            branches.append(branch)
            if not self.take("|"):
                return choice(branches)

    def branch(self, flags: Flags) -> tuple[Node, Flags]:
        parts: list[Node] = []
        literal: list[int] = []  # characters side by side, under (?i) of Oniguruma
        while self.at < len(self.text) and self.peek() not in "|)":
            changed = self.flags_alone(flags)
            if changed is not None:
                literal = []
                if self.oniguruma:
                    parts.append(self.alternatives(changed))
                    return sequence(parts), flags
                flags = changed
                continue
            begin = self.at
            part = self.atom(flags)
            quantified = self.quantified(part, flags)
            if self.oniguruma and flags.i:
                alone = quantified is part and self.text[begin] not in "[(.^$"
                if isinstance(part, Chars) and alone and not self.text.startswith(("\\p", "\\P"), begin):
                    literal.append(part.chars[0][0])
                    if found := properties.folded_from(literal):
                        self.refuse(f"a text under (?i) that stands for the one character {found!r} too")
                else:
                    literal = []
            parts.append(quantified)
        return sequence(parts), flags

    def flags_alone(self, flags: Flags) -> Flags | None:
        """(?i) and its like, which close no group; None where there is none."""
        if self.peek(2) != "(?":
            return None
        end = self.at + 2
        while end < len(self.text) and (self.text[end].isalpha() or self.text[end] == "-"):
            end += 1
        if end == self.at + 2 or self.text[end : end + 1] != ")":
            return None
        letters = self.text[self.at + 2 : end]
        if letters in ("P", "R"):
            self.refuse(f"(?{letters})")
        self.at = end + 1
        return self.changed(flags, letters)

    def changed(self, flags: Flags, letters: str) -> Flags:
        on = True
        for letter in letters:
            if letter == "-":
                on = False
            elif letter == "i":
                flags = flags._replace(i=on)
            elif letter == "m":
                flags = flags._replace(dotall=on) if self.oniguruma else flags._replace(lines=on)
            elif letter == "s" and not self.oniguruma:
                flags = flags._replace(dotall=on)
            elif letter == "U" and not self.oniguruma:
                flags = flags._replace(swap=on)
            elif letter == "u" and not self.oniguruma and on:
                pass
            else:
                self.refuse(f"the flag {letter!r}")
        return flags

    def atom(self, flags: Flags) -> Node:
        character = self.peek()
        if character == "(":
            return self.group(flags)
        if character == "[":
            chars = self.bracket(flags, outermost=True)
            return Chars(chars)
        if character == "\\":
            return self.escape(flags)
        if character in "*+?":
            self.refuse(f"a {character} that repeats nothing")
        if character == "{" and self.interval(look=True) is not None:
            self.refuse("a { that repeats nothing")
        self.at += 1
        if character == ".":
            return Chars(EVERYTHING if flags.dotall else complement(NEWLINE))
        if character == "^":
            return self.line_begin() if flags.lines else Edge(end=False)
        if character == "$":
            return choice([look_ahead(NEWLINE), Edge(end=True)]) if flags.lines else Edge(end=True)
        return self.one(ord(character), flags)

    def line_begin(self) -> Node:
        after = look_behind(NEWLINE)
        if self.oniguruma:  # after the last line end of a text begins no line
            after = sequence([after, Look(Edge(end=True), True, False)])
        return choice([Edge(end=False), after])

    def one(self, code: int, flags: Flags) -> Node:
        return Chars(properties.fold(((code, code),)) if flags.i else ((code, code),))

    def group(self, flags: Flags) -> Node:
        self.at += 1
        wrap: Callable[[Node], Node] = _plain
        if self.take("?"):
            if self.take("#"):
                self.until(")", "a comment")
                return EMPTY
            if self.take("<=") or self.take("<!"):
                wrap = functools.partial(Look, ahead=False, wanted=self.text[self.at - 1] == "=")
            elif self.take("=") or self.take("!"):
                wrap = functools.partial(Look, ahead=True, wanted=self.text[self.at - 1] == "=")
            elif self.take(">"):
                wrap = Atomic
            elif self.take("<") or (not self.oniguruma and self.take("P<")):
                if not self.until(">", "a name").isidentifier():
                    self.refuse("a group whose name is no word")
            elif not self.take(":"):
                letters = self.until(":", "a group that begins with (?")
                if not letters or not all(letter.isalpha() or letter == "-" for letter in letters):
                    self.refuse(f"a group that begins with (?{letters[:3]}")
                flags = self.changed(flags, letters)
        elif self.peek() == "*":
            self.refuse("a group that begins with (*")
        inner = self.alternatives(flags)
        if not self.take(")"):
            self.refuse("a ( without its )")
        return wrap(inner)

    def interval(self, look: bool = False) -> tuple[int, int | None] | None:
        """{2}, {2,}, {2,3}, and in Oniguruma {,3}; None where a { is none of these, and so itself."""
        close = self.text.find("}", self.at)
        inner = self.text[self.at + 1 : close] if close > 0 else "none"
        low, comma, high = inner.partition(",")
        numbers = [part for part in (low, high) if part]
        fits = bool(numbers) and all(part.isascii() and part.isdigit() for part in numbers)
        if not fits or (not low and not self.oniguruma):
            if not self.oniguruma and self.at and inner.strip(" 0123456789,") == "" and inner.strip():
                self.refuse(f"{{{inner}}}")
            return None
        if any(int(part) > MOST_REPEATED for part in numbers):
            self.refuse(f"more than {MOST_REPEATED} repetitions")
        if not look:
            self.at = close + 1
        return int(low or 0), (int(high) if high else None) if comma else int(low)

    def quantified(self, part: Node, flags: Flags) -> Node:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self.peek())
        bounds: tuple[int, int | None] | None = simple
        if simple:
            self.at += 1
        elif self.peek() == "{":
            bounds = self.interval()
        if bounds is None:
            return part
        if isinstance(part, (Look, Edge)) or (isinstance(part, Choice) and _is_assertion(part)):
            self.refuse("a repetition of what matches no character")
        if bounds[1] is not None and bounds[0] > bounds[1]:
            self.refuse(f"{{{bounds[0]},{bounds[1]}}}")
        greed: Greed = "lazy" if flags.swap else "greedy"
        again = False
        if self.take("?"):
            if not simple and self.oniguruma and bounds[0] == bounds[1]:
                return Repeat(Repeat(part, *bounds), 0, 1)
            greed = "greedy" if flags.swap else "lazy"
        elif self.take("+"):
            if simple or not self.oniguruma:
                greed = "possessive"
            else:
                again = True
        if self.peek() in tuple("*+?") or (self.peek() == "{" and self.interval(look=True) is not None):
            self.refuse("a repetition of a repetition")
        made = Repeat(part, *bounds, greed)
        return Repeat(made, 1, None) if again else made

    # Escapes

    def escape(self, flags: Flags) -> Node:
        following = self.text[self.at + 1 : self.at + 2]
        if following in ("b", "B"):
            self.at += 2
            return self.word_edge(following == "b")
        if following in ("A", "z"):
            self.at += 2
            return Edge(end=following == "z")
        if following == "Z" and self.oniguruma:
            self.at += 2
            return choice([Edge(end=True), Look(Sequence((Chars(NEWLINE), Edge(end=True))), True, True)])
        if following == "R" and self.oniguruma:
            self.at += 2
            ends = Choice(
                (Sequence((Chars(of_text("\r")), Chars(NEWLINE))), Chars(of_text("\n\v\f\r\x85\u2028\u2029")))
            )
            return Atomic(ends)
        if following in ("N", "O"):
            self.at += 2
            return Chars(complement(NEWLINE) if following == "N" else EVERYTHING)
        begin = self.at
        chars = self.escaped_set()
        if chars is not None:
            folded = flags.i and not self.oniguruma and self.text[begin + 1] in "pP"
            return Chars(properties.fold(chars) if folded else chars)
        return self.one(self.escaped_character(), flags)

    def word_edge(self, wanted: bool) -> Node:
        if self.peek() == "{":
            self.refuse("\\b{")
        chars = self.word()
        inside = Sequence((look_behind(chars), look_ahead(chars)))
        outside = Sequence((look_behind(chars, False), look_ahead(chars, False)))
        begin = Sequence((look_behind(chars, False), look_ahead(chars)))
        end = Sequence((look_behind(chars), look_ahead(chars, False)))
        return Choice((begin, end)) if wanted else Choice((inside, outside))

    def word(self, bracketed: bool = False) -> CharSet:
        if self.oniguruma:
            return properties.word() if bracketed else union(properties.word(), properties.LATIN_NUMBERS)
        return union(properties.word(), properties.JOINERS)

    def escaped_set(self, bracketed: bool = False) -> CharSet | None:
        """\\d and its like, which stand for a set inside and outside of brackets; None where there is none."""
        letter = self.text[self.at + 1 : self.at + 2]
        lower = letter.lower()
        if letter and letter in "dDsSwWhH":
            self.at += 2
            sets: dict[str, Callable[[], CharSet]] = {
                "d": lambda: properties.category("Nd"),
                "s": properties.white_space,
                "w": lambda: self.word(bracketed),
                "h": lambda: properties.HEXADECIMAL,
            }
            chars = sets[lower]()
            return chars if letter == lower else complement(chars)
        if lower != "p" or not letter:
            return None
        self.at += 2
        if self.take("{"):
            name = self.until("}", "a property")
        elif self.oniguruma:
            self.refuse(f"\\{letter} without a {{")
        else:
            name = self.peek()
            self.at += 1
        negated = (letter == "P") != name.startswith("^")
        chars = self.property(name.removeprefix("^"), bracketed)
        return complement(chars) if negated else chars

    def property(self, name: str, bracketed: bool) -> CharSet:
        key, equals, value = name.partition("=")
        if equals and not self.oniguruma:
            key = key.strip().replace("_", "").lower()
            if key in ("script", "sc", "gc", "generalcategory"):
                name = value
        plain = name.strip().replace("_", "").replace(" ", "").replace("-", "").lower()
        if self.oniguruma:
            if plain in ("graph", "print", "xdigit", "word"):
                return self.word(bracketed) if plain == "word" else properties.posix(plain)
            if plain == "posixpunct":
                return properties.posix("punct")
        elif plain == "word":
            return self.word()
        try:
            return properties.named(name)
        except properties.Unknown:
            self.refuse(f"the property {name!r}")

    def escaped_character(self) -> int:
        self.at += 1
        if self.at == len(self.text):
            self.refuse("a \\ at the end")
        letter = self.peek()
        self.at += 1
        if letter in _CONTROL:
            return ord(_CONTROL[letter])
        if letter in ("x", "u", "U"):
            return self.hexadecimal(letter)
        if letter.isascii() and letter.isalnum():
            self.refuse("a reference to a group" if letter.isdigit() else f"\\{letter}")
        return ord(letter)

    def hexadecimal(self, letter: str) -> int:
        if self.peek() == "{" and (letter == "x" or not self.oniguruma):
            self.at += 1
            digits = self.until("}", f"\\{letter}{{")
        else:
            digits = self.peek({"x": 2, "u": 4, "U": 8}[letter])
            if len(digits) < {"x": 2, "u": 4, "U": 8}[letter] or (letter == "U" and self.oniguruma):
                self.refuse(f"\\{letter}{digits}")
            self.at += len(digits)
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self.refuse(f"\\{letter} without digits")
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self.refuse(f"\\{letter}{digits}, which is no character")
        if self.oniguruma and letter == "x" and code > 127 and self.text[self.at - 1] != "}":
            self.refuse(f"\\x{digits}, which is a byte and no character")
        return code

    # Brackets

    def bracket(self, flags: Flags, outermost: bool) -> CharSet:
        self.at += 1
        negated = self.take("^")
        operands: list[CharSet] = []
        operators: list[str] = []
        current: list[CharSet] = []
        first = True
        while True:
            if self.at >= len(self.text):
                self.refuse("a [ without its ]")
            if self.peek() == "]" and not first:
                self.at += 1
                break
            operator = self.peek(2)
            if operator == "&&" or (operator in ("--", "~~") and not self.oniguruma):
                self.at += 2
                operands.append(self.folded_operand(current, flags))
                operators.append(operator)
                current, first = [], False
                continue
            current.append(self.item(flags, first))
            first = False
        operands.append(self.folded_operand(current, flags))
        chars = operands[0]
        for operator, other in zip(operators, operands[1:], strict=True):
            if operator == "&&":
                chars = intersection(chars, other)
            elif operator == "--":
                chars = difference(chars, other)
            else:
                chars = difference(union(chars, other), intersection(chars, other))
        if flags.i and self.oniguruma and outermost:
            several = properties.folds_to_several(chars)
            if several is not None and not negated:
                self.refuse(f"a set under (?i) that holds {several!r}, which stands for several characters too")
            chars = properties.fold(chars)
        elif flags.i and not self.oniguruma:
            chars = properties.fold(chars)
        return complement(chars) if negated else chars

    def folded_operand(self, sets: list[CharSet], flags: Flags) -> CharSet:
        chars = union(*sets) if sets else NOTHING
        return properties.fold(chars) if flags.i and not self.oniguruma else chars

    def item(self, flags: Flags, first: bool) -> CharSet:
        if self.peek(2) == "[:":
            found = self.posix()
            if found is not None:
                return found
        if self.peek() == "[":
            return self.bracket(flags, outermost=False)
        if self.peek() == "\\":
            chars = self.escaped_set(bracketed=True)
            if chars is not None:
                if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                    self.refuse("a range that begins with a set")
                return chars
        low = self.character(first)
        if self.peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return ((low, low),)
        if self.peek(2) == "--" and not self.oniguruma:
            return ((low, low),)
        self.at += 1
        if self.peek() == "[" or (self.peek() == "\\" and self.text[self.at + 1 : self.at + 2] in tuple("dDsSwWhHpP")):
            self.refuse("a range that ends with a set")
        high = self.character(False)
        if high < low:
            self.refuse("a range that ends before it begins")
        if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
            self.refuse("a - after a range")
        return ((low, high),)

    def posix(self) -> CharSet | None:
        close = self.text.find(":]", self.at)
        name = self.text[self.at + 2 : close] if close > 0 else ""
        negated = name.startswith("^")
        name = name.removeprefix("^")
        try:
            chars = properties.posix(name) if self.oniguruma else properties.POSIX_ASCII[name]
        except (properties.Unknown, KeyError):
            self.refuse(f"the set [:{name[:20]}")
        self.at = close + 2
        return complement(chars) if negated else chars

    def character(self, first: bool) -> int:
        character = self.peek()
        if not character or (character == "]" and not first):
            self.refuse("a range without its end")
        if character != "\\":
            self.at += 1
            return ord(character)
        letter = self.text[self.at + 1 : self.at + 2]
        if letter == "b":
            self.at += 2
            return 8
        return self.escaped_character()


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
