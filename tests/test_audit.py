"""The audit's own column is what accounting says now; the others' are checked by `nox -s audit`, which has the
packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

accounting = pytest.importorskip("accounting", reason="the audit is of accounting, which is not installed")

PAGE = Path(__file__).parent.parent / "docs/design/audit.md"


def rows(title: str) -> list[list[str]]:
    """The cells of the tables below a heading."""
    part = PAGE.read_text(encoding="utf-8").split(f"## {title}")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]


def test_parameters() -> None:
    counts = {row[0]: row[1] for row in rows("Parameters")}
    shared = set(counts) & set(accounting.SHAPES)
    assert len(shared) >= 12
    for name in shared:
        assert counts[name] == f"{accounting.parameters(accounting.SHAPES[name]).total:,}"


def test_flops() -> None:
    shared = [row for row in rows("FLOPs of a forward") if row[0] in accounting.SHAPES]
    assert len(shared) >= 40
    for name, counter, theirs, ours, difference in shared:
        step = "backward" in counter
        count = accounting.training_flops if step else accounting.forward_flops
        assert ours == f"{count(accounting.SHAPES[name], 1024).total:,}"
        assert int(re.sub("[,+]", "", difference)) == int(ours.replace(",", "")) - int(theirs.replace(",", ""))
        assert (difference == "+0") == counter.startswith("torch FlopCounterMode")


def test_flops_from_the_sizes() -> None:
    for name, theirs, ours, difference in rows("FLOPs from the sizes")[1:]:
        assert ours == f"{accounting.forward_flops(accounting.SHAPES[name], 1024).total:,}"
        assert int(re.sub("[,+]", "", difference)) == int(ours.replace(",", "")) - int(theirs.replace(",", ""))


def test_bytes_of_training() -> None:
    for name, theirs, step, buffers, peak in rows("Bytes of training")[1:]:
        memory = accounting.training_memory(accounting.SHAPES[name], 1, 1024)
        assert peak == f"{memory.total:,}"
        assert step == f"{16 * int(accounting.parameters(accounting.SHAPES[name]).total):,}"
        assert int(theirs.replace(",", "")) == int(step.replace(",", "")) + int(buffers.replace(",", ""))
