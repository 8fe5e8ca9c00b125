"""The attention kernels compile for devices that are not here: nothing spills, and the right units are used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton")
TOOLS = Path(__file__).parent.parent / "packages/lm/benchmarks"


def run_tool(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that compiles kernels, for which Triton's interpreter must be off, and caches them in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    return subprocess.run([sys.executable, TOOLS / name, *arguments], env=environment, capture_output=True, text=True)


def test_hoppers_matrix_and_copy_units_are_used(tmp_path):
    arguments = ("--arch", "90", "--head-dim", "64", "--dtype", "bfloat16", "--kernel", "forward", "keys")
    done = run_tool("compile_attention.py", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    _, header, _, *rows = done.stdout.splitlines()
    names = [cell.strip() for cell in header.split("|")]
    assert len(rows) == 2
    for row in rows:
        used = dict(zip(names, (cell.strip() for cell in row.split("|")), strict=True))
        assert int(used["wgmma"]) > 0
        assert int(used["tma"]) > 0
        assert used["mma"] == used["spilled"] == "0"


def test_gradients_with_a_soft_cap_and_sinks_do_not_spill(tmp_path):
    arguments = ("--arch", "90", "--head-dim", "256", "--dtype", "bfloat16", "--kernel", "keys", "--softcap-and-sinks")
    done = run_tool("compile_attention.py", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_widest_gradient_fits_the_tensor_memory_of_a_b200(tmp_path):
    arguments = ("--arch", "100", "--head-dim", "256", "--dtype", "bfloat16", "--kernel", "keys")
    done = run_tool("compile_attention.py", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


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
    done = run_tool("compile_attention.py", *arguments, folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "spills" in done.stdout
