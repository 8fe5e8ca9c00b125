"""Compile the C of bpe and lm for systems that are not this machine, by zig's C compiler, and report every warning.

    python tools/cross_compile.py        # needs ziglang, Cython, NumPy and a network for NumPy's wheels

Warnings are errors. A conversion that narrows on Windows, where `long` has 32 bits, and not on macOS is an error too.
What needs no Python is also linked with its tests (packages/bpe/tests/headers.c) and run: for Windows by Wine,
for ARM by QEMU's user mode, where these programs are installed. Nothing else is run. The sizes that Python.h expects
of pyconfig.h are written for each target: this Python's own pyconfig.h describes this machine.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
BPE, LM = ROOT / "packages/bpe/src/bpe", ROOT / "packages/lm/src/lm/ops/cpu"
TARGETS = {  # zig's name: the platform tag of NumPy's wheel, whose headers differ by platform
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-macos": "macosx_10_13_x86_64",
    "x86_64-windows-gnu": "win_amd64",
    "aarch64-linux-gnu": "manylinux_2_28_aarch64",
}
PYCONFIG = """
#define _GNU_SOURCE 1
#ifdef _WIN32
#define MS_WINDOWS 1
#define MS_WIN64 1
#define NT_THREADS 1
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
#include <basetsd.h>
typedef SSIZE_T ssize_t;
#else
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
#define HAVE_PTHREAD_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TIME_H 1
#endif
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_OFF_T 8
#define SIZEOF_PID_T 4
#define HAVE_SSIZE_T 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_ERRNO_H 1
#define HAVE_WCHAR_H 1
#define HAVE_STRING_H 1
#define HAVE_LONG_DOUBLE 1
"""
RUNNERS = {
    "x86_64-windows-gnu": "wine",
    "aarch64-linux-musl": "qemu-aarch64",
}  # programs without libraries of their own
# Cython writes functions that a module may not use; clang ignores an attribute of the omp.h that gcc has
FLAGS = (
    *("-c", "-O1", "-Wall", "-Wno-unused-function", "-Wno-ignored-attributes", "-Wno-pass-failed"),
    "-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION",
)
OPENMP = Path(subprocess.check_output(["gcc", "-print-file-name=include/omp.h"], text=True).strip())


def numpy_headers(tag: str, folder: Path) -> Path:
    """Return the folder of NumPy's headers for a platform's tag, from its wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.13", "--platform", tag, "--dest", str(folder)]
    command.append(f"numpy=={metadata.version('numpy')}")
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("numpy-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/_core/include/" in name])
    return folder / "numpy/_core/include"


def warnings(target: str, sources: list[Path], includes: list[Path], *flags: str) -> list[str]:
    """Return the compiler's errors and warnings for each source, by the source's path."""
    messages = []
    for source in sources:
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, *flags, str(source)]
        command += [part for folder in includes for part in ("-I", str(folder))]
        compiled = subprocess.run([*command, "-o", str(includes[0] / "object.o")], capture_output=True, text=True)
        messages += [line for line in compiled.stderr.splitlines() if re.search(r"(error|warning): ", line)]
    return messages


def run_headers(folder: Path) -> list[str]:
    """Return the failures of the tests of bpe's headers, here and by each emulator; print what ran."""
    command = [*("-O1", "-pthread", "-Wno-unused-function", f"-I{BPE}"), str(BPE.parents[1] / "tests/headers.c"), "-o"]
    here = folder / "here"
    subprocess.run(["cc", *command, str(here)], check=True)
    output = subprocess.run([str(here)], capture_output=True, text=True).stdout
    print(f"headers, here: {output.strip()}")
    failures = [] if ", 0 failures" in output else [output]
    for target, runner in RUNNERS.items():
        if not shutil.which(runner):
            print(f"headers, {target}: compiled, not run: {runner} was not found")
        program = folder / f"{target}.exe"
        subprocess.run([sys.executable, "-m", "ziglang", "cc", "-target", target, *command, str(program)], check=True)
        if shutil.which(runner):
            # zig's library for Windows cannot ask the processor, which is this one
            levels = [str(len(output.split(";")[0].split()) - 1)] if target.startswith(platform.machine()) else []
            environment = os.environ | {"WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
            result = subprocess.run([runner, str(program), *levels], capture_output=True, text=True, env=environment)
            print(f"headers, {target} by {runner}: {result.stdout.strip()}")
            failures += [] if ", 0 failures" in result.stdout else [f"{target}: {result.stdout}{result.stderr}"]
    return failures


def page_kernel(folder: Path) -> list[str]:
    """Return the WebAssembly of a model's page if it is not what its C compiles to."""
    assets, binary = LM.parents[1] / "page/assets", folder / "kernel.wasm"
    flags = "-target wasm32-freestanding -mcpu=generic+simd128 -O3 -nostdlib -Wl,--no-entry,--import-memory,-s"
    flags += f" -Wl,--initial-memory=65536,-z,stack-size=16 {assets}/kernel.c -o {binary}"
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags.split()], check=True)
    compiled = base64.b64encode(binary.read_bytes()).decode()
    return [] if compiled == (assets / "kernel.wasm.base64").read_text().strip() else [f"page kernel: {compiled}"]


def main() -> int:
    """Compile everything, run the tests of the headers; status 1 if there is a warning or a failure."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(command, cwd=BPE.parents[1], check=True, capture_output=True)
    sources = sorted(BPE.rglob("*.c"))
    narrowing: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        failures = run_headers(Path(name)) + page_kernel(Path(name))
    for target, tag in TARGETS.items():
        with tempfile.TemporaryDirectory() as name:
            python = Path(name, "python")
            shutil.copytree(sysconfig.get_path("include"), python)
            (python / "pyconfig.h").write_text(PYCONFIG)
            if OPENMP.exists():
                shutil.copy(OPENMP, python)  # zig has no omp.h, and gcc's is the same everywhere
            includes = [python, BPE, numpy_headers(tag, Path(name))]
            messages = warnings(target, sources, includes, "-Wshorten-64-to-32")
            for first in ("vectors", "passes"):  # the files of each of lm's libraries go on from one another
                files = re.findall(rf'\(("{first}".*?)\)', (LM / "build.py").read_text())[-1]
                library = Path(name, f"{first}.c")
                library.write_text("".join((LM / f"{file}.c").read_text() for file in re.findall(r"\w+", files)))
                for real in ("float", "double"):
                    messages += warnings(target, [library], includes, f"-DREAL={real}", "-fopenmp")
        short = [line for line in messages if "shorten-64-to-32" in line]
        narrowing[target] = {line.split(": ")[0] for line in short}
        others = [line for line in messages if line not in short]
        failures += [f"{target}: {line}" for line in others]
        print(f"{target}: {len(others)} errors and warnings", flush=True)
    by_long = narrowing["x86_64-windows-gnu"] - narrowing["aarch64-macos"]
    failures += [f"{place}: narrows where long has 32 bits" for place in sorted(by_long)]
    print(*failures, f"conversions that narrow where long has 32 bits: {len(by_long)}", sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
