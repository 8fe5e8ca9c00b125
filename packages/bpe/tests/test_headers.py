"""The C of bpe that needs no Python, compiled by itself: headers.c holds each function to a plain one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_headers(tmp_path: Path) -> None:
    program = tmp_path / "headers"
    command = ["cc", "-O1", "-Wno-unused-function", f"-I{HERE.parent}/src/bpe", str(HERE / "headers.c")]
    command += ["-o", str(program)]
    subprocess.run(command, check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert ", 0 failures" in result.stdout
