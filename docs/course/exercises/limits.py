"""A limit of time for a student's code."""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator

GRACE = 15  # seconds after the limit for code that Python cannot interrupt


class TimeOver(BaseException):
    """The limit is over. It is not an Exception, so that `except Exception` does not catch it."""


@contextlib.contextmanager
def limited(seconds: float, may_exit: bool = False) -> Iterator[None]:
    """Raise TimeOver in the main thread after some seconds; 0 is no limit.

    Args:
        seconds: The limit.
        may_exit: End the whole process, with status 1 and a traceback, where C code cannot be interrupted.
    """
    # a browser has no threads and no signals: there the page's button stops the worker
    if not seconds or sys.platform == "emscripten" or threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = threading.Event()
    if may_exit:
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True)
    try:
        if hasattr(signal, "setitimer"):

            def raise_over(*_: object) -> None:
                if not is_over.is_set():
                    raise TimeOver

            before = signal.signal(signal.SIGALRM, raise_over)
            # again each second, since a bare `except:` may catch the first one
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            try:
                yield
            finally:
                is_over.set()
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
        else:
            with by_thread(seconds, is_over):
                yield
    finally:
        if may_exit:
            faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def by_thread(seconds: float, is_over: threading.Event) -> Iterator[None]:
    """The same without timers of the system (Windows): a thread interrupts the main one."""
    interrupted = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(seconds if not interrupted.is_set() else 1.0):
            interrupted.set()
            _thread.interrupt_main()

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if interrupted.is_set():
            raise TimeOver from None
        raise
    finally:
        is_over.set()
        thread.join()
