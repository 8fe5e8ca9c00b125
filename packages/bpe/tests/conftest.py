"""What every test of this package shares."""

import signal

import pytest
from hypothesis import settings

from bpe.native import cpu

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    """Say at which SIMD level everything runs that does not choose one: BPE_SIMD=level chooses another."""
    return f"bpe: SIMD level {cpu.level()}, of {', '.join(cpu.available())} on this machine"
