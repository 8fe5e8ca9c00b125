"""Compile lm's attention kernels for CUDA devices that need not be here, and say what each takes of them.

    python packages/lm/benchmarks/compile_attention.py                       every device of the settings' table
    python packages/lm/benchmarks/compile_attention.py --arch 90 --head-dim 64 --dtype bfloat16 --kernel forward
    python packages/lm/benchmarks/compile_attention.py --arch 90 --kernel keys --tiles 64,128,8,2,tma 64,64,4,3

Nothing is launched: Triton compiles to machine code with the assembler that it carries, and the registers, spills and
shared memory stand in what comes out. A row is marked where registers spill or shared memory does not fit: the exit
status is then 1. wgmma, mma, tma and cp.async count instructions of the kernel, not how often they run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from lm.ops.triton import backward, cross_entropy, decode, forward, problem, tile_sizes

SHARED = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KiB that one program may have, by compute capability
TMEM = 512  # columns of Blackwell's tensor memory; what asks for more is compiled to a trap
KERNELS = ("forward", "keys", "queries", "decode")
OTHERS = ("delta", "merge", "cross_entropy")  # which multiply no matrices, and have no tiles in the settings' table
# Instructions of matrix units and of copies that do not pass through registers, as PTX names them.
COUNTED = {
    "wgmma": r"wgmma\.mma_async|tcgen05\.mma",
    "mma": r"mma\.sync",
    "tma": r"cp\.async\.bulk\.tensor",
    "cp.async": r"cp\.async\.c[ag]",
}


class Absent:
    """A driver for a device that is not here: enough for compiling, and nothing for launching."""

    def __init__(self, arch: int) -> None:
        self.target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.target.arch

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_for(
    arch: int,
    kind: str,
    head_dim: int,
    dtype: torch.dtype,
    tiles: problem.Tiles | None = None,
    *,
    causal: bool = True,
    window: bool = False,
    documents: bool = False,
    score_changes: bool = False,
) -> tuple[problem.Tiles, CompiledKernel]:
    """One kernel compiled as a call with such tensors would have it, and the tiles it was compiled with."""
    triton.runtime.driver.set_active(Absent(arch))
    compiled = {}
    run = triton.runtime.jit.JITFunction.run

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> None:
        if kernel.__name__ == f"{kind}_kernel":
            compiled[kind] = run(kernel, *arguments, grid=grid, warmup=True, **named)

    queries, keys = 1 if kind in ("decode", "merge") else 4096, 4096
    # Sixteen heads side by side for each position, as a model's projection leaves them; no memory is touched.
    q = torch.empty(2, queries, 16, head_dim, dtype=dtype).transpose(1, 2)
    k, v = (torch.empty(2, keys, 16, head_dim, dtype=dtype).transpose(1, 2) for _ in range(2))
    lse = torch.empty(q.shape[:3])
    packs = torch.zeros(2, keys, dtype=torch.int32) if documents else None
    changes: tuple[float, torch.Tensor] | tuple[()] = (50.0, torch.zeros(16)) if score_changes else ()
    call = problem.Problem(q, k, v, packs, causal, 1024 if window else None, *changes)
    capability = (arch // 10, arch % 10)
    tiles = tiles or tile_sizes.tiles_on(
        capability, kind if kind in KERNELS else "forward", call.width, dtype, score_changes
    )
    with (
        mock.patch.object(triton.runtime.jit.JITFunction, "run", compile_only),
        mock.patch("torch.cuda.get_device_capability", return_value=capability),
        mock.patch.object(tile_sizes, "tiles_on", return_value=tiles),
        mock.patch.object(decode, "splits_for", return_value=8 if kind == "decode" else 1),
    ):
        if kind == "forward":
            forward.forward(call)
        elif kind in ("decode", "merge"):
            decode.decode(call, None)
        elif kind == "cross_entropy":
            logits, targets = torch.empty(8, 50_304, dtype=dtype), torch.zeros(8, dtype=torch.int64)
            cross_entropy.cross_entropy(logits, targets, vocab_size=50_257, ignore_index=-100)
        else:
            backward.backward(call, q, lse, q)
    return tiles, compiled[kind]


def report(kernel: CompiledKernel) -> dict[str, int]:
    """Registers and bytes spilled of a thread, KiB of shared memory, columns of tensor memory, and how many of each
    COUNTED."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(kernel.asm["cubin"])
        dump = triton.knobs.nvidia.cuobjdump.path
        usage = subprocess.run([dump, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    registers, local, stack = (
        int(re.search(rf"{name}:(\d+)", usage).group(1))  # type: ignore[union-attr]
        for name in ("REG", "LOCAL", "STACK")
    )
    counts = {name: len(re.findall(pattern, kernel.asm["ptx"])) for name, pattern in COUNTED.items()}
    tensor_memory = getattr(kernel.metadata, "tmem_size", None) or 0
    return {
        "registers": registers,
        "tmem": tensor_memory,
        "spilled": local + stack,
        "shared": -(-kernel.metadata.shared // 1024),
        **counts,
    }


def parse_tiles(text: str) -> problem.Tiles:
    """ "queries,keys,warps,stages", then perhaps "tma"."""
    parts = text.split(",")
    return problem.Tiles(*map(int, parts[:4]), described="tma" in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="*", default=list(SHARED), choices=list(SHARED))
    parser.add_argument("--head-dim", type=int, nargs="*", default=[16, 32, 64, 96, 128, 256])
    parser.add_argument(
        "--dtype", nargs="*", default=["bfloat16", "float32"], choices=["bfloat16", "float16", "float32"]
    )
    parser.add_argument("--kernel", nargs="*", default=KERNELS, choices=KERNELS)
    parser.add_argument(
        "--tiles", nargs="*", type=parse_tiles, default=[None], help="others than the table's: 128,64,8,3,tma"
    )
    parser.add_argument("--full", action="store_true", help="without causality")
    parser.add_argument("--window", action="store_true")
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("--softcap-and-sinks", action="store_true", help="with both in the scores")
    parser.add_argument("--dump", help="write the code of each stage into this folder")
    options = parser.parse_args()
    bad = 0
    columns = ["registers", "spilled", "shared", "tmem", *COUNTED]
    print(f"triton {triton.__version__}")
    print("| device | kernel | head dim | dtype | tiles | " + " | ".join(columns) + " | |")
    print("|---|---|---|---|---|" + "---|" * (len(columns) + 1))
    for arch in options.arch:
        for name in options.dtype:
            for head_dim in options.head_dim:
                for kind in options.kernel:
                    for override in options.tiles:
                        tiles, kernel = compile_for(
                            arch, kind, head_dim, getattr(torch, name), override, causal=not options.full,
                            window=options.window, documents=options.documents, score_changes=options.softcap_and_sinks,
                        )  # fmt: skip
                        used = report(kernel)
                        wrong = [
                            *(["spills"] if used["spilled"] else []),
                            *(["does not fit"] if used["shared"] > SHARED[arch] or used["tmem"] > TMEM else []),
                        ]
                        bad += bool(wrong)
                        shape = f"{tiles.queries} × {tiles.keys}, {tiles.warps} warps, {tiles.stages} stages"
                        shape += ", TMA" * tiles.described
                        cells = [
                            f"sm{arch}",
                            kind,
                            str(head_dim),
                            name,
                            shape,
                            *(str(used[c]) for c in columns),
                            ", ".join(wrong),
                        ]
                        print("| " + " | ".join(cells) + " |", flush=True)
                        if options.dump:
                            for stage in ("ttgir", "ptx"):
                                Path(options.dump).mkdir(parents=True, exist_ok=True)
                                Path(options.dump, f"sm{arch}-{kind}-{head_dim}-{name}.{stage}").write_text(
                                    kernel.asm[stage]
                                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
