"""The C of this folder as libraries for this machine: compiled at first use, cached for later processes.

The C compiler is the one that Python was built with, or the environment variable CC, and takes about half a second. The
name of a library in the user's cache folder depends on source, compiler and processor.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sysconfig
from importlib import resources
from pathlib import Path

import torch

from lm.device import cpuinfo
from lm.files import atomic_path

TYPES = {torch.float32: "float", torch.float64: "double"}
# Numbers in memory that are computed with as floats: by `passes` alone.
STORED = {torch.bfloat16: "float -DBF16"}
# Without the second, compilers keep the order of floating-point exceptions, which nobody reads, and with it leave loops
# that choose between numbers, as exponentials do, one number at a time: three times slower on AVX2 (gcc 12).
# LM_CFLAGS: more flags, such as a sanitizer's.
MORE = os.environ.get("LM_CFLAGS", "").split()
FLAGS = ("-O3", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC", *MORE)
# Levels of processors for which compile_ahead() compiles, the widest first: flags of the compiler, and the flags of
# /proc/cpuinfo that they need.
LEVELS = {
    "x86_64": {
        "vnni": ("-march=x86-64-v4 -mavx512vnni", "avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"),
        "avx512": ("-march=x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
        "avx2": ("-march=x86-64-v3", "avx2 bmi1 bmi2 f16c fma movbe"),
        "portable": ("-march=x86-64", ""),
    },
    "aarch64": {"portable": ("-march=armv8-a", "")},
}
PATIENCE = 120.0  # seconds for the compiler


class Unavailable(Exception):
    """There is no compiled code; the message follows "because"."""


# OpenMP's threads do not survive a fork, and the child's first parallel region waits for them for ever, in torch's
# operators as in ours (torch says so in its notes on multiprocessing): a child computes with one thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


@functools.cache
def built(name: str, dtype: torch.dtype) -> ctypes.CDLL | Unavailable:
    """The library of this name and dtype, or the reason why there is none; cached."""
    try:
        real = TYPES.get(dtype) or (STORED.get(dtype) if name == "passes" else None)
        if real is None:
            raise Unavailable(f"weights are {str(dtype).removeprefix('torch.')}, and it is for float32 and float64")
        if os.name == "nt":
            raise Unavailable("it is not written for Windows")
        return ctypes.CDLL(str(library(name, real)))
    except OSError as error:  # the home is read-only, or mounted so that nothing in it is run
        remedy = "let XDG_CACHE_HOME name a folder that is writable and not mounted noexec"
        return Unavailable(f"compiling failed ({one_line(str(error))}): {remedy}")
    except (Unavailable, subprocess.SubprocessError) as error:
        return error if isinstance(error, Unavailable) else Unavailable(f"compiling failed ({one_line(str(error))})")


def cache_folder() -> Path:
    """The folder of libraries: groundup in XDG_CACHE_HOME, or in ~/.cache. Unavailable: the user has no home."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if caches.startswith("~"):  # neither HOME nor an entry for the user's number, as in containers
        raise Unavailable("there is no home folder to keep compiled code in: let XDG_CACHE_HOME name one")
    return Path(caches) / "groundup"


def library(name: str, real: str) -> Path:
    """The library's file, compiled if it is not there. Unavailable; OSError."""
    if folder_ahead := os.environ.get("LM_LIBRARIES"):
        flags = set(cpuinfo().get("flags", "").split())
        for level, (_, needs) in LEVELS.get(platform.machine(), {}).items():
            if flags >= set(needs.split()) and (path := Path(folder_ahead) / file_ahead(name, real, level)).is_file():
                return path
    path_of_compiler = shutil.which(compiler())
    if path_of_compiler is None:
        raise Unavailable(f"there is no C compiler {compiler()!r}")
    version = subprocess.run([path_of_compiler, "--version"], capture_output=True, timeout=PATIENCE).stdout
    about = "\0".join((path_of_compiler, real, "native", *FLAGS, processor())).encode()
    text = source(name)
    file = f"{name}-{real.split()[0]}-{hashlib.sha256(text + version + about).hexdigest()[:24]}.so"
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / file
    if not is_own(path):
        with atomic_path(path) as fresh:  # two processes may do this at once
            compile_to(fresh, path_of_compiler, real, text, "-march=native")
            fresh.chmod(0o500)
    return path


def file_ahead(name: str, real: str, level: str) -> str:
    """The name of a library that was compiled ahead; it depends on the source."""
    return f"{name}-{real.replace(' ', '')}-{level}-{hashlib.sha256(source(name)).hexdigest()[:24]}.so"


def compile_ahead(folder: Path) -> list[Path]:
    """Compile every library for every level of this kind of processor, for machines without a compiler.

    They use the folder that the environment variable LM_LIBRARIES names; whoever can write there runs code in them.

    Args:
        folder: The libraries' folder; it is created.

    Returns:
        The files written.

    Raises:
        ValueError: There is no C compiler, it fails, or this kind of processor has no levels.
    """
    levels = LEVELS.get(platform.machine())
    path_of_compiler = shutil.which(compiler())
    if levels is None or path_of_compiler is None:
        lacks = f"a compiler {compiler()!r}" if levels else f"levels of the processor {platform.machine()}"
        raise ValueError(f"there is nothing to compile ahead with: this machine lacks {lacks}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    kinds = [(name, real) for name in ("forward", "passes") for real in TYPES.values()]
    for name, real in [*kinds, *(("passes", real) for real in STORED.values())]:
        for level, (flags, _) in levels.items():
            path = folder / file_ahead(name, real, level)
            with atomic_path(path) as fresh:
                try:
                    compile_to(fresh, path_of_compiler, real, source(name), flags)
                except Unavailable as error:
                    raise ValueError(str(error)) from None
                fresh.chmod(0o755)
            paths.append(path)
    return paths


def compiler() -> str:
    """The command of the C compiler, which need not be there."""
    return str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def source(name: str) -> bytes:
    """The C of a library, whose files go on from one another."""
    forward = ("vectors", "kinds", "matrices", "layout", "attend", "forward", "choice")
    files = forward if name == "forward" else ("passes", "multiply", "attention")
    return b"".join(resources.files("lm.ops.cpu").joinpath(f"{file}.c").read_bytes() for file in files)


def is_own(path: Path) -> bool:
    """True if the file exists and only this user can have written it: it will be run."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def compile_to(path: Path, compiler: str, real: str, text: bytes, march: str) -> None:
    """Compile C to a library. Unavailable: the compiler's first error."""
    command = [compiler, *march.split(), *FLAGS, *f"-DREAL={real}".split(), "-x", "c", "-", "-o", str(path), "-lm"]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # of sanitizers
    result = subprocess.run(command, input=text, capture_output=True, timeout=PATIENCE, env=environment)
    if result.returncode:
        message = result.stderr.decode(errors="replace")
        wrong = re.search("(?m)^.*error.*$", message)
        raise Unavailable(f"compiling failed ({one_line(wrong[0] if wrong else message)})")


def one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def processor() -> str:
    """Description of the processor, on which -march=native depends."""
    about = cpuinfo()
    features = [f"{key}: {about[key]}" for key in ("flags", "Features", "model name", "CPU part") if key in about]
    return "\n".join(features) or f"{platform.machine()} {platform.processor()}"
