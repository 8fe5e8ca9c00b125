"""A tokenizer for assets/encoder.js: the split pattern as a JavaScript expression, the vocabulary as compact bytes.

Every class of characters in the pattern is asked of `regex` and spelt out in ranges, so the browser's own version of
Unicode, its white space and its folding of case have no say. Possessive quantifiers and atomic groups, which JavaScript
lacks, become a lookahead that captures and a reference back to it, since a lookahead is never entered again.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import sys
import unicodedata
import zlib
from array import array
from collections.abc import Iterator, Sequence

from bpe.formats import TokenizerData
from bpe.formats.vocabulary import encoder_tables
from bpe.native.lazy_imports import regex

_CLASS_ESCAPES = "sSdDwWhpP"
_CHARACTER_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!")


def packed(data: TokenizerData) -> bytes:
    """The tokenizer as encoder.js reads it: base64 of a zlib stream. ValueError for a pattern JavaScript cannot say.

    The stream is a line of JSON; then, as numbers of seven bits a byte, the length of every symbol, its id as the
    difference to the one before plus one, the bytes of all; then each merge as the symbol it makes and the length of
    its left half.
    """
    _check(data)
    special = {**data.special_tokens, **data.added_tokens}
    tokens, ids, *_ = encoder_tables(data, set(special.values()))
    symbols = sorted(zip(tokens, ids.tolist(), strict=True), key=lambda item: item[1])
    index = {token: i for i, (token, _) in enumerate(symbols)}
    classes: dict[str, int] = {}
    about = {
        "tokens": len(data.vocab),
        "symbols": len(symbols),
        "by_rank": data.merges is None,
        "merges": len(data.merges or ()),
        "ignore_merges": data.ignore_merges,
        "normalizer": data.normalizer,
        "unassigned": _unassigned() if data.normalizer else "",
        "special": data.special_tokens,
        "added": data.added_tokens,
        "pattern": [javascript(expression, classes) for expression in data.pattern.expressions],
        "classes": list(classes),
    }
    made = [index[left + right] for left, right in data.merges or ()]
    halves = zip(_differences(made), (len(left) for left, _ in data.merges or ()), strict=True)
    parts = [
        json.dumps(about).encode() + b"\n",
        _numbers(len(token) for token, _ in symbols),
        _numbers(_differences([number for _, number in symbols])),
        b"".join(token for token, _ in symbols),
        _numbers(number for half in halves for number in half),
    ]
    return base64.b64encode(zlib.compress(b"".join(parts), 9))


def _check(data: TokenizerData) -> None:
    """ValueError for what encoder.js does not do."""
    if data.normalizer not in (None, "NFC"):
        raise ValueError(f"this page's encoder does not normalize to {data.normalizer}")
    if data.characters is not None:
        raise ValueError("this page's encoder merges no characters, as SentencePiece does")
    if data.pattern.language != "regex":
        raise ValueError(f"this page's encoder splits by no expression of {data.pattern.language}")
    if data.add_prefix_space:
        raise ValueError("this page's encoder puts no space before a text (add_prefix_space)")
    flagged = data.normalized | data.lstrip | data.rstrip | data.single_word
    if flagged:
        raise ValueError(f"this page's encoder does not look for tokens as {sorted(flagged)[0]!r} is to be looked for")


def _differences(numbers: Sequence[int]) -> Iterator[int]:
    """Each number less one more than the one before, signs folded in: 0, -1, 1, -2 as 0, 1, 2, 3."""
    last = -1
    for number in numbers:
        step = number - last - 1
        yield 2 * step if step >= 0 else -2 * step - 1
        last = number


def _numbers(values: Iterator[int]) -> bytes:
    out = bytearray()
    for value in values:
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out)


def javascript(expression: str, classes: dict[str, int]) -> str:
    """An expression of `regex` as one of JavaScript with the flag u, in which §n§ stands for the nth class.

    classes: every class found so far and its number, added to. ValueError naming what JavaScript cannot say.
    """
    return _Translation(expression, classes).translate()


class _Translation:
    """One expression on its way: what is read (`at`), and how many captures were made."""

    def __init__(self, expression: str, classes: dict[str, int]) -> None:
        self.source, self.classes = expression, classes
        self.at = self.captures = 0

    def translate(self) -> str:
        fold = self.source.startswith("(?i)")
        if fold:
            self.at = 4
        said = self._alternatives(fold)
        if self.at < len(self.source):
            self._refuse(self.source[self.at])
        return said

    def _refuse(self, what: str) -> None:
        raise ValueError(f"the split pattern {self.source!r} holds {what!r}, which this page's encoder cannot say")

    def _next(self, *choices: str) -> str:
        """The first of the choices that stands here, and is then behind us; "" for none."""
        found = next((choice for choice in choices if self.source.startswith(choice, self.at)), "")
        self.at += len(found)
        return found

    def _alternatives(self, fold: bool) -> str:
        branches = [""]
        while self.at < len(self.source) and self.source[self.at] != ")":
            if self._next("|"):
                branches.append("")
            else:
                branches[-1] += self._repeated(fold)
        return "|".join(branches)

    def _repeated(self, fold: bool) -> str:
        """One item and its quantifier."""
        item = self._item(fold)
        counted = regex.compile(r"\{(\d*)(,?)(\d*)\}").match(self.source, self.at)
        if counted and (counted[1] or counted[3]):
            self.at = counted.end()
            times = f"{{{counted[1] or 0}{counted[2]}{counted[3]}}}"
        else:
            times = self._next("*", "+", "?")
        if times and self._next("+"):
            return self._never_entered_again(item + times)
        return item + times + (self._next("?") if times else "")

    def _never_entered_again(self, said: str) -> str:
        self.captures += 1
        return f"(?:(?=(?<a{self.captures}>{said}))\\k<a{self.captures}>)"

    def _item(self, fold: bool) -> str:
        character = self.source[self.at]
        if character == "(":
            return self._group(fold)
        if character == "[":
            return self._class(self._take_class(), fold)
        if character == "\\":
            return self._escape(fold)
        self.at += 1
        if character == ".":
            return self._class(".", fold)
        if character == "^":
            return "(?<![^])"
        if character == "$":
            return "(?=\\n?(?![^]))"
        if character in "*+?{":
            self._refuse(character)
        return self._class(regex.escape(character), True) if fold else _literal(character)

    def _group(self, fold: bool) -> str:
        opened = self._next(*_GROUPS)
        atomic = not opened and self._next("(?>")
        if not opened and not atomic:
            other = regex.compile(r"\((?:\?(-?)i:|\?P<\w+>|(?!\?))").match(self.source, self.at)
            if not other:
                self._refuse(self.source[self.at : self.at + 4])
            self.at = other.end()
            if other[1] is not None:
                fold = not other[1]
        inside = self._alternatives(fold)
        if not self._next(")"):
            self._refuse("(")
        return self._never_entered_again(inside) if atomic else f"{opened or '(?:'}{inside})"

    def _take_class(self) -> str:
        """The text of the class in brackets that begins here, which may hold others: [:alpha:], or sets of V1."""
        begin, depth = self.at, 0
        while self.at < len(self.source):
            character = self.source[self.at]
            self.at += 2 if character == "\\" else 1
            if character == "[":
                posix = regex.compile(r"\[:\^?\w+:\]").match(self.source, self.at - 1)
                if posix and depth:
                    self.at = posix.end()
                    continue
                if depth == 0:
                    depth = 1
                    self._next("^")
                    self._next("]")
            elif character == "]":
                return self.source[begin : self.at]
        self._refuse("[")
        return ""

    def _escape(self, fold: bool) -> str:
        letter = self.source[self.at + 1 : self.at + 2]
        if letter in ("p", "P"):
            found = regex.compile(r"\\[pP](?:\{[^}]*\}|\w)").match(self.source, self.at)
            self.at = found.end()
            return self._class(found.group(), fold)
        self.at += 2
        if letter and letter in _CLASS_ESCAPES:
            return self._class("\\" + letter, fold)
        if letter in _HEXADECIMAL:
            digits = self.source[self.at : self.at + _HEXADECIMAL[letter]]
            self.at += len(digits)
            letter = chr(int(digits, 16))
        elif letter in _CHARACTER_ESCAPES:
            letter = _CHARACTER_ESCAPES[letter]
        elif letter in ("A", "Z", "z"):
            return f"(?{'<' if letter == 'A' else ''}![^])"
        elif letter in ("b", "B"):
            word = self._class(r"\w", False)
            inside, outside = ("!", "=") if letter == "b" else ("=", "!")
            return f"(?:(?<={word})(?{inside}{word})|(?<!{word})(?{outside}{word}))"
        elif not letter or letter.isalnum():
            self._refuse("\\" + letter)
        return self._class(regex.escape(letter), True) if fold else _literal(letter)

    def _class(self, atom: str, fold: bool) -> str:
        ranges = _ranges(f"(?i:{atom})" if fold else f"(?:{atom})")
        return f"§{self.classes.setdefault(ranges, len(self.classes))}§"


def _literal(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\u{{{ord(character):x}}}"


@functools.cache
def _every() -> str:
    """Every character there is or may be, made without a million small strings on the way."""
    points = array("I", itertools.chain(range(0xD800), range(0xE000, 0x110000)))
    return points.tobytes().decode(f"utf-32-{sys.byteorder[0]}e")


@functools.cache
def _unassigned() -> str:
    """What Python's Unicode has no character at, and so leaves alone when it normalizes; a newer browser might not."""
    runs = itertools.groupby(_every(), key=lambda character: unicodedata.category(character) == "Cn")
    return "".join(_range("".join(run)) for unassigned, run in runs if unassigned)


@functools.cache
def _ranges(atom: str) -> str:
    """The code points that match, but surrogates, as the inside of a JavaScript class."""
    return "".join(_range(found.group()) for found in regex.finditer(f"{atom}+", _every()))


def _range(run: str) -> str:
    """Consecutive characters of _every()."""
    first, last = run[0], run[-1]
    if first < "\ud800" and last > "\udfff":  # what lies between is no character
        return f"{_literal(first)}-\\u{{d7ff}}\\u{{e000}}-{_literal(last)}"
    return _literal(first) if first == last else f"{_literal(first)}-{_literal(last)}"
