"""Kernels on devices that are not here: what they compile to, the certificates of that, its clocks."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import interpreter  # type: ignore[import-not-found]  # noqa: F401 (before whatever imports triton)
import pytest

pytest.importorskip("triton", reason="the kernels are written in Triton")

import certify_kernels
import kernel_clocks
import sass

TOOLS = Path(__file__).parent.parent / "packages/lm/benchmarks"


def run_tool(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that compiles kernels, for which Triton's interpreter must be off, and caches them in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    return subprocess.run([sys.executable, TOOLS / name, *arguments], env=environment, capture_output=True, text=True)


def compiled(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_tool("compile_attention.py", "--dtype", "bfloat16", *arguments.split(), folder=folder)


def instructions(name: str, count: int, operands: str = "R0, R1, R2", stall: int = 1) -> list[sass.Instruction]:
    return [sass.Instruction(name, operands, stall, (), ())] * count


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


@pytest.mark.parametrize(
    "arguments",
    [("--arch", "90"), ("--arch", "80", "120", "--kernel", "forward"), ("--arch", "100", "--kernel", "queries")],
)
def test_no_hot_loop_is_worse_than_its_certificate(arguments, tmp_path):
    done = run_tool("certify_kernels.py", "--check", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 4


def test_every_device_kernel_and_head_dim_has_a_certificate():
    with certify_kernels.TABLE.open(encoding="utf-8", newline="") as file:
        rows = [(row["device"], row["kernel"], row["head_dim"]) for row in csv.DictReader(file)]
    names = (*certify_kernels.compile_attention.KERNELS, *certify_kernels.compile_attention.OTHERS)
    expected = certify_kernels.combinations(list(certify_kernels.DEVICES), list(names))
    assert rows == [(f"sm{arch}", kind, str(head_dim)) for arch, kind, head_dim in expected]


@pytest.mark.parametrize(
    ("column", "same", "worse"), [("instructions", 105, 106), ("spilled", 0, 4), ("tensor", 8, 7), ("programs", 2, 1)]
)
def test_a_kernel_that_became_worse_is_named(column, same, worse):
    new = {"device": "sm90", "kernel": "keys", "head_dim": 64, "instructions": 100, "spilled": 0}
    new |= {"tensor": 8, "programs": 2}
    old = {name: str(value) for name, value in new.items()}
    assert certify_kernels.differences(old, new | {column: same}) == []
    (sentence,) = certify_kernels.differences(old, new | {column: worse})
    assert sentence.startswith(f"sm90 keys 64: {column} {old[column]} → {worse}")


def test_loops_are_read_from_labels_and_branches():
    body = [*instructions("HGMMA.64x64x16.F32.BF16", 1), *instructions("FADD", 3)]
    back = sass.Instruction("BRA", "`(.L_x_1)", 5, (), ())
    outer = sass.Instruction("BRA", "`(.L_x_0)", 5, (), ())
    code = [".L_x_0", *instructions("FMUL", 2), ".L_x_1", *body, back, outer, *instructions("EXIT", 1)]
    assert sass.loops(code) == [[*body, back]]
    assert sass.mix([*body, back])["float"] == 3
    assert sass.loops(code, "exponential") == []


def test_a_scheduler_issues_one_instruction_a_clock_and_units_have_their_width():
    floats = instructions("FADD", 40)
    assert kernel_clocks.replay(floats, programs=1, warps=1) == pytest.approx(40)
    assert kernel_clocks.replay(floats, programs=3, warps=1) == pytest.approx(120, rel=0.05)
    assert kernel_clocks.replay(instructions("FADD", 40, stall=4), programs=1, warps=1) == pytest.approx(160)
    assert kernel_clocks.replay(instructions("FADD", 40, stall=4), programs=3, warps=1) == pytest.approx(160, rel=0.05)
    assert kernel_clocks.replay(instructions("MUFU.EX2", 10), programs=2, warps=1) == pytest.approx(160, rel=0.05)


def test_products_run_beside_other_instructions_until_they_are_waited_for():
    products = instructions("HGMMA.64x64x16.F32.BF16", 3, "R24, R8, gdesc[UR4], R24")
    products += instructions("HGMMA.64x64x16.F32.BF16", 1, "R24, R8, gdesc[UR4], R24, gsb0")
    wait = instructions("WARPGROUP.DEPBAR.LE", 1, "gsb0, 0x0")
    alone = [*products, *wait, *instructions("FADD", 100)]
    clocks = 4 * 32 + kernel_clocks.TENSOR_LATENCY + 100
    assert kernel_clocks.replay(alone, programs=1, warps=1) == pytest.approx(clocks, abs=8)
    # the second program's sums fill the time in which the first one's products run
    assert kernel_clocks.replay(alone, programs=2, warps=1) < 1.3 * clocks
    met = [*alone, *instructions("BAR.SYNC", 1)]
    assert kernel_clocks.replay(met, programs=1, warps=2) > kernel_clocks.replay(met, programs=2, warps=1)


def test_narrow_products_wait_for_shared_memory():
    def clocks(columns, operands):
        return kernel_clocks.tensor_clocks(sass.Instruction(f"HGMMA.64x{columns}x16.F32.BF16", operands, 1, (), ()))

    assert clocks(64, "R24, gdesc[UR4], R24") == 32
    assert clocks(32, "R24, gdesc[UR4], R24") == 24
    assert clocks(32, "R24, R8, gdesc[UR4], R24") == 16


def test_programs_fill_the_device_in_order():
    clocks = kernel_clocks.Clocks(resident=1, full=(10.0,), masked=10.0, outside=0.0)
    count = kernel_clocks.MULTIPROCESSORS
    assert kernel_clocks.launch_clocks(clocks, [(5, 0)] * count) == pytest.approx(50)
    assert kernel_clocks.launch_clocks(clocks, [(5, 0)] * (count + 1)) == pytest.approx(100)
    long_last = [*[(1, 0)] * 10 * count, (50, 0)]
    assert kernel_clocks.launch_clocks(clocks, long_last) > kernel_clocks.launch_clocks(clocks, long_last[::-1])
    shared = kernel_clocks.Clocks(resident=2, full=(10.0, 15.0), masked=10.0, outside=0.0)
    assert kernel_clocks.launch_clocks(shared, [(4, 0)] * 2 * count) == pytest.approx(60)


@pytest.mark.parametrize(("kind", "queries", "keys"), [("forward", 64, 128), ("queries", 128, 32), ("keys", 128, 64)])
def test_programs_have_the_tiles_that_causality_leaves(kind, queries, keys):
    length = 1024
    rows, columns = (keys, queries) if kind == "keys" else (queries, keys)
    programs = kernel_clocks.causal_programs(kind, queries, keys, length, 1)
    assert len(programs) == length // rows
    met = sum(
        any((i <= j) if kind == "keys" else (j <= i) for i in (row, row + rows - 1) for j in (at, at + columns - 1))
        for row in range(0, length, rows)
        for at in range(0, length, columns)
    )
    assert sum(full + masked for full, masked in programs) == met


def test_predictions_of_the_page_are_within_a_fifth_of_what_was_measured():
    rows = re.findall(r"^\| (?:forward|keys|queries), \d+, .*\| ([\d.]+) \|$", certify_kernels.PAGE.read_text(), re.M)
    assert len(rows) == 3 * len(certify_kernels.MEASURED)
    assert all(0.8 <= float(ratio) <= 1.2 for ratio in rows)
