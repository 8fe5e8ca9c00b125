"""Optional packages: import one by name, or raise one sentence that says what to install."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtra(ImportError):
    """A package that is not installed, with what to install for it."""


def need(module: str, what: str, install: str) -> Any:
    """The module, imported. MissingExtra: `what` needs it; install: the requirement for pip."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and lacks something of its own
        raise MissingExtra(f"{what} needs the package {module!r}: pip install {install!r}") from None
