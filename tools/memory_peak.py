"""The most memory this process has held, from a moment on: what a budget is compared with on a machine without a
GPU."""

from __future__ import annotations

import re
from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset() -> int | None:
    """Begin to watch: the bytes resident now. None where the system does not tell (it takes Linux's /proc)."""
    try:
        _CLEAR.write_text("5")  # the peak starts again from what is resident now (proc(5))
    except OSError:
        return None
    return read()


def read() -> int | None:
    """The most bytes resident since reset()."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
