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


def by_pattern(name: str) -> Callable[..., Any]:
    """Return a function of re that takes a pattern, as a method of the compiled one."""
    return lambda pattern, *arguments, **options: getattr(compile(pattern), name)(*arguments, **options)


findall, finditer, fullmatch, match, search, split, sub = map(
    by_pattern, ("findall", "finditer", "fullmatch", "match", "search", "split", "sub")
)
