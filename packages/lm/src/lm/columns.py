"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def in_columns(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows of equally many cells as lines, two spaces between columns; cells of the columns `right` end at one place.

    >>> print(in_columns([("set", "items"), ("piqa", "1,838")], right=[1]))
    set   items
    piqa  1,838
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if number in right else "<" for number in range(len(widths))]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    )
