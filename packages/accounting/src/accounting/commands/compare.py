"""`accounting compare`: two shapes, part by part."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from accounting.commands.answer import Answer
from accounting.commands.options import policy_of, shape_of
from accounting.commands.report import Question, sections
from accounting.commands.sections import Section
from accounting.commands.tables import columns, formula_lines, titled
from accounting.units import Bytes, human


def compare(options: argparse.Namespace) -> Answer:
    """Two shapes, part by part."""
    first, second = (
        sections(Question(shape, shape.sequence(options.context), options.batch, options.pairs, policy_of(options)))
        for shape in (shape_of(options, options.first), shape_of(options, options.second))
    )
    text = side_by_side(first, second, (options.first, options.second), binary=options.gib, explain=options.explain)
    return Answer(text, compared(first, second))


def side_by_side(
    first: tuple[Section, ...],
    second: tuple[Section, ...],
    names: tuple[str, str],
    *,
    binary: bool = False,
    explain: bool = False,
) -> str:
    """Two reports side by side, every difference at the component it comes from, with explain=True by both formulas."""
    pages = []
    for mine, other in pairs(first, second):
        title = mine.heading if mine.heading == other.heading else f"{mine.heading} · {other.heading}"
        table = [("", *names, "difference", "")]
        for name, a, b in differences(mine, other):
            words = human(mine.unit(abs(b - a)), binary=binary and issubclass(mine.unit, Bytes)) if b != a else ""
            table.append((name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if b != a else "=", words))
        head, *lines = columns(table).splitlines()
        if explain:
            lines = [
                part
                for line, row in zip(lines, table[1:], strict=True)
                for part in (line, *formulas(mine, other, row[0], names))
            ]
        pages.append(titled(title, textwrap.indent("\n".join([head, *lines]), "  ")))
    return "\n\n".join(pages)


def formulas(mine: Section, other: Section, name: str, names: tuple[str, str]) -> list[str]:
    """Formulas of a component in each of two sections that have it."""
    return [
        line
        for whose, one in zip(names, (mine, other), strict=True)
        for row in one.rows
        if row.name == name and row.formula
        for line in formula_lines(f"{row.formula} = {row.numbers}", indent=4, label=f"{whose}: ")
    ]


def compared(first: tuple[Section, ...], second: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The same as records: section, name, the value of the first and of the second, their difference, unit."""
    return [
        {"section": mine.heading, "name": name, "first": a, "second": b, "difference": b - a, "unit": mine.unit.unit}
        for mine, other in pairs(first, second)
        for name, a, b in differences(mine, other)
    ]


def pairs(first: tuple[Section, ...], second: tuple[Section, ...]) -> list[tuple[Section, Section]]:
    """The sections of one report with those of the other, by their titles; a peak's phase may differ."""
    others = {one.title: one for one in second}
    return [(mine, others[mine.title]) for mine in first]


def differences(mine: Section, other: Section) -> list[tuple[str, int, int]]:
    """(component, its value in the one, in the other), with the totals where there are any."""
    left, right = ({row.name: row.value for row in one.rows} for one in (mine, other))
    keys = list(left) + [name for name in right if name not in left]
    lines = [(name, left.get(name, 0), right.get(name, 0)) for name in keys]
    return [*lines, ("total", int(mine.total), int(other.total))] if mine.additive else lines
