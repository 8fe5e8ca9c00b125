"""The attention kernels compile for devices that are not here: nothing spills, and the right units are used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton")
TOOL = Path(__file__).parent.parent / "packages/lm/benchmarks/compile_attention.py"


def compiled(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    return subprocess.run([sys.executable, TOOL, *arguments], env=environment, capture_output=True, text=True)


def test_hoppers_matrix_and_copy_units_are_used(tmp_path):
    arguments = ("--arch", "90", "--head-dim", "64", "--dtype", "bfloat16", "--kernel", "forward", "keys")
    done = compiled(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    _, header, _, *rows = done.stdout.splitlines()
    names = [cell.strip() for cell in header.split("|")]
    assert len(rows) == 2
    for row in rows:
        used = dict(zip(names, (cell.strip() for cell in row.split("|")), strict=True))
        assert int(used["wgmma"]) > 0
        assert int(used["tma"]) > 0
        assert used["mma"] == used["spilled"] == "0"


def test_what_spills_is_said(tmp_path):
    arguments = (
        "--arch",
        "80",
        "--head-dim",
        "256",
        "--dtype",
        "bfloat16",
        "--kernel",
        "forward",
        "--tiles",
        "64,64,4,2",
    )
    done = compiled(*arguments, folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "spills" in done.stdout
