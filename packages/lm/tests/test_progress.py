"""Progress of long work: a bar on a terminal, whole lines in a log."""

from __future__ import annotations

import io
import sys

import pytest

from lm import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("interval", [0.0, 1000.0])
def test_a_log_has_whole_lines_and_nothing_that_moves_the_cursor(monkeypatch, interval):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "LOG_INTERVAL", interval)
    with progress.progress_bar("train", 5, "step") as bar:
        for _ in range(5):
            bar.last_print_t -= 10  # as if ten seconds had passed
            bar.set_postfix_str("loss 1.0", refresh=False)
            bar.update()
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue()
    assert "\x1b" not in log.getvalue()
    if interval:
        assert lines == []
    else:
        assert "5/5" in lines[-1]
        assert "loss 1.0" in lines[-1]
        assert all(line.startswith("train:") for line in lines)


def test_a_terminal_has_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.progress_bar("train", 5, "step") as bar:
        bar.update(5)
    assert "\r" in terminal.getvalue()


def test_a_disabled_bar_writes_nothing(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    with progress.progress_bar("train", 5, "step", disable=True) as bar:
        bar.update(4)
    assert log.getvalue() == ""
