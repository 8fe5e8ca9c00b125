"""Answers of the commands, and tables of plain text: columns under a title, notes and formulas wrapped to a page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 100  # characters of a page
FORMULA_WIDTH = 116


@dataclass(frozen=True)
class Answer:
    """Text, and flat records with one set of keys; data where plain data has another form than records."""

    text: str
    records: list[dict[str, Any]]
    data: Any = None


def titled(title: str, *lines: str) -> str:
    """Lines under an underlined title."""
    return "\n".join([title, "─" * len(title), *lines])


def columns(table: Sequence[tuple[str, ...]], align: str = "<") -> str:
    """Rows under each other; align has "<" or ">" for each column, the last one for all that follow it to the right."""
    sides = [align[at] if at < len(align) else ">" for at in range(len(table[0]))]
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    rows = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in table
    )
    return "\n".join(row.rstrip() for row in rows)


def listing(title: str, rows: Sequence[tuple[str, str, str]], *, explain: bool = False) -> str:
    """(name, value, how it follows) under a title: names to the left, values to the right, with explain how below."""
    table = columns([(name, value) for name, value, _ in rows], "<>").splitlines()
    lines = []
    for line, (_, _, how) in zip(table, rows, strict=True):
        lines.append(f"  {line}")
        if explain and how:
            lines += formula_lines(how, indent=6)
    return titled(title, *lines)


def wrapped(note: str) -> str:
    """A note in brackets below its table."""
    return textwrap.fill(f"({note})", WIDTH, initial_indent="  ", subsequent_indent="   ")


def formula_lines(formula: str, numbers: str = "", *, indent: int, label: str = "= ") -> list[str]:
    """`= formula = numbers` on one line if it has room, else each from a line of its own, broken after operators."""
    margin = " " * indent
    whole = f"{margin}{label}{formula}{f' = {numbers}' if numbers else ''}"
    if len(whole) <= FORMULA_WIDTH:
        return [whole]
    first = _broken(formula, margin, label)
    return [*first, *_broken(numbers, margin, "= ")] if numbers else first


def _broken(text: str, margin: str, label: str) -> list[str]:
    lines, line = [], f"{margin}{label}"
    for piece in re.split(r"(?<= \+ )|(?<=·)", text):
        if len(line) + len(piece.rstrip()) > FORMULA_WIDTH and line.strip() not in ("", label.strip()):
            lines.append(line.rstrip())
            line = f"{margin}  "
        line += piece
    return [*lines, line.rstrip()]
