"""Sections of named figures as text, plain data and records; numbers in the human column share one prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from accounting.breakdown import Breakdown, symbols
from accounting.commands.tables import columns, formula_lines, titled, wrapped
from accounting.formula import Term
from accounting.units import BINARY, DECIMAL, Bytes, Count, Parameters, human

BAR = 24  # characters of a full bar
_NUMBERS = {"k": "thousands", "M": "millions", "G": "billions", "T": "trillions"}


@dataclass(frozen=True)
class Row:
    """One figure: its name, exact value, and the terms that it is the sum of, if it came from a formula."""

    name: str
    value: int
    terms: tuple[Term, ...] = ()

    @property
    def formula(self) -> str:
        """The formula in letters; written out when it is asked for, as few tables show it."""
        return " + ".join(term.text() for term in self.terms)

    @property
    def numbers(self) -> str:
        """The formula in numbers."""
        return " + ".join(term.text(values=True) for term in self.terms)

    @property
    def formulas(self) -> dict[str, str]:
        return {"formula": self.formula, "numbers": self.numbers}


@dataclass(frozen=True)
class Section:
    """Rows of one unit; `additive`: parts of their sum; `note`: the convention; `moment`: the phase of a step."""

    title: str
    unit: type[Count]
    rows: tuple[Row, ...]
    note: str
    additive: bool = True
    moment: str = ""

    @property
    def heading(self) -> str:
        """The title, and the phase if it is of one."""
        return f"{self.title}: {self.moment}" if self.moment else self.title

    @property
    def total(self) -> Count:
        return self.unit(sum(row.value for row in self.rows))


def section(one: Breakdown, title: str = "", moment: str = "") -> Section:
    """A breakdown as a section; components that are nothing are left out."""
    rows = tuple(Row(name, int(term), (term,)) for name, term in one.terms if term)
    return Section(title or one.title, one.unit, rows, one.convention, moment=moment)


def whole_row(name: str, one: Breakdown) -> Row:
    """The sum of a breakdown as one figure, with the formulas of its parts added up."""
    return Row(name, int(one.total), tuple(term for _, term in one.terms if term))


def text(sections: tuple[Section, ...], *, binary: bool = False, explain: bool = False) -> str:
    """The sections as tables of plain text; binary=True prints bytes in GiB (2^30) instead of GB (10^9)."""
    pages = [table(one, binary=binary, explain=explain) for one in sections]
    if explain:
        used = {name for one in sections for row in one.rows for name in re.split(r"[-·+()/, ]+", row.formula)}
        meanings = [(name, meaning) for name, meaning in symbols().items() if name in used]
        if meanings:
            pages.append(titled("names in formulas", *(f"  {row}" for row in columns(meanings, "<<").splitlines())))
    return "\n\n".join(pages)


def table(one: Section, *, binary: bool = False, explain: bool = False) -> str:
    """A section as text: exact values, the same with a prefix, shares and bars, and with explain=True the formulas."""
    binary = binary and issubclass(one.unit, Bytes)
    names, values, prefix = [row.name for row in one.rows], [row.value for row in one.rows], ""
    bars = [bar(value, max(values)) for value in values]
    if one.additive:
        parts, total = [*percentages(values), ""], int(one.total)
        names, values, bars = [*names, "total"], [*values, total], [*bars, ""]
        scaled, prefix = rounded(values, total, binary)
    else:
        parts, scaled = [""] * len(values), [human(one.unit(value), binary=binary) for value in values]
    exact = [f"{value:,}" for value in values]
    scaled = ["" if words == digits else words for words, digits in zip(scaled, exact, strict=True)]
    cells = list(zip(names, exact, scaled, parts, bars, strict=True))
    used = [at for at in range(5) if at < 2 or any(row[at] for row in cells)]
    lines = columns([tuple(row[at] for at in used) for row in cells], "".join("<>>><"[at] for at in used)).splitlines()
    margin = 4 + max(map(len, names))
    shown = []
    for at, line in enumerate(lines):
        shown.append(f"  {line}")
        if explain and at < len(one.rows) and one.rows[at].formula:
            shown += formula_lines(one.rows[at].formula, one.rows[at].numbers, indent=min(margin, 8))
    if one.note:
        shown.append(wrapped(one.note))
    head = one.heading
    if prefix:
        head += f" ({_NUMBERS.get(prefix, prefix) if one.unit is Parameters else prefix + one.unit.unit})"
    return titled(head, *shown)


def rounded(values: list[int], total: int, binary: bool) -> tuple[list[str], str]:
    """Each value to three decimals with the prefix of the total; equal ones look equal, and may miss the total."""
    base, prefixes = (1024, BINARY) if binary else (1000, DECIMAL)
    power = 0
    while total >= base ** (power + 1) and power < len(prefixes) - 1:
        power += 1
    if power == 0:
        return [f"{value:,}" for value in values], prefixes[0]
    thousandths = [(value * 1000 + base**power // 2) // base**power for value in values]
    return [f"{value // 1000:,}.{value % 1000:03d}" for value in thousandths], prefixes[power]


def percentages(parts: list[int]) -> list[str]:
    """Shares of the sum to a tenth of a percent."""
    total = sum(parts) or 1
    tenths = [(part * 1000 + total // 2) // total for part in parts]
    return [f"{value // 10}.{value % 10}%" for value in tenths]


def bar(value: int, highest: int) -> str:
    """A bar in proportion, at least a sliver for anything that is not nothing."""
    if value <= 0 or highest <= 0:
        return ""
    eighths = max(1, round(value * BAR * 8 / highest))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def as_json(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The sections as plain data: exact values, units, formulas in letters and in numbers, and conventions."""
    tables = []
    for one in sections:
        rows = [{"name": row.name, "value": row.value, **(row.formulas if row.formula else {})} for row in one.rows]
        total = {"total": int(one.total)} if one.additive else {}
        tables.append({"title": one.heading, "unit": one.unit.unit, "convention": one.note, **total, "rows": rows})
    return tables


def records(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """Every row of the sections by itself: section, name, exact value, unit, formula in letters and in numbers."""
    return [
        {"section": one.heading, "name": row.name, "value": row.value, "unit": one.unit.unit, **row.formulas}
        for one in sections
        for row in one.rows
    ]
