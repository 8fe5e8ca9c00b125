"""Compile the extension modules: every .pyx under src/bpe, each rebuilt when a file that it is made of has changed.

BPE_CHECKED=1 turns on Cython's own checks (bounds, wraparound, division, initialisation) for a test run;
BPE_SANITIZE=1 also builds under AddressSanitizer and UndefinedBehaviorSanitizer, BPE_COVERAGE=1 so that every block
calls __sanitizer_cov_trace_pc, which fuzz/coverage.c defines.
"""

import os
import re
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

CHECKED = os.environ.get("BPE_CHECKED") == "1"
SANITIZE = os.environ.get("BPE_SANITIZE") == "1"
SHARED = "bpe.native.cyutility"  # what Cython writes for memoryviews, once instead of into every module
PACKAGE = Path("src", "bpe")  # headers are included by their path under it

flags = [] if os.name == "nt" else ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function"]
link = []
if SANITIZE:
    flags += ["-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    link += ["-fsanitize=address,undefined"]
if os.environ.get("BPE_COVERAGE") == "1":
    flags += ["-fsanitize-coverage=trace-pc"]


def made_of(source: Path, seen: set[Path]) -> set[Path]:
    """The files of this package that a source names, and those that they name: .pxi, .pxd and headers."""
    text = source.read_text("utf-8")
    named = [PACKAGE / name for name in re.findall(r'^(?:#include|cdef extern from) "([\w/]+\.h)"', text, re.MULTILINE)]
    named += [source.parent / name for name in re.findall(r'^include "([\w/]+\.pxi)"', text, re.MULTILINE)]
    modules = re.findall(r"^from (bpe[\w.]+) cimport", text, re.MULTILINE)
    named += [PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".pxd") for module in modules]
    if source.suffix == ".pyx":
        named.append(source.with_suffix(".pxd"))
    for path in named:
        if path.exists() and path not in seen:
            seen.add(path)
            made_of(path, seen)
    return seen


def extension(name: str, source: Path, depends: set[Path]) -> Extension:
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(PACKAGE), numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        depends=sorted(map(str, depends)),
        extra_compile_args=flags,
        extra_link_args=link,
    )


modules = [
    extension(".".join(source.relative_to("src").with_suffix("").parts), source, made_of(source, set()))
    for source in sorted(PACKAGE.rglob("*.pyx"))
]
shared = extension(SHARED, Path("src", *SHARED.split(".")).with_suffix(".c"), set())

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [*modules, shared],
        shared_utility_qualified_name=SHARED,
        include_path=["src"],
        compiler_directives={
            "language_level": "3",
            "embedsignature": True,
            "freethreading_compatible": True,  # docs/design/guarantees.md says who may share what
            "boundscheck": CHECKED,
            "wraparound": CHECKED,
            "cdivision": not CHECKED,
            "initializedcheck": CHECKED,
        },
    ),
)
