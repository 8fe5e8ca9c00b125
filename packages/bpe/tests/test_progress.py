"""Progress in a log: whole lines, far apart."""

from __future__ import annotations

import io
import sys

import pytest

from bpe.native import progress


@pytest.mark.parametrize(("interval", "expected"), [(0.0, "merging: 10 of 10 (100%)"), (1000.0, "")])
def test_a_log_has_plain_lines(monkeypatch: pytest.MonkeyPatch, interval: float, expected: str) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "_LOG_INTERVAL", interval)
    with progress.reporter(True) as report:
        for done in range(0, 11, 5):
            report("merging", done, 10)
    lines = log.getvalue().splitlines()
    assert (lines[-1] if lines else "") == expected
    assert "\r" not in log.getvalue()
