"""Compile the extension modules: cythonize, and nothing else.

BPE_CHECKED=1 turns on Cython's own checks (bounds, wraparound, division, initialisation) for a test run;
BPE_SANITIZE=1 also builds under AddressSanitizer and UndefinedBehaviorSanitizer, BPE_COVERAGE=1 so that every block calls
__sanitizer_cov_trace_pc, which fuzz/coverage.c defines.
"""

import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

CHECKED = os.environ.get("BPE_CHECKED") == "1"
SANITIZE = os.environ.get("BPE_SANITIZE") == "1"
MODULES = (
    "_text",
    "_spelled",
    "_scan",
    "_special",
    "_intern",
    "_blocks",
    "_records",
    "_merge",
    "_pairs",
    "_rank",
    "_cache",
    "_encode",
    "_shared",
    "_batch",
    "_calls",
    "_decode",
)
SHARED = "bpe._cyutility"  # what Cython writes for memoryviews, once instead of into every module
HEADERS = [
    "_bytes.h",
    "_cache.h",
    "_characters.h",
    "_classify.h",
    "_find.h",
    "_lanes.h",
    "_lowest.h",
    "_memory.h",
    "_rewrite.h",
    "_steps.h",
    "_unicode.h",
    "_utf8.h",
]

flags = [] if os.name == "nt" else ["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
link = []
if SANITIZE:
    flags += ["-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    link += ["-fsanitize=address,undefined"]
if os.environ.get("BPE_COVERAGE") == "1":
    flags += ["-fsanitize-coverage=trace-pc"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"bpe.{name}",
                [f"src/bpe/{name}.pyx"],
                include_dirs=["src/bpe", numpy.get_include()],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                depends=[f"src/bpe/{header}" for header in HEADERS],
                extra_compile_args=flags,
                extra_link_args=link,
            )
            for name in MODULES
        ]
        + [Extension(SHARED, [f"src/{SHARED.replace('.', '/')}.c"], extra_compile_args=flags, extra_link_args=link)],
        shared_utility_qualified_name=SHARED,
        include_path=["src"],
        compiler_directives={
            "language_level": "3",
            "embedsignature": True,
            "boundscheck": CHECKED,
            "wraparound": CHECKED,
            "cdivision": not CHECKED,
            "initializedcheck": CHECKED,
        },
    )
)
