"""`accounting compare`: two shapes, part by part, every difference at the component that it comes from."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from accounting.commands.options import policy_of, shape_of
from accounting.commands.report import Question, sections
from accounting.commands.sections import Section
from accounting.commands.tables import Answer, columns, formula_lines, titled
from accounting.units import Bytes, human


def compare(options: argparse.Namespace) -> Answer:
    """Two reports side by side, with --explain by both formulas."""
    names = options.first, options.second
    first, second = (
        sections(Question(shape, shape.sequence(options.context), options.batch, options.pairs, policy_of(options)))
        for shape in (shape_of(options, name) for name in names)
    )
    pages, records = [], []
    others = {one.title: one for one in second}
    for mine, other in ((mine, others[mine.title]) for mine in first):  # a peak's phase may differ
        title = mine.heading if mine.heading == other.heading else f"{mine.heading} · {other.heading}"
        rows = differences(mine, other)
        table = [("", *names, "difference", "")]
        for name, a, b in rows:
            words = human(mine.unit(abs(b - a)), binary=options.gib and issubclass(mine.unit, Bytes)) if b != a else ""
            table.append((name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if b != a else "=", words))
            values: dict[str, Any] = {"first": a, "second": b, "difference": b - a}
            records.append({"section": mine.heading, "name": name, **values, "unit": mine.unit.unit})
        head, *lines = columns(table).splitlines()
        if options.explain:
            explained = zip(lines, rows, strict=True)
            lines = [part for line, row in explained for part in (line, *formulas(mine, other, row[0], names))]
        pages.append(titled(title, textwrap.indent("\n".join([head, *lines]), "  ")))
    return Answer("\n\n".join(pages), records)


def formulas(mine: Section, other: Section, name: str, names: tuple[str, str]) -> list[str]:
    """Formulas of a component in each of two sections that have it."""
    return [
        line
        for whose, one in zip(names, (mine, other), strict=True)
        for row in one.rows
        if row.name == name and row.formula
        for line in formula_lines(f"{row.formula} = {row.numbers}", indent=4, label=f"{whose}: ")
    ]


def differences(mine: Section, other: Section) -> list[tuple[str, int, int]]:
    """(component, its value in the one, in the other), with the totals where there are any."""
    left, right = ({row.name: row.value for row in one.rows} for one in (mine, other))
    lines = [(name, left.get(name, 0), right.get(name, 0)) for name in {**left, **right}]
    return [*lines, ("total", int(mine.total), int(other.total))] if mine.additive else lines
