"""Progress of a long piece of work: a bar on a terminal, a plain line every thirty seconds in a log."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from tqdm import tqdm

LOG_INTERVAL = 30.0  # seconds between two lines of a log
# tqdm's own lock has a semaphore of the system, which a process that SIGTERM ends would leave behind.
tqdm.set_lock(threading.RLock())


def progress_bar(description: str, total: int | None, unit: str, *, initial: int = 0, **options: Any) -> tqdm[Any]:
    """A tqdm bar on stderr, or one that writes plain lines if stderr is not a terminal; arguments are tqdm's."""
    kind = tqdm if options.get("disable") or sys.stderr.isatty() else LogLines
    return kind(desc=description, total=total, unit=unit, initial=initial, **options)


class LogLines(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A tqdm bar that never moves the cursor: a line every LOG_INTERVAL seconds, and one at the end of long work."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.wrote_at = time.monotonic()
        self.has_written = False
        super().__init__(*arguments, **options, ncols=100, mininterval=1.0, maxinterval=1.0, delay=1e-9)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if time.monotonic() - self.wrote_at >= LOG_INTERVAL:
            self.write_line()
        return True

    def write_line(self) -> None:
        self.wrote_at, self.has_written = time.monotonic(), True
        self.fp.write(str(self).strip() + "\n")
        self.fp.flush()

    def moveto(self, n: int) -> None:
        """Stay on the line."""

    def clear(self, nolock: bool = False) -> None:
        """Leave the line."""

    def close(self) -> None:
        if not getattr(self, "disable", True):
            if self.has_written or time.monotonic() - self.wrote_at >= LOG_INTERVAL:
                self.write_line()
            self.disable = True
            self._decr_instances(self)
