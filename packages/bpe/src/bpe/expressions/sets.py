"""Sets of code points: sorted, disjoint, inclusive ranges. Surrogates stand for bytes that are no UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

CharSet = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
NOTHING: CharSet = ()
EVERYTHING: CharSet = ((0, LAST),)


def union(*sets: Iterable[tuple[int, int]]) -> CharSet:
    """Return the union of sets whose ranges may be in any order and overlap."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(one for ranges_of in sets for one in ranges_of):
        if ranges and first <= ranges[-1][1] + 1:
            if last > ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return tuple(ranges)


def complement(chars: CharSet) -> CharSet:
    """Return the code points that are not in the set."""
    ranges, begin = [], 0
    for first, last in chars:
        if begin < first:
            ranges.append((begin, first - 1))
        begin = last + 1
    if begin <= LAST:
        ranges.append((begin, LAST))
    return tuple(ranges)


def intersection(one: CharSet, other: CharSet) -> CharSet:
    """Return the code points that are in both."""
    return complement(union(complement(one), complement(other)))


def difference(one: CharSet, other: CharSet) -> CharSet:
    """Return the code points that are in the first alone."""
    return intersection(one, complement(other))


def of_text(text: str) -> CharSet:
    """The characters of a text."""
    return union((ord(character), ord(character)) for character in text)


def size(chars: CharSet) -> int:
    """Return the number of code points."""
    return sum(last - first + 1 for first, last in chars)
