"""Warnings that name the line of the user's own code, however deep in this package they arise."""

from __future__ import annotations

import sys
import warnings

PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str) -> None:
    """Warn as if from the innermost line outside this package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)
