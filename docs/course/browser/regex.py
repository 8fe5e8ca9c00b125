r"""The package regex where Python runs in a browser: re, with \p{L} and the other general categories of Unicode."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable
from re import *  # noqa: F403  (its flags and escape)
from typing import Any

PART = re.compile(r"\\p\{(\w+)\}|\\.|.", re.DOTALL)


@functools.cache
def members(category: str) -> str:
    """Return the characters of a category as ranges within a character class."""
    numbers = (n for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)).startswith(category))
    ranges = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        ranges.append(f"\\U{run[0]:08x}-\\U{run[-1]:08x}")
    return "".join(ranges)


@functools.cache
def compile(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
    """Compile a pattern after its categories have been written out."""
    if isinstance(pattern, re.Pattern):
        return pattern
    parts, in_class = [], False
    for match in PART.finditer(pattern):
        part, category = match[0], match[1]
        if category:
            part = members(category) if in_class else f"[{members(category)}]"
        elif part in "[]":
            in_class = part == "["
        parts.append(part)
    return re.compile("".join(parts), flags)


def by_pattern(name: str, flags_at: int) -> Callable[..., Any]:
    """Return a function of re that takes a pattern, and flags by name or as an argument at a place behind it."""

    def call(pattern: Any, *arguments: Any, flags: int = 0, **options: Any) -> Any:
        if len(arguments) > flags_at:
            flags, arguments = arguments[flags_at], arguments[:flags_at] + arguments[flags_at + 1 :]
        return getattr(compile(pattern, int(flags)), name)(*arguments, **options)

    return call


findall, finditer, fullmatch, match, search = (
    by_pattern(name, 1) for name in ("findall", "finditer", "fullmatch", "match", "search")
)
split, sub = by_pattern("split", 2), by_pattern("sub", 3)
