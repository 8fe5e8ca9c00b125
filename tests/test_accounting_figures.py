"""Figures of accounting on the site are what it says now: the audit's own column, and the peaks beside a GPU's.

The audit's other columns are checked by `nox -s audit`, which has the packages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

accounting = pytest.importorskip("accounting", reason="the audit is of accounting, which is not installed")
torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")

import gpu_memory  # noqa: E402

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


def test_without_cuda_it_stops(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_memory.main([]) == 2
    assert "CUDA" in capsys.readouterr().err
    assert gpu_memory.main(["--shape", "nothing"]) == 2


def test_predictions_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peaks of docs/design/performance/accounting.md, in MB, one row each."""
    peaks = [11324.9, 9452.1, 5054.7, 12911.9, 18613.9, 3896.6, 15138.8, 10915.5, 21021.1, 13253.4, 6974.9]
    monkeypatch.setattr(gpu_memory, "kernel_on", lambda *_: "fused")  # as on CUDA
    for row, peak in zip(gpu_memory.ROWS, peaks, strict=True):
        memory = gpu_memory.predict(row, "cuda")
        assert max(gpu_memory.phases(memory)) == memory.total
        assert round(memory.total / 1e6, 1) == peak
