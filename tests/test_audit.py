"""AUDIT.md's own column is what accounting says now; the others' columns are checked by `nox -s audit`, which has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

accounting = pytest.importorskip("accounting", reason="the audit is of accounting, which is not installed")

PAGE = Path(__file__).parent.parent / "AUDIT.md"


def rows(title: str) -> list[list[str]]:
    """The cells of the tables below a heading."""
    part = PAGE.read_text(encoding="utf-8").split(f"## {title}")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]


def test_parameters() -> None:
    found = {row[0]: row[1] for row in rows("Parameters")}
    known = set(found) & set(accounting.SHAPES)
    assert len(known) >= 12
    for name in known:
        assert found[name] == f"{accounting.parameters(accounting.SHAPES[name]).total:,}"


def test_flops() -> None:
    known = [row for row in rows("FLOPs") if row[0] in accounting.SHAPES]
    assert len(known) >= 40
    for name, counter, theirs, ours, difference in known:
        step = "backward" in counter
        count = accounting.training_flops if step else accounting.forward_flops
        assert ours == f"{count(accounting.SHAPES[name], 1024).total:,}"
        assert int(re.sub("[,+]", "", difference)) == int(ours.replace(",", "")) - int(theirs.replace(",", ""))
        assert (difference == "+0") == counter.startswith("torch")
