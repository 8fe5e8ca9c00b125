"""Certificates of lm's kernels for CUDA devices that need not be here, and the time that an H100 should take.

    python packages/lm/benchmarks/certify_kernels.py --write    compile all, write kernels.csv and the page's tables
    python packages/lm/benchmarks/certify_kernels.py --check    compile all, compare with kernels.csv; status 1: worse
    python packages/lm/benchmarks/certify_kernels.py --check --arch 90 --kernel forward keys

A certificate says what the machine code of one kernel takes of one device: registers, spills, shared memory, the
programs that a multiprocessor holds, and the instructions of its hot loop by kind. It is worse where the hot loop has a
twentieth more instructions, fewer matrix instructions, more bytes spilled, or fewer programs at once.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import compile_attention
import kernel_clocks
import sass
import torch
import triton

from lm.ops.triton import problem

HERE = Path(__file__).parent
TABLE, PAGE = HERE / "kernels.csv", HERE.parents[2] / "docs/design/performance/kernels.md"
DEVICES = {80: "A100", 86: "RTX 3090", 89: "RTX 4090, L4", 90: "H100", 100: "B200", 120: "RTX 5090"}
HEAD_DIMS = (32, 64, 128, 256)
PRODUCTS = {"forward": 2, "keys": 4, "queries": 3, "decode": 2}  # of matrices, for each tile
GROWTH = 1.05
H100_CACHE = 50 << 20  # bytes

# Registers and shared memory of a multiprocessor are those of each device: KiB of shared memory and warps.
MULTIPROCESSOR = {80: (164, 64), 86: (100, 48), 89: (100, 48), 90: (228, 64), 100: (228, 64), 120: (100, 48)}

# Milliseconds on an H100, causal, bf16 (docs/design/performance/lm.md): head dim, batch, length, heads, then kernels.
MEASURED = (
    (32, 1, 8_192, 16, {"forward": 0.306, "keys": 0.408, "queries": 0.285}),
    (64, 1, 16_384, 16, {"forward": 1.19, "keys": 2.15, "queries": 1.31}),
    (64, 8, 2_048, 16, {"forward": 0.196, "keys": 0.346, "queries": 0.210}),
    (128, 1, 16_384, 16, {"forward": 2.07, "keys": 3.38, "queries": 2.60}),
    (128, 8, 2_048, 16, {"forward": 0.318, "keys": 0.522, "queries": 0.428}),
    (256, 1, 8_192, 8, {"forward": 0.630, "keys": 1.59, "queries": 1.07}),
)


def combinations(archs: list[int], kernels: list[str]) -> list[tuple[int, str, int]]:
    """Device, kernel and head dimension of each certificate; the kernels that multiply no matrices have one each."""
    return [
        (arch, kind, head_dim)
        for arch in archs
        for kind in kernels
        for head_dim in (HEAD_DIMS if kind in compile_attention.KERNELS else (128,))
    ]


def hot_loop(kind: str, code: list[sass.Instruction | str]) -> list[sass.Instruction]:
    """The loop in which a kernel spends its time; all of its code if it has none."""
    if kind in PRODUCTS:
        return min(sass.loops(code), key=len)
    longest = max(sass.loops(code, "exponential"), key=len, default=None)
    return longest or [x for x in code if isinstance(x, sass.Instruction)]


def certify(arch: int, kind: str, head_dim: int) -> dict[str, Any]:
    """The certificate of one kernel in bfloat16, one row of the table."""
    tiles, kernel = compile_attention.compile_for(arch, kind, head_dim, torch.bfloat16)
    used = compile_attention.report(kernel)
    if used["tmem"] > compile_attention.TMEM or used["shared"] > compile_attention.SHARED[arch]:
        raise SystemExit(f"{kind} at head dim {head_dim} does not fit an sm{arch}: choose other tiles in tile_sizes.py")
    hot = hot_loop(kind, sass.disassemble(kernel.asm["cubin"]))
    shared_size, most_warps = MULTIPROCESSOR[arch]
    warps = kernel.metadata.num_warps
    registers = -(-used["registers"] // 8) * 8 * 32 * warps
    at_once = min(65_536 // registers, (shared_size << 10) // (kernel.metadata.shared + 1024), most_warps // warps)
    row = {
        "device": f"sm{arch}",
        "kernel": kind,
        "head_dim": head_dim,
        "tile": f"{tiles.queries} x {tiles.keys}" if kind in PRODUCTS else "",
        "warps": warps,
        "registers": used["registers"],
        "spilled": used["spilled"],
        "shared_bytes": kernel.metadata.shared,
        "programs": at_once,
        "bytes_a_kflop": "",
        "instructions": len(hot),
    }
    if kind in PRODUCTS:
        # of keys and values, or of queries and gradients, for the products of a tile
        moved = 2 * 2 * (tiles.queries if kind == "keys" else tiles.keys) * head_dim
        rows = 1 if kind == "decode" else tiles.queries
        row["bytes_a_kflop"] = round(1000 * moved / (2 * PRODUCTS[kind] * rows * tiles.keys * head_dim), 2)
    return row | sass.mix(hot)


def differences(old: dict[str, str], new: dict[str, Any]) -> list[str]:
    """Sentences about what is worse than the table has it."""
    bounds = {"instructions": GROWTH, "spilled": 1.0}
    grew = [
        f"{name} {old[name]} → {new[name]}" for name, bound in bounds.items() if int(new[name]) > int(old[name]) * bound
    ]
    fell = [f"{name} {old[name]} → {new[name]}" for name in ("tensor", "programs") if int(new[name]) < int(old[name])]
    return [f"{new['device']} {new['kernel']} {new['head_dim']}: {what}" for what in (*grew, *fell)]


def check(rows: list[dict[str, Any]]) -> list[str]:
    """Everything that is worse than in the table, or not in it."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        recorded = {(row["device"], row["kernel"], row["head_dim"]): row for row in csv.DictReader(file)}
    worse = []
    for row in rows:
        key = (row["device"], row["kernel"], str(row["head_dim"]))
        worse += differences(recorded[key], row) if key in recorded else [f"{' '.join(key)} is not in {TABLE.name}"]
    return worse


def together(kind: str, batch: int, heads: int, length: int, head_dim: int) -> int:
    """Heads that start side by side in a launch on an H100."""
    q = torch.empty(batch, heads, length, head_dim, dtype=torch.bfloat16, device="meta")
    with mock.patch.object(problem, "second_cache", return_value=H100_CACHE):
        return problem.Problem(q, q, q, None, True, None).heads_together("keys" if kind == "keys" else "queries")


def predictions() -> list[str]:
    """Rows of the page: what each recorded launch should take, and took."""
    lines = []
    for kind in ("forward", "keys", "queries"):
        clocks = {}
        for head_dim, batch, length, heads, milliseconds in MEASURED:
            tiles, kernel = compile_attention.compile_for(90, kind, head_dim, torch.bfloat16)
            if head_dim not in clocks:
                registers = compile_attention.report(kernel)["registers"]
                code = sass.disassemble(kernel.asm["cubin"])
                clocks[head_dim] = kernel_clocks.program_clocks(code, registers, kernel.metadata.shared, tiles.warps)
            of_tile = clocks[head_dim]
            place = (kind, tiles.queries, tiles.keys, length, batch * heads)
            programs = kernel_clocks.causal_programs(*place)  # the order of the launches that were measured
            total = kernel_clocks.launch_clocks(of_tile, programs)
            now = kernel_clocks.launch_clocks(
                of_tile, kernel_clocks.causal_programs(*place, together(kind, batch, heads, length, head_dim))
            )
            of_one = of_tile.full[-1] / of_tile.resident
            shared_out = sum(full + masked for full, masked in programs) * of_one / kernel_clocks.MULTIPROCESSORS
            flops = 2 * PRODUCTS[kind] * batch * heads * (length * (length + 1) // 2) * head_dim
            predicted, measured = flops * kernel_clocks.CLOCK / total / 1e12, flops / milliseconds[kind] / 1e9
            lines.append(
                f"| {kind}, {head_dim}, {batch} × {length:,} | {of_tile.resident} | {of_one:,.0f} "
                f"| {total / shared_out:.2f} | {total / now:.2f} | {predicted:.0f} | {measured:.0f} "
                f"| {predicted / measured:.2f} |"
            )
            print(lines[-1], flush=True)
    return lines


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Rows of the page: a cell for each head dimension, hot loop's instructions and what is bad about the kernel."""
    lines = []
    for arch in DEVICES:
        for kind in PRODUCTS:
            own = [row for row in rows if (row["device"], row["kernel"]) == (f"sm{arch}", kind)]
            cells = [
                f"{row['instructions']} / {row['programs']}" + (f", spills {row['spilled']}" if row["spilled"] else "")
                for row in own
            ]
            lines.append(f"| sm{arch} ({DEVICES[arch]}) | {kind} | " + " | ".join(cells) + " |")
    return lines


def write_page(rows: list[dict[str, Any]]) -> None:
    """Put the tables between the page's marks."""
    tables = {
        "certificates": [
            "| device | kernel | " + " | ".join(f"head dim {n}" for n in HEAD_DIMS) + " |",
            "|---|---|" + "---:|" * len(HEAD_DIMS),
            *summary(rows),
        ],
        "predictions": [
            "| kernel, head dim, batch × length | programs at once | clocks a tile | × for ends "
            "| gain of today's order | predicted TFLOP/s | measured | predicted / measured |",
            "|---|" + "---:|" * 7,
            *predictions(),
        ],
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        heading = f"`certify_kernels.py --write`, Triton {triton.__version__}:"
        text = "\n".join((before + begin, heading, "", *lines, end)) + rest.split(end)[1]
    PAGE.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="*", default=list(DEVICES), choices=DEVICES)
    names = (*compile_attention.KERNELS, *compile_attention.OTHERS)
    parser.add_argument("--kernel", nargs="*", default=names, choices=names)
    parser.add_argument("--write", action="store_true", help="write the table and the page, of all devices and kernels")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    options = parser.parse_args(arguments)
    if options.write and (options.arch != list(DEVICES) or options.kernel != names):
        parser.error("--write takes all devices and kernels: leave --arch and --kernel out")
    rows = []
    for combination in combinations(options.arch, options.kernel):
        rows.append(certify(*combination))
        print(*rows[-1].values(), sep=", ", flush=True)
    if options.write:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        write_page(rows)
    worse = check(rows) if options.check else []
    print(*worse, sep="\n")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
