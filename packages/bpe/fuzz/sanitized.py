"""Run a command that loads bpe built under AddressSanitizer and UBSan; fail if they report an error, or a leak of bpe.

    python packages/bpe/fuzz/sanitized.py FOLDER COMMAND …

Writes coverage.so (coverage.c compiled; an extension built with BPE_COVERAGE=1 calls it) and one report.PID for each
process into FOLDER, and prints the errors among them. Interpreters and their libraries leak on purpose when they end,
and a suppression by name would also hide what they call, the extension among it. So LeakSanitizer reports everything,
and a leak counts if a frame of the extension allocated it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

EXTENSION = re.compile(r"bpe/(\w+/)*\w+\.(c|h|pyx|pxi|so|cpython)")


def environment(compiler: str, folder: Path) -> dict[str, str]:
    """Return the environment variables with which a process can load an extension built under the sanitizers."""
    coverage = folder / "coverage.so"
    source = Path(__file__).with_name("coverage.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(coverage), str(source)], check=True)
    # the C++ library too: an extension that throws fails if the sanitizer starts before __cxa_throw is loaded
    libraries = [library(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
    return {
        "LD_PRELOAD": " ".join([*libraries, str(coverage)]),
        "PYTHONMALLOC": "malloc",  # Python's own pools would hide reads beyond an object's end
        "ASAN_OPTIONS": f"detect_leaks=1:log_path={folder}/report:allocator_may_return_null=1:quarantine_size_mb=8",
        "LSAN_OPTIONS": "exitcode=0",  # of AddressSanitizer too, whose flag it is: see the reports
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder}/report",  # pytest would swallow what it prints
    }


def library(compiler: str, name: str) -> str:
    """Return the path of one of the compiler's libraries."""
    path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"{compiler} has no {name}: install gcc with its libasan, and set CC=gcc")
    return path


def leaks(report: str) -> list[str]:
    """Return the leaks of one report whose allocation has a frame of the extension."""
    parts = re.split(r"\n(?=(?:Direct|Indirect) leak of )", report)[1:]
    return [leak.split("\n\n")[0] for leak in parts if EXTENSION.search(leak.split("\n\n")[0])]


def main(folder: Path, command: list[str]) -> int:
    """Run the command and read the reports of its processes."""
    for report in folder.glob("report.*"):
        report.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    program = shutil.which(command[0]) or command[0]
    status = subprocess.run([program, *command[1:]], env={**os.environ, **environment(compiler, folder)}).returncode
    reports = [path.read_text(errors="replace") for path in sorted(folder.glob("report.*"))]
    extension_leaks = [leak for report in reports for leak in leaks(report)]
    errors = [report for report in reports if re.search("runtime error|ERROR: AddressSanitizer", report)]
    print(*errors, *extension_leaks, sep="\n\n")
    if broken := sum("fatal error" in report for report in reports):
        print(f"LeakSanitizer could not look into {broken} processes (it needs ptrace, which containers may forbid)")
    print(f"{len(reports)} processes left reports; leaks of the extension: {len(extension_leaks)}")
    return status or bool(errors or extension_leaks)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
