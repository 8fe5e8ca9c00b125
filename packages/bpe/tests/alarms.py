"""An alarm that raises an exception in the middle of a call."""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Iterator

import pytest

needs_alarms = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarms")


class Rung(Exception):
    """The exception that the alarm raises."""


def ring(*_: object) -> None:
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
