"""Telling how far something is: to a function of the caller's, or to a bar on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int | None], None]  # phase, done, total (None: not known)


class _Bars:
    """A tqdm bar for each phase, with rate and time left. Phases that say "bytes" are counted in MB."""

    def __init__(self) -> None:
        try:
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
                initial=0 if in_bytes else done,  # merges that a checkpoint had kept say nothing about the rate
            )
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar, self._phase = None, ""


def watched() -> bool:
    """Whether bars can be drawn: someone watches standard error, and tqdm is installed."""
    from importlib.util import find_spec

    return sys.stderr is not None and sys.stderr.isatty() and find_spec("tqdm") is not None


@contextmanager
def reporter(progress: Progress | bool | None) -> Iterator[Progress]:
    """The function to call: the caller's own, or one that draws bars for True, or does nothing for None and False.

    Bars need tqdm, the extra `progress`. They are taken down at the end, and when an error ends the work.
    """
    if progress is not True:
        yield progress or (lambda phase, done, total: None)
        return
    bars = _Bars()
    try:
        yield bars
    finally:
        bars.close()
