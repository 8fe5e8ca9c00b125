"""The answer to every question: named components, exact, with their sum, convention and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accounting.formula import Term, constant
from accounting.units import Count


def symbols() -> dict[str, str]:
    """The meaning of each name in a formula."""
    with open(Path(__file__).with_name("symbols.txt"), encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


@dataclass(frozen=True)
class Breakdown(Mapping[str, Count]):
    """A sum by parts: `breakdown["head"]`, `breakdown.total`, `for name, value in breakdown.items()`, `int(breakdown)`.

    Every component is a quantity of `unit` and equals a plain int. `convention` says in words what was counted and what
    was not; `formula` gives each component in the names of symbols(), `explain()` the same with the numbers put in.
    """

    title: str
    unit: type[Count]
    terms: tuple[tuple[str, Term], ...]
    convention: str

    @property
    def total(self) -> Count:
        return self.unit(sum(int(term) for _, term in self.terms))

    @property
    def formula(self) -> dict[str, str]:
        return {name: term.text() for name, term in self.terms}

    def explain(self) -> dict[str, str]:
        return {name: term.text(values=True) for name, term in self.terms}

    def __getitem__(self, name: str) -> Count:
        for candidate, term in self.terms:
            if candidate == name:
                return self.unit(int(term))
        raise KeyError(f"{name!r} is not a component of {self.title}; it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def __int__(self) -> int:
        return int(self.total)


def breakdown(title: str, unit: type[Count], terms: Mapping[str, int], convention: str) -> Breakdown:
    """A Breakdown of these terms, in this order."""
    return Breakdown(title, unit, tuple((name, constant(term)) for name, term in terms.items()), convention)
