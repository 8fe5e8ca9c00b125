"""Progress of a long piece of work: a bar on a terminal, a plain line every thirty seconds in a log."""

from __future__ import annotations

import sys
import threading
from typing import Any

from tqdm import tqdm

LOG_INTERVAL = 30.0  # seconds between two lines of a log
# tqdm's own lock has a semaphore of the system, which a process that SIGTERM ends would leave behind.
tqdm.set_lock(threading.RLock())


def progress_bar(description: str, total: int | None, unit: str, **options: Any) -> tqdm[Any]:
    """A tqdm bar on stderr, or plain lines of long work if stderr is not a terminal; arguments are tqdm's."""
    if not sys.stderr.isatty():
        names = ("mininterval", "maxinterval", "delay")
        options = {"file": LogLines(), "ncols": 100, "ascii": False, **dict.fromkeys(names, LOG_INTERVAL), **options}
    return tqdm(desc=description, total=total, unit=unit, **options)


class LogLines:
    """A file that takes what a bar writes as whole lines, without the characters that move the cursor."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()
