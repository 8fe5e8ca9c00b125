"""Sections of named figures, and their faces: text, plain data and records.

Numbers in the human column share one prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import SYMBOLS, Breakdown
from accounting.commands.tables import columns, formula_lines, titled, wrapped
from accounting.formula import Term
from accounting.units import Bytes, Count, Parameters, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BAR = 24  # characters of a full bar
_NUMBERS = {"k": "thousands", "M": "millions", "G": "billions", "T": "trillions"}
_PREFIXES = {False: (1000, ("", "k", "M", "G", "T", "P", "E", "Z")), True: (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi"))}


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


@dataclass(frozen=True)
class Section:
    """Rows of one unit; `additive` if they are parts of their sum.

    The note says under which convention they were counted, `moment` of which phase of a step they are.
    """

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
    def names(self) -> set[str]:
        """The names in its formulas."""
        return {name for row in self.rows for name in _names(row.formula)}

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
        pages.append(legend({name for one in sections for name in one.names}))
    return "\n\n".join(pages)


def legend(names: set[str]) -> str:
    """What the names in formulas mean."""
    rows = columns([(name, meaning) for name, meaning in SYMBOLS.items() if name in names], "<<").splitlines()
    return titled("names in formulas", *(f"  {row}" for row in rows))


def table(one: Section, *, binary: bool = False, explain: bool = False) -> str:
    """A section as text: exact values, the same with a prefix, shares and bars, and with explain=True the formulas."""
    binary = binary and issubclass(one.unit, Bytes)
    values, total = [row.value for row in one.rows], int(one.total)
    highest = max(values, default=0)
    if one.additive:
        values = [*values, total]
        scaled, prefix = rounded(values, total, binary)
        parts = [*percentages(values[:-1]), ""]
    else:
        scaled, prefix = [human(one.unit(value), binary=binary) for value in values], ""
        parts = [""] * len(values)
    names = [row.name for row in one.rows] + (["total"] if one.additive else [])
    cells = []
    for at, value in enumerate(values):
        exact, drawn = f"{value:,}", "" if at == len(one.rows) else bar(value, highest)
        cells.append((names[at], exact, scaled[at] if scaled[at] != exact else "", parts[at], drawn))
    used = [at for at in range(5) if at < 2 or any(row[at] for row in cells)]
    lines = columns([tuple(row[at] for at in used) for row in cells], "".join("<>>><"[at] for at in used)).splitlines()
    margin = 4 + max((len(name) for name in names), default=0)
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
    """Each value to three decimals with the prefix that suits the total; equal values look equal, so that a column may
    miss its total by its last digit."""
    base, prefixes = _PREFIXES[binary]
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


def _names(formula: str) -> set[str]:
    for mark in "·+-()/,":
        formula = formula.replace(mark, " ")
    return set(formula.split())


def as_json(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The sections as plain data: exact values, units, formulas in letters and in numbers, and conventions."""
    return [
        {
            "title": one.heading,
            "unit": one.unit.unit,
            "convention": one.note,
            **({"total": int(one.total)} if one.additive else {}),
            "rows": [
                {
                    "name": row.name,
                    "value": row.value,
                    **({"formula": row.formula, "numbers": row.numbers} if row.formula else {}),
                }
                for row in one.rows
            ],
        }
        for one in sections
    ]


def records(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """Every row of the sections by itself: section, name, exact value, unit, formula in letters and in numbers."""
    return [
        {
            "section": one.heading,
            "name": row.name,
            "value": row.value,
            "unit": one.unit.unit,
            "formula": row.formula,
            "numbers": row.numbers,
        }
        for one in sections
        for row in one.rows
    ]
