"""What every test of this package shares."""

import signal

import pytest
from hypothesis import settings

from bpe.native import cpu

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at which SIMD level everything ran that did not choose one: BPE_SIMD=level chooses another."""
    here = ", ".join(cpu.available())
    terminalreporter.write_line(f"bpe ran at the SIMD level {cpu.level()}; this machine has {here}")
