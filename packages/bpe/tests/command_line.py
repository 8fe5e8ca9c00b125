"""Helpers that the tests of the command share."""

import io
import sys

import pytest
from strategies import corpus

from bpe.commands.main import main

TEXT = corpus(4)


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def said(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> bytes:
    assert main([str(argument) for argument in arguments]) == 0
    return capfdbinary.readouterr().out


def refused(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    error = capfdbinary.readouterr().err.decode()
    assert len(error.splitlines()) == 1, error
    return error


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bpe", *map(str, arguments)]
