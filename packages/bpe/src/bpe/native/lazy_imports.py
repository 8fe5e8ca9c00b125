"""Modules that are imported at their first use, and the lock for it. Training does without NumPy and regex (20 MB).

A process that forks while another thread imports a module leaves its child an import lock that nobody releases. What is
imported within a function is imported under `import_lock`, for which a fork waits: servers fork while threads encode.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=import_lock.acquire, after_in_parent=import_lock.release, after_in_child=import_lock.release
    )

if TYPE_CHECKING:
    import hashlib as hashlib
    import json as json
    import lzma as lzma
    import pathlib as pathlib
    import queue as queue
    import tempfile as tempfile
    import zlib as zlib

    import numpy as numpy
    import regex as regex
else:

    class _LazyModule:
        """A module that is imported with the first access to one of its names."""

        def __init__(self, name: str) -> None:
            self.__name__ = name

        def __getattr__(self, attribute: str) -> Any:
            with import_lock:
                module = importlib.import_module(self.__name__)
            vars(self).update(vars(module))
            return getattr(module, attribute)

    hashlib, json, lzma, numpy, pathlib = map(_LazyModule, ("hashlib", "json", "lzma", "numpy", "pathlib"))
    queue, regex, tempfile, zlib = map(_LazyModule, ("queue", "regex", "tempfile", "zlib"))


def lazy_modules(package: str, names: str) -> Callable[[str], Any]:
    """Return the __getattr__ of a package that imports its modules of these names when they are asked for (PEP 562)."""

    def import_one(name: str) -> Any:
        if name not in names.split():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # `from package import name`, which then imports it
            raise AttributeError(name)  # plainly: modules begin so, for which the owner of import_lock may be waiting
        with import_lock:
            return importlib.import_module(f"{package}.{name}")

    return import_one
