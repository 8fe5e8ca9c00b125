"""Tests and measurements on CUDA: kernels, training, accounting's peaks; compute-sanitizer comes last.

    python tools/gpu.py [OPTIONS OF gpu_memory.py]

A failure does not keep the rest from running, and tables are written row by row. Status 1 if a job failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

LM, PYTEST = "packages/lm", (sys.executable, "-m", "pytest")


def jobs() -> list[tuple[str, ...]]:
    """Return the commands, the quick and useful ones first."""
    large = ("--train.compile", "on", "--train.micro_batch_size", "64")
    commands = [
        (*PYTEST, f"{LM}/tests", "-m", "gpu"),
        (sys.executable, f"{LM}/benchmarks/bench_attention.py", "--readme"),
        (sys.executable, "-m", "lm", "plan", "gpt2-124m", *large),
        (sys.executable, "packages/accounting/benchmarks/gpu_memory.py", "--page", *sys.argv[1:]),
    ]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer was not found: install the CUDA toolkit to check the kernels' memory accesses")
        return commands
    small = "not 65536 and not two_to_the_31 and not graphs and not once"
    kernels = [f"{LM}/tests/test_{kernel}.py" for kernel in ("flash", "cross_entropy_kernel")]
    checked = ("--error-exitcode", "1", *PYTEST, *kernels, "-k", small)
    return [*commands, *((sanitizer, "--tool", tool, *checked) for tool in ("memcheck", "racecheck"))]


def main() -> int:
    failures = []
    for job in jobs():
        # torch's allocator hands out parts of large blocks, beyond whose ends the sanitizer would see nothing wrong
        caching = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if "compute-sanitizer" in job[0] else {}
        if subprocess.run(job, env=os.environ | caching).returncode:
            failures.append(" ".join(job[:4]))
    print(*(f"failed: {failure}" for failure in failures), sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
