"""The history of instruction counts: a line a run, and what takes more than before is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from history import compared, read

TOOL = Path(__file__).parent.parent / "tools" / "history.py"


def line(commit: str, machine: str = "m", **instructions: int) -> dict[str, object]:
    return {"commit": commit, "machine": machine, "python": "3.11", "torch": "2.13", "instructions": instructions}


def test_counts_above_the_last_one_of_this_machine_are_named() -> None:
    history = [line("a", train=1000, encode=1000), line("b", train=2000), line("c", "another", train=1, encode=1)]
    assert compared(line("d", train=2100, encode=1000, decode=9), history, 1.05) == []
    assert compared(line("d", train=2101, encode=1500), history, 1.05) == [
        "train: 2,101 instructions, 1.05 times those of b",
        "encode: 1,500 instructions, 1.50 times those of a",
    ]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts the instructions")
def test_a_run_adds_a_line_and_keeps_those_before(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read(path) == []
    path.write_text(json.dumps(line("before", **{"import accounting": 1})) + "\n")
    command = [sys.executable, TOOL, path, "--only", "import accounting"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stderr  # the line before is of another machine
    before, now = read(path)
    assert before["commit"] == "before"
    assert now["instructions"]["import accounting"] > 1_000_000
    assert {"commit", "date", "machine", "python", "torch"} < set(now)
    assert "import accounting" in first.stdout
    path.write_text(json.dumps({**now, "instructions": {"import accounting": 1}}) + "\n")
    second = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert second.returncode == 1
    assert "more instructions than before" in second.stderr
    _, again = read(path)
    count = now["instructions"]["import accounting"]
    assert again["instructions"]["import accounting"] == pytest.approx(count, rel=0.01)
