"""The C of bpe that needs no Python, compiled by itself: headers.c holds each function to a plain one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("version_bits", [18, 3])
def test_headers(tmp_path: Path, version_bits: int) -> None:
    """With 3 bits the versions of the cache's slots come to their end all the time."""
    program = tmp_path / "headers"
    command = ["cc", "-O1", "-pthread", "-Wno-unused-function", f"-DCACHE_VERSION_BITS={version_bits}"]
    command += [f"-I{HERE.parent}/src/bpe", str(HERE / "headers.c"), "-o", str(program)]
    subprocess.run(command, check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert ", 0 failures" in result.stdout
