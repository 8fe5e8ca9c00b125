"""An alarm that raises an exception in the middle of a call."""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

needs_alarms = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarms")


class Rung(Exception):
    """The exception that the alarm raises."""


def ring(signal_number: int, frame: FrameType | None) -> None:
    """Raise Rung; a little later, if the alarm came before or after what is to be interrupted."""
    if frame is not None and frame.f_code.co_filename in (__file__, contextlib.__file__):
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        return
    raise Rung


@contextlib.contextmanager
def rings_after(seconds: float) -> Iterator[None]:
    """Expects that Rung is raised in what is done meanwhile.

    No garbage is collected: what other packages call then swallows exceptions.
    """
    before, rung = signal.signal(signal.SIGALRM, ring), False
    gc.disable()
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except Rung:
        rung = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert rung, "the alarm was not heard"
