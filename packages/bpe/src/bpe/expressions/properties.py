"""Characters of \\p{…}, \\w, [:alpha:] and (?i) in Oniguruma (tokenizers) and fancy-regex (tiktoken): Unicode 16."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from bpe import expressions
from bpe.expressions.sets import EVERYTHING, LAST, CharSet, complement, difference, of_text, size, union
from bpe.scanning import scanner

# The general categories in the order of scanning/unicode.h.
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()  # noqa: SIM905
)
_LONG_NAMES = (
    "letter=L casedletter=LC uppercaseletter=Lu lowercaseletter=Ll titlecaseletter=Lt modifierletter=Lm otherletter=Lo "
    "mark=M combiningmark=M nonspacingmark=Mn spacingmark=Mc enclosingmark=Me number=N decimalnumber=Nd "
    "letternumber=Nl othernumber=No punctuation=P punct=P connectorpunctuation=Pc dashpunctuation=Pd "
    "openpunctuation=Ps closepunctuation=Pe initialpunctuation=Pi finalpunctuation=Pf otherpunctuation=Po symbol=S "
    "mathsymbol=Sm currencysymbol=Sc modifiersymbol=Sk othersymbol=So separator=Z spaceseparator=Zs "
    "lineseparator=Zl paragraphseparator=Zp other=C control=Cc format=Cf privateuse=Co unassigned=Cn"
)


class Unknown(ValueError):
    """A property without a table here."""


@functools.cache
def category(name: str) -> CharSet:
    """A general category by its short name, one or two letters, or LC."""
    categories = {"LC": ("Lu", "Ll", "Lt")}.get(name) or tuple(one for one in CATEGORIES if one.startswith(name))
    numbers = {CATEGORIES.index(one) for one in categories}
    return union((first, last) for first, last, number in _runs() if number & 127 in numbers)


@functools.cache
def white_space() -> CharSet:
    """\\s: White_Space."""
    return union((first, last) for first, last, number in _runs() if number & 128)


@functools.cache
def _runs() -> list[tuple[int, int, int]]:
    """The runs of code points of one category: the first, the last, and its number, with 128 added for white space."""
    table = scanner.categories()
    changes = int.from_bytes(table[1:], "little") ^ int.from_bytes(table[:-1], "little")
    begins = [0, *(match.end() for match in re.finditer(rb"[^\0]", changes.to_bytes(LAST, "little"))), LAST + 1]
    return [(begin, end - 1, table[begin]) for begin, end in pairwise(begins)]


def parse_ranges(text: str) -> CharSet:
    """The set that a string of expressions.unicode_sets says: categories, ranges, and with a minus what it lacks."""
    sets: list[CharSet] = []
    lacking: list[CharSet] = []
    for word in text.split():
        if word[0].isupper():
            sets.append(category(word))
            continue
        first, _, more = word.removeprefix("-").partition("+")
        begin = int(first, 16)
        (lacking if word[0] == "-" else sets).append(((begin, begin + int(more or "0", 16)),))
    return difference(union(*sets), union(*lacking))


def parse_groups(text: str) -> Iterator[tuple[int, ...]]:
    """The groups of code points that a string of expressions.unicode_sets says."""
    for word in text.split():
        group, _, run = word.partition("+")
        more, _, step = run.partition("*")
        codes = [int(code, 16) for code in group.split("=")]
        for i in range(int(more or "0", 16) + 1):
            yield tuple(code + i * int(step or "1") for code in codes)


@functools.cache
def named(name: str) -> CharSet:
    """A property by its name in \\p{…}, in any case, spaces and underscores left out. Unknown where there is none."""
    tables = expressions.unicode_sets
    key = re.sub(r"[\s_-]", "", name).lower()
    categories = {one.lower(): one for one in [*CATEGORIES, *"LMNPSZC", "LC"] if one != "Cs"}
    categories |= dict(word.split("=") for word in _LONG_NAMES.split())
    if key in categories:
        return category(categories[key])
    if key in _BY_NAME:
        return _BY_NAME[key]()
    aliases = dict(word.split("=") for word in tables.SCRIPT_ALIASES.split())
    script = aliases.get(key, key)
    if script in tables.SCRIPTS:
        return parse_ranges(tables.SCRIPTS[script])
    if key in ("alpha", "upper", "lower"):
        key = {"alpha": "alphabetic", "upper": "uppercase", "lower": "lowercase"}[key]
    if key in tables.PROPERTIES:
        return parse_ranges(tables.PROPERTIES[key])
    raise Unknown(name)


@functools.cache
def word() -> CharSet:
    """[[:word:]] of Oniguruma: letters, marks, decimal digits and connecting punctuation."""
    return union(named("Alphabetic"), category("M"), category("Nd"), category("Pc"))


# Oniguruma's \w has these numbers of Latin-1 too, but not in brackets.
LATIN_NUMBERS = of_text("²³¹¼½¾")
JOINERS = of_text("\u200c\u200d")
HEXADECIMAL = of_text("0123456789abcdefABCDEF")
ASCII: CharSet = ((0, 127),)


_BY_NAME: dict[str, Callable[[], CharSet]] = {
    "any": lambda: EVERYTHING,
    "assigned": lambda: complement(union(category("Cn"), category("Cs"))),
    "ascii": lambda: ASCII,
    "digit": lambda: category("Nd"),
    "space": white_space,
    "whitespace": white_space,
    "alnum": lambda: union(named("Alphabetic"), category("Nd")),
    "blank": lambda: union(category("Zs"), of_text("\t")),
    "cntrl": lambda: category("Cc"),
}


@functools.cache
def posix(name: str) -> CharSet:
    """[:name:] in Oniguruma; in fancy-regex its ASCII characters. Unknown where there is no such class."""
    if name == "punct":
        return union(category("P"), category("S"))
    if name == "graph":
        return difference(named("assigned"), union(white_space(), category("Cc")))
    if name == "print":
        return union(posix("graph"), category("Zs"))
    if name == "xdigit":
        return HEXADECIMAL
    if name == "word":
        return word()
    if name in ("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "lower", "space", "upper"):
        return named(name)
    raise Unknown(name)


@functools.cache
def _orbits() -> dict[int, tuple[int, ...]]:
    tables = expressions.unicode_sets
    groups = sorted(parse_groups(tables.FOLDED))  # s and t are in U+FB05's group too, before their own
    return {code: group for group in groups for code in group}


def fold(chars: CharSet) -> CharSet:
    """The set with every character that (?i) takes for one of its own."""
    orbits = _orbits()
    if size(chars) < 256:
        cased = [code for first, last in chars for code in range(first, last + 1) if code in orbits]
    else:
        cased = [code for code in orbits if _holds(chars, code)]
    return union(chars, ((other, other) for code in cased for other in orbits[code]))


def _holds(chars: CharSet, code: int) -> bool:
    index = bisect.bisect_right(chars, (code, LAST)) - 1
    return index >= 0 and chars[index][1] >= code


@functools.cache
def _several() -> list[tuple[list[frozenset[int]], str]]:
    """Return the sets of each character of texts that one character stands for, and these characters."""
    tables = expressions.unicode_sets
    orbits, texts = _orbits(), []
    for entry in tables.FOLDED_FROM_SEVERAL.split():
        folded, *characters = entry.split("=")
        codes = [int(code, 16) for code in folded.split(",")]
        text = "".join(chr(int(code, 16)) for code in characters)
        texts.append(([frozenset(orbits.get(code, (code,))) for code in codes], text))
    return texts


def folds_to_several(chars: CharSet) -> str | None:
    """A character of the set that Oniguruma's (?i) takes for several, or None."""
    return next((one for _, text in _several() for one in text if _holds(chars, ord(one))), None)


def folded_from(codes: list[int]) -> str | None:
    """A character that Oniguruma's (?i) takes for the last of these, which stand side by side; or None."""
    for several, text in _several():
        last = codes[-len(several) :]
        if len(last) == len(several) and all(code in one for code, one in zip(last, several, strict=True)):
            return text[0]
    return None
