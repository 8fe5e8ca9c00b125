"""What every test of this package shares."""

from __future__ import annotations  # pytest.TerminalReporter is younger than the oldest pytest that is allowed

import signal
from pathlib import Path

import pytest
from command_line import TEXT
from hypothesis import settings

from bpe.commands.main import main
from bpe.native import cpu

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at which SIMD level everything ran that did not choose one: BPE_SIMD=level chooses another."""
    here = ", ".join(cpu.available())
    terminalreporter.write_line(f"bpe ran at the SIMD level {cpu.level()}; this machine has {here}")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a corpus and a tokenizer that the command has trained on it."""
    (tmp_path / "corpus.txt").write_text(TEXT)
    arguments = ["train", str(tmp_path / "corpus.txt"), "--vocab-size", "280", "--out", str(tmp_path / "tok.json")]
    assert main(arguments) == 0
    return tmp_path
