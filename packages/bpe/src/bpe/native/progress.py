"""Progress reports: a callback, a bar, or log lines; and the seconds of each phase."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bpe.native.lazy_imports import import_lock

Progress = Callable[[str, int, int | None], None]  # phase, done, total (None: not known)


_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds of phases", default=None)


@contextmanager
def timed_phases() -> Iterator[dict[str, float]]:
    """A dict that gets the seconds of each phase that the block runs: CPU seconds of threads, summed."""
    seconds: dict[str, float] = {}
    token = _seconds.set(seconds)
    try:
        yield seconds
    finally:
        _seconds.reset(token)


def spend(phase: str, seconds: float) -> None:
    """Add the seconds of a phase, where a caller of timed_phases() wants to know them."""
    phases = _seconds.get()
    if phases is not None:
        phases[phase] = phases.get(phase, 0.0) + seconds


def silent(phase: str, done: int, total: int | None) -> None:
    """Report nothing."""


_LOG_INTERVAL = 30.0  # seconds between two lines of a log


class _LogLines:
    """A plain line every thirty seconds, and one at the end of a long phase, for a stderr that is not a terminal."""

    def __init__(self) -> None:
        self._phase, self._line = "", ""
        self._wrote_at = time.monotonic()
        self._has_written = False

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        if phase != self._phase:
            self.close()
            self._phase, self._wrote_at = phase, time.monotonic()
        self._line = f"{phase}: {done:,}" + ("" if total is None else f" of {total:,} ({done / max(1, total):.0%})")
        if time.monotonic() - self._wrote_at >= _LOG_INTERVAL:
            self._wrote_at, self._has_written = time.monotonic(), True
            print(self._line, file=sys.stderr, flush=True)
        if done == total:
            self.close()

    def close(self) -> None:
        if self._has_written:
            print(self._line, file=sys.stderr, flush=True)
        self._phase, self._has_written = "", False


class _Bars:
    """A tqdm bar for each phase, with rate and time left. Phases that say "bytes" are counted in MB."""

    def __init__(self) -> None:
        try:
            with import_lock:
                from tqdm import tqdm
        except ImportError:
            raise ImportError("progress bars need tqdm: pip install groundup-bpe[progress]") from None
        self._tqdm = tqdm
        self._phase = ""
        self._bar: Any = None

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        if phase != self._phase:
            self.close()
            self._phase = phase
            in_bytes = "bytes" in phase
            self._bar = self._tqdm(
                total=total,
                desc=phase.removesuffix(" bytes"),
                unit="B" if in_bytes else " tokens",
                unit_scale=in_bytes,
            )
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar, self._phase = None, ""


def watched() -> bool:
    """True if bars can be drawn: someone watches standard error, and tqdm is installed."""
    with import_lock:
        from importlib.util import find_spec

    return sys.stderr is not None and sys.stderr.isatty() and find_spec("tqdm") is not None


@contextmanager
def reporter(progress: Progress | bool | None) -> Iterator[Progress]:
    """The function to call: the caller's own, or one that draws bars for True, or does nothing for None and False.

    If stderr is not a terminal, True writes a plain line every thirty seconds instead. Bars need tqdm, the extra
    `progress`. They are taken down at the end, and when an error ends the work.
    """
    if progress is not True:
        yield progress or silent
        return
    bars = _Bars() if sys.stderr is not None and sys.stderr.isatty() else _LogLines()
    try:
        yield bars
    finally:
        bars.close()
