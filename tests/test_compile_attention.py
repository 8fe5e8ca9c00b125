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


def compiled(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_tool("compile_attention.py", "--dtype", "bfloat16", *arguments.split(), folder=folder)


def test_hoppers_matrix_and_copy_units_are_used(tmp_path):
    done = compiled("--arch 90 --head-dim 64 --kernel forward keys", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    _, header, _, *rows = done.stdout.splitlines()
    names = [cell.strip() for cell in header.split("|")]
    assert len(rows) == 2
    for row in rows:
        used = dict(zip(names, (cell.strip() for cell in row.split("|")), strict=True))
        assert int(used["wgmma"]) > 0
        assert int(used["tma"]) > 0
        assert used["mma"] == used["spilled"] == "0"


@pytest.mark.parametrize("options", ["--arch 90 --softcap-and-sinks", "--arch 100"], ids=["registers", "tensor memory"])
def test_the_widest_gradient_fits(options, tmp_path):
    """The registers of an H100, with a soft cap and sinks, and the tensor memory of a B200."""
    done = compiled(f"{options} --head-dim 256 --kernel keys", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_spills_is_said(tmp_path):
    done = compiled("--arch 80 --head-dim 256 --kernel forward --tiles 64,64,4,2", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "spills" in done.stdout
