"""The history of measurements: a line a run, and what has become slower is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from history import compared, read

TOOL = Path(__file__).parent.parent / "tools" / "history.py"


def line(commit: str, machine: str = "m", **seconds: float) -> dict[str, object]:
    return {"commit": commit, "machine": machine, "python": "3.11", "seconds": seconds}


def test_what_is_slower_than_its_last_figure_on_this_machine_is_named() -> None:
    history = [line("a", train=1.0, encode=1.0), line("b", train=2.0), line("c", "another", train=0.1, encode=0.1)]
    assert compared(line("d", train=2.2, encode=1.1, decode=9.0), history, 1.15) == []
    assert compared(line("d", train=2.5, encode=1.5), history, 1.15) == [
        "train: 2.5000 s, 1.25 times as long as at b",
        "encode: 1.5000 s, 1.50 times as long as at a",
    ]


def test_a_run_adds_a_line_and_keeps_those_before(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read(path) == []
    path.write_text(json.dumps(line("before", **{"import accounting": 1e-9})) + "\n")
    command = [sys.executable, TOOL, path, "--rounds", "1", "--only", "import accounting"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr  # the line before is of another machine
    before, now = read(path)
    assert before["commit"] == "before"
    assert now["seconds"]["import accounting"] > 0
    assert {"commit", "date", "machine", "python", "torch", "rounds"} < set(now)
    assert "import accounting" in done.stdout
    path.write_text(json.dumps({**now, "seconds": {"import accounting": 1e-9}}) + "\n")
    slower = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert slower.returncode == 1
    assert "slower than before" in slower.stderr
    assert len(read(path)) == 2
